/* SPDX-License-Identifier: Apache-2.0 */
/* row_growth.c: gives the index as many sets as the cached rows need.
 *
 * The index grows while the cache fills: when sets have 6 rows on average, to four times their
 * number. It never grows beyond the right number for a cache full of rows like the present ones.
 * That is the memory of all tiers divided by their mean slot. So it ends at that number. It shrinks
 * when the first tier is full and the mix of rows makes an eighth of the sets too many. Then the
 * slabs behind it are for rows again. It may take half of tier 0.
 *
 * It grows into the slabs behind it: free ones are taken at once, others are drained first, one at
 * a time. When it has all of them, rows move to their new sets. They move from the top set down
 * when it grows, from the bottom set up when it shrinks. Each move is one step, and the boundary
 * moves with it, so every lookup before and after finds the row (row_index.h). Rows of one hash
 * move together, because no boundary lies between them.
 *
 * A scan from the bottom up, such as row_cache_write_back()'s, must not miss a row. When the index
 * grows, rows only move upwards. When it shrinks they move downwards: a scan that notices this
 * starts over (row_growth_scan_set()). While a table is purged, or in an epoch, no row moves.
 *
 * The target set may be full. Then the oldest rows leave, both of those in it and of those that
 * come. If too many are pinned, or dirty while evict() refuses, the move waits with nothing done;
 * the next call tries again. */
#include "tiers/cache/row_cache_impl.h"

#include <assert.h>

/* 15 ways filled to 85 %. */
#define ROWS_PER_SET_X100 1275
/* The index grows when sets have this many rows on average, while few overflow; and by at most this
 * factor. */
#define GROW_AT_ROWS 6
#define GROW_TIMES   4
/* The index changes its size for a new mix of rows only if this part of the sets is missing or
 * superfluous. */
#define GROW_PART   32
#define SHRINK_PART 8
/* Inserts between two checks: this part of the sets, but at least LOOK_LEAST. */
#define LOOK_PART  2
#define LOOK_LEAST 1024

static uint64_t sets_in(const struct row_cache *c, uint64_t slabs)
{
    return (slabs * ARENA_SLAB_BYTES - c->fixed_bytes) / sizeof(struct row_set);
}

static uint64_t most_sets(const struct row_cache *c)
{
    const uint64_t most = sets_in(c, MAX(row_cache_wanted_slabs(c, 0) / 2, 1u));

    return MIN(most, (uint64_t)SLOT_FREE / 16 - 1); /* a way's number must not use the top bit */
}

/* Returns the right number of sets for tiers full of rows like the cached ones; 0 if there are
 * none. */
static uint64_t fitting_sets(const struct row_cache *c)
{
    uint64_t bytes = 0, rows = 0, slot_bytes = 0, per_set;

    for (uint32_t tier = 0; tier < c->tier_count; tier++) {
        const struct slab_pool *const pool = &c->pools[tier];

        bytes += row_cache_wanted_slabs(c, tier) * ARENA_SLAB_BYTES;
        for (uint32_t i = 0; i < pool->top; i++) {
            const struct slab *const slab = &pool->slabs[i];

            if (slab->state != SLAB_USED && slab->state != SLAB_DRAINING)
                continue;
            rows += slab->used_slots;
            slot_bytes += (uint64_t)slab->used_slots *
                          (pool->classes[slab->length_class].slot_bytes + sizeof(uint32_t));
        }
    }
    if (rows == 0)
        return 0;
    bytes -= c->fixed_bytes + (uint64_t)c->map_slabs * ARENA_SLAB_BYTES;
    per_set = slot_bytes * ROWS_PER_SET_X100 / 100 / rows + sizeof(struct row_set);
    return MIN(bytes / per_set, most_sets(c));
}

static uint64_t cached_rows(const struct row_cache *c)
{
    uint64_t rows = 0;

    for (uint32_t tier = 0; tier < c->tier_count; tier++)
        rows += c->stats.tiers[tier].rows;
    return rows;
}

static uint32_t slabs_for(const struct row_cache *c, uint64_t sets)
{
    return (uint32_t)div_round_up(c->fixed_bytes + sets * sizeof(struct row_set), ARENA_SLAB_BYTES);
}

/* Returns how many sets there should be. */
static uint64_t sets_to_have(const struct row_cache *c, uint64_t fitting)
{
    const uint64_t sets = c->index.set_count;

    if (sets > most_sets(c)) /* the tier has shrunk */
        return most_sets(c);
    if (fitting > sets + sets / GROW_PART && cached_rows(c) > sets * GROW_AT_ROWS)
        return MIN(fitting, sets * GROW_TIMES);
    if (fitting > 0 && sets > fitting + fitting / SHRINK_PART && c->pools[0].free_slab_count == 0)
        return MAX(fitting, sets_in(c, slabs_for(c, 1))); /* never fewer than at first */
    return sets;
}

void row_growth_look(struct row_cache *c)
{
    const uint64_t fitting = fitting_sets(c);

    c->wanted_sets = (uint32_t)sets_to_have(c, fitting);
    c->look_after = MAX(c->wanted_sets / LOOK_PART, (uint32_t)LOOK_LEAST);
    c->inserts_since = 0;
    row_upkeep_set_tick(c, MAX(fitting, (uint64_t)c->wanted_sets) * ROW_SET_WAYS);
}

