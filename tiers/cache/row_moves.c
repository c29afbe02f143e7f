/* SPDX-License-Identifier: Apache-2.0 */
/* row_moves.c: moves rows up, down and out.
 *
 * A row is in one tier only. To come into a full tier it takes the slot of a victim. The victim
 * first goes one tier down, where it may need a victim in turn. From the last tier a row leaves,
 * through evict() if it is dirty. On its way up, a row waits in the bounce buffer. Its own slot is
 * the hole in which the chain of victims ends, so a promotion makes no row of the same class leave.
 * If there is no victim, the row goes back to its old slot. At every moment each row's bytes are
 * complete in exactly one place, which its entry, or this file's caller, names.
 *
 * Pinned rows cannot go down or out, and dirty ones cannot while evict() refuses. Then another row
 * goes, a clean one if need be. If none can go, the row that wanted to come stays out. */
#include "tiers/cache/row_cache_impl.h"

#include <assert.h>
#include <string.h>

/* The number of victims that may refuse to go before there is no room. */
#define TRIES_MAX 4

static void count(uint64_t *counter, uint64_t n, int sign)
{
    if (sign > 0)
        counter_add(counter, n);
    else
        counter_sub(counter, n);
}

void row_moves_account(struct row_cache *c, uint32_t tier, uint32_t row_bytes, bool dirty, int sign)
{
    struct row_cache_tier_stats *stats = &c->stats.tiers[tier];

    count(&stats->rows, 1, sign);
    count(&stats->used_bytes, row_bytes, sign);
    if (!dirty)
        return;
    count(&stats->dirty_rows, 1, sign);
    count(&stats->dirty_bytes, row_bytes, sign);
}

static bool is_dirty(struct row_place place)
{
    return place.set->dirty >> place.way & 1;
}

static void copy_into(struct row_cache *c, uint32_t slot, const void *row, uint32_t bytes)
{
    uint32_t tier = row_cache_tier_of(c, slot);
    void *dest = slab_pool_address(&c->pools[tier], slot);

    if (tier == 0) {
        memcpy(dest, row, bytes);
        return;
    }
    arena_copy_in(c->arenas[tier], dest, row, bytes);
    c->undrained |= 1u << tier;
}

/* Records that the row's bytes are in @slot, in its entry and in the slot's owner word. */
static void settle(struct row_cache *c, struct row_place place, uint32_t slot)
{
    struct slab_pool *pool = &c->pools[row_cache_tier_of(c, slot)];
    struct row_spot *spot = row_cache_spot(c, place_entry(place));

    place_entry(place)->slot = slot;
    *slab_pool_owner(pool, slot) = row_index_number(&c->index, place.set, place.way);
    if (spot)
        spot->slot_and_1 = slot + 1;
}

/* Counts a row that has come from @old_tier to another one, or to the same. */
static void account_move(struct row_cache *c, struct row_place place, uint32_t old_tier)
{
    const struct row_entry *const entry = place_entry(place);
    const uint32_t bytes = c->tables[entry->table].row_bytes;
    const uint32_t tier = row_cache_tier_of(c, entry->slot);

    row_moves_account(c, old_tier, bytes, is_dirty(place), -1);
    row_moves_account(c, tier, bytes, is_dirty(place), 1);
    if (entry->pins == 0)
        return;
    counter_sub(&c->stats.tiers[old_tier].pinned_bytes, bytes);
    counter_add(&c->stats.tiers[tier].pinned_bytes, bytes);
}

void row_moves_move(struct row_cache *c, struct row_place place, uint32_t slot)
{
    struct row_entry *entry = place_entry(place);
    uint32_t bytes = c->tables[entry->table].row_bytes;
    uint32_t old_slot = entry->slot;
    uint32_t old_tier = row_cache_tier_of(c, old_slot);

    copy_into(c, slot, slab_pool_address(&c->pools[old_tier], old_slot), bytes);
    settle(c, place, slot);
    slab_pool_free_slot(&c->pools[old_tier], old_slot);
    account_move(c, place, old_tier);
}

