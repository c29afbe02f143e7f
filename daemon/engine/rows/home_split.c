/* SPDX-License-Identifier: Apache-2.0 */
/* The home of tables whose hot rows lie in an array, and all others in the cache over SSD (the
 * remap of SCRec, section III-C).
 *
 * The array has a slot for each hot row, which a remap finds (tiers/array/row_remap.h). A call is
 * dealt out: hot rows are looked for in the array only, all others in the cache only. So a hot row
 * is never in the cache but during a move. The cache knows the table as it knows any other, and
 * saves, evicts and pins its cold rows. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "daemon/engine/rows/home.h"
#include "daemon/engine/tables/table.h"
#include "tiers/array/row_arrays.h"
#include "tiers/array/row_remap.h"

/* Refs that are dealt out together: as many as a call of any home has, but for those that find rows
 * or have used them. */
#define CHUNK 512

struct home_split {
    const struct home *cache;
    struct row_arrays *arrays; /* its ids are slots */
    struct row_arrays_opts opts;
};

static const struct row_remap *remap_of(const struct home_split *split, uint16_t table)
{
    return row_array_remap(row_arrays_array(split->arrays, table));
}

/* ---- The arrays' view: a slot stands for its id ---- */

static uint64_t hash_of_slot(void *context, uint16_t table, uint64_t slot)
{
    const struct home_split *const split = context;

    return split->opts.hash(split->opts.context, table, row_remap_id(remap_of(split, table), slot));
}

static bool evict_slot(void *context, uint16_t table, uint64_t hash, uint64_t slot, const void *row,
                       uint32_t bytes)
{
    const struct home_split *const split = context;

    return split->opts.evict(split->opts.context, table, hash,
                             row_remap_id(remap_of(split, table), slot), row, bytes);
}

static bool is_mine(void *context, uint64_t hash)
{
    const struct home_split *const split = context;

    return split->opts.is_mine(split->opts.context, hash);
}

static void split_free(void *home)
{
    struct home_split *const split = home;

    row_arrays_free(split->arrays);
    free(split);
}

static enum embtier_err split_make(const struct home_opts *opts, void **ret_home,
                                   struct err_msg *msg)
{
    struct home_split *const split = calloc(1, sizeof(*split));
    enum embtier_err err;

    if (!split)
        return err_set(msg, EMBTIER_NO_MEMORY, "split tables: out of memory");
    split->cache = &opts->homes[HOME_CACHE];
    split->opts = *opts->arrays;
    err = row_arrays_new(
        &(struct row_arrays_opts){
            .hash = hash_of_slot, .evict = evict_slot, .is_mine = is_mine, .context = split },
        &split->arrays, msg);
    if (err != EMBTIER_OK)
        split_free(split);
    else
        *ret_home = split;
    return err;
}

/* ---- Dealing out ---- */

/* Some of a call's refs, and their places in that call. The ids of hot ones are slots. */
struct share {
    struct row_ref refs[CHUNK];
    uint32_t places[CHUNK];
    const void *rows[CHUNK];
    uint32_t count;
};

static void share_add(struct share *share, const struct row_ref *ref, uint64_t id, uint32_t place)
{
    struct row_ref *const to = &share->refs[share->count];

    *to = *ref;
    to->id = id;
    share->places[share->count++] = place;
}

/* @rows, which may be NULL, go with their refs; refs without a row are then left out. */
static void deal(const struct home_split *split, uint16_t table, const struct row_ref *refs,
                 uint32_t count, const void *const *rows, struct share *ret_hot,
                 struct share *ret_cold)
{
    uint32_t slots[CHUNK];

    assert(count <= CHUNK);
    ret_hot->count = ret_cold->count = 0;
    (void)row_remap_find(remap_of(split, table), refs, count, slots);
    for (uint32_t i = 0; i < count; i++) {
        const bool is_hot = slots[i] != ROW_REMAP_NO_SLOT;
        struct share *const share = is_hot ? ret_hot : ret_cold;

        if (rows && !rows[i])
            continue;
        if (rows)
            share->rows[share->count] = rows[i];
        share_add(share, &refs[i], is_hot ? slots[i] : refs[i].id, i);
    }
}

