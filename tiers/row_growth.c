/* SPDX-License-Identifier: Apache-2.0 */
/* row_growth.c: the index grows with the number of rows the cache can hold.
 *
 * How many sets are right is first told by the tables: the memory of all tiers over their mean
 * slot. What the mix of rows really is shows later: if more than an eighth of the rows that come
 * find both their sets full, the index grows by a quarter. It may take half of tier 0 and never
 * shrinks in this version.
 *
 * It grows into the slabs behind it: free ones are taken at once, others are drained first, one at
 * a time. When all are there, rows move to their new sets from the top set down, each in one step:
 * the boundary moves with it, so that every lookup before and after finds it (row_index.h). Rows of
 * one hash move together, as no boundary lies between them. Sets a row moves to are at or above
 * the one it leaves; a scan from the bottom up, such as row_cache_write_back()'s, so misses none.
 *
 * The set that rows go to may be full: then the oldest leave, of those there and of those that
 * come. If too many are pinned, or dirty while evict() refuses, growth waits with nothing moved;
 * the next call tries again. */
#include "tiers/row_cache_impl.h"

#include <assert.h>

/* 15 ways are filled to 85 %. */
#define ROWS_PER_SET_X100 1275

uint64_t row_growth_fitting_sets(const struct row_cache *c)
{
    uint64_t bytes = 0, per_set;

    for (uint32_t tier = 0; tier < c->tier_count; tier++)
        bytes += c->pools[tier].slab_count * ARENA_SLAB_BYTES;
    if (!c->table_count)
        return 0;
    bytes -= c->fixed_bytes + (uint64_t)c->map_slabs * ARENA_SLAB_BYTES;
    per_set = (c->table_slot_bytes / c->table_count + 4) * ROWS_PER_SET_X100 / 100 +
              sizeof(struct row_set);
    return bytes / per_set;
}

static uint64_t sets_in(const struct row_cache *c, uint64_t slabs)
{
    return (slabs * ARENA_SLAB_BYTES - c->fixed_bytes) / sizeof(struct row_set);
}

void row_growth_want(struct row_cache *c, uint64_t sets)
{
    uint64_t most = sets_in(c, MAX(c->pools[0].slab_count / 2, 1u));

    most = MIN(most, (uint64_t)SLOT_FREE / 16 - 1); /* a way's number leaves the top bit alone */
    sets = MIN(sets, most);
    if (sets > c->wanted_sets)
        c->wanted_sets = (uint32_t)sets;
}

/* True when the slabs that the wanted sets need all belong to the index. */
static bool take_slabs(struct row_cache *c)
{
    struct slab_pool *pool = &c->pools[0];
    uint64_t bytes = c->fixed_bytes + (uint64_t)c->wanted_sets * sizeof(struct row_set);
    uint32_t needed = (uint32_t)div_round_up(bytes, ARENA_SLAB_BYTES);
    bool all = true;

    for (uint32_t i = c->index_slabs; i < needed; i++) {
        enum slab_state state = pool->slabs[i].state;

        if (state == SLAB_FREE) {
            slab_pool_take_away(pool, i);
        } else if (state != SLAB_INDEX) {
            all = false;
            if (state == SLAB_DRAINING)
                pool->slabs[i].heir = SLAB_HEIR_INDEX;
            else if (pool->draining == SLAB_NONE)
                slab_pool_drain(pool, i, SLAB_HEIR_INDEX);
        }
    }
    if (all)
        c->index_slabs = MAX(c->index_slabs, needed);
    return all;
}

/* What the row's set was chosen by. */
static uint32_t home_hash(const struct row_cache *c, const struct row_entry *entry)
{
    uint64_t hash = row_cache_hash(c, entry);

    return (entry->flags & ROW_ENTRY_SECOND) ? row_index_second_hash(hash)
                                             : row_index_first_hash(hash);
}

