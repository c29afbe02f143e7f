// SPDX-License-Identifier: Apache-2.0
// written_file.cc: counts the bytes for each kind of file, and hides failures from RocksDB for
// which it would end the process.
#include "store/rocksdb/ext/written_file.hh"

#include "store/files/written.h"
#include "store/rocksdb/ext/activity.hh"
#include "store/rocksdb/ext/handles.hh"

#include <rocksdb/file_system.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>

namespace rocksdb_ext
{

std::atomic<uint64_t> log_bytes{ 0 };
std::atomic<uint64_t> blob_bytes{ 0 };
std::atomic<uint64_t> other_bytes{ 0 };

namespace
{

using rocksdb::Slice;
using rocksdb::Status;

constexpr uint64_t kPage = 4096;

// Counts appended bytes in pages, as they go to SSD: a page appended to after a sync is written
// once more.
class CountedFile final : public rocksdb::FSWritableFileOwnerWrapper
{
  public:
    CountedFile(std::unique_ptr<rocksdb::FSWritableFile> &&file, std::atomic<uint64_t> *counter,
                uint32_t place)
        : FSWritableFileOwnerWrapper(std::move(file)), counter_(counter), place_(place)
    {
    }

    rocksdb::IOStatus Append(const Slice &data, const rocksdb::IOOptions &options,
                             rocksdb::IODebugContext *dbg) override
    {
        Count(data.size());
        return target()->Append(data, options, dbg);
    }

    rocksdb::IOStatus Append(const Slice &data, const rocksdb::IOOptions &options,
                             const rocksdb::DataVerificationInfo &verification,
                             rocksdb::IODebugContext *dbg) override
    {
        Count(data.size());
        return target()->Append(data, options, verification, dbg);
    }

    // Direct I/O writes whole pages, and the last one again when more bytes fill it.
    rocksdb::IOStatus PositionedAppend(const Slice &data, uint64_t offset,
                                       const rocksdb::IOOptions &options,
                                       rocksdb::IODebugContext *dbg) override
    {
        CountPages(data.size());
        return target()->PositionedAppend(data, offset, options, dbg);
    }

    rocksdb::IOStatus PositionedAppend(const Slice &data, uint64_t offset,
                                       const rocksdb::IOOptions &options,
                                       const rocksdb::DataVerificationInfo &verification,
                                       rocksdb::IODebugContext *dbg) override
    {
        CountPages(data.size());
        return target()->PositionedAppend(data, offset, options, verification, dbg);
    }

    rocksdb::IOStatus Sync(const rocksdb::IOOptions &options, rocksdb::IODebugContext *dbg) override
    {
        dirty_end_ = 0;
        return target()->Sync(options, dbg);
    }

    rocksdb::IOStatus Fsync(const rocksdb::IOOptions &options,
                            rocksdb::IODebugContext *dbg) override
    {
        dirty_end_ = 0;
        return target()->Fsync(options, dbg);
    }

  private:
    void Count(uint64_t bytes)
    {
        const uint64_t first = std::max(bytes_ / kPage * kPage, dirty_end_);

        bytes_ += bytes;
        if (bytes_ <= first)
            return;
        dirty_end_ = (bytes_ + kPage - 1) / kPage * kPage;
        CountPages(dirty_end_ - first);
    }

    void CountPages(uint64_t bytes)
    {
        *counter_ += bytes;
        written_add(place_, bytes);
    }

    std::atomic<uint64_t> *const counter_;
    const uint32_t place_;
    uint64_t bytes_ = 0;
    uint64_t dirty_end_ = 0; // pages before this have been counted since the last sync
};

// A write-ahead log. RocksDB, as Debian builds it, aborts the process when it writes to a log after
// a failed write. Its own recovery leads to that if the write buffers are empty. So it does not
// hear of failures: its records are in the write buffers then. The writer asks the watch,
// acknowledges nothing, and writes no more before they have been flushed, which begins a new log.
class LogFile final : public rocksdb::FSWritableFileOwnerWrapper
{
  public:
    LogFile(std::unique_ptr<rocksdb::FSWritableFile> &&file, std::shared_ptr<Watch> watch,
            std::shared_ptr<LogState> state)
        : FSWritableFileOwnerWrapper(std::move(file)), watch_(std::move(watch)),
          state_(std::move(state))
    {
    }

    rocksdb::IOStatus Append(const Slice &data, const rocksdb::IOOptions &options,
                             rocksdb::IODebugContext *dbg) override
    {
        const auto status = Try([&] { return target()->Append(data, options, dbg); });

        state_->written += data.size();
        return status;
    }

    rocksdb::IOStatus Append(const Slice &data, const rocksdb::IOOptions &options,
                             const rocksdb::DataVerificationInfo &verification,
                             rocksdb::IODebugContext *dbg) override
    {
        const auto status = Try([&] { return target()->Append(data, options, verification, dbg); });

        state_->written += data.size();
        return status;
    }

