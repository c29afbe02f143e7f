// SPDX-License-Identifier: Apache-2.0
// flush.cc: flushes, compacts and sets options of an open database, and resumes it after errors.
#include "store/rocksdb/ext/handles.hh"
#include "store/rocksdb/ext/versions.hh"
#include "store/rocksdb/ext/watch.hh"

#include <rocksdb/db.h>
#include <rocksdb/options.h>

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <unordered_map>

using rocksdb::Slice;
using rocksdb::Status;
using rocksdb_ext::TextOf;
using rocksdb_ext::Watch;

// Fails while another thread resumes the database: that thread flushes.
static Status BeginFlush(rocksdb_t *db, struct rocksdb_ext_watch *watch,
                         const rocksdb::FlushOptions &options)
{
    std::shared_lock<std::shared_mutex> not_resumed(watch->rep->ResumeMutex(), std::try_to_lock);

    if (not_resumed)
        return db->rep->Flush(options);
    const Status error = watch->rep->Error();
    return error.ok() ? Status::TryAgain("the database is being resumed") : error;
}

// Makes up to @tries tries: writes are stopped while level 0 waits for compaction, and RocksDB
// refuses such flushes.
static Status Flush(rocksdb_t *db, struct rocksdb_ext_watch *watch, unsigned tries,
                    bool is_resuming)
{
    const rocksdb::SequenceNumber sequence = db->rep->GetLatestSequenceNumber();
    const uint64_t errors = watch->rep->Errors();
    rocksdb::FlushOptions options;

    // Otherwise RocksDB waits until the flush would not stall writes.
    options.allow_write_stall = true;
    // RocksDB's own wait returns at once after a resume, and never after a failed flush.
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

// Begins a new MANIFEST, as any change does; an option that is set to its own value counts as one.
// The old one's contents do not matter then. *@ret_failures: the number of failures that this ends.
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

static rocksdb::CompactRangeOptions CompactAll()
{
    rocksdb::CompactRangeOptions options;

    // Otherwise a file with only the mark of a deleted range is just moved down, and stays there
    // for ever.
    options.bottommost_level_compaction = rocksdb::BottommostLevelCompaction::kForceOptimized;
    // Otherwise level 0 grows meanwhile until writes stop.
    options.exclusive_manual_compaction = false;
    return options;
}

char *rocksdb_ext_compact_range(rocksdb_t *db, const char *start, size_t start_bytes,
                                const char *end, size_t end_bytes)
{
    const Slice first(start, start_bytes), behind(end, end_bytes);

    return TextOf(db->rep->CompactRange(CompactAll(), &first, &behind));
}

struct rocksdb_ext_stop {
    std::atomic<bool> is_ended{ false };
};

struct rocksdb_ext_stop *rocksdb_ext_stop_new(void)
{
    return new rocksdb_ext_stop;
}

void rocksdb_ext_stop_set(struct rocksdb_ext_stop *stop, bool is_ended)
{
    stop->is_ended = is_ended;
}

void rocksdb_ext_stop_free(struct rocksdb_ext_stop *stop)
{
    delete stop;
}

char *rocksdb_ext_rewrite_range(rocksdb_t *db, const char *start, size_t start_bytes,
                                const char *end, size_t end_bytes, struct rocksdb_ext_stop *stop,
                                bool *ret_stopped)
{
    const Slice first(start, start_bytes), last(end, end_bytes);
    rocksdb::CompactRangeOptions options = CompactAll();

    options.canceled = &stop->is_ended;
    options.blob_garbage_collection_policy = rocksdb::BlobGarbageCollectionPolicy::kForce;
    options.blob_garbage_collection_age_cutoff = 1.0;
    const Status status =
        db->rep->CompactRange(options, start ? &first : nullptr, end ? &last : nullptr);
    *ret_stopped = status.IsManualCompactionPaused();
    return TextOf(status);
}

static char *SetOptions(rocksdb_t *db, struct rocksdb_ext_watch *watch,
                        const std::unordered_map<std::string, std::string> &options)
{
    const Status status = db->rep->SetOptions(options);

    if (status.IsIOError())
        watch->rep->OnManifestFailed(db->rep, status);
    return TextOf(status);
}

char *rocksdb_ext_set_option(rocksdb_t *db, struct rocksdb_ext_watch *watch, const char *key,
                             const char *value)
{
    return SetOptions(db, watch, { { key, value } });
}

// A write buffer grows by blocks. RocksDB chooses their length when it opens a database, and keeps
// it when the buffer's length changes. A buffer that is not much longer than a block is full before
// it has a row, so that each row is flushed by itself; with assertions RocksDB ends the process.
static int64_t BufferBlockBytes(int64_t buffer_bytes)
{
    const int64_t page = 4096, most = 1 << 20;

    return std::min(most, (buffer_bytes / 8 + page - 1) / page * page);
}

char *rocksdb_ext_tune(rocksdb_t *db, struct rocksdb_ext_watch *watch,
                       enum rocksdb_ext_tuning tuning, int64_t value)
{
    enum { FAMILY, DATABASE };
    static const struct {
        const char *name;
        int scope;
    } tunings[] = {
#define X(name, text, scope) { text, scope },
        ROCKSDB_EXT_TUNING_TABLE(X)
#undef X
    };
    const std::string text = std::to_string(value);

    if (tuning == ROCKSDB_EXT_TUNING_WRITE_BUFFER_BYTES)
        return SetOptions(db, watch,
                          { { tunings[tuning].name, text },
                            { "arena_block_size", std::to_string(BufferBlockBytes(value)) } });
    if (tunings[tuning].scope == FAMILY)
        return rocksdb_ext_set_option(db, watch, tunings[tuning].name, text.c_str());
    return TextOf(db->rep->SetDBOptions({ { tunings[tuning].name, text } }));
}

int64_t rocksdb_ext_tuned(rocksdb_t *db, enum rocksdb_ext_tuning tuning)
{
    switch (tuning) {
    case ROCKSDB_EXT_TUNING_WRITE_BUFFER_BYTES:
        return static_cast<int64_t>(db->rep->GetOptions().write_buffer_size);
    case ROCKSDB_EXT_TUNING_COMPACTIONS:
        return db->rep->GetDBOptions().max_background_compactions;
    case ROCKSDB_EXT_TUNING_OPEN_FILES:
        return db->rep->GetDBOptions().max_open_files;
    case ROCKSDB_EXT_TUNING_TRIGGER_FILES:
        return db->rep->GetOptions().level0_file_num_compaction_trigger;
    case ROCKSDB_EXT_TUNING_COUNT:
        break;
    }
    return -1;
}

char *rocksdb_ext_resume(rocksdb_t *db, struct rocksdb_ext_watch *watch)
{
    const std::lock_guard<std::shared_mutex> lock(watch->rep->ResumeMutex());
    const uint64_t errors = watch->rep->Errors();
    const bool stands_still = watch->rep->HasFailed(errors);
    uint64_t failures = 0;
    Status status = RenewManifest(db->rep, watch->rep.get(), &failures);

    if (status.ok())
        status = db->rep->Resume(); // also flushes if background work stood still
    // No other thread retries a failed flush; until it is done, the error stands.
    if (status.ok() && (watch->rep->LogFailed() || (!stands_still && watch->rep->FlushFailed())))
        status = Flush(db, watch, 1, true);
    if (status.ok()) {
        ForgetManifestFailures(db->rep, watch->rep.get(), failures);
        watch->rep->ClearError(errors);
    }
    return TextOf(status);
}