void row_moves_forget(struct row_cache *c, struct row_place place)
{
    struct row_entry *entry = place_entry(place);
    struct cached_table *table = &c->tables[entry->table];
    uint32_t tier = row_cache_tier_of(c, entry->slot);
    uint64_t hash = (entry->flags & ROW_ENTRY_SECOND) ? row_cache_hash(c, entry) : 0;
    struct row_spot *spot = row_cache_spot(c, entry);

    if (spot)
        *spot = (struct row_spot){ 0 };
    row_moves_account(c, tier, table->row_bytes, is_dirty(place), -1);
    assert(table->rows > 0);
    table->rows--;
    c->departures++;
    if (entry->pins != 0) { /* its table is being purged */
        assert(table->state == TABLE_PURGING);
        row_cache_count_pinned(c, entry, -1);
    }
    slab_pool_free_slot(&c->pools[tier], entry->slot);
    row_index_clear(&c->index, place.set, place.way, hash);
}

/* Lets a row leave the cache. False: it is dirty, and evict() refuses it or an epoch has not
 * ended. */
static bool let_go(struct row_cache *c, struct row_place place)
{
    struct row_entry *entry = place_entry(place);
    uint32_t tier = row_cache_tier_of(c, entry->slot);

    assert(entry->pins == 0); /* MTrainS, section 5.7 */
    if (is_dirty(place)) {
        if (c->evict_refused || c->in_epoch ||
            !c->evict(c->context, entry->table, row_cache_hash(c, entry), entry->id,
                      slab_pool_address(&c->pools[tier], entry->slot),
                      c->tables[entry->table].row_bytes)) {
            c->evict_refused = true;
            return false;
        }
        counter_add(&c->stats.tiers[tier].evicted_dirty, 1);
    } else {
        counter_add(&c->stats.tiers[tier].evicted_clean, 1);
    }
    row_moves_forget(c, place);
    return true;
}

bool row_moves_push_down(struct row_cache *c, struct row_place place)
{
    const struct row_entry *entry = place_entry(place);
    uint32_t tier = row_cache_tier_of(c, entry->slot);
    uint32_t slot;

    if (tier + 1 < c->tier_count) {
        slot = row_moves_make_slot(c, tier + 1, c->tables[entry->table].length_class);
        if (slot != SLOT_NONE) {
            row_moves_move(c, place, slot);
            counter_add(&c->stats.tiers[tier].demotions, 1);
            return true;
        }
    }
    return let_go(c, place);
}

static void note_evicted_age(struct slab_class *class, uint32_t age)
{
    class->evicted_age += age - class->evicted_age / 16;
    class->evicted_since++;
}

static bool push_down_a_victim(struct row_cache *c, uint32_t tier, uint32_t class_index)
{
    for (uint32_t tries = 0; tries < TRIES_MAX; tries++) {
        bool clean_only = c->evict_refused && (tries || tier + 1 == c->tier_count);
        struct row_place victim;
        uint32_t age;

        if (!row_victims_next(c, tier, class_index, clean_only, &victim))
            return false;
        age = row_cache_age(c, victim.set, victim.way);
        if (row_moves_push_down(c, victim)) {
            note_evicted_age(&c->pools[tier].classes[class_index], age);
            c->pools[tier].evicted_since++;
            return true;
        }
    }
    return false;
}

/* Returns the class itself or, while it has no slab, the next longer class that has one. A slot
 * that is too long is better than none. LENGTH_CLASS_NONE if there is none. */
static uint32_t class_with_slabs(struct slab_pool *pool, uint32_t class_index)
{
    if (pool->classes[class_index].slab_count || pool->free_slab_count)
        return class_index;
    pool->starved = class_index;
    while (++class_index < LENGTH_CLASS_COUNT)
        if (pool->classes[class_index].slab_count)
            return class_index;
    return LENGTH_CLASS_NONE;
}

uint32_t row_moves_make_slot(struct row_cache *c, uint32_t tier, uint32_t class_index)
{
    struct slab_pool *pool = &c->pools[tier];
    uint32_t slot;

    class_index = class_with_slabs(pool, class_index);
    if (class_index == LENGTH_CLASS_NONE)
        return SLOT_NONE;
    slot = slab_pool_take_slot(pool, class_index);
    if (slot != SLOT_NONE)
        return slot;
    if (!push_down_a_victim(c, tier, class_index))
        return SLOT_NONE;
    return slab_pool_take_slot(pool, class_index);
}

