// SPDX-License-Identifier: Apache-2.0
// metadata_cache.hh: RocksDB's block cache, which keeps index and filter blocks and no others.
//
// An LRU cache for blocks inserted with high priority, and one without room for all others: RocksDB
// must get a handle for what it inserts, but at the handle's release the block is gone. (Without
// this, ReadOptions::fill_cache keeps data blocks out, but index and filter blocks as well.) A
// handle of the second cache is told by its lowest bit; handles are pointers to allocated structs.
//
// RocksDB 8 changed what a cache is to implement: metadata_cache_7.cc is for RocksDB 7,
// metadata_cache_8.cc for later ones, and meson chooses. Thread: any.
#pragma once

#include <rocksdb/cache.h>

#include <cstddef>
#include <memory>

// @bytes: of blocks that are kept.
std::shared_ptr<rocksdb::Cache> metadata_cache_new(size_t bytes);
