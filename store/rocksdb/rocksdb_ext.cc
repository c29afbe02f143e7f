// SPDX-License-Identifier: Apache-2.0
// What RocksDB's C API lacks. Exceptions do not leave this file: RocksDB throws none, and what can
// throw here is only out of memory, at which the process cannot go on anyway.
#include "store/rocksdb/rocksdb_ext.h"

#include "base/thread_class.h"
#include "store/rocksdb/metadata_cache.hh"
#include "store/rocksdb/versions.hh"

#include <rocksdb/cache.h>
#include <rocksdb/convenience.h>
#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/file_checksum.h>
#include <rocksdb/file_system.h>
#include <rocksdb/listener.h>
#include <rocksdb/options.h>
#include <rocksdb/sst_file_reader.h>
#include <rocksdb/statistics.h>
#include <rocksdb/table_properties.h>
#include <rocksdb/version.h>
#include <rocksdb/write_buffer_manager.h>

#include <fcntl.h>
#include <liburing.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <system_error>
#include <unordered_map>
#include <utility>
#include <vector>

// RocksDB's C handles are structs of its db/c.cc whose first member is the C++ object. They are
// repeated here word for word; rocksdb_ext_fits() checks that they are so.
struct rocksdb_t {
    rocksdb::DB *rep;
};
struct rocksdb_options_t {
    rocksdb::Options rep;
};
struct rocksdb_cache_t {
    std::shared_ptr<rocksdb::Cache> rep;
};

namespace
{

using rocksdb::Slice;
using rocksdb::Status;

constexpr uint64_t kPage = 4096;
constexpr size_t kLogBuffer = 16 << 10;
constexpr size_t kLogAhead =
    1 << 20; // disk space that a log takes beforehand (store/files/space.c)

// Bytes written to files other than table files.
std::atomic<uint64_t> log_bytes{ 0 };
std::atomic<uint64_t> other_bytes{ 0 };

class SilentLogger final : public rocksdb::Logger
{
  public:
    using Logger::Logv;

    void LogHeader(const char *, va_list) override
    {
    }

    void Logv(const char *, va_list) override
    {
    }
};

class PlainLogger final : public rocksdb::Logger
{
  public:
    explicit PlainLogger(const std::string &path)
        : Logger(rocksdb::InfoLogLevel::WARN_LEVEL), path_(path)
    {
    }

    ~PlainLogger() override
    {
        if (fd_ >= 0)
            close(fd_);
    }

    // All options, at every open.
    void LogHeader(const char *, va_list) override
    {
    }

    void Logv(const char *format, va_list args) override
    {
        char line[1024];
        timespec now;
        tm utc;

        clock_gettime(CLOCK_REALTIME, &now);
        gmtime_r(&now.tv_sec, &utc);
        const size_t stamp = strftime(line, sizeof(line), "%Y-%m-%dT%H:%M:%SZ ", &utc);
        const int text = vsnprintf(line + stamp, sizeof(line) - stamp, format, args);
        if (text < 0)
            return;
        size_t length = std::min(stamp + text, sizeof(line) - 1);
        if (line[length - 1] != '\n')
            line[std::min(length++, sizeof(line) - 1)] = '\n';
        Write(line, std::min(length, sizeof(line)));
    }

    using Logger::Logv;

  private:
    static constexpr off_t kBytesMax = 1 << 20;

    // The directory may not be there yet when RocksDB has its first thing to say.
    void Write(const char *line, size_t length)
    {
        std::lock_guard<std::mutex> lock(mutex_);

        if (fd_ >= 0 && lseek(fd_, 0, SEEK_END) >= kBytesMax) {
            close(fd_);
            rename(path_.c_str(), (path_ + ".old").c_str());
            fd_ = -1;
        }
        if (fd_ < 0)
            fd_ = open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
        if (fd_ >= 0 && write(fd_, line, length) > 0)
            other_bytes += length; // else dropped
    }

    const std::string path_;
    std::mutex mutex_;
    int fd_ = -1;
};

// Whether a table file that is as good as made has nothing in it. RocksDB will delete it then, as
// when all rows of a compaction are gone; but if writing or closing it fails, it looks for the
// file's first key, and aborts. The file says where that is written down, for who notes its rows,
// which RocksDB makes next on the same thread.
using EmptyMark = std::shared_ptr<std::atomic<bool>>;
thread_local EmptyMark newest_empty_mark;

// Which tables a file's rows are of, and how many bytes of each: as text, "7:123456 9:42".
class TableNotes final : public rocksdb::TablePropertiesCollector
{
  public:
    static constexpr const char *PROPERTY = "embtier.tables";
    using Bytes = std::map<uint32_t, uint64_t>;

    const char *Name() const override
    {
        return "embtier.TableNotes";
    }

    Status AddUserKey(const Slice &key, const Slice &value, rocksdb::EntryType,
                      rocksdb::SequenceNumber, uint64_t) override
    {
        const uint32_t table = TableOf(key);

        if (!bytes_ || table != table_) { // rows of one table lie together
            table_ = table;
            bytes_ = &tables_[table];
        }
        *bytes_ += key.size() + value.size();
        return Status::OK();
    }

    Status Finish(rocksdb::UserCollectedProperties *properties) override
    {
        (*properties)[PROPERTY] = Text();
        if (is_empty_)
            *is_empty_ = tables_.empty();
        return Status::OK();
    }

    rocksdb::UserCollectedProperties GetReadableProperties() const override
    {
        return { { PROPERTY, Text() } };
    }

    static Bytes Parse(const rocksdb::TableProperties &file)
    {
        const auto found = file.user_collected_properties.find(PROPERTY);
        Bytes tables;
        unsigned long long bytes;
        unsigned table;
        int length;

        if (found == file.user_collected_properties.end())
            return tables;
        for (const char *at = found->second.c_str();
             sscanf(at, "%u:%llu %n", &table, &bytes, &length) == 2; at += length)
            tables[table] = bytes;
        return tables;
    }

  private:
    // Keys begin with the table's id, big-endian (store/database/row_format.h).
    static uint32_t TableOf(const Slice &key)
    {
        uint32_t table = 0;

        for (size_t i = 0; i < std::min<size_t>(key.size(), 4); i++)
            table = table << 8 | static_cast<unsigned char>(key[i]);
        return table;
    }

    std::string Text() const
    {
        std::string text;

        for (const auto &[table, bytes] : tables_)
            text += std::to_string(table) + ":" + std::to_string(bytes) + " ";
        return text;
    }

    const EmptyMark is_empty_ = std::move(newest_empty_mark);
    Bytes tables_;
    uint32_t table_ = 0;
    uint64_t *bytes_ = nullptr; // of table_
};

class TableNotesFactory final : public rocksdb::TablePropertiesCollectorFactory
{
  public:
    const char *Name() const override
    {
        return "embtier.TableNotes";
    }

    rocksdb::TablePropertiesCollector *CreateTablePropertiesCollector(Context) override
    {
        return new TableNotes;
    }
};

// Bytes written to each table file that is being made, in this process.
class TableFiles
{
  public:
    using Counter = std::shared_ptr<std::atomic<uint64_t>>;

    Counter Begin(const std::string &path)
    {
        std::lock_guard<std::mutex> lock(mutex_);
        return files_[path] = std::make_shared<std::atomic<uint64_t>>(0);
    }

    // In whole pages, as they go to SSD. The file is done.
    uint64_t Take(const std::string &path)
    {
        std::lock_guard<std::mutex> lock(mutex_);
        const auto file = files_.find(path);
        if (file == files_.end())
            return 0;
        const uint64_t bytes = (*file->second + kPage - 1) / kPage * kPage;
        files_.erase(file);
        return bytes;
    }

  private:
    std::mutex mutex_;
    std::map<std::string, Counter> files_;
};

TableFiles table_files;

struct Activity {
    std::mutex mutex;
    uint32_t running_shards = 0;
    uint32_t peak_shards = 0;
    uint64_t completed = 0;
    std::map<uint32_t, rocksdb_ext_written> written; // by table
    rocksdb_ext_written all_written = {};

    // A file that failed has no properties, and its bytes are of no table.
    void AddFile(const rocksdb::TableProperties &properties, uint64_t bytes,
                 uint64_t rocksdb_ext_written::*cause)
    {
        const TableNotes::Bytes tables = TableNotes::Parse(properties);
        double rows = 0;

        for (const auto &[table, row_bytes] : tables)
            rows += static_cast<double>(row_bytes);
        std::lock_guard<std::mutex> lock(mutex);
        all_written.*cause += bytes;
        for (const auto &[table, row_bytes] : tables)
            written[table].*cause += static_cast<uint64_t>(static_cast<double>(bytes) *
                                                           static_cast<double>(row_bytes) / rows);
    }
};

// Open for as long as anybody holds it.
class OpenFile
{
  public:
    explicit OpenFile(int file) : file_(file)
    {
    }
    ~OpenFile()
    {
        close(file_);
    }
    OpenFile(const OpenFile &) = delete;
    OpenFile &operator=(const OpenFile &) = delete;

