/* SPDX-License-Identifier: Apache-2.0 */
/* row_cache_give.c: gives the rows of a table away to another home, some at a time. */
#include <assert.h>

#include "tiers/cache/row_cache_impl.h"

/* Gives the table's rows in a set. False: the limit is reached, or a row was not taken. */
static bool give_set(struct row_cache *c, uint16_t table, struct row_set *set,
                     struct row_giving *giving, uint32_t *count)
{
    for (uint32_t taken = ~row_set_free_ways(set) & ROW_SET_WAYS_MASK; taken; taken &= taken - 1) {
        const struct row_place place = { set, (uint32_t)__builtin_ctz(taken) };
        const struct row_entry *const entry = place_entry(place);
        const uint32_t slot = entry->slot;
        struct row_ref ref;
        uint32_t tier;

        if (entry->table != table)
            continue;
        ref = (struct row_ref){ .hash = row_cache_hash(c, entry), .id = entry->id };
        if (giving->wants && !giving->wants(giving->context, &ref))
            continue;
        if (*count == giving->most_rows ||
            !giving->take(giving->context, &ref, row_cache_address(c, slot, &tier),
                          set->dirty >> place.way & 1))
            return false;
        row_moves_forget(c, place);
        slab_pool_release_if_empty(&c->pools[row_cache_tier_of(c, slot)], slot);
        ++*count;
    }
    return true;
}

uint32_t row_cache_give(struct row_cache *c, uint16_t table, struct row_giving *giving)
{
    uint32_t s = row_growth_scan_set(c, giving->cursor);
    uint32_t count = 0;

    assert(!c->in_epoch && c->tables[table].state == TABLE_IN_USE);
    assert(c->tables[table].pinned_rows == 0); /* MTrainS, section 5.7 */
    for (uint32_t steps = giving->most_steps;
         steps > 0 && c->tables[table].rows > 0 && row_index_next_set(&c->index, &s); steps--, s++)
        if (!give_set(c, table, &c->index.sets[s], giving, &count))
            break;
    giving->cursor = row_index_next_set(&c->index, &s) ? row_growth_scan_cursor(c, s) : 0;
    return count;
}

uint32_t row_cache_table_rows(const struct row_cache *c, uint16_t table)
{
    return c->tables[table].rows;
}

uint32_t row_cache_pinned_rows(const struct row_cache *c, uint16_t table)
{
    assert(c->tables[table].state == TABLE_IN_USE);
    return c->tables[table].pinned_rows;
}