    // RocksDB calls this after each record, when all of it has been appended.
    rocksdb::IOStatus Flush(const rocksdb::IOOptions &options,
                            rocksdb::IODebugContext *dbg) override
    {
        const auto status = Try([&] { return target()->Flush(options, dbg); });

        if (!failed_)
            state_->whole = state_->written.load();
        return status;
    }

    rocksdb::IOStatus Sync(const rocksdb::IOOptions &options, rocksdb::IODebugContext *dbg) override
    {
        return TrySync([&] { return target()->Sync(options, dbg); });
    }

    rocksdb::IOStatus Fsync(const rocksdb::IOOptions &options,
                            rocksdb::IODebugContext *dbg) override
    {
        return TrySync([&] { return target()->Fsync(options, dbg); });
    }

    rocksdb::IOStatus Close(const rocksdb::IOOptions &options,
                            rocksdb::IODebugContext *dbg) override
    {
        const rocksdb::IOStatus status = target()->Close(options, dbg);

        return failed_ ? rocksdb::IOStatus::OK() : status;
    }

  private:
    // An empty log has nothing to lose, so its sync may be tried again. In a database whose writes
    // bypass the log, no other log ever follows it.
    template <typename Call> rocksdb::IOStatus TrySync(Call call)
    {
        if (failed_ || state_->written > 0)
            return Try(call);
        const rocksdb::IOStatus status = call();

        if (!status.ok())
            watch_->OnLogFailed(status);
        return rocksdb::IOStatus::OK();
    }

    template <typename Call> rocksdb::IOStatus Try(Call call)
    {
        // Nothing more goes into a log that has failed: a record behind a truncated one could not
        // be read. Each try is reported, as this log may still be in use when all has been flushed.
        if (!failed_) {
            const rocksdb::IOStatus status = call();

            if (status.ok())
                return status;
            error_ = status;
            failed_ = true;
        }
        watch_->OnLogFailed(error_);
        return rocksdb::IOStatus::OK();
    }

    const std::shared_ptr<Watch> watch_;
    const std::shared_ptr<LogState> state_;
    rocksdb::IOStatus error_; // written once, before failed_
    std::atomic<bool> failed_{ false };
};

// A log that could not be made: the next write to it tries again. RocksDB 7.8 aborts if it hears of
// that while the log's write buffer has deletions of ranges.
class LateFile final : public rocksdb::FSWritableFile
{
  public:
    LateFile(rocksdb::FileSystem *system, const std::string &name,
             const rocksdb::FileOptions &options)
        : FSWritableFile(options), system_(system), name_(name), options_(options)
    {
    }

    rocksdb::IOStatus Append(const Slice &data, const rocksdb::IOOptions &options,
                             rocksdb::IODebugContext *dbg) override
    {
        return With(dbg, [&] { return file_->Append(data, options, dbg); });
    }

    rocksdb::IOStatus Append(const Slice &data, const rocksdb::IOOptions &options,
                             const rocksdb::DataVerificationInfo &verification,
                             rocksdb::IODebugContext *dbg) override
    {
        return With(dbg, [&] { return file_->Append(data, options, verification, dbg); });
    }

    rocksdb::IOStatus Flush(const rocksdb::IOOptions &options,
                            rocksdb::IODebugContext *dbg) override
    {
        return IsMade() ? file_->Flush(options, dbg) : rocksdb::IOStatus::OK();
    }

    rocksdb::IOStatus Sync(const rocksdb::IOOptions &options, rocksdb::IODebugContext *dbg) override
    {
        return With(dbg, [&] { return file_->Sync(options, dbg); });
    }

    rocksdb::IOStatus Fsync(const rocksdb::IOOptions &options,
                            rocksdb::IODebugContext *dbg) override
    {
        return With(dbg, [&] { return file_->Fsync(options, dbg); });
    }

    rocksdb::IOStatus Close(const rocksdb::IOOptions &options,
                            rocksdb::IODebugContext *dbg) override
    {
        return IsMade() ? file_->Close(options, dbg) : rocksdb::IOStatus::OK();
    }

    bool IsSyncThreadSafe() const override
    {
        return true;
    }

    uint64_t GetFileSize(const rocksdb::IOOptions &options, rocksdb::IODebugContext *dbg) override
    {
        return IsMade() ? file_->GetFileSize(options, dbg) : 0;
    }

  private:
    bool IsMade()
    {
        std::lock_guard<std::mutex> lock(mutex_);
        return file_ != nullptr;
    }

    template <typename Call> rocksdb::IOStatus With(rocksdb::IODebugContext *dbg, Call call)
    {
        {
            std::lock_guard<std::mutex> lock(mutex_);
            rocksdb::IOStatus status;

            if (!file_)
                status = system_->NewWritableFile(name_, options_, &file_, dbg);
            if (!status.ok())
                return status;
        }
        return call();
    }