    int Number() const
    {
        return file_;
    }

  private:
    const int file_;
};

// A write-ahead log, for who syncs it: by a descriptor of its own, which also outlives its being
// written to.
class LogState
{
  public:
    explicit LogState(const std::string &name)
        : name_(name), number_(std::strtoull(name.c_str() + name.rfind('/') + 1, nullptr, 10)),
          directory_(name.substr(0, name.rfind('/')))
    {
        Reopen();
    }
    LogState(const LogState &) = delete;
    LogState &operator=(const LogState &) = delete;

    // NULL: it cannot be opened, by *@ret_error.
    std::shared_ptr<const OpenFile> File(int *ret_error)
    {
        std::lock_guard<std::mutex> lock(file_mutex_);

        if (!file_ && is_released_)
            Reopen();
        *ret_error = error_;
        return file_;
    }

    bool HasFile()
    {
        std::lock_guard<std::mutex> lock(file_mutex_);
        return file_ != nullptr;
    }

    // Another one of the same file, the caller's to close; or -error.
    int Open() const
    {
        const int file = open(name_.c_str(), O_WRONLY | O_CLOEXEC);

        return file >= 0 ? file : -errno;
    }

    // All of it is on disk, and another has followed: a descriptor less, where there may be many.
    void Release()
    {
        std::lock_guard<std::mutex> lock(file_mutex_);

        if (synced < written)
            return;
        file_.reset();
        is_released_ = true;
    }

    // RocksDB has removed it: all that was in it has been flushed. What could not be opened at
    // first is tried again. Under the lock of the list of logs.
    bool IsGone()
    {
        std::lock_guard<std::mutex> lock(file_mutex_);
        struct stat info;

        if (is_released_)
            return access(name_.c_str(), F_OK) != 0 && errno == ENOENT;
        if (!file_)
            Reopen();
        return file_ ? fstat(file_->Number(), &info) == 0 && info.st_nlink == 0 : error_ == ENOENT;
    }

    // Has the file's name on disk, too. 0 or an error number.
    int SyncName()
    {
        if (name_is_synced_)
            return 0;
        const int directory = open(directory_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        const int error = directory >= 0 && fsync(directory) == 0 ? 0 : errno;
        if (directory >= 0)
            close(directory);
        name_is_synced_ = error == 0;
        return error;
    }

    // @whole was read before @bytes, and both before the sync began.
    void SetSynced(uint64_t bytes, uint64_t whole)
    {
        Raise(synced, bytes);
        Raise(synced_whole, whole);
    }

    uint64_t Number() const
    {
        return number_;
    }

    std::atomic<uint64_t> written{ 0 };      // bytes
    std::atomic<uint64_t> synced{ 0 };       // of these
    std::atomic<uint64_t> whole{ 0 };        // bytes that end with a record, all without a failure
    std::atomic<uint64_t> synced_whole{ 0 }; // of these

  private:
    static void Raise(std::atomic<uint64_t> &value, uint64_t to)
    {
        uint64_t before = value;

        while (before < to && !value.compare_exchange_weak(before, to))
            ;
    }

    void Reopen()
    {
        const int file = Open();

        error_ = file >= 0 ? 0 : -file;
        if (file >= 0)
            file_ = std::make_shared<const OpenFile>(file);
        is_released_ = false;
    }

    const std::string name_;
    const uint64_t number_;
    const std::string directory_;
    std::mutex file_mutex_;
    std::shared_ptr<const OpenFile> file_;
    int error_ = 0; // without a file: syncing it fails by this error
    bool is_released_ = false;
    std::atomic<bool> name_is_synced_{ false };
};

// On a thread of RocksDB's pools, which has no other moment of ours.
static void EnterUpkeep()
{
    static thread_local bool entered = false;

    if (!std::exchange(entered, true))
        thread_class_upkeep();
}

class Watch final : public rocksdb::EventListener
{
  public:
    explicit Watch(std::shared_ptr<Activity> activity) : activity_(std::move(activity))
    {
    }

    void OnFlushBegin(rocksdb::DB *, const rocksdb::FlushJobInfo &) override
    {
        EnterUpkeep();
    }

    void OnCompactionBegin(rocksdb::DB *, const rocksdb::CompactionJobInfo &) override
    {
        EnterUpkeep();
        std::lock_guard<std::mutex> lock(activity_->mutex);
        if (running_++ > 0)
            return;
        activity_->running_shards++;
        if (activity_->peak_shards < activity_->running_shards)
            activity_->peak_shards = activity_->running_shards;
    }

    void OnCompactionCompleted(rocksdb::DB *, const rocksdb::CompactionJobInfo &) override
    {
        std::lock_guard<std::mutex> lock(activity_->mutex);
        activity_->completed++;
        if (running_ > 0 && --running_ == 0)
            activity_->running_shards--;
    }

    // Also of files that failed.
    void OnTableFileCreated(const rocksdb::TableFileCreationInfo &file) override
    {
        activity_->AddFile(file.table_properties, table_files.Take(file.file_path),
                           file.reason == rocksdb::TableFileCreationReason::kCompaction
                               ? &rocksdb_ext_written::compaction_bytes
                               : &rocksdb_ext_written::flush_bytes);
    }

    void OnExternalFileIngested(rocksdb::DB *,
                                const rocksdb::ExternalFileIngestionInfo &file) override
    {
        activity_->AddFile(file.table_properties, file.table_properties.data_size,
                           &rocksdb_ext_written::import_bytes);
    }

    // A flush that failed has left the write buffers as they were, and a compaction its inputs, so
    // trying again is safe and loses nothing: RocksDB is told that all is well. It would take the
    // error for hard or fatal, and its recovery from a hard one may wait for ever: a flush that is
    // scheduled when background work stops ends without leaving its queue, and then no other flush
    // can enter that. A compaction without space is a soft error, which Resume() leaves as it is:
    // until there is twice the space that all its files take, RocksDB would refuse each other one,
    // also the compaction that frees space.
    // A change that the MANIFEST did not take has not happened either, and the next one begins a
    // new MANIFEST; but the old one may hold it, so RocksDB has stopped to delete files.
    void OnBackgroundError(rocksdb::BackgroundErrorReason reason, Status *error) override
    {
        const bool manifest = (reason == rocksdb::BackgroundErrorReason::kManifestWrite ||
                               reason == rocksdb::BackgroundErrorReason::kManifestWriteNoWAL) &&
                              error->IsIOError();
        const bool flush = (reason == rocksdb::BackgroundErrorReason::kFlush ||
                            reason == rocksdb::BackgroundErrorReason::kFlushNoWAL) &&
                           error->IsIOError();
        const bool compaction =
            reason == rocksdb::BackgroundErrorReason::kCompaction && error->IsIOError();
        const bool is_ours = manifest || flush || compaction;

        if (is_ours)
            *error = Status(*error, Status::Severity::kSoftError);
        else if (error->IsIOError() && error->severity() == Status::Severity::kFatalError)
            *error = Status(*error, Status::Severity::kHardError);
        {
            std::lock_guard<std::mutex> lock(error_mutex_);
            if (error->severity() >= error_.severity())
                error_ = *error;
            errors_++;
            flush_failed_ = flush_failed_ || flush || manifest;
            manifest_failures_ += manifest;
            changed_.notify_all();
        }
        if (is_ours)
            *error = Status::OK();
    }

    // Of a change that RocksDB makes no background error of: as above.
    void OnManifestFailed(rocksdb::DB *db, const Status &error)
    {
        (void)db->DisableFileDeletions();
        std::lock_guard<std::mutex> lock(error_mutex_);
        manifest_failures_++;
        AddSoftError(Status(error, Status::Severity::kSoftError));
    }

    // Each has files kept (DisableFileDeletions()) until it is forgotten.
    uint64_t ManifestFailures() const
    {
        return manifest_failures_;
    }

    void ForgetManifestFailures(uint64_t count)
    {
        manifest_failures_ -= count;
    }

    void AddLog(const std::shared_ptr<LogState> &log)
    {
        std::lock_guard<std::mutex> lock(logs_mutex_);
        logs_.erase(
            std::remove_if(logs_.begin(), logs_.end(),
                           [](const std::shared_ptr<LogState> &old) { return old->IsGone(); }),
            logs_.end());
        logs_.push_back(log);
        ReleaseSynced();
    }

