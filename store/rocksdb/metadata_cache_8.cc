// SPDX-License-Identifier: Apache-2.0
#include "store/rocksdb/metadata_cache.hh"

#include <rocksdb/advanced_cache.h>
#include <rocksdb/compression_type.h>

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

    // Either this overrides, or the next: newer versions also pass the compressed form of a block,
    // for a cache below, and there is none.
    Status Insert(const Slice &key, ObjectPtr value, const CacheItemHelper *helper, size_t charge,
                  Handle **handle, Priority priority)
    {
        if (priority == Priority::HIGH)
            return target_->Insert(key, value, helper, charge, handle, priority);
        if (!handle) {
            if (helper->del_cb)
                helper->del_cb(value, memory_allocator());
            return Status::OK();
        }
        // CreateStandalone() would do, but RocksDB 8.0 does not have it.
        Handle *inner = nullptr;
        Status status = passing_->Insert(key, value, helper, charge, &inner, priority);
        if (status.ok())
            *handle = metadata_cache_mark(inner);
        return status;
    }

    Status Insert(const Slice &key, ObjectPtr value, const CacheItemHelper *helper, size_t charge,
                  Handle **handle, Priority priority, const Slice &, rocksdb::CompressionType)
    {
        return Insert(key, value, helper, charge, handle, priority);
    }

    bool Ref(Handle *handle) override
    {
        return Of(handle).Ref(metadata_cache_unmark(handle));
    }

    bool Release(Handle *handle, bool erase_if_last_ref) override
    {
        return Of(handle).Release(metadata_cache_unmark(handle), erase_if_last_ref);
    }

    ObjectPtr Value(Handle *handle) override
    {
        return Of(handle).Value(metadata_cache_unmark(handle));
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
        return Of(handle).GetUsage(metadata_cache_unmark(handle));
    }

    size_t GetPinnedUsage() const override
    {
        return target_->GetPinnedUsage() + passing_->GetPinnedUsage();
    }

    size_t GetCharge(Handle *handle) const override
    {
        return Of(handle).GetCharge(metadata_cache_unmark(handle));
    }

    const CacheItemHelper *GetCacheItemHelper(Handle *handle) const override
    {
        return Of(handle).GetCacheItemHelper(metadata_cache_unmark(handle));
    }

#ifdef CACHE_HAS_APPLY_TO_HANDLE // meson asks the header
    void ApplyToHandle(Cache *, Handle *handle,
                       const std::function<void(const Slice &, ObjectPtr, size_t,
                                                const CacheItemHelper *)> &callback) override
    {
        Cache &of = Of(handle);

        of.ApplyToHandle(&of, metadata_cache_unmark(handle), callback);
    }
#endif

    using Cache::Release;

  private:
    Cache &Of(Handle *handle) const
    {
        return metadata_cache_is_marked(handle) ? *passing_ : *target_;
    }

    std::shared_ptr<Cache> passing_;
};

} // namespace

std::shared_ptr<Cache> metadata_cache_new(size_t bytes)
{
    return std::make_shared<MetadataCache>(bytes);
}