/* Some of a call's places. */
struct places {
    uint64_t bits[CHUNK / 64];
};

static void places_add(struct places *places, const struct share *share, const uint32_t *indexes,
                       uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t place = share->places[indexes[i]];

        places->bits[place / 64] |= UINT64_C(1) << place % 64;
    }
}

/* Lists the places, ascending. */
static uint32_t places_list(const struct places *places, uint32_t *ret_list)
{
    uint32_t count = 0;

    for (uint32_t w = 0; w < CHUNK / 64; w++)
        for (uint64_t bits = places->bits[w]; bits; bits &= bits - 1)
            ret_list[count++] = w * 64 + (uint32_t)__builtin_ctzll(bits);
    return count;
}

/* ---- Tables ---- */

static enum embtier_err hot_add(void *home, uint16_t table, struct row_array *array)
{
    struct home_split *const split = home;

    assert(row_array_remap(array));
    return row_arrays_add_table(split->arrays, table, array);
}

static void hot_remove(void *home, uint16_t table)
{
    struct home_split *const split = home;

    row_arrays_remove_table(split->arrays, table);
}

static bool hot_is_hot(const void *home, uint16_t table, const struct row_ref *ref)
{
    const struct home_split *const split = home;
    uint32_t slot;

    return row_remap_find(remap_of(split, table), ref, 1, &slot) == 1;
}

static uint64_t hot_rows(const void *home, uint16_t table)
{
    const struct home_split *const split = home;

    return row_arrays_table_rows(split->arrays, table);
}

static enum embtier_err split_add(void *home, const struct table *table, struct row_array *array)
{
    struct home_split *const split = home;
    enum embtier_err err;

    TRY(hot_add(split, table->index, array));
    err = split->cache->ops->add(split->cache->rows, table, NULL);
    if (err != EMBTIER_OK)
        hot_remove(split, table->index);
    return err;
}

static bool split_purge(void *home, const struct table *table, uint32_t step)
{
    struct home_split *const split = home;

    hot_remove(split, table->index);
    return split->cache->ops->purge(split->cache->rows, table, step);
}

/* ---- Giving rows away ---- */

struct split_giving {
    const struct home_split *split;
    uint16_t table;
    const struct row_giving *giving;
};

static bool take_hot(void *context, const struct row_ref *ref, const void *row, bool dirty)
{
    const struct split_giving *const hot = context;
    struct row_ref by_id = *ref;

    by_id.id = row_remap_id(remap_of(hot->split, hot->table), ref->id);
    return hot->giving->take(hot->giving->context, &by_id, row, dirty);
}

static uint32_t give_hot(struct home_split *split, uint16_t table, struct row_giving *giving)
{
    struct split_giving hot = { .split = split, .table = table, .giving = giving };
    struct row_giving slots = *giving;
    uint32_t count;

    slots.take = take_hot;
    slots.wants = NULL;
    slots.context = &hot;
    count = row_arrays_give(split->arrays, table, &slots);
    giving->cursor = row_arrays_table_rows(split->arrays, table) > 0 ? slots.cursor : 0;
    return count;
}

/* First the hot rows, then the cold ones. A caller that wants some rows only wants the hot ones,
 * which are all in the array. */
static uint32_t split_give(void *home, uint16_t table, struct row_giving *giving)
{
    struct home_split *const split = home;

    if (giving->wants || row_arrays_table_rows(split->arrays, table) > 0)
        return give_hot(split, table, giving);
    return split->cache->ops->give(split->cache->rows, table, giving);
}

static uint64_t split_rows(const void *home, uint16_t table)
{
    const struct home_split *const split = home;

    return hot_rows(split, table) + split->cache->ops->rows(split->cache->rows, table);
}

/* ---- Copying ---- */