static void move_entry(struct row_cache *c, struct row_place from, struct row_place to)
{
    const struct row_entry *entry = place_entry(from);
    struct slab_pool *pool = &c->pools[row_cache_tier_of(c, entry->slot)];

    *place_entry(to) = *entry;
    to.set->tags[to.way] = from.set->tags[from.way];
    to.set->stamps[to.way] = from.set->stamps[from.way];
    to.set->dirty |= (uint16_t)((from.set->dirty >> from.way & 1u) << to.way);
    to.set->pinned |= (uint16_t)((from.set->pinned >> from.way & 1u) << to.way);
    from.set->tags[from.way] = 0;
    from.set->dirty &= (uint16_t) ~(1u << from.way);
    from.set->pinned &= (uint16_t) ~(1u << from.way);
    *slab_pool_owner(pool, entry->slot) = row_index_number(&c->index, to.set, to.way);
}

/* Those of @left with the highest hash: all that have it. */
static uint32_t highest_ways(const uint32_t hashes[ROW_SET_WAYS], uint32_t left)
{
    uint32_t ways = 0, hash = 0;

    for (; left; left &= left - 1) {
        uint32_t way = (uint32_t)__builtin_ctz(left);

        if (!ways || hashes[way] > hash) {
            hash = hashes[way];
            ways = 0;
        }
        if (hashes[way] == hash)
            ways |= 1u << way;
    }
    return ways;
}

/* Lets rows go until @to has room for all that are still @coming; false: not enough can. */
static bool make_room(struct row_cache *c, struct row_ways *coming, struct row_set *to)
{
    struct row_ways there = { to, ROW_SET_WAYS_MASK };

    while (__builtin_popcount(row_set_free_ways(to)) < __builtin_popcount(coming->ways)) {
        struct row_place gone;

        if (!row_moves_let_oldest_go(c, *coming, there, &gone))
            return false;
        if (gone.set == coming->set)
            coming->ways &= ~(1u << gone.way);
    }
    return true;
}

/* Moves the rows of the old mapping with the highest hash in @from, of which @hashes and @left are
 * kept by the caller. False: they have no place to go. */
static bool move_highest(struct row_cache *c, struct row_set *from,
                         const uint32_t hashes[ROW_SET_WAYS], uint32_t *left)
{
    struct row_index *index = &c->index;
    uint32_t ways = highest_ways(hashes, *left);
    uint32_t hash = hashes[__builtin_ctz(ways)];
    struct row_set *to = &index->sets[((uint64_t)hash * index->grown_count) >> 32];
    struct row_ways coming = { from, ways };

    if (to != from) {
        if (!make_room(c, &coming, to))
            return false;
        for (uint32_t rest = coming.ways; rest; rest &= rest - 1) {
            uint32_t to_way = (uint32_t)__builtin_ctz(row_set_free_ways(to));

            move_entry(c, (struct row_place){ from, (uint32_t)__builtin_ctz(rest) },
                       (struct row_place){ to, to_way });
        }
    }
    index->boundary = hash;
    *left &= ~ways;
    return true;
}

/* False: some rows cannot move now. */
static bool grow_a_set(struct row_cache *c)
{
    uint32_t set_number = row_index_prepare_growth(&c->index);
    struct row_set *set = &c->index.sets[set_number];
    uint32_t hashes[ROW_SET_WAYS] = { 0 };
    uint32_t left = 0;

    for (uint32_t way = 0; way < ROW_SET_WAYS; way++) {
        if (!set->tags[way])
            continue;
        hashes[way] = home_hash(c, &set->entries[way]);
        /* Those from the boundary up live here by the new mapping already. */
        if (hashes[way] < c->index.boundary)
            left |= 1u << way;
    }
    while (left)
        if (!move_highest(c, set, hashes, &left))
            return false;
    row_index_finish_set(&c->index, set_number);
    return true;
}

static void look_for_crowding(struct row_cache *c)
{
    if (c->inserts_since < MAX(c->index.set_count, 4096u))
        return;
    if (c->crowded_since > c->inserts_since / 8)
        row_growth_want(c, c->index.set_count + (uint64_t)c->index.set_count / 4);
    c->inserts_since = c->crowded_since = 0;
}

void row_growth_step(struct row_cache *c, uint32_t steps)
{
    if (!row_index_is_growing(&c->index)) {
        look_for_crowding(c);
        if (LIKELY(c->wanted_sets <= c->index.set_count) || !take_slabs(c))
            return;
        row_index_start_growth(&c->index, c->wanted_sets);
    }
    while (steps-- && row_index_is_growing(&c->index))
        if (!grow_a_set(c))
            return;
    c->stats.index_bytes = c->index.grown_count * sizeof(struct row_set);
}
