/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/engine/tables/hot_set.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/log/log.h"
#include "base/macros.h"
#include "base/row_hash.h"
#include "daemon/engine/tables/progress.h"
#include "daemon/engine/tables/tables_impl.h"
#include "store/catalog.h"
#include "store/hot_rows.h"
#include "store/store.h"
#include "tiers/array/row_arrays.h"
#include "tiers/array/row_remap.h"

#define PORTION  512 /* ids hashed at a time */
#define PAUSE_NS 2000000L

static uint32_t chunk_count(uint64_t count, uint64_t chunk)
{
    return (uint32_t)MIN(count - chunk * HOT_ROWS_CHUNK, (uint64_t)HOT_ROWS_CHUNK);
}

static uint64_t chunks_of(uint64_t count)
{
    return div_round_up(count, (uint64_t)HOT_ROWS_CHUNK);
}

uint64_t hot_set_sum(const struct hot_ids *ids)
{
    uint64_t portion[PORTION], sum = 0;

    for (uint64_t at = 0; at < ids->count; at += PORTION) {
        const uint32_t count = (uint32_t)MIN(ids->count - at, (uint64_t)PORTION);

        memcpy(portion, (const uint8_t *)ids->ids + at * sizeof(uint64_t),
               count * sizeof(uint64_t));
        sum += hot_rows_sum(portion, count);
    }
    return sum;
}

/* ---- Into the remap ---- */

struct filling {
    const struct hot_work *work;
    const struct hot_ids *given; /* in a client's memory, which may change; NULL: on SSD */
    struct row_remap *remap;
    uint64_t *ids; /* of a chunk */
    uint64_t sum;
};

/* OK if the work is to go on. */
static enum embtier_err look(const struct hot_work *work, struct err_msg *msg)
{
    TRY(progress_look(work->progress, msg));
    if (atomic_load(&work->tables->stopping))
        return err_shutdown(msg);
    if (work->table && atomic_load(&work->table->move) == TABLE_MOVES_LAST)
        return err_set(msg, EMBTIER_DROPPED, "a drop of the table waits");
    return EMBTIER_OK;
}

static enum embtier_err check_range(const struct table_spec *spec, const uint64_t *ids,
                                    uint32_t count, struct err_msg *msg)
{
    for (uint32_t i = 0; spec->rows != EMBTIER_UNBOUNDED && i < count; i++)
        if (ids[i] >= spec->rows)
            return err_set(msg, EMBTIER_ID_RANGE,
                           "table '%s' has %" PRIu64 " rows, and no hot row %" PRIu64, spec->name,
                           spec->rows, ids[i]);
    return EMBTIER_OK;
}

static enum embtier_err read_chunk(const struct filling *filling, uint64_t chunk,
                                   struct err_msg *msg)
{
    const struct hot_work *const work = filling->work;
    const uint32_t count = chunk_count(work->spec->hot_rows, chunk);

    TRY(look(work, msg));
    if (!filling->given)
        return hot_rows_read(work->tables->store, work->table_id, chunk, filling->ids, msg);
    memcpy(filling->ids, (const uint8_t *)filling->given->ids + chunk * HOT_ROWS_CHUNK_BYTES,
           count * sizeof(*filling->ids));
    return check_range(work->spec, filling->ids, count, msg);
}

/* Passes the ids of a chunk to the remap. */
static void pass_chunk(const struct filling *filling, uint32_t count, bool places)
{
    const struct hot_work *const work = filling->work;
    const struct row_hasher *const hasher = store_hasher(work->tables->store);
    struct row_ref refs[PORTION];

    for (uint32_t at = 0; at < count; at += PORTION) {
        const uint32_t some = MIN(count - at, (uint32_t)PORTION);

        for (uint32_t i = 0; i < some; i++)
            refs[i] =
                (struct row_ref){ .hash = row_hash(hasher, work->table_id, filling->ids[at + i]),
                                  .id = filling->ids[at + i] };
        (places ? row_remap_place : row_remap_count)(filling->remap, refs, some);
    }
}

static enum embtier_err err_changed(const struct filling *filling, struct err_msg *msg)
{
    if (filling->given)
        return err_set(msg, EMBTIER_INVALID,
                       "the hot rows of table '%s' changed while they were read",
                       filling->work->spec->name);
    return err_set(msg, EMBTIER_CORRUPT,
                   "the stored hot rows of table '%s' are not those that it was split by",
                   filling->work->spec->name);
}

static enum embtier_err pass_all(struct filling *filling, bool places, struct err_msg *msg)
{
    const struct table_spec *const spec = filling->work->spec;

