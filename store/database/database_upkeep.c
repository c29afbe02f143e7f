/* SPDX-License-Identifier: Apache-2.0 */
/* database_upkeep.c: reads a database's compaction debt and counts, and resumes it after errors of
 * background work. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/paths.h"
#include "store/database/database_impl.h"
#include "store/files/file_tree.h"

/* Lies beside RocksDB's files, and RocksDB ignores it. Removed at the end of the probe. */
#define PROBE_FILE  "embtier-probe"
#define PROBE_SLACK (4 * MIB)

static uint32_t database_level0_files(struct database *database)
{
    char *text = rocksdb_property_value(database->db, "rocksdb.num-files-at-level0");
    const uint32_t files = text ? (uint32_t)strtoul(text, NULL, 10) : 0;

    rocksdb_free(text);
    return files;
}

void database_poll_debt(struct database *database, struct database_debt *ret_debt)
{
    /* @running is read last. A compaction that is due but not running has not begun, or has ended
     * since @due was read. The next poll tells. */
    ret_debt->due = database_property(database, "rocksdb.compaction-pending") != 0;
    ret_debt->level0_files = database_level0_files(database);
    ret_debt->pending_bytes =
        database_property(database, "rocksdb.estimate-pending-compaction-bytes");
    ret_debt->running = (uint32_t)database_property(database, "rocksdb.num-running-compactions");
    atomic_store_explicit(&database->level0_files, ret_debt->level0_files, memory_order_relaxed);
    atomic_store_explicit(&database->pending_bytes, ret_debt->pending_bytes, memory_order_relaxed);
}

uint64_t database_compacted_bytes(struct database *database)
{
    return rocksdb_ext_watch_compacted(database->watch);
}

enum embtier_err database_set_compacting(struct database *database, bool on, struct err_msg *msg)
{
    return rocksdb_err_take(rocksdb_ext_set_option(database->db, database->watch,
                                                   "disable_auto_compactions",
                                                   on ? "false" : "true"),
                            database->path, msg);
}

int64_t database_tuned(struct database *database, enum rocksdb_ext_tuning tuning)
{
    return rocksdb_ext_tuned(database->db, tuning);
}

enum embtier_err database_tune(struct database *database, enum rocksdb_ext_tuning tuning,
                               int64_t value, struct err_msg *msg)
{
    char *error;
    int64_t tuned;

    if (!rocksdb_ext_begin_write(database->watch))
        return err_set(msg, EMBTIER_BUSY,
                       "%s: the database is being resumed after an error: try again later",
                       database->path);
    error = rocksdb_ext_tune(database->db, database->watch, tuning, value);
    rocksdb_ext_end_write(database->watch);
    TRY(rocksdb_err_take(error, database->path, msg));
    tuned = rocksdb_ext_tuned(database->db, tuning);
    if (tuned == value)
        return EMBTIER_OK;
    return err_set(msg, EMBTIER_INTERNAL, "%s: RocksDB has %" PRId64 " in force, not %" PRId64,
                   database->path, tuned, value);
}

/* Bytes on disk of the files in a directory that end with ".blob". */
static uint64_t measured_blobs(const char *path)
{
    DIR *const folder = opendir(path);
    struct dirent *file;
    uint64_t bytes = 0;

    while (folder && (file = readdir(folder))) {
        const char *const dot = strrchr(file->d_name, '.');
        struct stat info;

        if (dot && strcmp(dot, ".blob") == 0 &&
            fstatat(dirfd(folder), file->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0)
            bytes += (uint64_t)info.st_blocks * 512;
    }
    if (folder)
        closedir(folder);
    return bytes;
}

void database_measure_blobs(struct database *database)
{
    const bool has_blobs = database_count_get(&database->blob_bytes) > 0 ||
                           database_property(database, "rocksdb.num-blob-files") > 0;

    if (has_blobs)
        atomic_store(&database->blob_bytes, measured_blobs(database->path));
}

uint64_t database_rows_moved(struct database *database)
{
    return database_count_get(&database->rows_read) + database_count_get(&database->rows_written);
}

void database_set_paused(struct database *database, bool is_paused)
{
    atomic_store(&database->is_paused, is_paused);
}

bool database_is_failed(struct database *database)
{
    char *error = rocksdb_ext_watch_error(database->watch);
    const bool failed = error != NULL;

    free(error);
    return failed;
}

/* A resume writes the write buffers first. It must not begin before the disk seems to have room for
 * them. */
static enum embtier_err database_probe(struct database *database, struct err_msg *msg)
{
    const uint64_t buffers = database_property(database, "rocksdb.cur-size-all-mem-tables");
    const uint64_t bytes = buffers + buffers / 4 + PROBE_SLACK;
    _cleanup_(freep) char *path = path_join(database->path, PROBE_FILE);
    _cleanup_(closep) int fd = -1;
    enum embtier_err err = EMBTIER_OK;
    struct statvfs room;

    if (!path)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", database->path);
    if (statvfs(database->path, &room) == 0 && room.f_bavail * room.f_frsize < bytes)
        return err_set(msg, EMBTIER_NO_SPACE, "%s: room for less than %" PRIu64 " bytes",
                       database->path, bytes);
    fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_set_errno(msg, errno, "%s", path);
    if (pwrite(fd, path, 1, (off_t)bytes) != 1 || fsync(fd) != 0) /* a hole takes no room */
        err = err_set_errno(msg, errno, "%s", path);
    unlink(path);
    return err;
}

enum embtier_err database_resume(struct database *database, struct err_msg *msg)
{
    TRY(database_probe(database, msg));
    return rocksdb_err_take(rocksdb_ext_resume(database->db, database->watch), database->path, msg);
}

void database_give_up(struct database *database)
{
    rocksdb_cancel_all_background_work(database->db, 0);
}

void database_add_stats(struct database *database, struct store_stats *stats)
{
    stats->shards_unclean += !database->logged && !database->was_clean;
    stats->recovered_log_bytes += database->recovered_bytes;
    stats->log_recovery_ns += database->recovered_bytes > 0 ? database->recovery_ns : 0;
    stats->rows_read += database_count_get(&database->rows_read);
    stats->rows_absent += database_count_get(&database->rows_absent);
    stats->rows_written += database_count_get(&database->rows_written);
    stats->row_bytes_written += database_count_get(&database->row_bytes_written);
    stats->blob_bytes += database_count_get(&database->blob_bytes);
    stats->stored_bytes += database_property(database, "rocksdb.live-sst-files-size") +
                           database_count_get(&database->blob_bytes);
    stats->pending_compaction_bytes +=
        database_property(database, "rocksdb.estimate-pending-compaction-bytes");
}
