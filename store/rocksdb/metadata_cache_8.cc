// SPDX-License-Identifier: Apache-2.0
#include "store/rocksdb/metadata_cache.hh"

#include <rocksdb/advanced_cache.h>

#include <cstdint>

namespace
{

using rocksdb::Cache;
using rocksdb::Slice;
using rocksdb::Status;

// The wrapped cache is the one that keeps.
class MetadataCache final : public rocksdb::CacheWrapper
{
  public:
    explicit MetadataCache(size_t bytes)
        : CacheWrapper(rocksdb::NewLRUCache(bytes, -1, false, 0.0)),
          passing_(rocksdb::NewLRUCache(0, 4, false, 0.0))
    {
    }

    const char *Name() const override
    {
        return "embtier.MetadataCache";
    }

    // Some RocksDB 8 added what is compressed, for a cache below, of which there is none. One of
    // the two overrides.
    Status Insert(const Slice &key, ObjectPtr value, const CacheItemHelper *helper, size_t charge,
                  Handle **handle, Priority priority)
    {
        if (priority == Priority::HIGH)
            return target_->Insert(key, value, helper, charge, handle, priority);
        if (handle)
            *handle = Mark(passing_->CreateStandalone(key, value, helper, charge, true));
        else if (helper->del_cb)
            helper->del_cb(value, memory_allocator());
        return Status::OK();
    }

    Status Insert(const Slice &key, ObjectPtr value, const CacheItemHelper *helper, size_t charge,
                  Handle **handle, Priority priority, const Slice &, rocksdb::CompressionType)
    {
        return Insert(key, value, helper, charge, handle, priority);
    }

    bool Ref(Handle *handle) override
    {
        return Of(handle).Ref(Unmark(handle));
    }

    bool Release(Handle *handle, bool erase_if_last_ref) override
    {
        return Of(handle).Release(Unmark(handle), erase_if_last_ref);
    }

    ObjectPtr Value(Handle *handle) override
    {
        return Of(handle).Value(Unmark(handle));
    }

    // Strict would make a read fail for want of cache.
    void SetStrictCapacityLimit(bool) override
    {
    }

    size_t GetUsage() const override
    {
        return target_->GetUsage() + passing_->GetUsage();
    }

    size_t GetUsage(Handle *handle) const override
    {
        return Of(handle).GetUsage(Unmark(handle));
    }

    size_t GetPinnedUsage() const override
    {
        return target_->GetPinnedUsage() + passing_->GetPinnedUsage();
    }

    size_t GetCharge(Handle *handle) const override
    {
        return Of(handle).GetCharge(Unmark(handle));
    }

    const CacheItemHelper *GetCacheItemHelper(Handle *handle) const override
    {
        return Of(handle).GetCacheItemHelper(Unmark(handle));
    }

#ifdef CACHE_HAS_APPLY_TO_HANDLE // which meson asks the header; some RocksDB 9 added it
    void ApplyToHandle(Cache *, Handle *handle,
                       const std::function<void(const Slice &, ObjectPtr, size_t,
                                                const CacheItemHelper *)> &callback) override
    {
        Cache &of = Of(handle);

        of.ApplyToHandle(&of, Unmark(handle), callback);
    }
#endif

    using Cache::Release;

  private:
    static constexpr uintptr_t kPassing = 1;

    static Handle *Mark(Handle *handle)
    {
        return reinterpret_cast<Handle *>(reinterpret_cast<uintptr_t>(handle) | kPassing);
    }

    static Handle *Unmark(Handle *handle)
    {
        return reinterpret_cast<Handle *>(reinterpret_cast<uintptr_t>(handle) & ~kPassing);
    }

    Cache &Of(Handle *handle) const
    {
        return reinterpret_cast<uintptr_t>(handle) & kPassing ? *passing_ : *target_;
    }

    std::shared_ptr<Cache> passing_;
};

} // namespace

std::shared_ptr<Cache> metadata_cache_new(size_t bytes)
{
    return std::make_shared<MetadataCache>(bytes);
}