    void OnLogsSynced()
    {
        std::lock_guard<std::mutex> lock(logs_mutex_);
        ReleaseSynced();
    }

    // Those that are not on disk as far as they have been written.
    std::vector<std::shared_ptr<LogState>> UnsyncedLogs()
    {
        std::vector<std::shared_ptr<LogState>> logs;
        std::lock_guard<std::mutex> lock(logs_mutex_);
        for (const auto &log : logs_)
            if (log->written > log->synced && (log->HasFile() || !log->IsGone()))
                logs.push_back(log);
        return logs;
    }

    // As rocksdb_ext_watch_synced(). A log that has failed is never on disk as a whole.
    bool Synced(rocksdb_ext_synced *ret_synced)
    {
        std::lock_guard<std::mutex> lock(logs_mutex_);

        *ret_synced = {};
        if (!logs_.empty())
            ret_synced->first = logs_.front()->Number();
        for (const auto &log : logs_) {
            ret_synced->log = log->Number();
            ret_synced->bytes = log->synced_whole;
            if (ret_synced->bytes < log->written)
                break;
        }
        return std::make_pair(ret_synced->log, ret_synced->bytes) > marked_;
    }

    void SetMarked(const rocksdb_ext_synced &synced)
    {
        std::lock_guard<std::mutex> lock(logs_mutex_);

        marked_ = std::max(marked_, std::make_pair(synced.log, synced.bytes));
    }

    // What the log lacks is in the write buffers, so it is safe, and the log out of use, when they
    // have been flushed: as after a flush that failed.
    void OnLogFailed(const Status &error)
    {
        std::lock_guard<std::mutex> lock(error_mutex_);
        log_error_ = Status(error, Status::Severity::kSoftError);
        log_failed_ = true;
        log_failures_++;
        AddSoftError(log_error_);
    }

    void SetOpened()
    {
        opened_ = true;
    }

    // Before that, what fails refuses the start.
    bool IsOpened() const
    {
        return opened_;
    }

    uint64_t LogFailures() const
    {
        return log_failures_;
    }

    // OK, or why the log takes no more, or why it failed after LogFailures() said @failures.
    Status LogError(uint64_t failures)
    {
        if (!log_failed_ && log_failures_ == failures)
            return Status::OK();
        std::lock_guard<std::mutex> lock(error_mutex_);
        return log_error_;
    }

    bool LogFailed() const
    {
        return log_failed_;
    }

    // While the database is resumed: only then is a log that has failed followed by another. Shared
    // by who may have write buffers switched meanwhile: that writes to the MANIFEST, and
    // RocksDB 7.8 aborts when somebody else makes a new one while it resumes (fixed in its pull
    // request 12871).
    std::shared_mutex &ResumeMutex()
    {
        return resume_mutex_;
    }

    void OnFlushCompleted(rocksdb::DB *, const rocksdb::FlushJobInfo &info) override
    {
        SetFlushed(info.largest_seqno);
    }

    void SetFlushed(rocksdb::SequenceNumber sequence)
    {
        std::lock_guard<std::mutex> lock(error_mutex_);
        flushed_ = std::max(flushed_, sequence);
        changed_.notify_all();
    }

    // Whether background work has failed since Errors() said @errors, or stands still.
    bool HasFailed(uint64_t errors)
    {
        std::lock_guard<std::mutex> lock(error_mutex_);
        return Failed(errors);
    }

    // Until all up to @sequence is flushed, or an error as above.
    Status WaitFlushed(rocksdb::SequenceNumber sequence, uint64_t errors)
    {
        std::unique_lock<std::mutex> lock(error_mutex_);
        changed_.wait(lock, [&] { return flushed_ >= sequence || Failed(errors); });
        if (flushed_ >= sequence)
            return Status::OK();
        // Somebody may have got over the error already: of this flush that says nothing.
        return error_.ok() ? Status::Aborted("background work failed meanwhile") : error_;
    }

    void OnErrorRecoveryEnd(const rocksdb::BackgroundErrorRecoveryInfo &info) override
    {
        std::lock_guard<std::mutex> lock(error_mutex_);
        if (!flush_failed_) // which RocksDB knows nothing of
            error_ = info.new_bg_error;
    }

    uint64_t Errors()
    {
        std::lock_guard<std::mutex> lock(error_mutex_);
        return errors_;
    }

    // Unless there has been an error since Errors() said @errors: that one still stands.
    void ClearError(uint64_t errors)
    {
        std::lock_guard<std::mutex> lock(error_mutex_);
        if (errors_ != errors)
            return;
        error_ = Status::OK();
        flush_failed_ = log_failed_ = false;
    }

    bool FlushFailed()
    {
        std::lock_guard<std::mutex> lock(error_mutex_);
        return flush_failed_;
    }

    Status Error()
    {
        std::lock_guard<std::mutex> lock(error_mutex_);
        return error_;
    }

  private:
    // Which RocksDB knows nothing of, and a flush gets over.
    void AddSoftError(const Status &error)
    {
        if (error_.severity() <= Status::Severity::kSoftError)
            error_ = error;
        errors_++;
        flush_failed_ = true;
        changed_.notify_all();
    }

    // Under the lock of the list of logs. The last one is written to.
    void ReleaseSynced()
    {
        for (size_t i = 0; i + 1 < logs_.size(); i++)
            logs_[i]->Release();
    }

    bool Failed(uint64_t errors) const
    {
        return errors_ != errors || error_.severity() >= Status::Severity::kHardError;
    }

    std::shared_ptr<Activity> activity_;
    uint32_t running_ = 0;           // under activity_->mutex
    std::shared_mutex resume_mutex_; // taken before error_mutex_
    std::mutex error_mutex_;
    std::condition_variable changed_;
    Status error_;
    uint64_t errors_ = 0; // so far
    bool flush_failed_ = false;
    Status log_error_;
    std::mutex logs_mutex_;
    std::vector<std::shared_ptr<LogState>> logs_;
    std::pair<uint64_t, uint64_t> marked_{ 0, 0 }; // log and bytes
    std::atomic<bool> log_failed_{ false };
    std::atomic<bool> opened_{ false };
    std::atomic<uint64_t> log_failures_{ 0 };
    std::atomic<uint64_t> manifest_failures_{ 0 };
    rocksdb::SequenceNumber flushed_ = 0;
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
    return rocksdb::COMPACT_READ_BYTES;
}

// One thread's ring. Made at its first read; a thread that gets none reads without.
class Ring
{
  public:
    static constexpr unsigned DEPTH = 128;

    static Ring *OfThread()
    {
        static thread_local Ring ring;

        return ring.works_ ? &ring : nullptr;
    }
    ~Ring()
    {
        if (works_)
            io_uring_queue_exit(&ring_);
    }
    Ring(const Ring &) = delete;
    Ring &operator=(const Ring &) = delete;

    // Reads all, as MultiRead() is to: a request ends short only at the end of the file.
    void Read(int fd, size_t align, rocksdb::FSReadRequest *requests, size_t count)
    {
        size_t next = 0, in_flight = 0, done = 0;

        got_.assign(count, 0);
        while (done < count) {
            for (; next < count && in_flight < DEPTH; next++, in_flight++)
                Prepare(fd, requests, next);
            Submit(next == count ? in_flight : 1);
            for (io_uring_cqe *cqe; io_uring_peek_cqe(&ring_, &cqe) == 0;) {
                const size_t i = io_uring_cqe_get_data64(cqe);
                const int result = cqe->res;

                io_uring_cqe_seen(&ring_, cqe);
                if (IsDone(align, requests[i], got_[i], result)) {
                    in_flight--;
                    done++;
                } else {
                    Prepare(fd, requests, i); // there is room: its own entry is free again
                }
            }
        }
    }

    // Has the data of all files on disk, at the same time; results[i] is 0 or an error number.
    void Sync(const std::vector<int> &files, std::vector<int> &results)
    {
        size_t next = 0, in_flight = 0, done = 0;

        while (done < files.size()) {
            for (; next < files.size() && in_flight < DEPTH; next++, in_flight++) {
                io_uring_sqe *const sqe = io_uring_get_sqe(&ring_);

                io_uring_prep_fsync(sqe, files[next], IORING_FSYNC_DATASYNC);
                io_uring_sqe_set_data64(sqe, next);
            }
            Submit(next == files.size() ? in_flight : 1);
            for (io_uring_cqe *cqe; io_uring_peek_cqe(&ring_, &cqe) == 0; in_flight--, done++) {
                results[io_uring_cqe_get_data64(cqe)] = -cqe->res;
                io_uring_cqe_seen(&ring_, cqe);
            }
        }
    }