    rocksdb::FileSystem *const system_;
    const std::string name_;
    std::mutex mutex_; // held while the file is made
    const rocksdb::FileOptions options_;
    std::unique_ptr<rocksdb::FSWritableFile> file_;
};

// Table files are appended to in large pieces, and each page goes to SSD once. Errors of a file
// that will be deleted do not matter (EmptyMark).
class TableFile final : public rocksdb::FSWritableFileOwnerWrapper
{
  public:
    TableFile(std::unique_ptr<rocksdb::FSWritableFile> &&file, TableFiles::Counter bytes,
              uint32_t place)
        : FSWritableFileOwnerWrapper(std::move(file)), bytes_(std::move(bytes)), place_(place)
    {
        newest_empty_mark = is_empty_;
    }

    rocksdb::IOStatus Append(const Slice &data, const rocksdb::IOOptions &options,
                             rocksdb::IODebugContext *dbg) override
    {
        Count(data.size());
        return Matters(target()->Append(data, options, dbg));
    }

    rocksdb::IOStatus Append(const Slice &data, const rocksdb::IOOptions &options,
                             const rocksdb::DataVerificationInfo &verification,
                             rocksdb::IODebugContext *dbg) override
    {
        Count(data.size());
        return Matters(target()->Append(data, options, verification, dbg));
    }

    rocksdb::IOStatus PositionedAppend(const Slice &data, uint64_t offset,
                                       const rocksdb::IOOptions &options,
                                       rocksdb::IODebugContext *dbg) override
    {
        Count(data.size());
        return Matters(target()->PositionedAppend(data, offset, options, dbg));
    }

    rocksdb::IOStatus PositionedAppend(const Slice &data, uint64_t offset,
                                       const rocksdb::IOOptions &options,
                                       const rocksdb::DataVerificationInfo &verification,
                                       rocksdb::IODebugContext *dbg) override
    {
        Count(data.size());
        return Matters(target()->PositionedAppend(data, offset, options, verification, dbg));
    }

    rocksdb::IOStatus Truncate(uint64_t size, const rocksdb::IOOptions &options,
                               rocksdb::IODebugContext *dbg) override
    {
        return Matters(target()->Truncate(size, options, dbg));
    }

    rocksdb::IOStatus Flush(const rocksdb::IOOptions &options,
                            rocksdb::IODebugContext *dbg) override
    {
        return Matters(target()->Flush(options, dbg));
    }

    rocksdb::IOStatus Sync(const rocksdb::IOOptions &options, rocksdb::IODebugContext *dbg) override
    {
        return Matters(target()->Sync(options, dbg));
    }

    rocksdb::IOStatus Fsync(const rocksdb::IOOptions &options,
                            rocksdb::IODebugContext *dbg) override
    {
        return Matters(target()->Fsync(options, dbg));
    }

    rocksdb::IOStatus Close(const rocksdb::IOOptions &options,
                            rocksdb::IODebugContext *dbg) override
    {
        return Matters(target()->Close(options, dbg));
    }

  private:
    void Count(uint64_t bytes)
    {
        *bytes_ += bytes;
        written_add(place_, bytes);
    }

    rocksdb::IOStatus Matters(rocksdb::IOStatus status) const
    {
        return *is_empty_ ? rocksdb::IOStatus::OK() : status;
    }

    const EmptyMark is_empty_ = std::make_shared<std::atomic<bool>>(false);
    const TableFiles::Counter bytes_;
    const uint32_t place_;
};

std::atomic<uint64_t> *CounterOf(const std::string &name)
{
    if (HasSuffix(name, ".log"))
        return &log_bytes;
    return HasSuffix(name, ".blob") ? &blob_bytes : &other_bytes;
}

} // namespace

rocksdb::IOStatus NewWrittenFile(rocksdb::FileSystem *target, const std::string &name,
                                 const rocksdb::FileOptions &options,
                                 std::unique_ptr<rocksdb::FSWritableFile> *file,
                                 rocksdb::IODebugContext *dbg)
{
    const bool is_log = HasSuffix(name, ".log");
    const auto watch = is_log ? log_watches.Of(name) : nullptr;
    rocksdb::IOStatus status = target->NewWritableFile(name, options, file, dbg);

    if (!status.ok() && watch && watch->IsOpened()) {
        file->reset(new LateFile(target, name, options));
        status = rocksdb::IOStatus::OK();
    }
    if (!status.ok())
        return status;
    if (HasSuffix(name, ".sst"))
        file->reset(
            new TableFile(std::move(*file), table_files.Begin(name), written_place(name.c_str())));
    else
        file->reset(
            new CountedFile(std::move(*file), CounterOf(name), written_place(name.c_str())));
    if (watch) {
        const auto state = std::make_shared<LogState>(name);

        watch->AddLog(state);
        file->reset(new LogFile(std::move(*file), watch, state));
    }
    return status;
}

} // namespace rocksdb_ext

void rocksdb_ext_file_bytes(struct rocksdb_ext_file_bytes *ret_bytes)
{
    *ret_bytes = { rocksdb_ext::log_bytes, rocksdb_ext::blob_bytes, rocksdb_ext::other_bytes };
}
