/* SPDX-License-Identifier: Apache-2.0 */
/* database_tables.c: deletes all rows of a table, and gives their space back; rewrites all files.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "store/database/database_impl.h"
#include "store/database/row_format.h"

_Static_assert(sizeof(struct database_cut) == ROW_KEY_BYTES, "a cut is a key");

/* Returns the keys of table @table_id as [start, end). The last table id is never given out; the
 * first is that of steps. */
static void table_range(uint32_t table_id, struct row_key *ret_start, struct row_key *ret_end)
{
    const bool all = table_id == DATABASE_ALL_TABLES;

    *ret_start = row_key_make(all ? 1 : table_id, 0);
    *ret_end = row_key_make(all ? table_id : table_id + 1, 0);
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

/* ---- Rewriting all ---- */

static int compare_cuts(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct database_cut));
}

/* Makes cuts at the ends of files of the last level, which has nearly all rows. @ranges has the
 * bytes of rows that lie apart from their keys; these are spread as the keys are. */
static bool cut(const rocksdb_livefiles_t *files, uint64_t piece_bytes,
                struct database_ranges *ranges)
{
    const int count = rocksdb_livefiles_count(files);
    int last_level = 1;

    ranges->cuts = calloc((size_t)count + 1, sizeof(*ranges->cuts));
    if (!ranges->cuts)
        return false;
    for (int i = 0; i < count; i++)
        last_level = MAX(last_level, rocksdb_livefiles_level(files, i));
    for (int i = 0; i < count; i++) {
        size_t key_bytes;
        const char *const key = rocksdb_livefiles_largestkey(files, i, &key_bytes);

        ranges->bytes += rocksdb_livefiles_size(files, i);
        if (rocksdb_livefiles_level(files, i) == last_level && key_bytes == ROW_KEY_BYTES)
            memcpy(ranges->cuts[ranges->cut_count++].key, key, key_bytes);
    }
    qsort(ranges->cuts, ranges->cut_count, sizeof(*ranges->cuts), compare_cuts);
    /* Files of a level are of like size. */
    if (ranges->cut_count > 1) {
        const uint64_t each = MAX(ranges->bytes / ranges->cut_count, UINT64_C(1));
        const uint32_t step = (uint32_t)MAX(piece_bytes / each, UINT64_C(1));
        uint32_t kept = 0;

        for (uint32_t i = step - 1; i + 1 < ranges->cut_count; i += step)
            ranges->cuts[kept++] = ranges->cuts[i];
        ranges->cut_count = kept;
    } else {
        ranges->cut_count = 0;
    }
    return true;
}

enum embtier_err database_ranges(struct database *database, uint64_t piece_bytes,
                                 struct database_ranges *ret_ranges, struct err_msg *msg)
{
    const rocksdb_options_t *const options = database->setup->options;
    struct database_ranges ranges = { 0 };
    const rocksdb_livefiles_t *files;
    bool done;

    TRY(database_flush(database, msg));
    database_measure_blobs(database);
    ranges.bytes = database_count_get(&database->blob_bytes);
    files = rocksdb_livefiles(database->db);
    done = cut(files, piece_bytes, &ranges);
    rocksdb_livefiles_destroy(files);
    if (!done)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", database->path);
    if (rocksdb_options_get_compaction_style((rocksdb_options_t *)(uintptr_t)options) !=
        rocksdb_level_compaction)
        ranges.cut_count = 0;
    *ret_ranges = ranges;
    return EMBTIER_OK;
}

void database_ranges_clear(struct database_ranges *ranges)
{
    free(ranges->cuts);
    *ranges = (struct database_ranges){ 0 };
}

enum embtier_err database_rewrite(struct database *database, const struct database_ranges *ranges,
                                  uint32_t range, struct rocksdb_ext_stop *stop,
                                  struct err_msg *msg)
{
    const struct database_cut *const before = range > 0 ? &ranges->cuts[range - 1] : NULL;
    const struct database_cut *const end = range < ranges->cut_count ? &ranges->cuts[range] : NULL;
    char start[ROW_KEY_BYTES + 1] = { 0 }; /* the first key behind the piece before */
    bool stopped;
    char *error;

    if (before)
        memcpy(start, before->key, ROW_KEY_BYTES);
    error = rocksdb_ext_rewrite_range(database->db, before ? start : NULL, sizeof(start),
                                      end ? (const char *)end->key : NULL, sizeof(end->key), stop,
                                      &stopped);

    if (stopped) {
        free(error);
        return err_set(msg, EMBTIER_CANCELLED, "%s: the compaction was ended", database->path);
    }
    TRY(rocksdb_err_take(error, database->path, msg));
    error = rocksdb_ext_watch_error(database->watch); /* of other work, such as a flush */
    return rocksdb_err_take(error, database->path, msg);
}