static uint32_t split_get(void *home, uint16_t table, const struct row_ref *refs, uint32_t count,
                          void *dest, uint64_t stride, uint32_t bytes, uint32_t *ret_missed)
{
    struct home_split *const split = home;
    struct places missed = { { 0 } };
    uint32_t indexes[CHUNK];
    struct share hot, cold;

    deal(split, table, refs, count, NULL, &hot, &cold);
    places_add(
        &missed, &hot, indexes,
        row_arrays_get(split->arrays, table, hot.refs, hot.count, dest, stride, bytes, indexes));
    places_add(&missed, &cold, indexes,
               split->cache->ops->get(split->cache->rows, table, cold.refs, cold.count, dest,
                                      stride, bytes, indexes));
    return places_list(&missed, ret_missed);
}

static uint32_t split_set(void *home, uint16_t table, const struct row_ref *refs, uint32_t count,
                          const void *src, uint64_t stride, uint32_t bytes, uint32_t *ret_missed)
{
    struct home_split *const split = home;
    struct places missed = { { 0 } };
    uint32_t indexes[CHUNK];
    struct share hot, cold;

    deal(split, table, refs, count, NULL, &hot, &cold);
    places_add(
        &missed, &hot, indexes,
        row_arrays_set(split->arrays, table, hot.refs, hot.count, src, stride, bytes, indexes));
    places_add(&missed, &cold, indexes,
               split->cache->ops->set(split->cache->rows, table, cold.refs, cold.count, src, stride,
                                      bytes, indexes));
    return places_list(&missed, ret_missed);
}

/* ---- Finding ---- */

enum finding { FIND, CHANGE, CHANGE_THROUGH };

static uint32_t find_hot(struct home_split *split, enum finding what, uint16_t table,
                         struct share *hot)
{
    void **const rows = (void **)(uintptr_t)hot->rows;

    switch (what) {
    case CHANGE:
        return row_arrays_change(split->arrays, table, hot->refs, hot->count, rows);
    case CHANGE_THROUGH:
        return row_arrays_change_through(split->arrays, table, hot->refs, hot->count, rows);
    case FIND:
    default:
        return row_arrays_find(split->arrays, table, hot->refs, hot->count, hot->rows);
    }
}

static uint32_t find_cold(const struct home *cache, enum finding what, uint16_t table,
                          struct share *cold, uint32_t bytes)
{
    void **const rows = (void **)(uintptr_t)cold->rows;

    switch (what) {
    case CHANGE:
        return cache->ops->change(cache->rows, table, cold->refs, cold->count, rows);
    case CHANGE_THROUGH:
        return cache->ops->change_through(cache->rows, table, cold->refs, cold->count, rows);
    case FIND:
    default:
        return cache->ops->find(cache->rows, table, cold->refs, cold->count, bytes, cold->rows);
    }
}

static void put_back(const struct share *share, void **ret_rows)
{
    for (uint32_t i = 0; i < share->count; i++)
        ret_rows[share->places[i]] = (void *)(uintptr_t)share->rows[i];
}

/* Neither part moves rows for this, so the places of all chunks stay valid. */
static uint32_t find_rows(struct home_split *split, enum finding what, uint16_t table,
                          const struct row_ref *refs, uint32_t count, uint32_t bytes,
                          void **ret_rows)
{
    struct share hot, cold;
    uint32_t missed = 0;

    for (uint32_t at = 0; at < count; at += CHUNK) {
        deal(split, table, refs + at, MIN(count - at, (uint32_t)CHUNK), NULL, &hot, &cold);
        missed += find_hot(split, what, table, &hot);
        missed += find_cold(split->cache, what, table, &cold, bytes);
        put_back(&hot, ret_rows + at);
        put_back(&cold, ret_rows + at);
    }
    return missed;
}

static uint32_t split_find(void *home, uint16_t table, const struct row_ref *refs, uint32_t count,
                           uint32_t bytes, const void **ret_rows)
{
    return find_rows(home, FIND, table, refs, count, bytes, (void **)ret_rows);
}

