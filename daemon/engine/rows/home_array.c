/* SPDX-License-Identifier: Apache-2.0 */
/* The home of tables in arrays: all rows of a table in one memory, found by id alone. */
#include <assert.h>
#include <string.h>

#include "daemon/engine/rows/home.h"
#include "daemon/engine/tables/table.h"
#include "tiers/array/row_arrays.h"

static enum embtier_err array_make(const struct home_opts *opts, void **ret_home,
                                   struct err_msg *msg)
{
    struct row_arrays *arrays = NULL;

    TRY(row_arrays_new(opts->arrays, &arrays, msg));
    *ret_home = arrays;
    return EMBTIER_OK;
}

static void array_free(void *home)
{
    row_arrays_free(home);
}

static enum embtier_err array_add(void *home, const struct table *table, struct row_array *array)
{
    return row_arrays_add_table(home, table->index, array);
}

static bool array_purge(void *home, const struct table *table, uint32_t step)
{
    (void)step;
    row_arrays_remove_table(home, table->index);
    return true;
}

static uint32_t array_give(void *home, uint16_t table, struct row_giving *giving)
{
    return row_arrays_give(home, table, giving);
}

static uint64_t array_rows(const void *home, uint16_t table)
{
    return row_arrays_table_rows(home, table);
}

static uint32_t array_get(void *home, uint16_t table, const struct row_ref *refs, uint32_t count,
                          void *dest, uint64_t stride, uint32_t bytes, uint32_t *ret_missed)
{
    return row_arrays_get(home, table, refs, count, dest, stride, bytes, ret_missed);
}

static uint32_t array_find(void *home, uint16_t table, const struct row_ref *refs, uint32_t count,
                           uint32_t bytes, const void **ret_rows)
{
    (void)bytes;
    return row_arrays_find(home, table, refs, count, ret_rows);
}

static void array_used(void *home, uint16_t table, const struct row_ref *refs, uint32_t count,
                       const void *const *rows)
{
    (void)table;
    (void)refs;
    (void)rows;
    row_arrays_used(home, count);
}

static bool array_spots(const void *home, uint16_t table, struct row_spots *ret_spots)
{
    return row_arrays_spots(home, table, ret_spots);
}

static void array_used_spots(void *home, uint16_t table, uint32_t count)
{
    (void)table;
    row_arrays_used(home, count);
}

static uint32_t array_set(void *home, uint16_t table, const struct row_ref *refs, uint32_t count,
                          const void *src, uint64_t stride, uint32_t bytes, uint32_t *ret_missed)
{
    return row_arrays_set(home, table, refs, count, src, stride, bytes, ret_missed);
}

static uint32_t array_change(void *home, uint16_t table, const struct row_ref *refs, uint32_t count,
                             void **ret_rows)
{
    return row_arrays_change(home, table, refs, count, ret_rows);
}

static uint32_t array_change_through(void *home, uint16_t table, const struct row_ref *refs,
                                     uint32_t count, void **ret_rows)
{
    return row_arrays_change_through(home, table, refs, count, ret_rows);
}

/* Does nothing: rows stay where they are. */
static void array_changed(void *home, uint16_t table, const struct row_ref *refs, uint32_t count,
                          void *const *rows)
{
    (void)home;
    (void)table;
    (void)refs;
    (void)count;
    (void)rows;
}

static uint32_t array_insert(void *home, uint16_t table, const struct row_ref *refs, uint32_t count,
                             const void *const *rows, const uint64_t *dirty, uint32_t *ret_refused)
{
    (void)ret_refused;
    row_arrays_insert(home, table, refs, count, rows, dirty);
    return 0;
}

static enum row_pin array_pin_one(void *home, uint16_t table, const struct row_ref *ref)
{
    const void *row;

    return row_arrays_find(home, table, ref, 1, &row) == 0 ? ROW_UNPINNED : ROW_NOT_CACHED;
}

/* A row that is there stays. */
static void array_pin(void *home, uint16_t table, const struct row_ref *refs, uint32_t count,
                      uint64_t *ret_here, uint64_t *ret_pinned)
{
    memset(ret_here, 0, div_round_up(count, 64) * sizeof(*ret_here));
    memset(ret_pinned, 0, div_round_up(count, 64) * sizeof(*ret_pinned));
    for (uint32_t i = 0; i < count; i++)
        if (array_pin_one(home, table, &refs[i]) == ROW_UNPINNED)
            ret_here[i / 64] |= UINT64_C(1) << i % 64;
}

static void array_unpin(void *home, uint16_t table, const struct row_ref *refs, uint32_t count)
{
    assert(count == 0);
    (void)home;
    (void)table;
    (void)refs;
    (void)count;
}

static uint64_t array_pinned(const void *home, uint16_t table)
{
    (void)home;
    (void)table;
    return 0;
}

static uint32_t array_write_back(void *home, uint64_t *cursor, uint32_t most_rows, bool *ret_done)
{
    return row_arrays_write_back(home, cursor, most_rows, ret_done);
}

static void array_begin_epoch(void *home)
{
    row_arrays_begin_epoch(home);
}

static bool array_end_epoch(void *home)
{
    return row_arrays_end_epoch(home);
}

static bool array_forget_epoch(void *home, uint64_t *cursor, uint32_t step)
{
    return row_arrays_forget_epoch(home, cursor, step);
}

static void array_stats(const void *home, struct home_stats *ret_stats)
{
    struct row_arrays_stats stats;

    row_arrays_stats(home, &stats);
    *ret_stats = (struct home_stats){
        .rows = stats.rows,
        .bytes = stats.bytes,
        .dirty_rows = stats.dirty_rows,
        .dirty_bytes = stats.dirty_bytes,
        .hits = stats.hits,
        .get_hits = stats.get_hits,
    };
}

const struct home_ops home_array_ops = {
    .make = array_make,
    .free = array_free,
    .add = array_add,
    .purge = array_purge,
    .give = array_give,
    .rows = array_rows,
    .get = array_get,
    .find = array_find,
    .used = array_used,
    .spots = array_spots,
    .used_spots = array_used_spots,
    .set = array_set,
    .change = array_change,
    .change_through = array_change_through,
    .changed = array_changed,
    .insert = array_insert,
    .takes_pins = false,
    .pin = array_pin,
    .pin_one = array_pin_one,
    .unpin = array_unpin,
    .pinned = array_pinned,
    .write_back = array_write_back,
    .begin_epoch = array_begin_epoch,
    .end_epoch = array_end_epoch,
    .forget_epoch = array_forget_epoch,
    .stats = array_stats,
};
