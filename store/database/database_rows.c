/* SPDX-License-Identifier: Apache-2.0 */
/* database_rows.c: reads and writes rows, and refuses writes that would have to wait. */
#include <inttypes.h>
#include <string.h>

#include "store/database/database_impl.h"
#include "store/database/row_format.h"

/* Rows of one MultiGet: enough to share index and filter blocks, few enough for the stack. */
#define READ_CHUNK_ROWS 128

enum embtier_err stored_row_check(const char *path, const struct store_row *row, const char *value,
                                  size_t value_bytes, struct err_msg *msg)
{
    static const struct stored_row_head first = { .version = STORED_ROW_VERSION };
    const size_t before_lengths = offsetof(struct stored_row_head, weight_bytes_le);
    struct stored_row_head head;

    if (value_bytes < sizeof(head))
        return err_set(msg, EMBTIER_CORRUPT,
                       "%s: table %" PRIu32 " row %" PRIu64 ": stored in %zu bytes", path,
                       row->table_id, row->id, value_bytes);
    memcpy(&head, value, sizeof(head));
    if (memcmp(&head, &first, before_lengths) != 0)
        return err_set(msg, EMBTIER_CORRUPT,
                       "%s: table %" PRIu32 " row %" PRIu64
                       ": stored in format %u, with reserved bytes %02x%02x%02x",
                       path, row->table_id, row->id, head.version, head.reserved[0],
                       head.reserved[1], head.reserved[2]);
    if (le32toh(head.weight_bytes_le) != row->weight_bytes ||
        le32toh(head.state_bytes_le) != row->state_bytes ||
        value_bytes != sizeof(head) + (size_t)row->weight_bytes + row->state_bytes)
        return err_set(msg, EMBTIER_CORRUPT,
                       "%s: table %" PRIu32 " row %" PRIu64 ": stored with %" PRIu32 " + %" PRIu32
                       " bytes, the table's rows have %" PRIu32 " + %" PRIu32,
                       path, row->table_id, row->id, le32toh(head.weight_bytes_le),
                       le32toh(head.state_bytes_le), row->weight_bytes, row->state_bytes);
    return EMBTIER_OK;
}

/* Copies a stored value to its row after a check of its version and lengths. */
static enum embtier_err row_unpack(const struct database *database, struct store_row *row,
                                   const char *value, size_t value_bytes, struct err_msg *msg)
{
    const size_t head_bytes = sizeof(struct stored_row_head);

    TRY(stored_row_check(database->path, row, value, value_bytes, msg));
    memcpy(row->bytes, value + head_bytes, value_bytes - head_bytes);
    row->found = true;
    return EMBTIER_OK;
}

enum embtier_err database_table_steps(struct database *database,
                                      void (*note)(void *context, uint32_t table_id, uint64_t step),
                                      void *context, struct err_msg *msg)
{
    const struct row_key start = row_key_make(0, 0), end = row_key_make(1, 0);
    rocksdb_readoptions_t *const read = rocksdb_readoptions_create();
    enum embtier_err err = EMBTIER_OK;
    rocksdb_iterator_t *at;
    char *error = NULL;

    rocksdb_readoptions_set_iterate_upper_bound(read, (const char *)end.bytes, sizeof(end));
    at = rocksdb_create_iterator(database->db, read);
    for (rocksdb_iter_seek(at, (const char *)start.bytes, sizeof(start)); rocksdb_iter_valid(at);
         rocksdb_iter_next(at)) {
        size_t key_bytes, value_bytes;
        const char *const key = rocksdb_iter_key(at, &key_bytes);
        const char *const value = rocksdb_iter_value(at, &value_bytes);
        uint64_t step_le;

        if (key_bytes != sizeof(start) || value_bytes != sizeof(step_le)) {
            err = err_set(msg, EMBTIER_CORRUPT, "%s: a table's step is stored in %zu bytes",
                          database->path, value_bytes);
            break;
        }
        memcpy(&step_le, value, sizeof(step_le));
        note(context, (uint32_t)row_key_id(key), le64toh(step_le));
    }
    rocksdb_iter_get_error(at, &error);
    rocksdb_iter_destroy(at);
    rocksdb_readoptions_destroy(read);
    TRY(err);
    return rocksdb_err_take(error, database->path, msg);
}