    filling->sum = 0;
    for (uint64_t chunk = 0; chunk < chunks_of(spec->hot_rows); chunk++) {
        TRY(read_chunk(filling, chunk, msg));
        filling->sum += hot_rows_sum(filling->ids, chunk_count(spec->hot_rows, chunk));
        pass_chunk(filling, chunk_count(spec->hot_rows, chunk), places);
    }
    return filling->sum == spec->hot_sum ? EMBTIER_OK : err_changed(filling, msg);
}

static enum embtier_err fill(const struct hot_work *work, const struct hot_ids *given,
                             struct row_array *array, struct err_msg *msg)
{
    _cleanup_(freep) uint64_t *ids = calloc(HOT_ROWS_CHUNK, sizeof(*ids));
    struct filling filling = {
        .work = work, .given = given, .remap = row_array_remap(array), .ids = ids
    };
    enum embtier_err err;
    uint64_t id = 0;

    if (!ids)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    TRY(pass_all(&filling, false, msg));
    TRY(pass_all(&filling, true, msg));
    err = row_remap_end(filling.remap, &id);
    if (err == EMBTIER_EXISTS)
        return err_set(msg, EMBTIER_INVALID,
                       "row %" PRIu64 " is twice among the hot rows of table '%s'", id,
                       work->spec->name);
    return err == EMBTIER_OK ? EMBTIER_OK : err_changed(&filling, msg);
}

enum embtier_err hot_set_take(const struct hot_work *work, const struct hot_ids *ids,
                              struct row_array *array, struct err_msg *msg)
{
    return fill(work, ids, array, msg);
}

enum embtier_err hot_set_load(const struct hot_work *work, struct row_array *array,
                              struct err_msg *msg)
{
    return fill(work, NULL, array, msg);
}

/* ---- To SSD ---- */

/* A checkpoint that captures the databases waits for this, or this for it. */
static enum embtier_err write_chunk(const struct hot_work *work, uint64_t chunk,
                                    const uint64_t *ids, uint32_t count, struct err_msg *msg)
{
    enum embtier_err err;

    pthread_rwlock_rdlock(&work->tables->hold);
    err = hot_rows_write(work->tables->store, work->table_id, chunk, ids, count, msg);
    pthread_rwlock_unlock(&work->tables->hold);
    return err;
}

static enum embtier_err store_chunk(const struct hot_work *work, uint64_t chunk,
                                    const uint64_t *ids, uint32_t count, struct err_msg *msg)
{
    enum embtier_err err;

    while ((err = write_chunk(work, chunk, ids, count, msg)) == EMBTIER_BUSY) {
        TRY(look(work, msg));
        nanosleep(&(struct timespec){ .tv_nsec = PAUSE_NS }, NULL);
    }
    return err;
}

enum embtier_err hot_set_store(const struct hot_work *work, struct row_array *array,
                               struct err_msg *msg)
{
    _cleanup_(freep) uint64_t *ids = calloc(HOT_ROWS_CHUNK, sizeof(*ids));
    const struct row_remap *const remap = row_array_remap(array);
    const uint64_t rows = work->spec->hot_rows;
    struct store *const store = work->tables->store;

    if (!ids)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    TRY(store_check_room(store, chunks_of(rows), HOT_ROWS_CHUNK_BYTES, true, msg));
    for (uint64_t chunk = 0; chunk < chunks_of(rows); chunk++) {
        const uint32_t count = chunk_count(rows, chunk);

        TRY(look(work, msg));
        TRY(progress_tell(work->progress, chunk * HOT_ROWS_CHUNK, rows, "hot rows", msg));
        for (uint32_t i = 0; i < count; i++)
            ids[i] = row_remap_id(remap, chunk * HOT_ROWS_CHUNK + i);
        TRY(store_chunk(work, chunk, ids, count, msg));
    }
    return store_sync_all_logs(store, msg);
}

/* ---- Away from SSD ---- */

static enum embtier_err forget(struct tables *tables, uint32_t table_id,
                               const struct table_spec *spec, struct err_msg *msg)
{
    struct table_spec without = *spec;
    enum embtier_err err;

    store_use_reserve(tables->store); /* it frees space */
    err = hot_rows_drop(tables->store, table_id, &tables->stopping, msg);
    store_end_reserve(tables->store);
    TRY(err);
    without.hot_rows = without.hot_sum = 0;
    tables_lock_catalog(tables);
    err = catalog_set_home(tables->catalog, table_id, &without, msg);
    tables_unlock_catalog(tables);
    return err;
}

bool hot_set_forget(struct tables *tables, uint32_t table_id, const struct table_spec *spec)
{
    struct err_msg why = { { 0 } };

    if (forget(tables, table_id, spec, &why) == EMBTIER_OK)
        return true;
    log_warn("ids of hot rows stay on SSD until the next start", "table=%s id=%" PRIu32 " why=%s",
             spec->name, table_id, LOG_QUOTED(why.text));
    return false;
}
