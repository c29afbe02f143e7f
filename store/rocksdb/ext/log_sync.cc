// SPDX-License-Identifier: Apache-2.0
// log_sync.cc: syncs write-ahead logs.
#include "store/rocksdb/ext/ring.hh"
#include "store/rocksdb/ext/watch.hh"

#include <rocksdb/io_status.h>

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

using rocksdb_ext::LogState;
using rocksdb_ext::OpenFile;
using rocksdb_ext::Ring;
using rocksdb_ext::Watch;

// Makes an error as RocksDB does: a full disk has its own kind.
static rocksdb::IOStatus IoErrorOf(const std::string &what, int error)
{
    return error == ENOSPC || error == EDQUOT ? rocksdb::IOStatus::NoSpace(what, strerror(error))
                                              : rocksdb::IOStatus::IOError(what, strerror(error));
}

// The kernel reports a failed write once to each open file. If two threads synced a log by the same
// descriptor, one could miss the failure and take lost records for safe. So only the syncer uses
// the log's own descriptor.
void rocksdb_ext_sync_logs(struct rocksdb_ext_watch *const *watches, uint32_t count, bool io_uring,
                           bool by_syncer)
{
    std::vector<std::shared_ptr<LogState>> logs;
    std::vector<Watch *> watch_of;
    std::vector<uint64_t> written, whole;
    std::vector<std::shared_ptr<const OpenFile>> held; // kept open for the syncer
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
        if (files[i] == -ENOENT && !by_syncer) // gone meanwhile: all its contents have been flushed
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