static uint32_t split_change(void *home, uint16_t table, const struct row_ref *refs, uint32_t count,
                             void **ret_rows)
{
    return find_rows(home, CHANGE, table, refs, count, 0, ret_rows);
}

static uint32_t split_change_through(void *home, uint16_t table, const struct row_ref *refs,
                                     uint32_t count, void **ret_rows)
{
    return find_rows(home, CHANGE_THROUGH, table, refs, count, 0, ret_rows);
}

/* ---- After the use of rows that were found ---- */

static void split_used(void *home, uint16_t table, const struct row_ref *refs, uint32_t count,
                       const void *const *rows)
{
    struct home_split *const split = home;
    struct share hot, cold;

    for (uint32_t at = 0; at < count; at += CHUNK) {
        deal(split, table, refs + at, MIN(count - at, (uint32_t)CHUNK), rows + at, &hot, &cold);
        row_arrays_used(split->arrays, hot.count);
        if (cold.count > 0)
            split->cache->ops->used(split->cache->rows, table, cold.refs, cold.count, cold.rows);
    }
}

/* Hot rows stay where they are. */
static void split_changed(void *home, uint16_t table, const struct row_ref *refs, uint32_t count,
                          void *const *rows)
{
    struct home_split *const split = home;
    struct share hot, cold;

    for (uint32_t at = 0; at < count; at += CHUNK) {
        deal(split, table, refs + at, MIN(count - at, (uint32_t)CHUNK),
             (const void *const *)(uintptr_t)(rows + at), &hot, &cold);
        if (cold.count > 0)
            split->cache->ops->changed(split->cache->rows, table, cold.refs, cold.count,
                                       (void *const *)(uintptr_t)cold.rows);
    }
}

/* With two parts there is no one list of places to follow. */
static bool split_spots(const void *home, uint16_t table, struct row_spots *ret_spots)
{
    (void)home;
    (void)table;
    (void)ret_spots;
    return false;
}

static void split_used_spots(void *home, uint16_t table, uint32_t count)
{
    (void)home;
    (void)table;
    (void)count;
    assert(false);
}

/* ---- Rows that come, and pins ---- */

static void dirty_of_share(const struct share *share, const uint64_t *dirty, struct places *ret)
{
    *ret = (struct places){ { 0 } };
    for (uint32_t i = 0; dirty && i < share->count; i++)
        if (dirty[share->places[i] / 64] >> share->places[i] % 64 & 1)
            ret->bits[i / 64] |= UINT64_C(1) << i % 64;
}

/* The array takes any row. */
static uint32_t split_insert(void *home, uint16_t table, const struct row_ref *refs, uint32_t count,
                             const void *const *rows, const uint64_t *dirty, uint32_t *ret_refused)
{
    struct home_split *const split = home;
    struct places dirty_rows;
    struct share hot, cold;
    uint32_t refused = 0;

    deal(split, table, refs, count, rows, &hot, &cold);
    dirty_of_share(&hot, dirty, &dirty_rows);
    row_arrays_insert(split->arrays, table, hot.refs, hot.count, hot.rows, dirty_rows.bits);
    dirty_of_share(&cold, dirty, &dirty_rows);
    if (cold.count > 0)
        refused = split->cache->ops->insert(split->cache->rows, table, cold.refs, cold.count,
                                            cold.rows, dirty_rows.bits, ret_refused);
    for (uint32_t i = 0; i < refused; i++)
        ret_refused[i] = cold.places[ret_refused[i]];
    return refused;
}

static enum row_pin split_pin_one(void *home, uint16_t table, const struct row_ref *ref)
{
    struct home_split *const split = home;
    struct row_ref in_array = *ref;
    const void *row;
    uint32_t slot;

    if (row_remap_find(remap_of(split, table), ref, 1, &slot) == 0)
        return split->cache->ops->pin_one(split->cache->rows, table, ref);
    in_array.id = slot;
    return row_arrays_find(split->arrays, table, &in_array, 1, &row) == 0 ? ROW_UNPINNED
                                                                          : ROW_NOT_CACHED;
}

