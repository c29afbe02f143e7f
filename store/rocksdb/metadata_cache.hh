// SPDX-License-Identifier: Apache-2.0
// metadata_cache.hh: RocksDB's block cache, which keeps index and filter blocks and no others.
//
// An LRU cache for blocks inserted with high priority, and one without room for all others: RocksDB
// must get a handle for each block that it inserts, but at the handle's release the block is gone.
// (Without this, ReadOptions::fill_cache keeps data blocks out, but index and filter blocks as
// well.) A handle of the second cache has its lowest bit set, which is free: handles are pointers
// to allocated structs.
//
// RocksDB 8 has another interface for caches: metadata_cache_7.cc is for RocksDB 7,
// metadata_cache_8.cc for later ones, and meson chooses. Thread: any.
#pragma once

#include <rocksdb/cache.h>

#include <cstddef>
#include <cstdint>
#include <memory>

// @bytes: of blocks that are kept.
std::shared_ptr<rocksdb::Cache> metadata_cache_new(size_t bytes);

constexpr uintptr_t kSecondCache = 1;

template <typename Handle> Handle *metadata_cache_mark(Handle *handle)
{
    return reinterpret_cast<Handle *>(reinterpret_cast<uintptr_t>(handle) | kSecondCache);
}

template <typename Handle> Handle *metadata_cache_unmark(Handle *handle)
{
    return reinterpret_cast<Handle *>(reinterpret_cast<uintptr_t>(handle) & ~kSecondCache);
}

template <typename Handle> bool metadata_cache_is_marked(Handle *handle)
{
    return reinterpret_cast<uintptr_t>(handle) & kSecondCache;
}
