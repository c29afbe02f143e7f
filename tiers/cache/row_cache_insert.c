/* SPDX-License-Identifier: Apache-2.0 */
/* row_cache_insert.c: puts new rows into the cache, in tier 0 or in the first slower tier that has
 * room. Rows that are already cached stay as they are. */
#include <assert.h>
#include <string.h>

#include "tiers/cache/row_cache_impl.h"

#define SETS_AHEAD 16 /* refs whose set is prefetched */

/* Returns a slot for a new row, in the fastest tier that can make one. */
static uint32_t make_slot(struct row_cache *c, uint32_t class_index)
{
    uint32_t slot = SLOT_NONE;

    for (uint32_t tier = 0; tier < c->tier_count && slot == SLOT_NONE; tier++)
        slot = row_moves_make_slot(c, tier, class_index);
    return slot;
}

/* False: no place could be found. */
static bool insert_row(struct row_cache *c, uint16_t table_number, const struct row_ref *ref,
                       const void *row, bool dirty)
{
    struct cached_table *table = &c->tables[table_number];
    struct row_place place;
    struct row_spot *spot;
    uint32_t slot, tier;
    struct row_set *first;
    uint8_t *dest;

    /* A cached row is newer than any that a caller could bring. */
    if (row_index_find(&c->index, table_number, ref->hash, ref->id, &place.set) != ROW_WAY_NONE)
        return true;
    first = row_index_first_set(&c->index, ref->hash);
    place.way =
        row_moves_make_way(c, first, row_index_second_set(&c->index, ref->hash), &place.set);
    if (place.way == ROW_WAY_NONE)
        return false;
    slot = make_slot(c, table->length_class);
    if (slot == SLOT_NONE)
        return false;
    dest = (uint8_t *)row_cache_address(c, slot, &tier);
    if (tier) {
        arena_copy_in(c->arenas[tier], dest, row, table->row_bytes);
        c->undrained |= 1u << tier;
    } else {
        memcpy(dest, row, table->row_bytes);
    }
    row_index_fill(&c->index, place.set, place.way, table_number, ref->hash, ref->id, slot, c->now,
                   place.set != first);
    *slab_pool_owner(&c->pools[tier], slot) = row_index_number(&c->index, place.set, place.way);
    row_moves_account(c, tier, table->row_bytes, false, 1);
    table->rows++;
    spot = row_cache_spot(c, place_entry(place));
    if (spot)
        *spot = (struct row_spot){ .slot_and_1 = slot + 1, .stamp = c->now };
    if (dirty)
        row_cache_mark_dirty(c, place, tier);
    return true;
}

uint32_t row_cache_insert(struct row_cache *c, uint16_t table, const struct row_ref *refs,
                          uint32_t count, const void *const *rows, const uint64_t *dirty,
                          uint32_t *ret_refused)
{
    uint32_t refused = 0;

    assert(c->tables[table].state == TABLE_IN_USE);
    row_upkeep(c, count);
    for (uint32_t i = 0; i < MIN(count, (uint32_t)SETS_AHEAD); i++)
        __builtin_prefetch(row_index_first_set(&c->index, refs[i].hash));
    for (uint32_t i = 0; i < count; i++) {
        if (i + SETS_AHEAD < count)
            __builtin_prefetch(row_index_first_set(&c->index, refs[i + SETS_AHEAD].hash));
        if (!insert_row(c, table, &refs[i], rows[i], dirty && (dirty[i / 64] >> i % 64 & 1)))
            ret_refused[refused++] = i;
    }
    c->inserts_since += count;
    counter_add(&c->stats.not_cached, refused);
    row_upkeep_end(c);
    return refused;
}