  private:
    Ring()
    {
        works_ = Init();
        if (works_ && !Reads()) {
            io_uring_queue_exit(&ring_);
            works_ = false;
        }
    }

    // A request that is done interrupts nobody: its thread waits for all of them, and looks then.
    // Kernels before 6.1, or 5.19, have no such rings.
    bool Init()
    {
        for (const unsigned flags : { IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN,
                                      IORING_SETUP_COOP_TASKRUN, 0u })
            if (io_uring_queue_init(DEPTH, &ring_, flags) == 0)
                return true;
        return false;
    }

    // Kernels before 5.6 have rings that cannot.
    bool Reads()
    {
        io_uring_probe *const probe = io_uring_get_probe_ring(&ring_);
        const bool reads = probe && io_uring_opcode_supported(probe, IORING_OP_READ);

        io_uring_free_probe(probe);
        return reads;
    }

    void Prepare(int fd, const rocksdb::FSReadRequest *requests, size_t i)
    {
        const rocksdb::FSReadRequest &request = requests[i];
        io_uring_sqe *const sqe = io_uring_get_sqe(&ring_);

        io_uring_prep_read(sqe, fd, request.scratch + got_[i],
                           static_cast<unsigned>(request.len - got_[i]), request.offset + got_[i]);
        io_uring_sqe_set_data64(sqe, i);
    }

    // The kernel may be short of memory for a moment. The buffers are its own until it has
    // answered, so there is no giving up. Any other error is a mistake of this class, and would
    // come again for ever.
    void Submit(size_t awaited)
    {
        for (;;) {
            const int result = io_uring_submit_and_wait(&ring_, static_cast<unsigned>(awaited));

            if (result >= 0)
                return;
            if (result != -EINTR && result != -EAGAIN && result != -EBUSY && result != -ENOMEM) {
                fprintf(stderr, "io_uring_submit_and_wait: %s\n", strerror(-result));
                abort();
            }
            usleep(100);
        }
    }

    static bool IsDone(size_t align, rocksdb::FSReadRequest &request, size_t &got, int result)
    {
        if (result == -EAGAIN || result == -EINTR)
            return false;
        if (result < 0) {
            request.status = rocksdb::IOStatus::IOError("io_uring read", strerror(-result));
            request.result = Slice();
            return true;
        }
        got += static_cast<size_t>(result);
        if (result > 0 && got < request.len && got % align == 0)
            return false;
        request.status = rocksdb::IOStatus::OK();
        request.result = Slice(request.scratch, got);
        return true;
    }

    io_uring ring_;
    bool works_;
    std::vector<size_t> got_; // bytes of each request so far
};

// A table file, by a descriptor of ours: of RocksDB's own nobody else learns the number, and two
// for each file would be twice as many.
class RingFile final : public rocksdb::FSRandomAccessFile
{
  public:
    // @align is what the file system asks for of direct I/O.
    RingFile(const std::string &name, int fd, bool direct, size_t align)
        : name_(name), fd_(fd), direct_(direct), align_(align)
    {
    }
    ~RingFile() override
    {
        close(fd_);
    }

    rocksdb::IOStatus Read(uint64_t offset, size_t bytes, const rocksdb::IOOptions &, Slice *result,
                           char *scratch, rocksdb::IODebugContext *) const override
    {
        size_t got = 0;

        while (got < bytes) {
            const ssize_t part =
                pread(fd_, scratch + got, bytes - got, static_cast<off_t>(offset + got));

            if (part < 0 && errno == EINTR)
                continue;
            if (part < 0)
                return rocksdb::IOStatus::IOError("While pread offset " + std::to_string(offset) +
                                                      " len " + std::to_string(bytes) + ": " +
                                                      name_,
                                                  strerror(errno));
            got += static_cast<size_t>(part);
            if (part == 0 || (direct_ && got % align_ != 0))
                break; // the end
        }
        *result = Slice(scratch, got);
        return rocksdb::IOStatus::OK();
    }

    rocksdb::IOStatus MultiRead(rocksdb::FSReadRequest *requests, size_t count,
                                const rocksdb::IOOptions &options,
                                rocksdb::IODebugContext *dbg) override
    {
        Ring *const ring = count > 1 ? Ring::OfThread() : nullptr;

        if (!ring)
            return FSRandomAccessFile::MultiRead(requests, count, options, dbg);
        ring->Read(fd_, direct_ ? align_ : 1, requests, count);
        return rocksdb::IOStatus::OK();
    }

    rocksdb::IOStatus Prefetch(uint64_t offset, size_t bytes, const rocksdb::IOOptions &,
                               rocksdb::IODebugContext *) override
    {
        if (!direct_)
            (void)readahead(fd_, static_cast<off64_t>(offset), bytes);
        return rocksdb::IOStatus::OK();
    }

    void Hint(AccessPattern pattern) override
    {
        if (!direct_)
            (void)posix_fadvise(fd_, 0, 0, AdviceOf(pattern));
    }

    rocksdb::IOStatus InvalidateCache(size_t offset, size_t bytes) override
    {
        if (!direct_)
            (void)posix_fadvise(fd_, static_cast<off_t>(offset), static_cast<off_t>(bytes),
                                POSIX_FADV_DONTNEED);
        return rocksdb::IOStatus::OK();
    }

    bool use_direct_io() const override
    {
        return direct_;
    }

    size_t GetRequiredBufferAlignment() const override
    {
        return align_;
    }

  private:
    static int AdviceOf(AccessPattern pattern)
    {
        switch (pattern) {
        case kRandom:
            return POSIX_FADV_RANDOM;
        case kSequential:
            return POSIX_FADV_SEQUENTIAL;
        case kWillNeed:
            return POSIX_FADV_WILLNEED;
        case kWontNeed:
            return POSIX_FADV_DONTNEED;
        default:
            return POSIX_FADV_NORMAL;
        }
    }

    const std::string name_;
    const int fd_;
    const bool direct_;
    const size_t align_;
};

bool HasSuffix(const std::string &name, const char *suffix)
{
    const size_t length = strlen(suffix);

    return name.size() >= length && name.compare(name.size() - length, length, suffix) == 0;
}

// Counts what is appended in pages, as it goes to SSD: a page that is appended to after a sync is
// written once more.
class CountedFile final : public rocksdb::FSWritableFileOwnerWrapper
{
  public:
    CountedFile(std::unique_ptr<rocksdb::FSWritableFile> &&file, std::atomic<uint64_t> *counter)
        : FSWritableFileOwnerWrapper(std::move(file)), counter_(counter)
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
        *counter_ += dirty_end_ - first;
    }

    std::atomic<uint64_t> *const counter_;
    uint64_t bytes_ = 0;
    uint64_t dirty_end_ = 0; // pages before this have been counted since the last sync
};

// A write-ahead log. RocksDB, as Debian builds it, aborts the process when it writes to a log after
// a failed write, which its own recovery leads to if nothing is in the write buffers. So it does
// not hear of failures: what it wrote is in the write buffers then, and its caller asks the watch,
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

    // After each record, when the last of it has been appended.
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
    // A log with nothing in it has nothing to lose, and is tried again: that of a database whose
    // writes pass it is never followed by another.
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
        // Nothing more goes into a log that has failed: a record behind one that is cut short could
        // not be read. Each try is told: this log may be in use still when all has been flushed.
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
    rocksdb::IOStatus error_; // written once, before …
    std::atomic<bool> failed_{ false };
};

// A log that could not be made: it is tried again when something is to be written to it. RocksDB
// 7.8 aborts when it is told, and has deletions of ranges in the write buffer that the log is for.
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
    std::mutex mutex_; // while it is made
    const rocksdb::FileOptions options_;
    std::unique_ptr<rocksdb::FSWritableFile> file_;
};

// Who is to hear of logs in a directory.
struct LogWatches {
    std::mutex mutex;
    std::map<std::string, std::weak_ptr<Watch>> by_directory;

    void Add(const std::string &directory, const std::shared_ptr<Watch> &watch)
    {
        std::lock_guard<std::mutex> lock(mutex);
        by_directory[directory] = watch;
    }

    std::shared_ptr<Watch> Of(const std::string &file)
    {
        std::lock_guard<std::mutex> lock(mutex);
        const auto found = by_directory.find(file.substr(0, file.rfind('/')));
        return found == by_directory.end() ? nullptr : found->second.lock();
    }

    void RemoveGone()
    {
        std::lock_guard<std::mutex> lock(mutex);
        for (auto at = by_directory.begin(); at != by_directory.end();)
            at = at->second.expired() ? by_directory.erase(at) : std::next(at);
    }
};
LogWatches log_watches;

