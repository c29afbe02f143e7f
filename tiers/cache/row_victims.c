/* SPDX-License-Identifier: Apache-2.0 */
/* row_victims.c: chooses the next row of a class to leave a tier, by sampled LRU.
 *
 * Each class has a hand that goes round its slots in runs of 16. When victims are wanted, it looks
 * at the next four runs, each from another slab or another part of one. It queues the oldest eight
 * of the 64 rows. This reads one cache line of the index per row, eight per victim. The lines of
 * the next four runs are prefetched while these victims are used up. A queued row that was touched,
 * pinned or moved since is skipped.
 *
 * So a row leaves when it is in the oldest eighth of a sample, and every row is sampled equally
 * often. test_row_cache_lru.c measures the cost against exact LRU. */
#include "tiers/cache/row_cache_impl.h"

#define RUNS 4
/* Attempts before the answer is that nothing can leave, or nothing clean. */
#define LOOKS_MAX       8
#define LOOKS_MAX_CLEAN 64

static void prefetch_next(struct row_cache *c, uint32_t tier, uint32_t class_index)
{
    struct slab_pool *pool = &c->pools[tier];
    struct slab_hand hand = pool->classes[class_index].hand;

    for (uint32_t i = 0; i < RUNS; i++) {
        struct slab_run run = slab_pool_turn_hand(pool, class_index, &hand);

        for (uint32_t j = 0; j < run.count; j++)
            if (!(run.owners[j] & SLOT_FREE)) {
                __builtin_prefetch(row_index_set_of(&c->index, run.owners[j]));
                if (c->maps.used_pages > 0)
                    __builtin_prefetch(place_entry(place_of(c, run.owners[j])));
            }
    }
    for (uint32_t i = 0; i < RUNS; i++)
        __builtin_prefetch(slab_pool_turn_hand(pool, class_index, &hand).owners);
}

/* Keeps the queue ordered by age, oldest last, because victims are taken from the end. */
static void queue_victim(struct slab_class *class, const uint16_t now, struct victim victim)
{
    uint16_t age = (uint16_t)(now - victim.stamp);
    uint32_t at = class->victim_count;

    if (at == VICTIMS_MAX) { /* the youngest makes room */
        if ((uint16_t)(now - class->victims[0].stamp) >= age)
            return;
        for (at = 0; at + 1 < VICTIMS_MAX; at++) {
            if ((uint16_t)(now - class->victims[at + 1].stamp) >= age)
                break;
            class->victims[at] = class->victims[at + 1];
        }
        class->victims[at] = victim;
        return;
    }
    for (; at > 0 && (uint16_t)(now - class->victims[at - 1].stamp) > age; at--)
        class->victims[at] = class->victims[at - 1];
    class->victims[at] = victim;
    class->victim_count++;
}

static void look_at_run(struct row_cache *c, struct slab_class *class, const struct slab_run *run,
                        bool clean_only)
{
    uint32_t granules = class->slot_bytes >> c->granule_shift;

    for (uint32_t i = 0; i < run->count; i++) {
        struct row_place place;

        if (run->owners[i] & SLOT_FREE)
            continue;
        place = place_of(c, run->owners[i]);
        if (place.set->pinned >> place.way & 1)
            continue;
        if (clean_only && (place.set->dirty >> place.way & 1))
            continue;
        queue_victim(class, c->now,
                     (struct victim){ .slot = run->first_slot + i * granules,
                                      .stamp = row_cache_stamp(c, place.set, place.way) });
    }
}

static void look(struct row_cache *c, uint32_t tier, uint32_t class_index, bool clean_only)
{
    struct slab_pool *pool = &c->pools[tier];
    struct slab_class *class = &pool->classes[class_index];

    class->victim_count = 0;
    for (uint32_t i = 0; i < RUNS; i++) {
        struct slab_run run = slab_pool_turn_hand(pool, class_index, &class->hand);

        look_at_run(c, class, &run, clean_only);
    }
    prefetch_next(c, tier, class_index);
}

/* Takes queued victims until one has not changed since. */
static bool take_queued(struct row_cache *c, uint32_t tier, uint32_t class_index, bool clean_only,
                        struct row_place *ret_place)
{
    struct slab_pool *pool = &c->pools[tier];
    struct slab_class *class = &pool->classes[class_index];

    while (class->victim_count) {
        struct victim victim = class->victims[--class->victim_count];
        uint32_t owner = *slab_pool_owner(pool, victim.slot);
        struct row_place place;

        if (owner & SLOT_FREE)
            continue;
        place = place_of(c, owner);
        if ((place.set->pinned >> place.way & 1) ||
            row_cache_stamp(c, place.set, place.way) != victim.stamp)
            continue;
        if (clean_only && (place.set->dirty >> place.way & 1))
            continue;
        *ret_place = place;
        return true;
    }
    return false;
}

bool row_victims_next(struct row_cache *c, uint32_t tier, uint32_t class_index, bool clean_only,
                      struct row_place *ret_place)
{
    uint32_t most = clean_only ? LOOKS_MAX_CLEAN : LOOKS_MAX;

    if (c->pools[tier].classes[class_index].slab_count == 0)
        return false;
    if (clean_only && c->none_clean >> tier & 1)
        return false;
    for (uint32_t looks = 0; looks < most; looks++) {
        if (take_queued(c, tier, class_index, clean_only, ret_place))
            return true;
        look(c, tier, class_index, clean_only);
    }
    if (take_queued(c, tier, class_index, clean_only, ret_place))
        return true;
    if (clean_only)
        c->none_clean |= (uint8_t)(1u << tier);
    return false;
}

uint32_t row_victims_age(struct row_cache *c, uint32_t tier, uint32_t class_index)
{
    struct slab_class *class = &c->pools[tier].classes[class_index];

    if (class->slab_count == 0)
        return 0;
    if (class->victim_count == 0)
        look(c, tier, class_index, false);
    return class->victim_count ? (uint16_t)(c->now - class->victims[class->victim_count - 1].stamp)
                               : 0;
}
