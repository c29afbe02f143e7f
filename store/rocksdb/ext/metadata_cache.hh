// SPDX-License-Identifier: Apache-2.0
// metadata_cache.hh: a block cache for RocksDB that keeps index and filter blocks only.
//
// An LRU cache has the blocks that are inserted with high priority. RocksDB also needs a handle for
// each other block that it inserts; such a block goes when its last handle is released.
// (ReadOptions::fill_cache would keep data blocks out, but index and filter blocks as well.)
//
// RocksDB 8 has another interface for caches: metadata_cache_7.cc is for RocksDB 7,
// metadata_cache_8.cc for later versions, and meson chooses. Thread: any.
#pragma once

#include <rocksdb/cache.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>

// @bytes: for blocks that are kept.
std::shared_ptr<rocksdb::Cache> metadata_cache_new(size_t bytes);

// A block that the cache does not keep. @Handle is Cache::Handle, @Deleter RocksDB 7's function or
// RocksDB 8's helper. The key lies behind the block in the same allocation. Each read block makes
// one, and keys are too long for a std::string without an allocation.
template <typename Handle, typename Deleter> class PassingBlock
{
  public:
    // The handle of a passing block has its lowest bit set. Other handles are pointers to allocated
    // structs, so this bit is free.
    static Handle *Make(const rocksdb::Slice &key, void *value, size_t charge, Deleter deleter)
    {
        void *const memory = ::operator new(sizeof(PassingBlock) + key.size());

        return reinterpret_cast<Handle *>(
            reinterpret_cast<uintptr_t>(new (memory) PassingBlock(key, value, charge, deleter)) |
            kMark);
    }

    // Returns null for a handle of the LRU cache.
    static PassingBlock *Of(const Handle *handle)
    {
        const uintptr_t bits = reinterpret_cast<uintptr_t>(handle);

        return bits & kMark ? reinterpret_cast<PassingBlock *>(bits & ~kMark) : nullptr;
    }

    void Ref()
    {
        handles_.fetch_add(1, std::memory_order_relaxed);
    }

    // Returns true if this was the last handle: the caller then deletes the value and the block.
    bool Release()
    {
        return handles_.fetch_sub(1, std::memory_order_acq_rel) == 1;
    }

    void Delete()
    {
        this->~PassingBlock();
        ::operator delete(this);
    }

    rocksdb::Slice Key() const
    {
        return { reinterpret_cast<const char *>(this + 1), key_bytes_ };
    }

    void *const value;
    const size_t charge;
    const Deleter deleter;

  private:
    static constexpr uintptr_t kMark = 1;

    PassingBlock(const rocksdb::Slice &key, void *value, size_t charge, Deleter deleter)
        : value(value), charge(charge), deleter(deleter), key_bytes_(key.size())
    {
        memcpy(static_cast<void *>(this + 1), key.data(), key.size());
    }
    ~PassingBlock() = default;

    const size_t key_bytes_;
    std::atomic<uint32_t> handles_{ 1 };
};
