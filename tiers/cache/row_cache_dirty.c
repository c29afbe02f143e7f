/* SPDX-License-Identifier: Apache-2.0 */
/* row_cache_dirty.c: hands dirty rows over for writing, and begins and ends the epochs that decide
 * which of them belong to a checkpoint. */
#include <assert.h>

#include "tiers/cache/row_cache_impl.h"

/* Hands over the dirty rows of a set; false: the limit is reached, or a row was refused. */
static bool write_back_set(struct row_cache *c, struct row_set *set, uint32_t most, uint32_t *count)
{
    for (uint32_t dirty = set->dirty; dirty; dirty &= dirty - 1) {
        struct row_place place = { set, (uint32_t)__builtin_ctz(dirty) };
        const struct row_entry *entry = place_entry(place);
        struct row_cache_tier_stats *stats;
        struct row_spot *spot;

        if (c->in_epoch && !row_cache_is_old(c, entry))
            continue;
        if (*count == most || !row_cache_hand_over(c, entry))
            return false;
        set->dirty &= (uint16_t) ~(1u << place.way);
        spot = row_cache_spot(c, entry);
        if (spot)
            spot->dirty = 0;
        stats = &c->stats.tiers[row_cache_tier_of(c, entry->slot)];
        counter_sub(&stats->dirty_rows, 1);
        counter_sub(&stats->dirty_bytes, c->tables[entry->table].row_bytes);
        ++*count;
    }
    return true;
}

uint32_t row_cache_write_back(struct row_cache *c, uint64_t *cursor, uint32_t most_rows,
                              bool *ret_done)
{
    uint32_t s = row_growth_scan_set(c, *cursor);
    uint32_t count = 0;
    bool more = true;

    while (more && row_index_next_set(&c->index, &s)) {
        more = write_back_set(c, &c->index.sets[s], most_rows, &count);
        s += more;
    }
    *cursor = row_growth_scan_cursor(c, s);
    *ret_done = more;
    return count;
}

void row_cache_begin_epoch(struct row_cache *c)
{
    assert(!c->in_epoch);
    c->epoch ^= ROW_ENTRY_EPOCH;
    c->in_epoch = true;
    c->save_failed = false;
}

bool row_cache_end_epoch(struct row_cache *c)
{
    assert(c->in_epoch);
    c->in_epoch = false;
    return !c->save_failed;
}

bool row_cache_forget_epoch(struct row_cache *c, uint64_t *cursor, uint32_t step)
{
    uint32_t s = row_growth_scan_set(c, *cursor);

    assert(!c->in_epoch);
    for (; step > 0 && row_index_next_set(&c->index, &s); step--, s++) {
        struct row_set *const set = &c->index.sets[s];

        for (uint32_t dirty = set->dirty; dirty; dirty &= dirty - 1) {
            struct row_entry *const entry = &set->entries[__builtin_ctz(dirty)];
            struct row_spot *const spot = row_cache_spot(c, entry);

            entry->flags = (uint8_t)((entry->flags & ~ROW_ENTRY_EPOCH) | c->epoch);
            if (spot)
                spot->dirty = row_cache_dirty_mark(c->epoch);
        }
    }
    *cursor = row_growth_scan_cursor(c, s);
    return !row_index_next_set(&c->index, &s);
}
