// SPDX-License-Identifier: Apache-2.0
#include "store/rocksdb/ext/metadata_cache.hh"

#include <rocksdb/advanced_cache.h>
#include <rocksdb/compression_type.h>

namespace
{

using rocksdb::Cache;
using rocksdb::Slice;
using rocksdb::Status;

using Passing = PassingBlock<Cache::Handle, const Cache::CacheItemHelper *>;

// The wrapped cache keeps the blocks.
class MetadataCache final : public rocksdb::CacheWrapper
{
  public:
    explicit MetadataCache(size_t bytes) : CacheWrapper(rocksdb::NewLRUCache(bytes, -1, false, 0.0))
    {
    }

    const char *Name() const override
    {
        return "embtier.MetadataCache";
    }

    // Depending on the version, this function is the override, or the next one is. Newer versions
    // also pass the compressed form of a block, for a cache below, and there is none.
    Status Insert(const Slice &key, ObjectPtr value, const CacheItemHelper *helper, size_t charge,
                  Handle **handle, Priority priority)
    {
        if (priority == Priority::HIGH)
            return target_->Insert(key, value, helper, charge, handle, priority);
        if (handle)
            *handle = Passing::Make(key, value, charge, helper);
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
        Passing *const passing = Passing::Of(handle);

        if (!passing)
            return target_->Ref(handle);
        passing->Ref();
        return true;
    }

    bool Release(Handle *handle, bool erase_if_last_ref) override
    {
        Passing *const passing = Passing::Of(handle);

        if (!passing)
            return target_->Release(handle, erase_if_last_ref);
        if (!passing->Release())
            return false;
        if (passing->deleter->del_cb)
            passing->deleter->del_cb(passing->value, memory_allocator());
        passing->Delete();
        return true;
    }

    ObjectPtr Value(Handle *handle) override
    {
        const Passing *const passing = Passing::Of(handle);

        return passing ? passing->value : target_->Value(handle);
    }

    // With a strict limit, a read would fail if the cache is full.
    void SetStrictCapacityLimit(bool) override
    {
    }

    size_t GetUsage(Handle *handle) const override
    {
        const Passing *const passing = Passing::Of(handle);

        return passing ? passing->charge : target_->GetUsage(handle);
    }

    size_t GetCharge(Handle *handle) const override
    {
        const Passing *const passing = Passing::Of(handle);

        return passing ? passing->charge : target_->GetCharge(handle);
    }

    const CacheItemHelper *GetCacheItemHelper(Handle *handle) const override
    {
        const Passing *const passing = Passing::Of(handle);

        return passing ? passing->deleter : target_->GetCacheItemHelper(handle);
    }

#ifdef CACHE_HAS_APPLY_TO_HANDLE // meson asks the header
    // @handle belongs to @cache.
    void ApplyToHandle(Cache *cache, Handle *handle,
                       const std::function<void(const Slice &, ObjectPtr, size_t,
                                                const CacheItemHelper *)> &callback) override
    {
        const Passing *const passing = Passing::Of(handle);

        if (passing)
            callback(passing->Key(), passing->value, passing->charge, passing->deleter);
        else
            target_->ApplyToHandle(static_cast<MetadataCache *>(cache)->target_.get(), handle,
                                   callback);
    }
#endif

    using Cache::Release;
};

} // namespace

std::shared_ptr<Cache> metadata_cache_new(size_t bytes)
{
    return std::make_shared<MetadataCache>(bytes);
}
