// SPDX-License-Identifier: Apache-2.0
// watch.hh: listens to one database: its background work and errors, and its write-ahead logs.
// Thread: any.
#pragma once

#include "store/rocksdb/ext/activity.hh"
#include "store/rocksdb/ext/log_state.hh"

#include <rocksdb/db.h>
#include <rocksdb/listener.h>
#include <rocksdb/status.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <utility>
#include <vector>

namespace rocksdb_ext
{

class Watch final : public rocksdb::EventListener
{
  public:
    explicit Watch(std::shared_ptr<Activity> activity) : activity_(std::move(activity))
    {
    }

    void OnFlushBegin(rocksdb::DB *, const rocksdb::FlushJobInfo &) override;

    void OnCompactionBegin(rocksdb::DB *, const rocksdb::CompactionJobInfo &) override;

    void OnCompactionCompleted(rocksdb::DB *, const rocksdb::CompactionJobInfo &) override;

    // Also of files that failed.
    void OnTableFileCreated(const rocksdb::TableFileCreationInfo &file) override;

    void OnExternalFileIngested(rocksdb::DB *,
                                const rocksdb::ExternalFileIngestionInfo &file) override;

    // A flush that failed has left the write buffers as they were, and a compaction its inputs, so
    // trying again is safe and loses nothing: RocksDB is told that all is well. It would take the
    // error for hard or fatal, and its recovery from a hard one may wait for ever: a flush that is
    // scheduled when background work stops ends without leaving its queue, and then no other flush
    // can enter that. A compaction without space is a soft error, which Resume() leaves as it is:
    // until there is twice the space that all its files take, RocksDB would refuse each other one,
    // also the compaction that frees space.
    // A change that the MANIFEST did not take has not happened either, and the next one begins a
    // new MANIFEST; but the old one may hold it, so RocksDB has stopped deleting files.
    void OnBackgroundError(rocksdb::BackgroundErrorReason reason, rocksdb::Status *error) override;

    // As above, for a change that RocksDB makes no background error of.
    void OnManifestFailed(rocksdb::DB *db, const rocksdb::Status &error);

    // Each has files kept (DisableFileDeletions()) until it is forgotten.
    uint64_t ManifestFailures() const
    {
        return manifest_failures_;
    }

    void ForgetManifestFailures(uint64_t count)
    {
        manifest_failures_ -= count;
    }

    void AddLog(const std::shared_ptr<LogState> &log);

    void OnLogsSynced();

    // Those that are not on disk as far as they have been written.
    std::vector<std::shared_ptr<LogState>> UnsyncedLogs();

    // As rocksdb_ext_watch_synced(). A log that has failed is never on disk as a whole.
    bool Synced(rocksdb_ext_synced *ret_synced);

    void SetMarked(const rocksdb_ext_synced &synced);

    // The write buffers hold the records that the log lacks. Once they have been flushed, these are
    // safe and the log is out of use, as after a flush that failed.
    void OnLogFailed(const rocksdb::Status &error);

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
    rocksdb::Status LogError(uint64_t failures);

    bool LogFailed() const
    {
        return log_failed_;
    }

    // Held while the database is resumed: only then is a log that has failed followed by another.
    // Callers that may have write buffers switched share it: that writes to the MANIFEST, and
    // RocksDB 7.8 aborts when another thread makes a new one while it resumes (fixed in its pull
    // request 12871).
    std::shared_mutex &ResumeMutex()
    {
        return resume_mutex_;
    }

    void OnFlushCompleted(rocksdb::DB *, const rocksdb::FlushJobInfo &info) override
    {
        SetFlushed(info.largest_seqno);
    }

    void SetFlushed(rocksdb::SequenceNumber sequence);

    // Whether background work has failed since Errors() said @errors, or stands still.
    bool HasFailed(uint64_t errors);

    // Until all up to @sequence is flushed, or an error as above.
    rocksdb::Status WaitFlushed(rocksdb::SequenceNumber sequence, uint64_t errors);

    void OnErrorRecoveryEnd(const rocksdb::BackgroundErrorRecoveryInfo &info) override;

    uint64_t Errors();

    // Unless there has been an error since Errors() said @errors: that one still stands.
    void ClearError(uint64_t errors);

    bool FlushFailed();

    rocksdb::Status Error();

  private:
    // An error that RocksDB knows nothing of, and a flush gets over.
    void AddSoftError(const rocksdb::Status &error);

    // Under the lock of the list of logs. The last one is written to.
    void ReleaseSynced();

    bool Failed(uint64_t errors) const
    {
        return errors_ != errors || error_.severity() >= rocksdb::Status::Severity::kHardError;
    }

    std::shared_ptr<Activity> activity_;
    uint32_t running_ = 0;           // under activity_->mutex
    std::shared_mutex resume_mutex_; // taken before error_mutex_
    std::mutex error_mutex_;
    std::condition_variable changed_;
    rocksdb::Status error_;
    uint64_t errors_ = 0; // so far
    bool flush_failed_ = false;
    rocksdb::Status log_error_;
    std::mutex logs_mutex_;
    std::vector<std::shared_ptr<LogState>> logs_;
    std::pair<uint64_t, uint64_t> marked_{ 0, 0 }; // log and bytes
    std::atomic<bool> log_failed_{ false };
    std::atomic<bool> opened_{ false };
    std::atomic<uint64_t> log_failures_{ 0 };
    std::atomic<uint64_t> manifest_failures_{ 0 };
    rocksdb::SequenceNumber flushed_ = 0;
};

// The watch that is to hear of logs in a directory.
struct LogWatches {
    std::mutex mutex;
    std::map<std::string, std::weak_ptr<Watch>> by_directory;

    void Add(const std::string &directory, const std::shared_ptr<Watch> &watch);

    std::shared_ptr<Watch> Of(const std::string &file);

    void RemoveGone();
};
extern LogWatches log_watches;

} // namespace rocksdb_ext

struct rocksdb_ext_watch {
    std::shared_ptr<rocksdb_ext::Watch> rep;
};
