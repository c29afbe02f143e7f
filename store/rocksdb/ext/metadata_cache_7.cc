// SPDX-License-Identifier: Apache-2.0
#include "store/rocksdb/ext/metadata_cache.hh"

namespace
{

using rocksdb::Cache;
using rocksdb::Slice;
using rocksdb::Status;

using Passing = PassingBlock<Cache::Handle, Cache::DeleterFn>;

class MetadataCache final : public Cache
{
  public:
    explicit MetadataCache(size_t bytes) : kept_(rocksdb::NewLRUCache(bytes, -1, false, 0.0))
    {
    }

    const char *Name() const override
    {
        return "embtier.MetadataCache";
    }

    Status Insert(const Slice &key, void *value, size_t charge, DeleterFn deleter, Handle **handle,
                  Priority priority) override
    {
        if (priority == Priority::HIGH)
            return kept_->Insert(key, value, charge, deleter, handle, priority);
        if (handle)
            *handle = Passing::Make(key, value, charge, deleter);
        else if (deleter)
            deleter(key, value);
        return Status::OK();
    }

    Handle *Lookup(const Slice &key, rocksdb::Statistics *stats) override
    {
        return kept_->Lookup(key, stats);
    }

    bool Ref(Handle *handle) override
    {
        Passing *const passing = Passing::Of(handle);

        if (!passing)
            return kept_->Ref(handle);
        passing->Ref();
        return true;
    }

    bool Release(Handle *handle, bool erase_if_last_ref) override
    {
        Passing *const passing = Passing::Of(handle);

        if (!passing)
            return kept_->Release(handle, erase_if_last_ref);
        if (!passing->Release())
            return false;
        if (passing->deleter) // null: RocksDB counts memory that is not the cache's
            passing->deleter(passing->Key(), passing->value);
        passing->Delete();
        return true;
    }

    void *Value(Handle *handle) override
    {
        const Passing *const passing = Passing::Of(handle);

        return passing ? passing->value : kept_->Value(handle);
    }

    void Erase(const Slice &key) override
    {
        kept_->Erase(key);
    }

    uint64_t NewId() override
    {
        return kept_->NewId();
    }

    void SetCapacity(size_t capacity) override
    {
        kept_->SetCapacity(capacity);
    }

    // With a strict limit, a read would fail if the cache is full.
    void SetStrictCapacityLimit(bool) override
    {
    }

    bool HasStrictCapacityLimit() const override
    {
        return false;
    }

    size_t GetCapacity() const override
    {
        return kept_->GetCapacity();
    }

    size_t GetUsage() const override
    {
        return kept_->GetUsage();
    }

    size_t GetUsage(Handle *handle) const override
    {
        const Passing *const passing = Passing::Of(handle);

        return passing ? passing->charge : kept_->GetUsage(handle);
    }

    size_t GetPinnedUsage() const override
    {
        return kept_->GetPinnedUsage();
    }

    size_t GetCharge(Handle *handle) const override
    {
        const Passing *const passing = Passing::Of(handle);

        return passing ? passing->charge : kept_->GetCharge(handle);
    }

    DeleterFn GetDeleter(Handle *handle) const override
    {
        const Passing *const passing = Passing::Of(handle);

        return passing ? passing->deleter : kept_->GetDeleter(handle);
    }

    void
    ApplyToAllEntries(const std::function<void(const Slice &, void *, size_t, DeleterFn)> &callback,
                      const ApplyToAllEntriesOptions &opts) override
    {
        kept_->ApplyToAllEntries(callback, opts);
    }

    void EraseUnRefEntries() override
    {
        kept_->EraseUnRefEntries();
    }

    using Cache::Insert;
    using Cache::Lookup;
    using Cache::Release;

  private:
    std::shared_ptr<Cache> kept_;
};

} // namespace

std::shared_ptr<Cache> metadata_cache_new(size_t bytes)
{
    return std::make_shared<MetadataCache>(bytes);
}