// Table files are appended to in large pieces, and each page goes to SSD once. What fails of one
// that will be deleted does not matter (EmptyMark).
class TableFile final : public rocksdb::FSWritableFileOwnerWrapper
{
  public:
    TableFile(std::unique_ptr<rocksdb::FSWritableFile> &&file, TableFiles::Counter bytes)
        : FSWritableFileOwnerWrapper(std::move(file)), bytes_(std::move(bytes))
    {
        newest_empty_mark = is_empty_;
    }

    rocksdb::IOStatus Append(const Slice &data, const rocksdb::IOOptions &options,
                             rocksdb::IODebugContext *dbg) override
    {
        *bytes_ += data.size();
        return Matters(target()->Append(data, options, dbg));
    }

    rocksdb::IOStatus Append(const Slice &data, const rocksdb::IOOptions &options,
                             const rocksdb::DataVerificationInfo &verification,
                             rocksdb::IODebugContext *dbg) override
    {
        *bytes_ += data.size();
        return Matters(target()->Append(data, options, verification, dbg));
    }

    rocksdb::IOStatus PositionedAppend(const Slice &data, uint64_t offset,
                                       const rocksdb::IOOptions &options,
                                       rocksdb::IODebugContext *dbg) override
    {
        *bytes_ += data.size();
        return Matters(target()->PositionedAppend(data, offset, options, dbg));
    }

    rocksdb::IOStatus PositionedAppend(const Slice &data, uint64_t offset,
                                       const rocksdb::IOOptions &options,
                                       const rocksdb::DataVerificationInfo &verification,
                                       rocksdb::IODebugContext *dbg) override
    {
        *bytes_ += data.size();
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
    rocksdb::IOStatus Matters(rocksdb::IOStatus status) const
    {
        return *is_empty_ ? rocksdb::IOStatus::OK() : status;
    }

    const EmptyMark is_empty_ = std::make_shared<std::atomic<bool>>(false);
    const TableFiles::Counter bytes_;
};

// To RocksDB only ENOSPC is a full disk. A quota that is used up, and a file that is as long as a
// limit lets it be, are told as a broken one, which is another error to it and to users.
rocksdb::IOStatus RoomOf(rocksdb::IOStatus status)
{
    if (status.ok() || !status.IsIOError() || status.IsNoSpace())
        return status;
    const std::string text = status.getState() ? status.getState() : "";
    for (const int error : { EDQUOT, EFBIG })
        if (HasSuffix(text, strerror(error)))
            return rocksdb::IOStatus::NoSpace(text);
    return status;
}

#define IO_ARGUMENTS const rocksdb::IOOptions &options, rocksdb::IODebugContext *dbg

class RoomFile final : public rocksdb::FSWritableFileOwnerWrapper
{
  public:
    RoomFile(std::unique_ptr<rocksdb::FSWritableFile> &&file, bool is_log)
        : FSWritableFileOwnerWrapper(std::move(file)), is_log_(is_log)
    {
    }

    // RocksDB wants more than a whole write buffer for a log at its first record. On a full disk
    // the logs of few shards took what the reserve has for all, and gave nothing back.
    void SetPreallocationBlockSize(size_t bytes) override
    {
        target()->SetPreallocationBlockSize(is_log_ ? std::min(bytes, kLogAhead) : bytes);
    }

    rocksdb::IOStatus Append(const Slice &data, IO_ARGUMENTS) override
    {
        return RoomOf(target()->Append(data, options, dbg));
    }

    rocksdb::IOStatus Append(const Slice &data, const rocksdb::IOOptions &options,
                             const rocksdb::DataVerificationInfo &verification,
                             rocksdb::IODebugContext *dbg) override
    {
        return RoomOf(target()->Append(data, options, verification, dbg));
    }

    rocksdb::IOStatus PositionedAppend(const Slice &data, uint64_t offset, IO_ARGUMENTS) override
    {
        return RoomOf(target()->PositionedAppend(data, offset, options, dbg));
    }

    rocksdb::IOStatus PositionedAppend(const Slice &data, uint64_t offset,
                                       const rocksdb::IOOptions &options,
                                       const rocksdb::DataVerificationInfo &verification,
                                       rocksdb::IODebugContext *dbg) override
    {
        return RoomOf(target()->PositionedAppend(data, offset, options, verification, dbg));
    }

    rocksdb::IOStatus Truncate(uint64_t size, IO_ARGUMENTS) override
    {
        return RoomOf(target()->Truncate(size, options, dbg));
    }

    rocksdb::IOStatus Flush(IO_ARGUMENTS) override
    {
        return RoomOf(target()->Flush(options, dbg));
    }

    rocksdb::IOStatus Sync(IO_ARGUMENTS) override
    {
        return RoomOf(target()->Sync(options, dbg));
    }

    rocksdb::IOStatus Fsync(IO_ARGUMENTS) override
    {
        return RoomOf(target()->Fsync(options, dbg));
    }

    rocksdb::IOStatus RangeSync(uint64_t offset, uint64_t bytes, IO_ARGUMENTS) override
    {
        return RoomOf(target()->RangeSync(offset, bytes, options, dbg));
    }

    rocksdb::IOStatus Close(IO_ARGUMENTS) override
    {
        return RoomOf(target()->Close(options, dbg));
    }

  private:
    const bool is_log_;
};

class RoomDirectory final : public rocksdb::FSDirectoryWrapper
{
  public:
    explicit RoomDirectory(std::unique_ptr<rocksdb::FSDirectory> &&directory)
        : FSDirectoryWrapper(std::move(directory))
    {
    }

    rocksdb::IOStatus Fsync(IO_ARGUMENTS) override
    {
        return RoomOf(FSDirectoryWrapper::Fsync(options, dbg));
    }

    rocksdb::IOStatus FsyncWithDirOptions(const rocksdb::IOOptions &options,
                                          rocksdb::IODebugContext *dbg,
                                          const rocksdb::DirFsyncOptions &how) override
    {
        return RoomOf(FSDirectoryWrapper::FsyncWithDirOptions(options, dbg, how));
    }
};

// Under all others.
class RoomFileSystem final : public rocksdb::FileSystemWrapper
{
  public:
    explicit RoomFileSystem(const std::shared_ptr<rocksdb::FileSystem> &target)
        : FileSystemWrapper(target)
    {
    }

    const char *Name() const override
    {
        return "embtier.RoomFileSystem";
    }

    rocksdb::IOStatus NewWritableFile(const std::string &name, const rocksdb::FileOptions &options,
                                      std::unique_ptr<rocksdb::FSWritableFile> *file,
                                      rocksdb::IODebugContext *dbg) override
    {
        return Wrapped(target()->NewWritableFile(name, options, file, dbg), name, file);
    }

    rocksdb::IOStatus ReopenWritableFile(const std::string &name,
                                         const rocksdb::FileOptions &options,
                                         std::unique_ptr<rocksdb::FSWritableFile> *file,
                                         rocksdb::IODebugContext *dbg) override
    {
        return Wrapped(target()->ReopenWritableFile(name, options, file, dbg), name, file);
    }

    rocksdb::IOStatus NewDirectory(const std::string &name, const rocksdb::IOOptions &options,
                                   std::unique_ptr<rocksdb::FSDirectory> *directory,
                                   rocksdb::IODebugContext *dbg) override
    {
        const rocksdb::IOStatus status = target()->NewDirectory(name, options, directory, dbg);

        if (status.ok())
            directory->reset(new RoomDirectory(std::move(*directory)));
        return RoomOf(status);
    }

    rocksdb::IOStatus CreateDir(const std::string &name, IO_ARGUMENTS) override
    {
        return RoomOf(target()->CreateDir(name, options, dbg));
    }

    rocksdb::IOStatus CreateDirIfMissing(const std::string &name, IO_ARGUMENTS) override
    {
        return RoomOf(target()->CreateDirIfMissing(name, options, dbg));
    }

    rocksdb::IOStatus RenameFile(const std::string &from, const std::string &to,
                                 IO_ARGUMENTS) override
    {
        return RoomOf(target()->RenameFile(from, to, options, dbg));
    }

    rocksdb::IOStatus LinkFile(const std::string &from, const std::string &to,
                               IO_ARGUMENTS) override
    {
        return RoomOf(target()->LinkFile(from, to, options, dbg));
    }

    rocksdb::IOStatus Truncate(const std::string &name, size_t size, IO_ARGUMENTS) override
    {
        return RoomOf(target()->Truncate(name, size, options, dbg));
    }

