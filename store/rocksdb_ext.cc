// SPDX-License-Identifier: Apache-2.0
// What RocksDB's C API lacks. Exceptions do not leave this file: RocksDB throws none, and what can
// throw here is only out of memory, at which the process cannot go on anyway.
#include "store/rocksdb_ext.h"

#include <rocksdb/cache.h>
#include <rocksdb/db.h>
#include <rocksdb/listener.h>
#include <rocksdb/options.h>
#include <rocksdb/statistics.h>
#include <rocksdb/version.h>
#include <rocksdb/write_buffer_manager.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

// class MetadataCache implements this major version's Cache, which later ones changed.
#if ROCKSDB_MAJOR != 7
#error "rocksdb_ext.cc is written for RocksDB 7"
#endif

// RocksDB's C handles are structs of its db/c.cc whose first member is the C++ object. They are
// repeated here word for word; rocksdb_ext_fits() checks that they are so.
struct rocksdb_t {
    rocksdb::DB *rep;
};
struct rocksdb_options_t {
    rocksdb::Options rep;
};
struct rocksdb_flushoptions_t {
    rocksdb::FlushOptions rep;
};
struct rocksdb_cache_t {
    std::shared_ptr<rocksdb::Cache> rep;
};

namespace
{

using rocksdb::Cache;
using rocksdb::Slice;
using rocksdb::Status;

// An LRU cache for blocks inserted with high priority, and one without room for all others: RocksDB
// must get a handle for what it inserts, but at the handle's release the block is gone. (Without
// this, ReadOptions::fill_cache keeps data blocks out, but index and filter blocks as well.) A
// handle of the second cache is told by its lowest bit; handles are pointers to allocated structs.
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
            *handle = Mark(inner);
        return status;
    }

    Handle *Lookup(const Slice &key, rocksdb::Statistics *stats) override
    {
        return kept_->Lookup(key, stats);
    }

    bool Ref(Handle *handle) override
    {
        return Of(handle).Ref(Unmark(handle));
    }

    bool Release(Handle *handle, bool erase_if_last_ref) override
    {
        return Of(handle).Release(Unmark(handle), erase_if_last_ref);
    }

    void *Value(Handle *handle) override
    {
        return Of(handle).Value(Unmark(handle));
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
        return Of(handle).GetUsage(Unmark(handle));
    }

    size_t GetPinnedUsage() const override
    {
        return kept_->GetPinnedUsage() + passing_->GetPinnedUsage();
    }

    size_t GetCharge(Handle *handle) const override
    {
        return Of(handle).GetCharge(Unmark(handle));
    }

    DeleterFn GetDeleter(Handle *handle) const override
    {
        return Of(handle).GetDeleter(Unmark(handle));
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
        return reinterpret_cast<uintptr_t>(handle) & kPassing ? *passing_ : *kept_;
    }

    std::shared_ptr<Cache> kept_;
    std::shared_ptr<Cache> passing_;
};

struct Compactions {
    std::mutex mutex;
    uint32_t running_shards = 0;
    uint32_t peak_shards = 0;
    uint64_t completed = 0;
};

class Watch final : public rocksdb::EventListener
{
  public:
    explicit Watch(std::shared_ptr<Compactions> compactions) : compactions_(std::move(compactions))
    {
    }

    void OnCompactionBegin(rocksdb::DB *, const rocksdb::CompactionJobInfo &) override
    {
        std::lock_guard<std::mutex> lock(compactions_->mutex);
        if (running_++ > 0)
            return;
        compactions_->running_shards++;
        if (compactions_->peak_shards < compactions_->running_shards)
            compactions_->peak_shards = compactions_->running_shards;
    }

    void OnCompactionCompleted(rocksdb::DB *, const rocksdb::CompactionJobInfo &) override
    {
        std::lock_guard<std::mutex> lock(compactions_->mutex);
        compactions_->completed++;
        if (running_ > 0 && --running_ == 0)
            compactions_->running_shards--;
    }

    void OnBackgroundError(rocksdb::BackgroundErrorReason, Status *error) override
    {
        std::lock_guard<std::mutex> lock(error_mutex_);
        error_ = *error;
    }

    void OnErrorRecoveryEnd(const rocksdb::BackgroundErrorRecoveryInfo &info) override
    {
        std::lock_guard<std::mutex> lock(error_mutex_);
        error_ = info.new_bg_error;
    }

    void ClearError()
    {
        std::lock_guard<std::mutex> lock(error_mutex_);
        error_ = Status::OK();
    }

