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

/* ---- To SSD ---- */

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

/* A checkpoint that captures the databases waits for this, or this for it. */
static enum embtier_err write_chunk(struct tables *tables, uint32_t table_id, uint64_t chunk,
                                    const uint64_t *ids, uint32_t count, struct err_msg *msg)
{
    enum embtier_err err;

    pthread_rwlock_rdlock(&tables->hold);
    err = hot_rows_write(tables->store, table_id, chunk, ids, count, msg);
    pthread_rwlock_unlock(&tables->hold);
    return err;
}

static enum embtier_err store_chunk(struct tables *tables, uint32_t table_id, uint64_t chunk,
                                    const uint64_t *ids, uint32_t count,
                                    const struct progress_sink *progress, struct err_msg *msg)
{
    enum embtier_err err;

    while ((err = write_chunk(tables, table_id, chunk, ids, count, msg)) == EMBTIER_BUSY) {
        TRY(progress_look(progress, msg));
        if (atomic_load(&tables->stopping))
            return err_set(msg, EMBTIER_SHUTDOWN, "%s", err_text(EMBTIER_SHUTDOWN));
        nanosleep(&(struct timespec){ .tv_nsec = PAUSE_NS }, NULL);
    }
    return err;
}

enum embtier_err hot_set_store(struct tables *tables, uint32_t table_id,
                               const struct table_spec *spec, const struct hot_ids *ids,
                               const struct progress_sink *progress, struct err_msg *msg)
{
    _cleanup_(freep) uint64_t *copy = calloc(HOT_ROWS_CHUNK, sizeof(*copy));
    uint64_t sum = 0;

    if (!copy)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    TRY(store_check_room(tables->store, chunks_of(ids->count), HOT_ROWS_CHUNK_BYTES, true, msg));
    for (uint64_t chunk = 0; chunk < chunks_of(ids->count); chunk++) {
        const uint32_t count = chunk_count(ids->count, chunk);

        memcpy(copy, (const uint8_t *)ids->ids + chunk * HOT_ROWS_CHUNK_BYTES,
               count * sizeof(*copy));
        TRY(check_range(spec, copy, count, msg));
        sum += hot_rows_sum(copy, count);
        TRY(progress_tell(progress, chunk * HOT_ROWS_CHUNK, ids->count, "hot rows", msg));
        TRY(store_chunk(tables, table_id, chunk, copy, count, progress, msg));
    }
    if (sum != spec->hot_sum)
        return err_set(msg, EMBTIER_INVALID,
                       "the hot rows of table '%s' changed while they were read", spec->name);
    return store_sync_all_logs(tables->store, msg);
}

/* ---- From SSD ---- */

struct loading {
    struct tables *tables;
    const struct table_spec *spec;
    uint32_t table_id;
    struct row_remap *remap;
    uint64_t *ids; /* of a chunk */
    uint64_t sum;
};

/* Passes the ids of a chunk to the remap. */
static void pass_chunk(const struct loading *loading, uint32_t count, bool places)
{
    const struct row_hasher *const hasher = store_hasher(loading->tables->store);
    struct row_ref refs[PORTION];

    for (uint32_t at = 0; at < count; at += PORTION) {
        const uint32_t some = MIN(count - at, (uint32_t)PORTION);

        for (uint32_t i = 0; i < some; i++)
            refs[i] =
                (struct row_ref){ .hash = row_hash(hasher, loading->table_id, loading->ids[at + i]),
                                  .id = loading->ids[at + i] };
        (places ? row_remap_place : row_remap_count)(loading->remap, refs, some);
    }
}

static enum embtier_err pass_all(struct loading *loading, bool places, struct err_msg *msg)
{
    const uint64_t all = loading->spec->hot_rows;

    loading->sum = 0;
    for (uint64_t chunk = 0; chunk < chunks_of(all); chunk++) {
        TRY(hot_rows_read(loading->tables->store, loading->table_id, chunk, loading->ids, msg));
        loading->sum += hot_rows_sum(loading->ids, chunk_count(all, chunk));
        pass_chunk(loading, chunk_count(all, chunk), places);
    }
    if (loading->sum == loading->spec->hot_sum)
        return EMBTIER_OK;
    return err_set(msg, EMBTIER_CORRUPT,
                   "the stored hot rows of table '%s' are not those that it was split by",
                   loading->spec->name);
}

enum embtier_err hot_set_load(struct tables *tables, uint32_t table_id,
                              const struct table_spec *spec, struct row_array *array,
                              struct err_msg *msg)
{
    _cleanup_(freep) uint64_t *ids = calloc(HOT_ROWS_CHUNK, sizeof(*ids));
    struct loading loading = { .tables = tables,
                               .spec = spec,
                               .table_id = table_id,
                               .remap = row_array_remap(array),
                               .ids = ids };
    enum embtier_err err;
    uint64_t id = 0;

    if (!ids)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    TRY(pass_all(&loading, false, msg));
    TRY(pass_all(&loading, true, msg));
    err = row_remap_end(loading.remap, &id);
    if (err == EMBTIER_EXISTS)
        return err_set(msg, EMBTIER_INVALID,
                       "row %" PRIu64 " is twice among the hot rows of table '%s'", id, spec->name);
    return err == EMBTIER_OK
               ? EMBTIER_OK
               : err_set(msg, err, "the hot rows of table '%s' changed on SSD", spec->name);
}

/* ---- Away from SSD ---- */

static enum embtier_err forget(struct tables *tables, uint32_t table_id,
                               const struct table_spec *spec, struct err_msg *msg)
{
    struct table_spec without = *spec;
    enum embtier_err err;

    TRY(hot_rows_drop(tables->store, table_id, &tables->stopping, msg));
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
