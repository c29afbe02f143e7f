/* SPDX-License-Identifier: Apache-2.0 */
/* row_upkeep.c: slow work, a little in each call: the clock, the size of the index, slabs that
 * drain, slabs that change class.
 *
 * The clock. A tick is 1/256 of the accesses that fill the cache; stamps are its low 16 bits. A
 * sweep goes round the index and the maps once in 16,384 ticks. It sets ages above 32,768 to
 * exactly that, so that no age ever wraps.
 *
 * Slabs. The ages at which rows leave show which class needs memory more. One LRU over all bytes
 * would let rows of every class leave at the same age. At intervals, the class whose rows left
 * youngest is compared with the class whose next victim is oldest. If they differ by more than a
 * quarter and a few ticks, a slab goes from the latter to the former. It drains first. A row moves
 * to another slot of its class if it is younger than the row that would leave for it, else down or
 * out. One slab per tier drains at a time. A class without a slab gets one in the same way,
 * whatever its age; until then its rows lie in longer slots. The last slab of a class is taken only
 * for longer rows that could lie nowhere else; it then serves both classes. */
#include "tiers/cache/row_cache_impl.h"

#define SWEEP_TICKS 16384
/* Ticks in which the cache fills if all rows are different. */
#define TICKS_PER_FILL 256

/* Rows that leave a tier between two comparisons of its classes. */
#define COMPARE_EVERY 256
/* Rows that must have left a class before its mean age counts. */
#define COMPARE_LEAST    64
#define HYSTERESIS_TICKS 8

/* Slots checked per call, and per row of the call. */
#define DRAIN_SLOTS         64
#define DRAIN_SLOTS_PER_ROW 1
#define GROWTH_SETS         16

static void sweep(struct row_cache *c, uint32_t ticks)
{
    uint64_t sets = (uint64_t)c->index.large_count * ticks / SWEEP_TICKS + 1;
    uint32_t end = (uint32_t)MIN(c->swept_set + sets, (uint64_t)c->index.large_count);

    row_maps_sweep(&c->maps, ticks, SWEEP_TICKS, c->now);
    row_index_clamp_stamps(&c->index, c->swept_set, end, c->now);
    c->swept_set = end >= c->index.large_count ? 0 : end;
}

void row_upkeep_set_tick(struct row_cache *c, uint64_t rows)
{
    c->tick_rows = MAX(rows / TICKS_PER_FILL, UINT64_C(1));
    c->tick_left = c->tick_left ? MIN(c->tick_left, c->tick_rows) : c->tick_rows;
}

static void advance_clock(struct row_cache *c, uint64_t rows)
{
    uint64_t ticks;

    if (rows < c->tick_left) {
        c->tick_left -= rows;
        return;
    }
    rows -= c->tick_left;
    ticks = MIN(1 + rows / c->tick_rows, UINT64_C(32768));
    c->tick_left = c->tick_rows - rows % c->tick_rows;
    while (ticks) {
        /* Small steps: a row that a sweep has set to age 32,768 must not pass 65,535 before the
         * next sweep. */
        uint32_t step = (uint32_t)MIN(ticks, UINT64_C(4096));

        c->now = (uint16_t)(c->now + step);
        sweep(c, step);
        ticks -= step;
    }
}

static void drain(struct row_cache *c, uint32_t tier, uint64_t slots)
{
    struct slab_pool *pool = &c->pools[tier];
    const struct slab *slab = &pool->slabs[pool->draining];
    uint32_t slots_per_slab = pool->classes[slab->length_class].slots_per_slab;

    for (; slots && slab->used_slots; slots--) {
        uint32_t owner = slab_pool_owners(pool, pool->draining)[pool->drain_slot];

        if (!(owner & SLOT_FREE))
            (void)row_moves_relocate(c, place_of(c, owner));
        pool->drain_slot = pool->drain_slot + 1 == slots_per_slab ? 0 : pool->drain_slot + 1;
    }
    if (slab->used_slots)
        return;
    counter_add(&c->stats.slab_moves, 1);
    slab_pool_finish_drain(pool);
}

/* Returns the class other than @heir whose next victim is oldest, among those that can spare a
 * slab. */
static uint32_t oldest_class(struct row_cache *c, uint32_t tier, uint32_t heir, uint32_t *ret_age)
{
    struct slab_pool *pool = &c->pools[tier];
    uint32_t oldest = LENGTH_CLASS_NONE;

    for (uint32_t i = 0; i < LENGTH_CLASS_COUNT; i++) {
        uint32_t age;

        if (i == heir || pool->classes[i].slab_count < 2)
            continue;
        age = row_victims_age(c, tier, i);
        if (oldest == LENGTH_CLASS_NONE || age > *ret_age) {
            oldest = i;
            *ret_age = age;
        }
    }
    return oldest;
}

