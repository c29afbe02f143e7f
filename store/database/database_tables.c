/* SPDX-License-Identifier: Apache-2.0 */
/* database_tables.c: deletes all rows of a table, and gives their space back. */
#include <time.h>

#include "base/clock.h"
#include "store/database/database_impl.h"
#include "store/database/row_format.h"

/* Returns the keys of table @table_id as [start, end). The last table id is never given out. */
static void table_range(uint32_t table_id, struct row_key *ret_start, struct row_key *ret_end)
{
    *ret_start = row_key_make(table_id, 0);
    *ret_end = row_key_make(table_id + 1, 0);
}

/* Returns BUSY if it would have to wait. */
static enum embtier_err try_delete_table(struct database *database, uint32_t table_id,
                                         struct err_msg *msg)
{
    const struct row_key step = step_key_make(table_id);
    struct row_key start, end;
    rocksdb_writebatch_t *batch;
    char *error = NULL;

    if (database_is_behind(database) && database_is_failed(database))
        return database_why_busy(database, msg);
    TRY(database_log_check(database, database_log_failures(database), msg));
    if (!rocksdb_ext_begin_write(database->watch))
        return err_set(msg, EMBTIER_BUSY, "%s: it is recovering from an error", database->path);
    table_range(table_id, &start, &end);
    batch = rocksdb_writebatch_create();
    rocksdb_writebatch_delete_range(batch, (const char *)start.bytes, sizeof(start),
                                    (const char *)end.bytes, sizeof(end));
    if (database->logged)
        rocksdb_writebatch_delete(batch, (const char *)step.bytes, sizeof(step));
    rocksdb_write(database->db, database->logged ? database->setup->log : database->setup->write,
                  batch, &error);
    rocksdb_writebatch_destroy(batch);
    rocksdb_ext_end_write(database->watch);
    return rocksdb_err_take(error, database->path, msg);
}

enum embtier_err database_delete_table(struct database *database, uint32_t table_id,
                                       struct err_msg *msg)
{
    const uint64_t began_ns = clock_now_ns(&clock_monotonic);
    enum embtier_err err;

    /* Waits here, not in RocksDB: the thread that resumes the database waits for its writers. */
    while ((err = try_delete_table(database, table_id, msg)) == EMBTIER_BUSY &&
           clock_now_ns(&clock_monotonic) - began_ns < FLUSH_PATIENCE_MS * NS_PER_MS)
        nanosleep(&(struct timespec){ .tv_nsec = FLUSHES_PAUSE_NS }, NULL);
    TRY(err);
    return database_flush(database, msg); /* afterwards the deletion need not be in the log */
}

enum embtier_err database_compact_table(struct database *database, uint32_t table_id,
                                        struct err_msg *msg)
{
    struct row_key start, end;
    char *error = NULL;

    table_range(table_id, &start, &end);
    /* Files that hold only this table go first, which takes no space. */
    rocksdb_delete_file_in_range_cf(database->db, database->family, (const char *)start.bytes,
                                    sizeof(start), (const char *)end.bytes, sizeof(end), &error);
    TRY(rocksdb_err_take(error, database->path, msg));
    TRY(rocksdb_err_take(rocksdb_ext_compact_range(database->db, (const char *)start.bytes,
                                                   sizeof(start), (const char *)end.bytes,
                                                   sizeof(end)),
                         database->path, msg));
    error = rocksdb_ext_watch_error(database->watch); /* of other work, such as a flush */
    return rocksdb_err_take(error, database->path, msg);
}