  private:
    static rocksdb::IOStatus Wrapped(const rocksdb::IOStatus &status, const std::string &name,
                                     std::unique_ptr<rocksdb::FSWritableFile> *file)
    {
        if (status.ok())
            file->reset(new RoomFile(std::move(*file), HasSuffix(name, ".log")));
        return RoomOf(status);
    }
};

#undef IO_ARGUMENTS

class StoreFileSystem final : public rocksdb::FileSystemWrapper
{
  public:
    StoreFileSystem(const std::shared_ptr<rocksdb::FileSystem> &target, bool io_uring)
        : FileSystemWrapper(target), io_uring_(io_uring)
    {
    }

    const char *Name() const override
    {
        return "embtier.StoreFileSystem";
    }

    // Table files are given a ring, by a descriptor in place of RocksDB's; where there is no second
    // one for that moment they are read without.
    rocksdb::IOStatus NewRandomAccessFile(const std::string &name,
                                          const rocksdb::FileOptions &options,
                                          std::unique_ptr<rocksdb::FSRandomAccessFile> *file,
                                          rocksdb::IODebugContext *dbg) override
    {
        rocksdb::IOStatus status = target()->NewRandomAccessFile(name, options, file, dbg);

        if (!status.ok() || !io_uring_ || !HasSuffix(name, ".sst"))
            return status;
        const int fd =
            open(name.c_str(), O_RDONLY | O_CLOEXEC | (options.use_direct_reads ? O_DIRECT : 0));
        if (fd >= 0)
            file->reset(new RingFile(name, fd, (*file)->use_direct_io(),
                                     (*file)->GetRequiredBufferAlignment()));
        return status;
    }

    // As RocksDB's own, which is sure that where access() does not say that nothing is there it
    // says EIO or ENOMEM: else an assertion ends the process. So does one where the folder of
    // archived logs can't be looked at for a list of logs (without assertions the list is empty, of
    // a checkpoint too): there are none that anybody wants.
    rocksdb::IOStatus FileExists(const std::string &name, const rocksdb::IOOptions &,
                                 rocksdb::IODebugContext *) override
    {
        int error;

        do
            error = access(name.c_str(), F_OK) == 0 ? 0 : errno;
        while (error == EINTR);
        switch (error) {
        case 0:
            return rocksdb::IOStatus::OK();
        case EACCES:
        case ELOOP:
        case ENAMETOOLONG:
        case ENOENT:
        case ENOTDIR:
            return rocksdb::IOStatus::NotFound();
        default:
            return HasSuffix(name, "/archive")
                       ? rocksdb::IOStatus::NotFound()
                       : rocksdb::IOStatus::IOError("While looking for " + name, strerror(error));
        }
    }

    // A log's buffer would grow to the largest batch, and it stays as long as the log, of which a
    // checkpoint keeps many: together hundreds of MiB, in no budget.
    rocksdb::FileOptions OptimizeForLogWrite(const rocksdb::FileOptions &options,
                                             const rocksdb::DBOptions &of) const override
    {
        rocksdb::FileOptions changed = target()->OptimizeForLogWrite(options, of);

        changed.writable_file_max_buffer_size =
            std::min(changed.writable_file_max_buffer_size, kLogBuffer);
        return changed;
    }

    rocksdb::IOStatus NewWritableFile(const std::string &name, const rocksdb::FileOptions &options,
                                      std::unique_ptr<rocksdb::FSWritableFile> *file,
                                      rocksdb::IODebugContext *dbg) override
    {
        const bool is_log = HasSuffix(name, ".log");
        const auto watch = is_log ? log_watches.Of(name) : nullptr;
        rocksdb::IOStatus status = target()->NewWritableFile(name, options, file, dbg);

        if (!status.ok() && watch && watch->IsOpened()) {
            file->reset(new LateFile(target(), name, options));
            status = rocksdb::IOStatus::OK();
        }
        if (!status.ok())
            return status;
        if (HasSuffix(name, ".sst"))
            file->reset(new TableFile(std::move(*file), table_files.Begin(name)));
        else
            file->reset(new CountedFile(std::move(*file), is_log ? &log_bytes : &other_bytes));
        if (watch) {
            const auto state = std::make_shared<LogState>(name);

            watch->AddLog(state);
            file->reset(new LogFile(std::move(*file), watch, state));
        }
        return status;
    }

  private:
    const bool io_uring_;
};

} // namespace

struct rocksdb_ext_activity {
    std::shared_ptr<Activity> rep;
};

struct rocksdb_ext_watch {
    std::shared_ptr<Watch> rep;
};

static char *TextOf(const Status &status)
{
    return status.ok() ? nullptr : strdup(status.ToString().c_str());
}

char *rocksdb_ext_table_error(const char *path)
{
    std::vector<std::string> names;

    if (!rocksdb::Env::Default()->GetChildren(path, &names).ok())
        return nullptr;
    std::sort(names.begin(), names.end());
    for (const std::string &name : names) {
        const std::string file = std::string(path) + "/" + name;
        const Status status = HasSuffix(name, ".sst")
                                  ? rocksdb::SstFileReader(rocksdb::Options()).Open(file)
                                  : Status::OK();

        if (!status.ok())
            return strdup((name + ": " + status.ToString()).c_str());
    }
    return nullptr;
}

bool rocksdb_ext_fits(void)
{
    const int files = 7654321;
    rocksdb_options_t *options = rocksdb_options_create();
    rocksdb_cache_t *cache = rocksdb_cache_create_lru(files);

    rocksdb_options_set_max_open_files(options, files);
    const bool fits = options->rep.max_open_files == files && cache->rep->GetCapacity() == files;
    rocksdb_cache_destroy(cache);
    rocksdb_options_destroy(options);
    return fits;
}

const char *rocksdb_ext_version(void)
{
    static const std::string version = rocksdb::GetRocksVersionAsString();

    return version.c_str();
}

bool rocksdb_ext_is_tried(const char *version)
{
    return rocksdb_is_tried(version);
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
    return new rocksdb_cache_t{ metadata_cache_new(bytes) };
}

bool rocksdb_ext_parse_options(const char *text,
                               bool (*each)(void *context, const char *name, const char *value),
                               void *context)
{
    std::unordered_map<std::string, std::string> parsed;

    if (!rocksdb::StringToMap(text, &parsed).ok())
        return false;
    for (const auto &option : std::map<std::string, std::string>(parsed.begin(), parsed.end()))
        if (!each(context, option.first.c_str(), option.second.c_str()))
            break;
    return true;
}

bool rocksdb_ext_each_option(const rocksdb_options_t *options,
                             bool (*each)(void *context, const char *name, const char *value),
                             void *context)
{
    rocksdb::ConfigOptions form;
    std::string of_database;
    std::string of_family;

    form.delimiter = ";";
    return rocksdb::GetStringFromDBOptions(form, rocksdb::DBOptions(options->rep), &of_database)
               .ok() &&
           rocksdb::GetStringFromColumnFamilyOptions(
               form, rocksdb::ColumnFamilyOptions(options->rep), &of_family)
               .ok() &&
           rocksdb_ext_parse_options(of_database.c_str(), each, context) &&
           rocksdb_ext_parse_options(of_family.c_str(), each, context);
}

const char *rocksdb_ext_compression(size_t index)
{
    static const struct {
        rocksdb::CompressionType type;
        const char *name;
    } names[] = {
        { rocksdb::kNoCompression, "kNoCompression" },
        { rocksdb::kSnappyCompression, "kSnappyCompression" },
        { rocksdb::kZlibCompression, "kZlibCompression" },
        { rocksdb::kBZip2Compression, "kBZip2Compression" },
        { rocksdb::kLZ4Compression, "kLZ4Compression" },
        { rocksdb::kLZ4HCCompression, "kLZ4HCCompression" },
        { rocksdb::kXpressCompression, "kXpressCompression" },
        { rocksdb::kZSTD, "kZSTD" },
#if ROCKSDB_MAJOR < 10
        { rocksdb::kZSTDNotFinalCompression, "kZSTDNotFinalCompression" },
#endif
    };
    const std::vector<rocksdb::CompressionType> can = rocksdb::GetSupportedCompressions();

    for (const auto &known : names)
        if (std::find(can.begin(), can.end(), known.type) != can.end() && index-- == 0)
            return known.name;
    return nullptr;
}

bool rocksdb_ext_start_threads(rocksdb_env_t *env, int flushing, int compacting)
{
    // A pool that is made larger makes its threads at once.
    try {
        rocksdb_env_set_high_priority_background_threads(env, flushing);
        rocksdb_env_set_background_threads(env, compacting);
    } catch (const std::system_error &) {
        return false;
    }
    return true;
}

bool rocksdb_ext_io_uring_works(void)
{
    return Ring::OfThread() != nullptr;
}