/* True when the index owns all the slabs that the wanted sets need. */
static bool take_slabs(struct row_cache *c)
{
    struct slab_pool *pool = &c->pools[0];
    uint32_t needed = slabs_for(c, c->wanted_sets);
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

/* Gives back the slabs that an index that was to grow has taken already. */
static void give_up_growth(struct row_cache *c)
{
    struct slab_pool *const pool = &c->pools[0];

    for (uint32_t i = c->index_slabs; i < pool->top; i++)
        if (pool->slabs[i].state == SLAB_INDEX)
            slab_pool_give_back(pool, i);
        else if (pool->slabs[i].state == SLAB_DRAINING && pool->slabs[i].heir == SLAB_HEIR_INDEX)
            pool->slabs[i].heir = SLAB_HEIR_POOL;
    c->wanted_sets = c->index.set_count;
}

void row_growth_fit(struct row_cache *c)
{
    if (row_index_is_resizing(&c->index)) /* then it has its slabs, and shrinks afterwards */
        return;
    if (c->wanted_sets > c->index.set_count)
        give_up_growth(c);
    row_growth_look(c);
}

/* Called after the index has shrunk: frees its old slabs for rows. */
static void give_slabs_back(struct row_cache *c)
{
    const uint32_t needed = slabs_for(c, c->index.set_count);

    while (c->index_slabs > needed)
        slab_pool_give_back(&c->pools[0], --c->index_slabs);
}

/* Returns the hash that the row's set was chosen by. */
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
    const uint16_t age = (uint16_t)(c->now - from.set->stamps[from.way]);

    assert(from.set->tags[from.way] != 0 && to.set->tags[to.way] == 0);
    *place_entry(to) = *entry;
    to.set->tags[to.way] = from.set->tags[from.way];
    /* The sweep of stamps (row_upkeep.c) may already have passed the target set. */
    to.set->stamps[to.way] = (uint16_t)(c->now - MIN(age, (uint16_t)0x8000));
    to.set->dirty |= (uint16_t)((from.set->dirty >> from.way & 1u) << to.way);
    to.set->pinned |= (uint16_t)((from.set->pinned >> from.way & 1u) << to.way);
    from.set->tags[from.way] = 0;
    from.set->dirty &= (uint16_t) ~(1u << from.way);
    from.set->pinned &= (uint16_t) ~(1u << from.way);
    *slab_pool_owner(pool, entry->slot) = row_index_number(&c->index, to.set, to.way);
}

/* Returns those of @left whose hash comes next: the highest hash when the index grows, else the
 * lowest. Includes all rows with that hash. */
static uint32_t next_ways(const struct row_index *index, const uint32_t hashes[ROW_SET_WAYS],
                          uint32_t left)
{
    uint32_t ways = 0, hash = 0;

    for (; left; left &= left - 1) {
        uint32_t way = (uint32_t)__builtin_ctz(left);

        if (!ways || (index->is_shrinking ? hashes[way] < hash : hashes[way] > hash)) {
            hash = hashes[way];
            ways = 0;
        }
        if (hashes[way] == hash)
            ways |= 1u << way;
    }
    return ways;
}

/* Lets rows go until @to has room for all that are still @coming; false: too few can go. */
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

/* Moves the old rows in @from whose hash comes next; the caller keeps @hashes and @left. False:
 * there is no place for them. */
static bool move_next(struct row_cache *c, struct row_set *from,
                      const uint32_t hashes[ROW_SET_WAYS], uint32_t *left)
{
    struct row_index *index = &c->index;
    uint32_t ways = next_ways(index, hashes, *left);
    uint32_t hash = hashes[__builtin_ctz(ways)];
    struct row_set *to = &index->sets[row_index_new_set(index, hash)];
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
    row_index_pass_hash(index, hash);
    *left &= ~ways;
    return true;
}

/* False: some rows cannot move now. */
static bool move_a_set(struct row_cache *c)
{
    uint32_t set_number = row_index_prepare_set(&c->index);
    struct row_set *set = &c->index.sets[set_number];
    uint32_t hashes[ROW_SET_WAYS] = { 0 };
    uint32_t left = 0;

    for (uint32_t way = 0; way < ROW_SET_WAYS; way++) {
        if (!set->tags[way])
            continue;
        hashes[way] = home_hash(c, &set->entries[way]);
        /* The other rows are already here by the new mapping. */
        if (row_index_is_old(&c->index, hashes[way]))
            left |= 1u << way;
    }
    while (left)
        if (!move_next(c, set, hashes, &left))
            return false;
    row_index_finish_set(&c->index, set_number);
    return true;
}

/* Returns the set at which a scan goes on. */
uint32_t row_growth_scan_set(const struct row_cache *c, uint64_t cursor)
{
    return (uint32_t)(cursor >> 32) == c->shrink_steps ? (uint32_t)cursor : 0;
}

uint64_t row_growth_scan_cursor(const struct row_cache *c, uint32_t set)
{
    return (uint64_t)c->shrink_steps << 32 | set;
}

static void move_sets(struct row_cache *c, uint32_t steps)
{
    const bool shrinks = c->index.is_shrinking;

    if (shrinks && (c->in_epoch || c->purging > 0))
        return;
    c->shrink_steps += shrinks;
    while (steps-- && row_index_is_resizing(&c->index))
        if (!move_a_set(c))
            break;
    if (shrinks && !row_index_is_resizing(&c->index))
        give_slabs_back(c);
    counter_set(&c->stats.index_bytes, c->index.large_count * sizeof(struct row_set));
}

void row_growth_step(struct row_cache *c, uint32_t steps)
{
    if (!row_index_is_resizing(&c->index)) {
        if (UNLIKELY(c->inserts_since >= c->look_after) && c->wanted_sets == c->index.set_count)
            row_growth_look(c);
        if (LIKELY(c->wanted_sets == c->index.set_count))
            return;
        if (c->wanted_sets > c->index.set_count && !take_slabs(c))
            return;
        row_index_start_resize(&c->index, c->wanted_sets);
    }
    move_sets(c, steps);
}