/* Takes the slab at the class's hand; any slab is as good. */
static void take_slab_from(struct slab_pool *pool, uint32_t donor, uint32_t heir)
{
    slab_pool_drain(pool, pool->classes[donor].hand.slab, heir);
}

/* Lets the next slab leave. Before the last slab of a class goes, the class gets one that stays,
 * if another class can spare it: its pinned rows may lie nowhere else. */
static void let_leave(struct row_cache *c, uint32_t tier)
{
    struct slab_pool *const pool = &c->pools[tier];
    const uint32_t slab = slab_pool_next_to_leave(pool);
    uint32_t class_index, donor = LENGTH_CLASS_NONE, age = 0;

    row_resize_note(c, tier);
    if (slab == SLAB_NONE)
        return;
    class_index = pool->slabs[slab].length_class;
    if (pool->classes[class_index].slab_count == 1 && pool->free_slab_count == 0)
        donor = oldest_class(c, tier, class_index, &age);
    if (donor != LENGTH_CLASS_NONE)
        take_slab_from(pool, donor, class_index);
    else
        slab_pool_drain(pool, slab, SLAB_HEIR_POOL);
}

static void feed_starved(struct row_cache *c, uint32_t tier)
{
    struct slab_pool *pool = &c->pools[tier];
    uint32_t age = 0;
    uint32_t donor = oldest_class(c, tier, pool->starved, &age);

    if (donor == LENGTH_CLASS_NONE) {
        for (uint32_t i = 0; i < LENGTH_CLASS_COUNT; i++)
            if (pool->classes[i].slab_count) {
                if (i > pool->starved) { /* its rows can lie there */
                    pool->starved = LENGTH_CLASS_NONE;
                    return;
                }
                donor = i;
            }
    }
    if (donor != LENGTH_CLASS_NONE)
        take_slab_from(pool, donor, pool->starved);
}

static void compare_classes(struct row_cache *c, uint32_t tier)
{
    struct slab_pool *pool = &c->pools[tier];
    uint32_t youngest = LENGTH_CLASS_NONE, youngest_age = 0, donor, donor_age = 0;

    pool->evicted_since = 0;
    for (uint32_t i = 0; i < LENGTH_CLASS_COUNT; i++) {
        const struct slab_class *class = &pool->classes[i];

        if (class->evicted_since < COMPARE_LEAST || !class->slab_count)
            continue;
        if (youngest == LENGTH_CLASS_NONE || class->evicted_age / 16 < youngest_age) {
            youngest = i;
            youngest_age = class->evicted_age / 16;
        }
    }
    if (youngest == LENGTH_CLASS_NONE)
        return;
    donor = oldest_class(c, tier, youngest, &donor_age);
    if (donor == LENGTH_CLASS_NONE ||
        donor_age <= youngest_age + youngest_age / 4 + HYSTERESIS_TICKS)
        return;
    pool->classes[youngest].evicted_since = 0;
    take_slab_from(pool, donor, youngest);
}

void row_upkeep(struct row_cache *c, uint32_t rows)
{
    advance_clock(c, rows);
    row_upkeep_work(c, rows);
}

void row_upkeep_work(struct row_cache *c, uint32_t rows)
{
    c->evict_refused = c->in_epoch;
    c->none_clean = 0;
    row_growth_step(c, GROWTH_SETS + 2 * rows);
    for (uint32_t tier = 0; tier < c->tier_count; tier++) {
        struct slab_pool *pool = &c->pools[tier];

        if (UNLIKELY(pool->draining != SLAB_NONE))
            drain(c, tier, DRAIN_SLOTS + (uint64_t)rows * DRAIN_SLOTS_PER_ROW);
        else if (UNLIKELY(slab_pool_is_leaving(pool)))
            let_leave(c, tier);
        else if (UNLIKELY(pool->starved != LENGTH_CLASS_NONE))
            feed_starved(c, tier);
        else if (UNLIKELY(pool->evicted_since >= COMPARE_EVERY))
            compare_classes(c, tier);
    }
}

void row_upkeep_end(struct row_cache *c)
{
    for (uint32_t tier = 1; c->undrained; tier++) {
        if (c->undrained >> tier & 1)
            arena_drain(c->arenas[tier]);
        c->undrained &= ~(1u << tier);
    }
}