void rocksdb_ext_io_uring_begin(void)
{
    (void)Ring::OfThread();
}

void rocksdb_ext_use_file_system(rocksdb_options_t *options, bool io_uring)
{
    // Databases are closed whenever: they stay for the process's life.
    static const auto make = [](bool ring) {
        return rocksdb::NewCompositeEnv(
                   std::make_shared<StoreFileSystem>(
                       std::make_shared<RoomFileSystem>(rocksdb::FileSystem::Default()), ring))
            .release();
    };
    static rocksdb::Env *const envs[] = { make(false), make(true) };

    options->rep.env = envs[io_uring];
}

void rocksdb_ext_file_bytes(uint64_t *ret_log, uint64_t *ret_other)
{
    *ret_log = log_bytes;
    *ret_other = other_bytes;
}

void rocksdb_ext_log_to(rocksdb_options_t *options, const char *directory)
{
    options->rep.info_log = std::make_shared<PlainLogger>(std::string(directory) + "/LOG");
}

void rocksdb_ext_log_nowhere(rocksdb_options_t *options)
{
    options->rep.info_log = std::make_shared<SilentLogger>();
}

struct rocksdb_ext_activity *rocksdb_ext_activity_new(void)
{
    return new rocksdb_ext_activity{ std::make_shared<Activity>() };
}

void rocksdb_ext_activity_free(struct rocksdb_ext_activity *activity)
{
    delete activity;
}

void rocksdb_ext_activity_compactions(const struct rocksdb_ext_activity *activity,
                                      uint32_t *ret_running_shards, uint32_t *ret_peak_shards,
                                      uint64_t *ret_completed)
{
    std::lock_guard<std::mutex> lock(activity->rep->mutex);
    *ret_running_shards = activity->rep->running_shards;
    *ret_peak_shards = activity->rep->peak_shards;
    *ret_completed = activity->rep->completed;
}

void rocksdb_ext_activity_written(const struct rocksdb_ext_activity *activity, uint32_t table_id,
                                  struct rocksdb_ext_written *ret_written)
{
    std::lock_guard<std::mutex> lock(activity->rep->mutex);
    if (table_id == ROCKSDB_EXT_ALL_TABLES) {
        *ret_written = activity->rep->all_written;
        return;
    }
    const auto found = activity->rep->written.find(table_id);
    *ret_written = found == activity->rep->written.end() ? rocksdb_ext_written{} : found->second;
}

void rocksdb_ext_note_tables(rocksdb_options_t *options)
{
    options->rep.table_properties_collector_factories.push_back(
        std::make_shared<TableNotesFactory>());
}

struct rocksdb_ext_watch *rocksdb_ext_watch_new(struct rocksdb_ext_activity *activity,
                                                rocksdb_options_t *options, const char *path)
{
    auto watch = std::make_shared<Watch>(activity->rep);

    log_watches.RemoveGone();
    log_watches.Add(path, watch);
    options->rep.listeners.push_back(watch);
    options->rep.max_bgerror_resume_count = 0; // who watches also resumes
    // Who closes has flushed; RocksDB's own flush would wait for ever on a disk that fails.
    options->rep.avoid_flush_during_shutdown = true;
    return new rocksdb_ext_watch{ std::move(watch) };
}

void rocksdb_ext_watch_free(struct rocksdb_ext_watch *watch)
{
    delete watch;
}

char *rocksdb_ext_watch_error(const struct rocksdb_ext_watch *watch)
{
    return TextOf(watch->rep->Error());
}

uint64_t rocksdb_ext_watch_log_failures(const struct rocksdb_ext_watch *watch)
{
    return watch->rep->LogFailures();
}

char *rocksdb_ext_watch_log_error(const struct rocksdb_ext_watch *watch, uint64_t failures)
{
    return TextOf(watch->rep->LogError(failures));
}

// As RocksDB tells its own: a full disk is a kind of its own.
static rocksdb::IOStatus IoErrorOf(const std::string &what, int error)
{
    return error == ENOSPC || error == EDQUOT ? rocksdb::IOStatus::NoSpace(what, strerror(error))
                                              : rocksdb::IOStatus::IOError(what, strerror(error));
}

// A failed write is told once to each open file. Of two threads that sync a log by the same
// descriptor one may hear nothing of it, and take for safe what is not: only the syncer has that of
// the log.
void rocksdb_ext_sync_logs(struct rocksdb_ext_watch *const *watches, uint32_t count, bool io_uring,
                           bool by_syncer)
{
    std::vector<std::shared_ptr<LogState>> logs;
    std::vector<Watch *> watch_of;
    std::vector<uint64_t> written, whole;
    std::vector<std::shared_ptr<const OpenFile>> held; // by the syncer
    std::vector<int> files;

    for (uint32_t i = 0; i < count; i++) {
        for (const auto &log : watches[i]->rep->UnsyncedLogs()) {
            logs.push_back(log);
            watch_of.push_back(watches[i]->rep.get());
            whole.push_back(log->whole);
            written.push_back(log->written);
            int error = 0;
            const auto file = by_syncer ? log->File(&error) : nullptr;
            held.push_back(file);
            files.push_back(!by_syncer ? log->Open() : file ? file->Number() : -error);
        }
    }
    std::vector<int> results(files.size(), 0);
    Ring *const ring = io_uring && files.size() > 1 ? Ring::OfThread() : nullptr;
    if (ring)
        ring->Sync(files, results);
    for (size_t i = 0; i < files.size() && !ring; i++)
        results[i] = fdatasync(files[i]) == 0 ? 0 : errno;
    for (size_t i = 0; i < files.size(); i++) {
        if (files[i] >= 0 && !by_syncer)
            close(files[i]);
        if (files[i] == -ENOENT &&
            !by_syncer) // gone meanwhile: all that was in it has been flushed
            continue;
        if (files[i] < 0)
            results[i] = -files[i];
        if (results[i] == 0)
            results[i] = logs[i]->SyncName();
        if (results[i] == 0)
            logs[i]->SetSynced(written[i], whole[i]);
        else
            watch_of[i]->OnLogFailed(IoErrorOf("While syncing log", results[i]));
    }
    held.clear();
    for (uint32_t i = 0; i < count; i++)
        watches[i]->rep->OnLogsSynced();
}

bool rocksdb_ext_watch_synced(struct rocksdb_ext_watch *watch,
                              struct rocksdb_ext_synced *ret_synced)
{
    return watch->rep->Synced(ret_synced);
}

void rocksdb_ext_watch_marked(struct rocksdb_ext_watch *watch,
                              const struct rocksdb_ext_synced *synced)
{
    watch->rep->SetMarked(*synced);
}

void rocksdb_ext_watch_opened(struct rocksdb_ext_watch *watch, rocksdb_t *db)
{
    watch->rep->SetFlushed(db->rep->GetLatestSequenceNumber());
    watch->rep->SetOpened();
}

bool rocksdb_ext_begin_write(struct rocksdb_ext_watch *watch)
{
    return watch->rep->ResumeMutex().try_lock_shared();
}

void rocksdb_ext_end_write(struct rocksdb_ext_watch *watch)
{
    watch->rep->ResumeMutex().unlock_shared();
}

// While the database is resumed by somebody else, that is who flushes.
static Status BeginFlush(rocksdb_t *db, struct rocksdb_ext_watch *watch,
                         const rocksdb::FlushOptions &options)
{
    std::shared_lock<std::shared_mutex> not_resumed(watch->rep->ResumeMutex(), std::try_to_lock);

    if (not_resumed)
        return db->rep->Flush(options);
    const Status error = watch->rep->Error();
    return error.ok() ? Status::TryAgain("the database is being resumed") : error;
}

// Writes are stopped while level 0 waits for compaction, and such flushes are refused: @tries.
static Status Flush(rocksdb_t *db, struct rocksdb_ext_watch *watch, unsigned tries,
                    bool is_resuming)
{
    const rocksdb::SequenceNumber sequence = db->rep->GetLatestSequenceNumber();
    const uint64_t errors = watch->rep->Errors();
    rocksdb::FlushOptions options;

    // Otherwise RocksDB waits until the flush would not stall writes.
    options.allow_write_stall = true;
    // Its own wait returns at once after a resume, and never after a flush that failed.
    options.wait = false;
    const auto begin = [&] {
        return is_resuming ? db->rep->Flush(options) : BeginFlush(db, watch, options);
    };
    Status status = begin();
    while (status.IsTryAgain() && --tries > 0 && !watch->rep->HasFailed(errors)) {
        usleep(10000);
        status = begin();
    }
    return status.ok() ? watch->rep->WaitFlushed(sequence, errors) : status;
}

