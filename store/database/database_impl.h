/* SPDX-License-Identifier: Apache-2.0 */
/* database_impl.h: declarations shared by the files of a database.
 *
 * database.c opens and closes it, database_rows.c reads and writes rows, database_logs.c syncs,
 * flushes and shortens its log. database_tables.c drops tables, database_upkeep.c watches
 * compaction and resumes after errors. */
#ifndef EMBTIER_STORE_DATABASE_DATABASE_IMPL_H
#define EMBTIER_STORE_DATABASE_DATABASE_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "store/database/database.h"
#include "store/rocksdb/rocksdb_err.h"

#define NS_PER_MS         UINT64_C(1000000)
#define FLUSH_PATIENCE_MS 60000 /* while writes are stopped because compaction is behind */
#define FLUSHES_PAUSE_NS  (5L * 1000 * 1000)

struct database {
    char *path;
    pthread_mutex_t sync_lock; /* held while a syncer syncs its log */
    bool was_clean;            /* new, or closed cleanly before it was opened */
    bool logged;
    struct log_marks marks;
    uint64_t recovered_bytes; /* of its log, when it was opened */
    uint64_t recovery_ns;
    const struct rocksdb_setup *setup;
    struct rocksdb_ext_watch *watch;
    struct rocksdb_ext_activity *activity;
    rocksdb_t *db;
    rocksdb_column_family_handle_t *family;
    /* As database_poll_debt() last read them. RocksDB itself has no limits while automatic
     * compactions are off. */
    _Atomic uint32_t level0_files;
    _Atomic uint64_t pending_bytes;
    _Atomic uint64_t blob_bytes; /* as database_measure_blobs() last found them */
    _Atomic bool is_paused;      /* the server lets this database compact nothing */
    _Atomic uint64_t rows_read;
    _Atomic uint64_t rows_absent;
    _Atomic uint64_t rows_written;
    _Atomic uint64_t row_bytes_written;
};

/* For counters that order nothing. */
static inline void database_count_add(_Atomic uint64_t *counter, uint64_t value)
{
    atomic_fetch_add_explicit(counter, value, memory_order_relaxed);
}

static inline uint64_t database_count_get(_Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

static inline uint64_t database_property(struct database *database, const char *name)
{
    uint64_t value = 0;

    return rocksdb_property_int(database->db, name, &value) == 0 ? value : 0;
}

static inline uint64_t database_log_failures(const struct database *database)
{
    return rocksdb_ext_watch_log_failures(database->watch);
}

/* Returns OK if more may be written, and if the log has all rows written since
 * database_log_failures() returned @failures. */
static inline enum embtier_err database_log_check(const struct database *database,
                                                  uint64_t failures, struct err_msg *msg)
{
    if (!database->logged)
        return EMBTIER_OK;
    return rocksdb_err_take(rocksdb_ext_watch_log_error(database->watch, failures), database->path,
                            msg);
}

/* database_rows.c: true if a write now would have to wait. */
bool database_is_behind(struct database *database);
/* Writes a batch, with a mark if there is something new to mark. */
MUST_CHECK enum embtier_err database_write_batch(struct database *database,
                                                 rocksdb_writebatch_t *batch, struct err_msg *msg);
/* Returns the reason why a write would have to wait. That is BUSY, or the error of flushes or
 * compactions that fail: a retry does not help before they succeed. */
enum embtier_err database_why_busy(struct database *database, struct err_msg *msg);
/* Puts a mark into a batch: how far the log is synced. False if there is nothing new to mark. */
bool database_batch_mark(struct database *database, rocksdb_writebatch_t *batch,
                         struct rocksdb_ext_synced *ret_synced);

/* database_logs.c: makes RocksDB look for obsolete logs. After a flush RocksDB looks too early. */
MUST_CHECK enum embtier_err database_delete_old_logs(struct database *database,
                                                     struct err_msg *msg);

#endif
