// SPDX-License-Identifier: Apache-2.0
// watch.cc: notes a database's events, and errors that RocksDB does not get over alone.
#include "store/rocksdb/ext/watch.hh"

#include "base/system/thread_class.h"
#include "store/rocksdb/ext/handles.hh"

#include <algorithm>
#include <iterator>

namespace rocksdb_ext
{

using rocksdb::Status;

LogWatches log_watches;

// Runs on a thread of RocksDB's pools, where no other code of ours runs.
static void EnterUpkeep()
{
    static thread_local bool entered = false;

    if (!std::exchange(entered, true))
        thread_class_upkeep();
}

void Watch::OnFlushBegin(rocksdb::DB *, const rocksdb::FlushJobInfo &)
{
    EnterUpkeep();
}

void Watch::OnCompactionBegin(rocksdb::DB *, const rocksdb::CompactionJobInfo &)
{
    EnterUpkeep();
    std::lock_guard<std::mutex> lock(activity_->mutex);
    if (running_++ > 0)
        return;
    activity_->running_shards++;
    if (activity_->peak_shards < activity_->running_shards)
        activity_->peak_shards = activity_->running_shards;
}

void Watch::OnCompactionCompleted(rocksdb::DB *, const rocksdb::CompactionJobInfo &job)
{
    compacted_bytes_ += job.stats.total_input_bytes;
    std::lock_guard<std::mutex> lock(activity_->mutex);
    activity_->completed++;
    if (running_ > 0 && --running_ == 0)
        activity_->running_shards--;
}

void Watch::OnTableFileCreated(const rocksdb::TableFileCreationInfo &file)
{
    activity_->AddFile(file.table_properties, table_files.Take(file.file_path),
                       file.reason == rocksdb::TableFileCreationReason::kCompaction
                           ? &rocksdb_ext_written::compaction_bytes
                           : &rocksdb_ext_written::flush_bytes);
}

void Watch::OnExternalFileIngested(rocksdb::DB *, const rocksdb::ExternalFileIngestionInfo &file)
{
    activity_->AddFile(file.table_properties, file.table_properties.data_size,
                       &rocksdb_ext_written::import_bytes);
}

void Watch::OnBackgroundError(rocksdb::BackgroundErrorReason reason, Status *error)
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

void Watch::OnManifestFailed(rocksdb::DB *db, const Status &error)
{
    (void)db->DisableFileDeletions();
    std::lock_guard<std::mutex> lock(error_mutex_);
    manifest_failures_++;
    AddSoftError(Status(error, Status::Severity::kSoftError));
}

void Watch::AddLog(const std::shared_ptr<LogState> &log)
{
    std::lock_guard<std::mutex> lock(logs_mutex_);
    logs_.erase(std::remove_if(logs_.begin(), logs_.end(),
                               [](const std::shared_ptr<LogState> &old) { return old->IsGone(); }),
                logs_.end());
    logs_.push_back(log);
    ReleaseSynced();
}

void Watch::OnLogsSynced()
{
    std::lock_guard<std::mutex> lock(logs_mutex_);
    ReleaseSynced();
}

std::vector<std::shared_ptr<LogState>> Watch::UnsyncedLogs()
{
    std::vector<std::shared_ptr<LogState>> logs;
    std::lock_guard<std::mutex> lock(logs_mutex_);
    for (const auto &log : logs_)
        if (log->written > log->synced && (log->HasFile() || !log->IsGone()))
            logs.push_back(log);
    return logs;
}

bool Watch::Synced(rocksdb_ext_synced *ret_synced)
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

void Watch::SetMarked(const rocksdb_ext_synced &synced)
{
    std::lock_guard<std::mutex> lock(logs_mutex_);

    marked_ = std::max(marked_, std::make_pair(synced.log, synced.bytes));
}

void Watch::OnLogFailed(const Status &error)
{
    std::lock_guard<std::mutex> lock(error_mutex_);
    log_error_ = Status(error, Status::Severity::kSoftError);
    log_failed_ = true;
    log_failures_++;
    AddSoftError(log_error_);
}

Status Watch::LogError(uint64_t failures)
{
    if (!log_failed_ && log_failures_ == failures)
        return Status::OK();
    std::lock_guard<std::mutex> lock(error_mutex_);
    return log_error_;
}

void Watch::SetFlushed(rocksdb::SequenceNumber sequence)
{
    std::lock_guard<std::mutex> lock(error_mutex_);
    flushed_ = std::max(flushed_, sequence);
    changed_.notify_all();
}

bool Watch::HasFailed(uint64_t errors)
{
    std::lock_guard<std::mutex> lock(error_mutex_);
    return Failed(errors);
}

Status Watch::WaitFlushed(rocksdb::SequenceNumber sequence, uint64_t errors)
{
    std::unique_lock<std::mutex> lock(error_mutex_);
    changed_.wait(lock, [&] { return flushed_ >= sequence || Failed(errors); });
    if (flushed_ >= sequence)
        return Status::OK();
    // The error may have been resolved already, which says nothing about this flush.
    return error_.ok() ? Status::Aborted("background work failed meanwhile") : error_;
}

void Watch::OnErrorRecoveryEnd(const rocksdb::BackgroundErrorRecoveryInfo &info)
{
    std::lock_guard<std::mutex> lock(error_mutex_);
    if (!flush_failed_) // RocksDB knows nothing of failed flushes
        error_ = info.new_bg_error;
}

uint64_t Watch::Errors()
{
    std::lock_guard<std::mutex> lock(error_mutex_);
    return errors_;
}

void Watch::ClearError(uint64_t errors)
{
    std::lock_guard<std::mutex> lock(error_mutex_);
    if (errors_ != errors)
        return;
    error_ = Status::OK();
    flush_failed_ = log_failed_ = false;
}

bool Watch::FlushFailed()
{
    std::lock_guard<std::mutex> lock(error_mutex_);
    return flush_failed_;
}

Status Watch::Error()
{
    std::lock_guard<std::mutex> lock(error_mutex_);
    return error_;
}

void Watch::AddSoftError(const Status &error)
{
    if (error_.severity() <= Status::Severity::kSoftError)
        error_ = error;
    errors_++;
    flush_failed_ = true;
    changed_.notify_all();
}

void Watch::ReleaseSynced()
{
    for (size_t i = 0; i + 1 < logs_.size(); i++)
        logs_[i]->Release();
}

void LogWatches::Add(const std::string &directory, const std::shared_ptr<Watch> &watch)
{
    std::lock_guard<std::mutex> lock(mutex);
    by_directory[directory] = watch;
}

std::shared_ptr<Watch> LogWatches::Of(const std::string &file)
{
    std::lock_guard<std::mutex> lock(mutex);
    const auto found = by_directory.find(file.substr(0, file.rfind('/')));
    return found == by_directory.end() ? nullptr : found->second.lock();
}

void LogWatches::RemoveGone()
{
    std::lock_guard<std::mutex> lock(mutex);
    for (auto at = by_directory.begin(); at != by_directory.end();)
        at = at->second.expired() ? by_directory.erase(at) : std::next(at);
}

} // namespace rocksdb_ext

using rocksdb_ext::TextOf;

struct rocksdb_ext_watch *rocksdb_ext_watch_new(struct rocksdb_ext_activity *activity,
                                                rocksdb_options_t *options, const char *path)
{
    auto watch = std::make_shared<rocksdb_ext::Watch>(activity->rep);

    rocksdb_ext::log_watches.RemoveGone();
    rocksdb_ext::log_watches.Add(path, watch);
    options->rep.listeners.push_back(watch);
    options->rep.enable_thread_tracking = true; // for rocksdb_ext_each_compaction()
    options->rep.max_bgerror_resume_count = 0;  // the watch's owner resumes
    // A close has flushed before; RocksDB's own flush would wait for ever on a failing disk.
    options->rep.avoid_flush_during_shutdown = true;
    return new rocksdb_ext_watch{ std::move(watch) };
}

void rocksdb_ext_watch_free(struct rocksdb_ext_watch *watch)
{
    delete watch;
}

uint64_t rocksdb_ext_watch_compacted(const struct rocksdb_ext_watch *watch)
{
    return watch->rep->CompactedBytes();
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