bool row_moves_relocate(struct row_cache *c, struct row_place place)
{
    const struct row_entry *entry = place_entry(place);
    uint32_t tier = row_cache_tier_of(c, entry->slot);
    struct slab_pool *pool = &c->pools[tier];
    uint32_t class_index = class_with_slabs(pool, c->tables[entry->table].length_class);
    uint32_t slot = SLOT_NONE;
    bool stays = entry->pins != 0;
    struct row_place victim;

    if (class_index != LENGTH_CLASS_NONE) {
        slot = slab_pool_take_slot(pool, class_index);
        if (slot == SLOT_NONE && row_victims_next(c, tier, class_index, false, &victim) &&
            (stays ||
             row_cache_age(c, victim.set, victim.way) > row_cache_age(c, place.set, place.way)) &&
            row_moves_push_down(c, victim))
            slot = slab_pool_take_slot(pool, class_index);
    }
    if (slot == SLOT_NONE)
        return !stays && row_moves_push_down(c, place);
    row_moves_move(c, place, slot);
    return true;
}

bool row_moves_promote(struct row_cache *c, struct row_place place)
{
    struct row_entry *entry = place_entry(place);
    const struct cached_table *table = &c->tables[entry->table];
    uint32_t old_slot = entry->slot;
    uint32_t tier = row_cache_tier_of(c, old_slot);
    struct slab_pool *pool = &c->pools[tier];
    uint32_t slot = slab_pool_take_slot(&c->pools[0], table->length_class);

    if (slot != SLOT_NONE) {
        row_moves_move(c, place, slot);
    } else {
        memcpy(c->bounce, slab_pool_address(pool, old_slot), table->row_bytes);
        slab_pool_free_slot(pool, old_slot);
        slot = row_moves_make_slot(c, 0, table->length_class);
        if (slot == SLOT_NONE) {
            /* A row that takes the hole makes the whole chain succeed, so the hole is still
             * there. */
            slab_pool_retake_slot(pool, old_slot);
            settle(c, place, old_slot);
            return false;
        }
        memcpy(slab_pool_address(&c->pools[0], slot), c->bounce, table->row_bytes);
        settle(c, place, slot);
        account_move(c, place, tier);
    }
    slab_pool_release_if_empty(pool, old_slot);
    counter_add(&c->stats.tiers[tier].promotions, 1);
    return true;
}

/* Returns the oldest row in these ways that may go; ROW_WAY_NONE if there is none. */
static uint32_t oldest_way(const struct row_cache *c, struct row_ways these, bool clean_only,
                           uint32_t *ret_age)
{
    struct row_set *set = these.set;
    uint32_t busy = set->pinned | (clean_only ? set->dirty : 0) | ~these.ways;
    uint32_t oldest = ROW_WAY_NONE;

    for (uint32_t way = 0; way < ROW_SET_WAYS; way++) {
        uint32_t age;

        if (busy >> way & 1 || !set->tags[way])
            continue;
        age = row_cache_age(c, set, way);
        if (oldest == ROW_WAY_NONE || age > *ret_age) {
            oldest = way;
            *ret_age = age;
        }
    }
    return oldest;
}

bool row_moves_let_oldest_go(struct row_cache *c, struct row_ways these, struct row_ways those,
                             struct row_place *ret_place)
{
    for (uint32_t try = 0; try < 2; try++) {
        bool clean_only = try > 0 || c->evict_refused;
        uint32_t age = 0, other_age = 0;
        uint32_t other = oldest_way(c, those, clean_only, &other_age);
        struct row_place oldest = { these.set, oldest_way(c, these, clean_only, &age) };

        if (other != ROW_WAY_NONE && (oldest.way == ROW_WAY_NONE || other_age > age))
            oldest = (struct row_place){ those.set, other };
        if (oldest.way == ROW_WAY_NONE)
            return false;
        if (let_go(c, oldest)) {
            *ret_place = oldest;
            return true;
        }
    }
    return false;
}

uint32_t row_moves_make_way(struct row_cache *c, struct row_set *first, struct row_set *second,
                            struct row_set **ret_set)
{
    uint32_t free_ways = row_set_free_ways(first);
    struct row_place gone;

    *ret_set = first;
    if (LIKELY(free_ways))
        return (uint32_t)__builtin_ctz(free_ways);
    *ret_set = second;
    free_ways = row_set_free_ways(second);
    if (free_ways)
        return (uint32_t)__builtin_ctz(free_ways);

    if (!row_moves_let_oldest_go(c, (struct row_ways){ first, ROW_SET_WAYS_MASK },
                                 (struct row_ways){ second, ROW_SET_WAYS_MASK }, &gone))
        return ROW_WAY_NONE;
    *ret_set = gone.set;
    return gone.way;
}