static enum embtier_err read_chunk(struct database *database, struct store_row *rows,
                                   uint32_t count, uint64_t *absent, struct err_msg *msg)
{
    struct row_key keys[READ_CHUNK_ROWS];
    const char *key_list[READ_CHUNK_ROWS];
    size_t key_bytes[READ_CHUNK_ROWS];
    rocksdb_pinnableslice_t *values[READ_CHUNK_ROWS];
    char *errors[READ_CHUNK_ROWS];
    enum embtier_err first = EMBTIER_OK;

    for (uint32_t i = 0; i < count; i++) {
        keys[i] = row_key_make(rows[i].table_id, rows[i].id);
        key_list[i] = (const char *)keys[i].bytes;
        key_bytes[i] = ROW_KEY_BYTES;
    }
    rocksdb_batched_multi_get_cf(database->db, database->setup->read, database->family, count,
                                 key_list, key_bytes, values, errors, true);
    for (uint32_t i = 0; i < count; i++) {
        struct err_msg *row_msg = first == EMBTIER_OK ? msg : NULL;
        struct store_row *row = &rows[i];

        row->found = false;
        row->err = rocksdb_err_take(errors[i], database->path, row_msg);
        if (row->err == EMBTIER_OK && values[i]) {
            size_t value_bytes;
            const char *value = rocksdb_pinnableslice_value(values[i], &value_bytes);

            row->err = row_unpack(database, row, value, value_bytes, row_msg);
        } else if (row->err == EMBTIER_OK) {
            *absent += 1;
        }
        if (values[i])
            rocksdb_pinnableslice_destroy(values[i]);
        if (first == EMBTIER_OK)
            first = row->err;
    }
    return first;
}

enum embtier_err database_read(struct database *database, struct store_row *rows, uint32_t count,
                               struct err_msg *msg)
{
    enum embtier_err first = EMBTIER_OK;
    uint64_t absent = 0;

    for (uint32_t done = 0; done < count;) {
        const uint32_t chunk = MIN(count - done, (uint32_t)READ_CHUNK_ROWS);
        const enum embtier_err err =
            read_chunk(database, rows + done, chunk, &absent, first == EMBTIER_OK ? msg : NULL);

        if (first == EMBTIER_OK)
            first = err;
        done += chunk;
    }
    database_count_add(&database->rows_read, count);
    database_count_add(&database->rows_absent, absent);
    return first;
}

enum embtier_err database_why_busy(struct database *database, struct err_msg *msg)
{
    char *error = rocksdb_ext_watch_error(database->watch);

    if (error)
        return rocksdb_err_take(error, database->path, msg);
    return err_set(msg, EMBTIER_BUSY, "%s: write buffers are full, flush or compaction is behind",
                   database->path);
}

bool database_is_behind(struct database *database)
{
    if (database_property(database, "rocksdb.num-immutable-mem-table") >= DATABASE_WRITE_BUFFERS)
        return true;
    if (atomic_load_explicit(&database->is_paused, memory_order_relaxed))
        return false;
    return database_debt_stops_writes(
        atomic_load_explicit(&database->level0_files, memory_order_relaxed),
        database_count_get(&database->pending_bytes));
}

bool database_flushes(struct database *database)
{
    return database_property(database, "rocksdb.num-immutable-mem-table") > 0;
}

bool database_is_near_limit(struct database *database)
{
    return atomic_load_explicit(&database->level0_files, memory_order_relaxed) >=
               DATABASE_LEVEL0_FILES_MAX / 2 ||
           database_count_get(&database->pending_bytes) >= DATABASE_PENDING_BYTES_MAX / 2;
}

bool database_batch_mark(struct database *database, rocksdb_writebatch_t *batch,
                         struct rocksdb_ext_synced *ret_synced)
{
    unsigned char mark[LOG_MARK_BYTES];

    if (!database->logged || !rocksdb_ext_watch_synced(database->watch, ret_synced))
        return false;
    log_mark_make(&database->marks,
                  &(struct log_position){ ret_synced->first, ret_synced->log, ret_synced->bytes },
                  mark);
    rocksdb_writebatch_put_log_data(batch, (const char *)mark, sizeof(mark));
    return true;
}

