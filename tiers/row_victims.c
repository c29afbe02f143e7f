/* SPDX-License-Identifier: Apache-2.0 */
/* row_victims.c: sampled LRU. Which row of a class leaves a tier next.
 *
 * Each class has a hand that goes round its slots. When victims are wanted, the next 64 slots are
 * looked at and the oldest eight rows among them queued: one cache line of the index is read per
 * slot looked at, eight per victim. The lines of the next 64 are prefetched while these are used
 * up. A queued row that was touched, pinned or moved since is passed over.
 *
 * So a row leaves when it is in the oldest eighth of its neighbourhood, and every neighbourhood is
 * looked at equally often; test_row_cache_lru.c measures what that costs against exact LRU. */
#include "tiers/row_cache_impl.h"

#define NEIGHBOURS 64
/* Turns of the hand before we say that nothing can leave. */
#define TURNS_MAX 8

static void prefetch_next(struct row_cache *c, uint32_t tier, uint32_t class_index)
{
    struct slab_pool *pool = &c->pools[tier];
    const struct slab_class *class = &pool->classes[class_index];
    const uint32_t *owners = slab_pool_owners(pool, class->hand_slab) + class->hand_slot;
    uint32_t count = MIN(NEIGHBOURS, class->slots_per_slab - class->hand_slot);

    for (uint32_t i = 0; i < count; i++)
        if (!(owners[i] & SLOT_FREE))
            __builtin_prefetch(row_index_set_of(&c->index, owners[i]));
    for (uint32_t i = NEIGHBOURS; i < 2 * NEIGHBOURS; i += 16)
        __builtin_prefetch(owners + i);
}

/* Keeps the queue in order of age, oldest last (it is taken from the end). */
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

static void look_at_neighbours(struct row_cache *c, uint32_t tier, uint32_t class_index,
                               bool clean_only)
{
    struct slab_pool *pool = &c->pools[tier];
    struct slab_class *class = &pool->classes[class_index];
    uint32_t granules = class->slot_bytes >> c->granule_shift;
    uint32_t slot, count;
    const uint32_t *owners = slab_pool_turn_hand(pool, class_index, NEIGHBOURS, &slot, &count);

    class->victim_count = 0;
    for (uint32_t i = 0; i < count; i++, slot += granules) {
        struct row_place place;

        if (owners[i] & SLOT_FREE)
            continue;
        place = place_of(c, owners[i]);
        if (place.set->pinned >> place.way & 1)
            continue;
        if (clean_only && (place.set->dirty >> place.way & 1))
            continue;
        queue_victim(class, c->now,
                     (struct victim){ .slot = slot, .stamp = place.set->stamps[place.way] });
    }
    prefetch_next(c, tier, class_index);
}

/* Takes queued victims until one is still what it was. */
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
        if ((place.set->pinned >> place.way & 1) || place.set->stamps[place.way] != victim.stamp)
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
    if (c->pools[tier].classes[class_index].slab_count == 0)
        return false;
    for (uint32_t turn = 0; turn < TURNS_MAX; turn++) {
        if (take_queued(c, tier, class_index, clean_only, ret_place))
            return true;
        look_at_neighbours(c, tier, class_index, clean_only);
    }
    return take_queued(c, tier, class_index, clean_only, ret_place);
}

uint32_t row_victims_age(struct row_cache *c, uint32_t tier, uint32_t class_index)
{
    struct slab_class *class = &c->pools[tier].classes[class_index];

    if (class->slab_count == 0)
        return 0;
    if (class->victim_count == 0)
        look_at_neighbours(c, tier, class_index, false);
    return class->victim_count ? (uint16_t)(c->now - class->victims[class->victim_count - 1].stamp)
                               : 0;
}