/* A hot row that is there stays. */
static void split_pin(void *home, uint16_t table, const struct row_ref *refs, uint32_t count,
                      uint64_t *ret_here, uint64_t *ret_pinned)
{
    struct home_split *const split = home;
    struct places here = { { 0 } }, pinned = { { 0 } };
    struct share hot, cold;

    memset(ret_here, 0, div_round_up(count, 64) * sizeof(*ret_here));
    memset(ret_pinned, 0, div_round_up(count, 64) * sizeof(*ret_pinned));
    deal(split, table, refs, count, NULL, &hot, &cold);
    (void)find_hot(split, FIND, table, &hot);
    for (uint32_t i = 0; i < hot.count; i++)
        if (hot.rows[i])
            ret_here[hot.places[i] / 64] |= UINT64_C(1) << hot.places[i] % 64;
    split->cache->ops->pin(split->cache->rows, table, cold.refs, cold.count, here.bits,
                           pinned.bits);
    for (uint32_t i = 0; i < cold.count; i++) {
        ret_here[cold.places[i] / 64] |= (here.bits[i / 64] >> i % 64 & 1) << cold.places[i] % 64;
        ret_pinned[cold.places[i] / 64] |= (pinned.bits[i / 64] >> i % 64 & 1)
                                           << cold.places[i] % 64;
    }
}

static void split_unpin(void *home, uint16_t table, const struct row_ref *refs, uint32_t count)
{
    struct home_split *const split = home;
    struct share hot, cold;

    for (uint32_t at = 0; at < count; at += CHUNK) {
        deal(split, table, refs + at, MIN(count - at, (uint32_t)CHUNK), NULL, &hot, &cold);
        split->cache->ops->unpin(split->cache->rows, table, cold.refs, cold.count);
    }
}

static uint64_t split_pinned(const void *home, uint16_t table)
{
    const struct home_split *const split = home;

    return split->cache->ops->pinned(split->cache->rows, table);
}

/* ---- Saving and describing: the array's part, as the cache does its own ---- */

static uint32_t split_write_back(void *home, uint64_t *cursor, uint32_t most_rows, bool *ret_done)
{
    struct home_split *const split = home;

    return row_arrays_write_back(split->arrays, cursor, most_rows, ret_done);
}

static void split_begin_epoch(void *home)
{
    struct home_split *const split = home;

    row_arrays_begin_epoch(split->arrays);
}

static bool split_end_epoch(void *home)
{
    struct home_split *const split = home;

    return row_arrays_end_epoch(split->arrays);
}

static bool split_forget_epoch(void *home, uint64_t *cursor, uint32_t step)
{
    struct home_split *const split = home;

    return row_arrays_forget_epoch(split->arrays, cursor, step);
}

static void split_stats(const void *home, struct home_stats *ret_stats)
{
    const struct home_split *const split = home;
    const struct home arrays = { &home_array_ops, split->arrays };

    arrays.ops->stats(arrays.rows, ret_stats);
}

static const struct home_hot_ops split_hot_ops = {
    .others = HOME_CACHE,
    .add = hot_add,
    .remove = hot_remove,
    .is_hot = hot_is_hot,
    .rows = hot_rows,
};

const struct home_ops home_split_ops = {
    .make = split_make,
    .free = split_free,
    .hot = &split_hot_ops,
    .add = split_add,
    .purge = split_purge,
    .give = split_give,
    .rows = split_rows,
    .get = split_get,
    .find = split_find,
    .used = split_used,
    .spots = split_spots,
    .used_spots = split_used_spots,
    .set = split_set,
    .change = split_change,
    .change_through = split_change_through,
    .changed = split_changed,
    .insert = split_insert,
    .takes_pins = true, /* cold rows stay only while pinned */
    .pin = split_pin,
    .pin_one = split_pin_one,
    .unpin = split_unpin,
    .pinned = split_pinned,
    .write_back = split_write_back,
    .begin_epoch = split_begin_epoch,
    .end_epoch = split_end_epoch,
    .forget_epoch = split_forget_epoch,
    .stats = split_stats,
};