char *rocksdb_ext_flush(rocksdb_t *db, struct rocksdb_ext_watch *watch, unsigned patience_ms)
{
    return TextOf(Flush(db, watch, patience_ms / 10 + 1, false));
}

// A new MANIFEST, which any change makes: an option that stays as it is counts as one. What the one
// before may have held, or not, is without meaning then. Says of how many failures that is the end.
static Status RenewManifest(rocksdb::DB *db, const Watch *watch, uint64_t *ret_failures)
{
    *ret_failures = watch->ManifestFailures();
    if (*ret_failures == 0)
        return Status::OK();
    const bool value = db->GetOptions().report_bg_io_stats;
    return db->SetOptions({ { "report_bg_io_stats", value ? "true" : "false" } });
}

static void ForgetManifestFailures(rocksdb::DB *db, Watch *watch, uint64_t failures)
{
    for (uint64_t i = 0; i < failures; i++)
        (void)rocksdb_delete_files_again(db);
    watch->ForgetManifestFailures(failures);
}

char *rocksdb_ext_enable_file_deletions(rocksdb_t *db)
{
    return TextOf(rocksdb_delete_files_again(db->rep));
}

char *rocksdb_ext_renew_manifest(rocksdb_t *db, struct rocksdb_ext_watch *watch)
{
    uint64_t failures = 0;
    const Status status = RenewManifest(db->rep, watch->rep.get(), &failures);

    if (status.ok())
        ForgetManifestFailures(db->rep, watch->rep.get(), failures);
    return TextOf(status);
}

char *rocksdb_ext_compact_range(rocksdb_t *db, const char *start, size_t start_bytes,
                                const char *end, size_t end_bytes)
{
    const Slice first(start, start_bytes), behind(end, end_bytes);
    rocksdb::CompactRangeOptions options;

    // Else a file with nothing in it but the mark that a range was deleted is only moved down, and
    // stays there for ever.
    options.bottommost_level_compaction = rocksdb::BottommostLevelCompaction::kForceOptimized;
    return TextOf(db->rep->CompactRange(options, &first, &behind));
}

char *rocksdb_ext_set_option(rocksdb_t *db, struct rocksdb_ext_watch *watch, const char *key,
                             const char *value)
{
    const Status status = db->rep->SetOptions({ { key, value } });

    if (status.IsIOError())
        watch->rep->OnManifestFailed(db->rep, status);
    return TextOf(status);
}

char *rocksdb_ext_resume(rocksdb_t *db, struct rocksdb_ext_watch *watch)
{
    const std::lock_guard<std::shared_mutex> lock(watch->rep->ResumeMutex());
    const uint64_t errors = watch->rep->Errors();
    const bool stands_still = watch->rep->HasFailed(errors);
    uint64_t failures = 0;
    Status status = RenewManifest(db->rep, watch->rep.get(), &failures);

    if (status.ok())
        status = db->rep->Resume(); // which flushes if background work stood still
    // Nobody else tries a flush again that failed; until it is done, the error stands.
    if (status.ok() && (watch->rep->LogFailed() || (!stands_still && watch->rep->FlushFailed())))
        status = Flush(db, watch, 1, true);
    if (status.ok()) {
        ForgetManifestFailures(db->rep, watch->rep.get(), failures);
        watch->rep->ClearError(errors);
    }
    return TextOf(status);
}

void rocksdb_ext_sum_files(rocksdb_options_t *options)
{
    options->rep.file_checksum_gen_factory = rocksdb::GetFileChecksumGenCrc32cFactory();
}

struct rocksdb_ext_sum {
    std::unique_ptr<rocksdb::FileChecksumGenerator> rep;
};

struct rocksdb_ext_sum *rocksdb_ext_sum_new(void)
{
    return new rocksdb_ext_sum{
        rocksdb::GetFileChecksumGenCrc32cFactory()->CreateFileChecksumGenerator({})
    };
}

void rocksdb_ext_sum_add(struct rocksdb_ext_sum *sum, const void *bytes, size_t count)
{
    sum->rep->Update(static_cast<const char *>(bytes), count);
}

// Four bytes, most significant first.
static bool SumOf(const std::string &text, uint32_t *ret_sum)
{
    uint32_t sum = 0;

    for (const char c : text)
        sum = sum << 8 | static_cast<uint8_t>(c);
    *ret_sum = sum;
    return text.size() == sizeof(sum);
}

uint32_t rocksdb_ext_sum_end(struct rocksdb_ext_sum *sum)
{
    uint32_t value = 0;

    sum->rep->Finalize();
    (void)SumOf(sum->rep->GetChecksum(), &value);
    delete sum;
    return value;
}

struct rocksdb_ext_files {
    rocksdb::DB *db;
    std::shared_ptr<Watch> watch;
    uint64_t log_failures; // before they were listed
    std::vector<rocksdb::LiveFileStorageInfo> rep;
};

// Of OPTIONS files RocksDB keeps the two with the highest numbers, also of those that it could not
// make durable and does not count: the one that it names may be gone. No opening needs it.
static void ForgetGoneOptions(std::vector<rocksdb::LiveFileStorageInfo> &files)
{
    const auto is_gone = [](const rocksdb::LiveFileStorageInfo &file) {
        const std::string path = file.directory + "/" + file.relative_filename;

        return file.file_type == rocksdb::kOptionsFile && access(path.c_str(), F_OK) != 0 &&
               errno == ENOENT;
    };

    files.erase(std::remove_if(files.begin(), files.end(), is_gone), files.end());
}

// RocksDB writes into its MANIFEST how long the logs are that have been followed by others. Of one
// that has failed (LogFile) it knows no right length, and would never open the database again. It
// also syncs them, and would not hear of a failure: they have to be on disk before.
static Status ListFiles(rocksdb::DB *db, Watch *watch,
                        std::vector<rocksdb::LiveFileStorageInfo> *ret_files)
{
    rocksdb::LiveFilesStorageInfoOptions options;
    std::shared_lock<std::shared_mutex> not_resumed(watch->ResumeMutex(), std::try_to_lock);

    if (!not_resumed) {
        const Status status = watch->Error();
        if (!status.ok())
            return status;
        not_resumed.lock(); // it has just succeeded
    }
    if (watch->LogFailed() || watch->ManifestFailures() > 0)
        return watch->Error();
    options.include_checksum_info = true;
    options.wal_size_for_flush = UINT64_MAX; // never flush
    const Status status = db->GetLiveFilesStorageInfo(options, ret_files);
    // It notes there which logs are on disk, and does not hear if that fails.
    return status.ok() && watch->ManifestFailures() > 0 ? watch->Error() : status;
}

struct rocksdb_ext_files *rocksdb_ext_files_new(rocksdb_t *db, struct rocksdb_ext_watch *watch,
                                                char **error)
{
    auto files = std::make_unique<rocksdb_ext_files>();

    files->db = db->rep;
    files->watch = watch->rep;
    files->log_failures = watch->rep->LogFailures();
    Status status = db->rep->DisableFileDeletions();
    if (status.ok()) {
        rocksdb_ext_sync_logs(&watch, 1, false, false);
        status = ListFiles(db->rep, watch->rep.get(), &files->rep);
        if (status.ok())
            status = watch->rep->LogError(files->log_failures);
        if (!status.ok())
            (void)rocksdb_delete_files_again(db->rep);
    }
    ForgetGoneOptions(files->rep);
    *error = TextOf(status);
    return status.ok() ? files.release() : nullptr;
}

size_t rocksdb_ext_files_count(const struct rocksdb_ext_files *files)
{
    return files->rep.size();
}

void rocksdb_ext_files_at(const struct rocksdb_ext_files *files, size_t index,
                          struct rocksdb_ext_file *ret_file)
{
    const rocksdb::LiveFileStorageInfo &file = files->rep[index];

    *ret_file = {};
    ret_file->name = file.relative_filename.c_str();
    if (!file.replacement_contents.empty())
        ret_file->contents = file.replacement_contents.c_str();
    ret_file->bytes = file.size;
    ret_file->is_table = file.file_type == rocksdb::kTableFile;
    ret_file->has_sum = ret_file->is_table &&
                        file.file_checksum_func_name == rocksdb::kStandardDbFileChecksumFuncName &&
                        SumOf(file.file_checksum, &ret_file->sum);
}

char *rocksdb_ext_files_log_error(const struct rocksdb_ext_files *files)
{
    return TextOf(files->watch->LogError(files->log_failures));
}

void rocksdb_ext_files_free(struct rocksdb_ext_files *files)
{
    if (!files)
        return;
    (void)rocksdb_delete_files_again(files->db);
    delete files;
}
