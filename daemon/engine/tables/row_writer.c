/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/engine/tables/row_writer.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/row_hash.h"
#include "daemon/engine/tables/progress.h"
#include "daemon/engine/tables/row_routes.h"
#include "daemon/engine/tables/table.h"
#include "daemon/engine/tables/tables_reserved.h"
#include "store/store.h"

_Static_assert(sizeof(struct store_row) + sizeof(uint64_t) + sizeof(void *) <= ROW_WRITER_ROW_BYTES,
               "the configuration counts what a row takes");

struct row_writer {
    struct row_writer_opts opts;
    uint32_t shard_count;
    uint32_t batch_rows; /* per shard */
    uint32_t *counts;    /* per shard */
    struct store_row *rows;
    uint8_t *bytes;
    uint64_t *ids; /* of a batch, for fill() */
    void **pointers;
};

void row_writer_free(struct row_writer *writer)
{
    if (!writer)
        return;
    free(writer->counts);
    free(writer->rows);
    free(writer->bytes);
    free(writer->ids);
    free(writer->pointers);
    free(writer);
}

/* Returns how many rows of a shard are collected before they are written. */
static uint64_t batch_rows(uint32_t shard_count, uint64_t row_bytes, bool is_small)
{
    const uint64_t most =
        is_small ? ROW_WRITER_BYTES / ROW_WRITER_FILLS / (row_bytes + ROW_WRITER_ROW_BYTES)
                 : ROW_WRITER_BYTES / row_bytes;
    const uint64_t rows = MIN((uint64_t)ROW_WRITER_ROWS, most);

    return MAX(rows / MAX(shard_count, (uint32_t)ROW_WRITER_PARTS), UINT64_C(1));
}

uint64_t row_writer_bytes(uint32_t shard_count, uint64_t row_bytes)
{
    return (shard_count + (uint64_t)ROW_WRITER_COPIES) * batch_rows(shard_count, row_bytes, false) *
           (row_bytes + ROW_WRITER_ROW_BYTES);
}

enum embtier_err row_writer_new(const struct row_writer_opts *opts, struct row_writer **ret_writer,
                                struct err_msg *msg)
{
    _cleanup_(row_writer_freep) struct row_writer *writer = calloc(1, sizeof(*writer));
    const uint64_t row_bytes = opts->table->row_bytes;

    if (!writer)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    writer->opts = *opts;
    writer->shard_count = opts->routes->shard_count;
    writer->batch_rows = (uint32_t)batch_rows(writer->shard_count, row_bytes, opts->is_small);
    writer->counts = calloc(writer->shard_count, sizeof(*writer->counts));
    writer->rows =
        calloc((uint64_t)writer->shard_count * writer->batch_rows, sizeof(*writer->rows));
    writer->bytes = malloc((uint64_t)writer->shard_count * writer->batch_rows * row_bytes);
    writer->ids = calloc(writer->batch_rows, sizeof(*writer->ids));
    writer->pointers = calloc(writer->batch_rows, sizeof(*writer->pointers));
    if (!writer->counts || !writer->rows || !writer->bytes || !writer->ids || !writer->pointers)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    *ret_writer = TAKE(writer);
    return EMBTIER_OK;
}

/* OK if the work is to go on. */
static enum embtier_err look(const struct row_writer *writer, struct err_msg *msg)
{
    if (atomic_load(writer->opts.give_up))
        return err_shutdown(msg);
    return progress_look(writer->opts.progress, msg);
}

static enum embtier_err write_rows(struct row_writer *writer, uint32_t shard,
                                   const struct store_row *rows, uint32_t count,
                                   struct err_msg *msg)
{
    enum embtier_err err;

    pthread_rwlock_rdlock(writer->opts.hold);
    err = store_write(writer->opts.store, shard, rows, count, msg);
    pthread_rwlock_unlock(writer->opts.hold);
    return err;
}

/* Writes the rows that wait for a shard. */
static enum embtier_err write_shard(struct row_writer *writer, uint32_t shard, struct err_msg *msg)
{
    struct store_row *const rows = writer->rows + (uint64_t)shard * writer->batch_rows;
    const uint32_t count = writer->counts[shard];
    enum embtier_err err;

    if (count == 0)
        return EMBTIER_OK;
    for (uint32_t i = 0; writer->opts.fill && i < count; i++) {
        writer->ids[i] = rows[i].id;
        writer->pointers[i] = rows[i].bytes;
    }
    if (writer->opts.fill)
        writer->opts.fill(writer->opts.table, writer->ids, count, writer->pointers);
    while ((err = write_rows(writer, shard, rows, count, msg)) == EMBTIER_BUSY) {
        TRY(look(writer, msg));
        nanosleep(&(struct timespec){ .tv_nsec = 2000000L }, NULL);
    }
    writer->counts[shard] = 0;
    return err;
}

enum embtier_err row_writer_add(struct row_writer *writer, uint64_t id, const void *bytes,
                                struct err_msg *msg)
{
    const struct table *const table = writer->opts.table;
    const uint32_t table_id = atomic_load_explicit(&table->table_id, memory_order_relaxed);
    const uint32_t shard = row_routes_shard(
        writer->opts.routes, row_hash(store_hasher(writer->opts.store), table_id, id));
    const uint64_t at = (uint64_t)shard * writer->batch_rows + writer->counts[shard];
    uint8_t *const copy = writer->bytes + at * table->row_bytes;

    assert(writer->counts[shard] < writer->batch_rows);
    if (bytes)
        memcpy(copy, bytes, table->row_bytes);
    writer->rows[at] = (struct store_row){
        .table_id = table_id,
        .weight_bytes = table->weight_bytes,
        .state_bytes = table->state_bytes,
        .logged = table->logged,
        .id = id,
        .bytes = copy,
    };
    if (++writer->counts[shard] < writer->batch_rows)
        return EMBTIER_OK;
    TRY(look(writer, msg));
    TRY(store_check_room(writer->opts.store, (uint64_t)writer->shard_count * writer->batch_rows,
                         table->row_bytes, table->logged, msg));
    return write_shard(writer, shard, msg);
}

enum embtier_err row_writer_end(struct row_writer *writer, struct err_msg *msg)
{
    for (uint32_t shard = 0; shard < writer->shard_count; shard++) {
        TRY(write_shard(writer, shard, msg));
        TRY(store_flush(writer->opts.store, shard, msg));
    }
    return EMBTIER_OK;
}
