/* SPDX-License-Identifier: Apache-2.0 */
/* The home of most tables: the row cache, in DRAM, slower memory below it, and SSD below that. */
#include <string.h>

#include "daemon/engine/rows/home.h"

#include "daemon/engine/tables/table.h"

static enum embtier_err cache_make(const struct home_opts *opts, void **ret_home,
                                   struct err_msg *msg)
{
    struct row_cache *cache = NULL;

    TRY(row_cache_new(opts->cache, &cache, msg));
    *ret_home = cache;
    return EMBTIER_OK;
}

static void cache_free(void *home)
{
    row_cache_free(home);
}

static enum embtier_err cache_add(void *home, const struct table *table, struct row_array *array)
{
    (void)array;
    return row_cache_add_table(home, table->index, table->row_bytes, table->spec.rows);
}

static bool cache_purge(void *home, const struct table *table, uint32_t step)
{
    return row_cache_purge_table(home, table->index, step);
}

static uint32_t cache_give(void *home, uint16_t table, struct row_giving *giving)
{
    return row_cache_give(home, table, giving);
}

static uint64_t cache_rows(const void *home, uint16_t table)
{
    return row_cache_table_rows(home, table);
}

static uint32_t cache_get(void *home, uint16_t table, const struct row_ref *refs, uint32_t count,
                          void *dest, uint64_t stride, uint32_t bytes, uint32_t *ret_missed)
{
    return row_cache_get(home, table, refs, count, dest, stride, bytes, ret_missed);
}

static uint32_t cache_find(void *home, uint16_t table, const struct row_ref *refs, uint32_t count,
                           uint32_t bytes, const void **ret_rows)
{
    return row_cache_find(home, table, refs, count, bytes, ret_rows);
}

static void cache_used(void *home, uint16_t table, const struct row_ref *refs, uint32_t count,
                       const void *const *rows)
{
    row_cache_used(home, table, refs, count, rows);
}

static bool cache_spots(const void *home, uint16_t table, struct row_spots *ret_spots)
{
    return row_cache_spots(home, table, ret_spots);
}

static void cache_used_spots(void *home, uint16_t table, uint32_t count)
{
    (void)table;
    row_cache_used_spots(home, count);
}

static uint32_t cache_set(void *home, uint16_t table, const struct row_ref *refs, uint32_t count,
                          const void *src, uint64_t stride, uint32_t bytes, uint32_t *ret_missed)
{
    return row_cache_set(home, table, refs, count, src, stride, bytes, ret_missed);
}

static uint32_t cache_change(void *home, uint16_t table, const struct row_ref *refs, uint32_t count,
                             void **ret_rows)
{
    return row_cache_change(home, table, refs, count, ret_rows);
}

static uint32_t cache_change_through(void *home, uint16_t table, const struct row_ref *refs,
                                     uint32_t count, void **ret_rows)
{
    return row_cache_change_through(home, table, refs, count, ret_rows);
}

static void cache_changed(void *home, uint16_t table, const struct row_ref *refs, uint32_t count,
                          void *const *rows)
{
    row_cache_changed(home, table, refs, count, rows);
}

static uint32_t cache_insert(void *home, uint16_t table, const struct row_ref *refs, uint32_t count,
                             const void *const *rows, const uint64_t *dirty, uint32_t *ret_refused)
{
    return row_cache_insert(home, table, refs, count, rows, dirty, ret_refused);
}

static void cache_pin(void *home, uint16_t table, const struct row_ref *refs, uint32_t count,
                      uint64_t *ret_here, uint64_t *ret_pinned)
{
    row_cache_pin(home, table, refs, count, ret_pinned);
    memcpy(ret_here, ret_pinned, div_round_up(count, 64) * sizeof(*ret_here));
}

static enum row_pin cache_pin_one(void *home, uint16_t table, const struct row_ref *ref)
{
    return row_cache_pin_one(home, table, ref);
}

static void cache_unpin(void *home, uint16_t table, const struct row_ref *refs, uint32_t count)
{
    row_cache_unpin(home, table, refs, count);
}

static uint64_t cache_pinned(const void *home, uint16_t table)
{
    return row_cache_pinned_rows(home, table);
}

static uint32_t cache_write_back(void *home, uint64_t *cursor, uint32_t most_rows, bool *ret_done)
{
    return row_cache_write_back(home, cursor, most_rows, ret_done);
}

static void cache_begin_epoch(void *home)
{
    row_cache_begin_epoch(home);
}

static bool cache_end_epoch(void *home)
{
    return row_cache_end_epoch(home);
}

static bool cache_forget_epoch(void *home, uint64_t *cursor, uint32_t step)
{
    return row_cache_forget_epoch(home, cursor, step);
}

static void cache_stats(const void *home, struct home_stats *ret_stats)
{
    struct row_cache_stats cache;
    struct home_stats sum = { 0 };

    row_cache_stats(home, &cache);
    for (uint32_t t = 0; t < TIERS_MAX; t++) {
        sum.rows += cache.tiers[t].rows;
        sum.bytes += cache.tiers[t].used_bytes;
        sum.dirty_rows += cache.tiers[t].dirty_rows;
        sum.dirty_bytes += cache.tiers[t].dirty_bytes;
        sum.hits += cache.tiers[t].hits;
        sum.get_hits += cache.tiers[t].get_hits;
    }
    *ret_stats = sum;
}

const struct home_ops home_cache_ops = {
    .make = cache_make,
    .free = cache_free,
    .add = cache_add,
    .purge = cache_purge,
    .give = cache_give,
    .rows = cache_rows,
    .get = cache_get,
    .find = cache_find,
    .used = cache_used,
    .spots = cache_spots,
    .used_spots = cache_used_spots,
    .set = cache_set,
    .change = cache_change,
    .change_through = cache_change_through,
    .changed = cache_changed,
    .insert = cache_insert,
    .takes_pins = true,
    .pin = cache_pin,
    .pin_one = cache_pin_one,
    .unpin = cache_unpin,
    .pinned = cache_pinned,
    .write_back = cache_write_back,
    .begin_epoch = cache_begin_epoch,
    .end_epoch = cache_end_epoch,
    .forget_epoch = cache_forget_epoch,
    .stats = cache_stats,
};