    char *ErrorText()
    {
        std::lock_guard<std::mutex> lock(error_mutex_);
        return error_.ok() ? nullptr : strdup(error_.ToString().c_str());
    }

  private:
    std::shared_ptr<Compactions> compactions_;
    uint32_t running_ = 0; // under compactions_->mutex
    std::mutex error_mutex_;
    Status error_;
};

uint32_t TickerNumber(enum rocksdb_ext_ticker ticker)
{
    switch (ticker) {
#define X(name)                                                                                    \
    case ROCKSDB_EXT_##name:                                                                       \
        return rocksdb::name;
        ROCKSDB_EXT_TICKER_TABLE(X)
#undef X
    }
    return rocksdb::FLUSH_WRITE_BYTES;
}

} // namespace

struct rocksdb_ext_compactions {
    std::shared_ptr<Compactions> rep;
};

struct rocksdb_ext_watch {
    std::shared_ptr<Watch> rep;
};

bool rocksdb_ext_fits(void)
{
    const int files = 7654321;
    rocksdb_options_t *options = rocksdb_options_create();
    rocksdb_flushoptions_t *flush = rocksdb_flushoptions_create();
    rocksdb_cache_t *cache = rocksdb_cache_create_lru(files);

    rocksdb_options_set_max_open_files(options, files);
    rocksdb_flushoptions_set_wait(flush, 0);
    const bool fits = options->rep.max_open_files == files && !flush->rep.wait &&
                      cache->rep->GetCapacity() == files;
    rocksdb_cache_destroy(cache);
    rocksdb_flushoptions_destroy(flush);
    rocksdb_options_destroy(options);
    return fits;
}

void rocksdb_ext_enable_statistics(rocksdb_options_t *options)
{
    options->rep.statistics = rocksdb::CreateDBStatistics();
    options->rep.statistics->set_stats_level(rocksdb::StatsLevel::kExceptHistogramOrTimers);
}

uint64_t rocksdb_ext_ticker(const rocksdb_options_t *options, enum rocksdb_ext_ticker ticker)
{
    return options->rep.statistics->getTickerCount(TickerNumber(ticker));
}

void rocksdb_ext_share_write_buffers(rocksdb_options_t *options, size_t bytes)
{
    options->rep.write_buffer_manager = std::make_shared<rocksdb::WriteBufferManager>(bytes);
}

uint64_t rocksdb_ext_write_buffer_bytes(const rocksdb_options_t *options)
{
    return options->rep.write_buffer_manager->memory_usage();
}

rocksdb_cache_t *rocksdb_ext_metadata_cache_new(size_t bytes)
{
    return new rocksdb_cache_t{ std::make_shared<MetadataCache>(bytes) };
}

void rocksdb_ext_flush_at_once(rocksdb_flushoptions_t *options)
{
    options->rep.allow_write_stall = true;
}

struct rocksdb_ext_compactions *rocksdb_ext_compactions_new(void)
{
    return new rocksdb_ext_compactions{ std::make_shared<Compactions>() };
}

void rocksdb_ext_compactions_free(struct rocksdb_ext_compactions *compactions)
{
    delete compactions;
}

void rocksdb_ext_compactions_read(const struct rocksdb_ext_compactions *compactions,
                                  uint32_t *ret_running_shards, uint32_t *ret_peak_shards,
                                  uint64_t *ret_completed)
{
    std::lock_guard<std::mutex> lock(compactions->rep->mutex);
    *ret_running_shards = compactions->rep->running_shards;
    *ret_peak_shards = compactions->rep->peak_shards;
    *ret_completed = compactions->rep->completed;
}

struct rocksdb_ext_watch *rocksdb_ext_watch_new(struct rocksdb_ext_compactions *compactions,
                                                rocksdb_options_t *options)
{
    auto watch = std::make_shared<Watch>(compactions->rep);

    options->rep.listeners.push_back(watch);
    return new rocksdb_ext_watch{ std::move(watch) };
}

void rocksdb_ext_watch_free(struct rocksdb_ext_watch *watch)
{
    delete watch;
}

char *rocksdb_ext_watch_error(const struct rocksdb_ext_watch *watch)
{
    return watch->rep->ErrorText();
}

char *rocksdb_ext_resume(rocksdb_t *db, struct rocksdb_ext_watch *watch)
{
    Status status = db->rep->Resume();

    if (!status.ok())
        return strdup(status.ToString().c_str());
    watch->rep->ClearError();
    return nullptr;
}
