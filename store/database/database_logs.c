/* SPDX-License-Identifier: Apache-2.0 */
/* database_logs.c: syncs a database's log, flushes its rows, and keeps it short. */
#include <assert.h>
#include <time.h>

#include "base/clock.h"
#include "store/database/database_impl.h"

/* From this many level-0 files on, half of the limit, optional flushes are left out. */
#define SHORTEN_LEVEL0_FILES (DATABASE_LEVEL0_FILES_MAX / 2)
/* Limit for the wait for running flushes before another one begins. */
#define FLUSHES_PATIENCE_NS (UINT64_C(5) * 1000 * 1000 * 1000)

enum embtier_err databases_sync_logs(struct database *const *databases, uint32_t count,
                                     bool by_syncer, struct err_msg *msg)
{
    struct rocksdb_ext_watch *watches[DATABASES_SYNC_MAX] = { NULL };
    uint64_t failures[DATABASES_SYNC_MAX];

    assert(count <= DATABASES_SYNC_MAX);
    for (uint32_t i = 0; i < count; i++) {
        watches[i] = databases[i]->watch;
        failures[i] = database_log_failures(databases[i]);
    }
    /* The kernel reports a failed write once to each descriptor, and syncers share the log's. */
    for (uint32_t i = 0; by_syncer && i < count; i++)
        pthread_mutex_lock(&databases[i]->sync_lock);
    rocksdb_ext_sync_logs(watches, count, databases[0]->setup->io_uring, by_syncer);
    for (uint32_t i = 0; by_syncer && i < count; i++)
        pthread_mutex_unlock(&databases[i]->sync_lock);
    for (uint32_t i = 0; i < count; i++)
        TRY(database_log_check(databases[i], failures[i], msg));
    return EMBTIER_OK;
}

void database_mark_log(struct database *database)
{
    struct rocksdb_ext_synced synced = { 0 };
    rocksdb_writebatch_t *const batch = rocksdb_writebatch_create();
    char *error = NULL;

    if (database_log_check(database, database_log_failures(database), NULL) == EMBTIER_OK &&
        database_batch_mark(database, batch, &synced) && rocksdb_ext_begin_write(database->watch)) {
        rocksdb_write(database->db, database->setup->log, batch, &error);
        rocksdb_ext_end_write(database->watch);
        if (rocksdb_err_take(error, database->path, NULL) == EMBTIER_OK)
            rocksdb_ext_watch_marked(database->watch, &synced);
    }
    rocksdb_writebatch_destroy(batch);
}

enum embtier_err database_delete_old_logs(struct database *database, struct err_msg *msg)
{
    char *error = NULL;

    rocksdb_disable_file_deletions(database->db, &error);
    TRY(rocksdb_err_take(error, database->path, msg));
    error = rocksdb_ext_enable_file_deletions(database->db);
    return rocksdb_err_take(error, database->path, msg);
}

enum embtier_err database_flush(struct database *database, struct err_msg *msg)
{
    return rocksdb_err_take(rocksdb_ext_flush(database->db, database->watch, FLUSH_PATIENCE_MS),
                            database->path, msg);
}

/* Waits for running flushes, so that one more gives no reason to refuse writes
 * (database_is_behind()). RocksDB would not wait, as it has no such limit
 * (WRITE_BUFFERS_NO_LIMIT). */
static enum embtier_err await_flushes(struct database *database, const _Atomic bool *give_up,
                                      struct err_msg *msg)
{
    const uint64_t began_ns = clock_now_ns(&clock_monotonic);

    for (;;) {
        if (give_up && atomic_load(give_up))
            return err_shutdown(msg);
        if (database_property(database, "rocksdb.num-immutable-mem-table") == 0)
            return EMBTIER_OK;
        if (database_is_failed(database) ||
            clock_now_ns(&clock_monotonic) - began_ns > FLUSHES_PATIENCE_NS)
            return database_why_busy(database, msg);
        nanosleep(&(struct timespec){ .tv_nsec = FLUSHES_PAUSE_NS }, NULL);
    }
}

enum embtier_err database_shorten_log(struct database *database, uint64_t most_bytes,
                                      const _Atomic bool *give_up, struct err_msg *msg)
{
    if (database_property(database, "rocksdb.cur-size-all-mem-tables") <= most_bytes)
        return database_delete_old_logs(database, msg);
    if (atomic_load_explicit(&database->level0_files, memory_order_relaxed) >= SHORTEN_LEVEL0_FILES)
        return err_set(msg, EMBTIER_BUSY, "%s: compaction is behind", database->path);
    TRY(await_flushes(database, give_up, msg));
    /* Only database_resume() replaces a log that has failed. */
    TRY(database_log_check(database, database_log_failures(database), msg));
    if (database_property(database, "rocksdb.cur-size-active-mem-table") > most_bytes)
        TRY(rocksdb_err_take(rocksdb_ext_flush(database->db, database->watch, 0), database->path,
                             msg));
    return database_delete_old_logs(database, msg);
}
