// SPDX-License-Identifier: Apache-2.0
#include "store/rocksdb/metadata_cache.hh"

namespace
{

using rocksdb::Cache;
using rocksdb::Slice;
using rocksdb::Status;

class MetadataCache final : public Cache
{
  public:
    explicit MetadataCache(size_t bytes)
        : kept_(rocksdb::NewLRUCache(bytes, -1, false, 0.0)),
          passing_(rocksdb::NewLRUCache(0, 4, false, 0.0))
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
        if (!handle) {
            deleter(key, value);
            return Status::OK();
        }
        Handle *inner = nullptr;
        Status status = passing_->Insert(key, value, charge, deleter, &inner, priority);
        if (status.ok())
            *handle = metadata_cache_mark(inner);
        return status;
    }

    Handle *Lookup(const Slice &key, rocksdb::Statistics *stats) override
    {
        return kept_->Lookup(key, stats);
    }

    bool Ref(Handle *handle) override
    {
        return Of(handle).Ref(metadata_cache_unmark(handle));
    }

    bool Release(Handle *handle, bool erase_if_last_ref) override
    {
        return Of(handle).Release(metadata_cache_unmark(handle), erase_if_last_ref);
    }

    void *Value(Handle *handle) override
    {
        return Of(handle).Value(metadata_cache_unmark(handle));
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

    // Strict would make a read fail for want of cache.
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
        return kept_->GetUsage() + passing_->GetUsage();
    }

    size_t GetUsage(Handle *handle) const override
    {
        return Of(handle).GetUsage(metadata_cache_unmark(handle));
    }

    size_t GetPinnedUsage() const override
    {
        return kept_->GetPinnedUsage() + passing_->GetPinnedUsage();
    }

    size_t GetCharge(Handle *handle) const override
    {
        return Of(handle).GetCharge(metadata_cache_unmark(handle));
    }

    DeleterFn GetDeleter(Handle *handle) const override
    {
        return Of(handle).GetDeleter(metadata_cache_unmark(handle));
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
        passing_->EraseUnRefEntries();
    }

    using Cache::Insert;
    using Cache::Lookup;
    using Cache::Release;

  private:
    Cache &Of(Handle *handle) const
    {
        return metadata_cache_is_marked(handle) ? *passing_ : *kept_;
    }

    std::shared_ptr<Cache> kept_;
    std::shared_ptr<Cache> passing_;
};

} // namespace

std::shared_ptr<Cache> metadata_cache_new(size_t bytes)
{
    return std::make_shared<MetadataCache>(bytes);
}