/* Adds the step of @row's table to the batch. */
static void batch_step(rocksdb_writebatch_t *batch, const struct store_row *row)
{
    const struct row_key key = step_key_make(row->table_id);
    const uint64_t step_le = htole64(row->table_step);

    if (row->table_step > 0)
        rocksdb_writebatch_put(batch, (const char *)key.bytes, sizeof(key), (const char *)&step_le,
                               sizeof(step_le));
}

static uint64_t batch_fill(rocksdb_writebatch_t *batch, const struct store_row *rows,
                           uint32_t count)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < count; i++) {
        const struct row_key key = row_key_make(rows[i].table_id, rows[i].id);
        const struct stored_row_head head =
            stored_row_head_make(rows[i].weight_bytes, rows[i].state_bytes);
        const char *const key_parts[] = { (const char *)key.bytes };
        const size_t key_part_bytes[] = { sizeof(key) };
        const char *const value_parts[] = { (const char *)&head, rows[i].bytes };
        const size_t value_part_bytes[] = { sizeof(head),
                                            (size_t)rows[i].weight_bytes + rows[i].state_bytes };

        rocksdb_writebatch_putv(batch, ARRAY_LEN(key_parts), key_parts, key_part_bytes,
                                ARRAY_LEN(value_parts), value_parts, value_part_bytes);
        bytes += sizeof(key) + value_part_bytes[0] + value_part_bytes[1];
    }
    return bytes;
}

enum embtier_err database_may_write(struct database *database, struct err_msg *msg)
{
    if (database_is_behind(database))
        return database_why_busy(database, msg);
    return database_log_check(database, database_log_failures(database), msg);
}

enum embtier_err database_write_batch(struct database *database, rocksdb_writebatch_t *batch,
                                      struct err_msg *msg)
{
    const struct rocksdb_setup *const setup = database->setup;
    const uint64_t failures = database_log_failures(database);
    struct rocksdb_ext_synced synced = { 0 };
    char *error = NULL;
    enum embtier_err err;
    bool is_marked;

    TRY(database_log_check(database, failures, msg));
    if (!rocksdb_ext_begin_write(database->watch))
        return database_why_busy(database, msg);
    is_marked = database_batch_mark(database, batch, &synced);
    rocksdb_write(database->db, database->logged ? setup->log : setup->write, batch, &error);
    rocksdb_ext_end_write(database->watch);
    err = rocksdb_err_take(error, database->path, msg);
    if (err == EMBTIER_BUSY)
        return database_why_busy(database, msg);
    TRY(err);
    TRY(database_log_check(database, failures, msg));
    if (is_marked)
        rocksdb_ext_watch_marked(database->watch, &synced);
    return EMBTIER_OK;
}

enum embtier_err database_write(struct database *database, const struct store_row *rows,
                                uint32_t count, struct err_msg *msg)
{
    if (count == 0)
        return EMBTIER_OK;
    TRY(database_may_write(database, msg));
    return database_write_now(database, rows, count, msg);
}

static uint64_t stored_bytes(const struct store_row *row)
{
    return ROW_KEY_BYTES + sizeof(struct stored_row_head) + (uint64_t)row->weight_bytes +
           row->state_bytes;
}

/* Counts the rows that the log took for their tables. Rows of a table mostly lie together. */
static void count_logged(const struct database *database, const struct store_row *rows,
                         uint32_t count)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < count; i++) {
        bytes += stored_bytes(&rows[i]);
        if (i + 1 < count && rows[i + 1].table_id == rows[i].table_id)
            continue;
        rocksdb_ext_activity_add_log(database->activity, rows[i].table_id, bytes);
        bytes = 0;
    }
}

enum embtier_err database_write_now(struct database *database, const struct store_row *rows,
                                    uint32_t count, struct err_msg *msg)
{
    rocksdb_writebatch_t *batch;
    enum embtier_err err;
    uint64_t bytes;

    batch = rocksdb_writebatch_create();
    bytes = batch_fill(batch, rows, count);
    for (uint32_t i = 0; database->logged && i < count; i++)
        if (i + 1 == count || rows[i + 1].table_id != rows[i].table_id)
            batch_step(batch, &rows[i]);
    err = database_write_batch(database, batch, msg);
    rocksdb_writebatch_destroy(batch);
    TRY(err);
    database_count_add(&database->rows_written, count);
    database_count_add(&database->row_bytes_written, bytes);
    if (database->logged)
        count_logged(database, rows, count);
    return EMBTIER_OK;
}
