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

    // Also called for files that failed.
    void OnTableFileCreated(const rocksdb::TableFileCreationInfo &file) override;

    void OnExternalFileIngested(rocksdb::DB *,
                                const rocksdb::ExternalFileIngestionInfo &file) override;

    // A failed flush leaves the write buffers as they were, and a failed compaction its inputs. So
    // a retry is safe and loses nothing, and the listener reports success to RocksDB. Otherwise it
    // would take the error for hard or fatal. Its recovery from a hard error may wait for ever: a
    // flush scheduled when background work stops ends without leaving its queue. No other flush can
    // enter that queue then. A compaction without space is a soft error, which Resume() leaves
    // standing. Until twice the space of all its files is free, RocksDB would refuse all other
    // compactions, also the one that frees space. A change that the MANIFEST did not take has not
    // happened either, and the next change begins a new MANIFEST. But the old one may hold the
    // change, so RocksDB has stopped deleting files.
    void OnBackgroundError(rocksdb::BackgroundErrorReason reason, rocksdb::Status *error) override;

    // Does the same for a change whose failure is no background error to RocksDB.
    void OnManifestFailed(rocksdb::DB *db, const rocksdb::Status &error);

    // Each failure has files kept (DisableFileDeletions()) until it is forgotten.
    uint64_t ManifestFailures() const
    {
        return manifest_failures_;
    }

    void ForgetManifestFailures(uint64_t count)
    {
        manifest_failures_ -= count;
    }

    uint64_t CompactedBytes() const
    {
        return compacted_bytes_;
    }

    void AddLog(const std::shared_ptr<LogState> &log);

    void OnLogsSynced();

    // Returns the logs that are not on disk as far as they have been written.
    std::vector<std::shared_ptr<LogState>> UnsyncedLogs();

    // See rocksdb_ext_watch_synced(). A log that has failed is never on disk as a whole.
    bool Synced(rocksdb_ext_synced *ret_synced);

    void SetMarked(const rocksdb_ext_synced &synced);

    // The write buffers hold the records that the log lacks. Once flushed, the records are safe and
    // the log is out of use, as after a failed flush.
    void OnLogFailed(const rocksdb::Status &error);

    void SetOpened()
    {
        opened_ = true;
    }

    // While this is false, a failure refuses the start.
    bool IsOpened() const
    {
        return opened_;
    }

    uint64_t LogFailures() const
    {
        return log_failures_;
    }

    // Returns OK, or why the log takes no more, or why it failed after LogFailures() returned
    // @failures.
    rocksdb::Status LogError(uint64_t failures);

    bool LogFailed() const
    {
        return log_failed_;
    }

    // Held while the database is resumed: only a resume has another log follow one that has failed.
    // Callers that may make RocksDB switch write buffers share it, as a switch writes to the
    // MANIFEST. RocksDB 7.8 aborts if another thread makes a new MANIFEST during a resume (fixed in
    // its pull request 12871).
    std::shared_mutex &ResumeMutex()
    {
        return resume_mutex_;
    }

    void OnFlushCompleted(rocksdb::DB *, const rocksdb::FlushJobInfo &info) override
    {
        SetFlushed(info.largest_seqno);
    }

    void SetFlushed(rocksdb::SequenceNumber sequence);

    // True if background work has failed since Errors() returned @errors, or stands still.
    bool HasFailed(uint64_t errors);

    // Waits until all up to @sequence is flushed, or until an error as above.
    rocksdb::Status WaitFlushed(rocksdb::SequenceNumber sequence, uint64_t errors);

    void OnErrorRecoveryEnd(const rocksdb::BackgroundErrorRecoveryInfo &info) override;

    uint64_t Errors();

    // Does nothing if there has been an error since Errors() returned @errors: that one stands.
    void ClearError(uint64_t errors);

    bool FlushFailed();

    rocksdb::Status Error();

  private:
    // Adds an error that RocksDB does not know of, and that a flush resolves.
    void AddSoftError(const rocksdb::Status &error);

    // Releases all synced logs but the last, which is written to. The caller holds logs_mutex_.
    void ReleaseSynced();

    bool Failed(uint64_t errors) const
    {
        return errors_ != errors || error_.severity() >= rocksdb::Status::Severity::kHardError;
    }

    std::shared_ptr<Activity> activity_;
    uint32_t running_ = 0; // under activity_->mutex
    std::atomic<uint64_t> compacted_bytes_ = 0;
    std::shared_mutex resume_mutex_; // taken before error_mutex_
    std::mutex error_mutex_;
    std::condition_variable changed_;
    rocksdb::Status error_;
    uint64_t errors_ = 0; // number so far
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

// The watches, each by the directory of its logs.
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
