/* SPDX-License-Identifier: Apache-2.0 */
#include "tiers/cache/slab_pool.h"

#include <assert.h>
#include <string.h>

/* Rings of slabs by number. @ring selects one of a slab's two links. */
enum ring { RING_LINK, RING_OPEN };

static struct slab_link *link_of(const struct slab_pool *pool, uint32_t slab, enum ring ring)
{
    return ring == RING_LINK ? &pool->slabs[slab].link : &pool->slabs[slab].open;
}

/* Adds a slab, which becomes the head. */
static void ring_add(struct slab_pool *pool, enum ring ring, uint32_t *head, uint32_t slab)
{
    struct slab_link *added = link_of(pool, slab, ring);

    if (*head == SLAB_NONE) {
        *added = (struct slab_link){ slab, slab };
    } else {
        struct slab_link *next = link_of(pool, *head, ring);

        *added = (struct slab_link){ next->previous, *head };
        link_of(pool, next->previous, ring)->next = slab;
        next->previous = slab;
    }
    *head = slab;
}

static void ring_remove(struct slab_pool *pool, enum ring ring, uint32_t *head, uint32_t slab)
{
    struct slab_link *removed = link_of(pool, slab, ring);

    if (removed->next == slab) {
        *head = SLAB_NONE;
    } else {
        link_of(pool, removed->previous, ring)->next = removed->next;
        link_of(pool, removed->next, ring)->previous = removed->previous;
        if (*head == slab)
            *head = removed->next;
    }
    *removed = (struct slab_link){ SLAB_NONE, SLAB_NONE };
}

static void add_free_slab(struct slab_pool *pool, uint32_t slab)
{
    pool->slabs[slab].length_class = LENGTH_CLASS_NONE;
    if (slab >= pool->limit) {
        pool->slabs[slab].state = SLAB_ABSENT;
        return;
    }
    pool->slabs[slab].state = SLAB_FREE;
    ring_add(pool, RING_LINK, &pool->free_slabs, slab);
    pool->free_slab_count++;
}

static void remove_free_slab(struct slab_pool *pool, uint32_t slab)
{
    ring_remove(pool, RING_LINK, &pool->free_slabs, slab);
    assert(pool->free_slab_count > 0);
    pool->free_slab_count--;
}

/* Returns a stride near the golden ratio of @runs, so that consecutive runs are far apart. */
static uint32_t stride_for(uint32_t runs)
{
    for (uint32_t stride = (uint32_t)((uint64_t)runs * 618 / 1000) + 1;; stride++) {
        uint32_t a = runs, b = stride;

        while (b) {
            uint32_t rest = a % b;

            a = b;
            b = rest;
        }
        if (a == 1)
            return stride;
    }
}

void slab_pool_init(struct slab_pool *pool, void *base, uint32_t slab_count, uint32_t present,
                    uint32_t first_slot, uint32_t granule_shift, struct slab *slabs)
{
    *pool = (struct slab_pool){
        .base = base,
        .slab_count = slab_count,
        .limit = present,
        .top = present,
        .first_slot = first_slot,
        .granule_shift = granule_shift,
        .slab_shift = SLAB_BYTES_SHIFT - granule_shift,
        .free_slabs = SLAB_NONE,
        .draining = SLAB_NONE,
        .starved = LENGTH_CLASS_NONE,
        .slabs = slabs,
    };
    for (uint32_t i = 0; i < LENGTH_CLASS_COUNT; i++) {
        struct slab_class *class = &pool->classes[i];

        class->slot_bytes = length_class_bytes(i, granule_shift);
        class->slots_per_slab = (uint32_t)(ARENA_SLAB_BYTES / (class->slot_bytes + 4));
        class->runs_per_slab = (uint32_t)div_round_up(class->slots_per_slab, SLAB_RUN_SLOTS);
        class->run_stride = stride_for(class->runs_per_slab);
        class->slabs = class->open = class->hand.slab = SLAB_NONE;
    }
    memset(slabs, 0, slab_count * sizeof(*slabs));
    for (uint32_t i = 0; i < slab_count; i++) /* the last one is given out first */
        add_free_slab(pool, i);
}

static void assign_slab(struct slab_pool *pool, uint32_t slab, uint32_t class_index)
{
    struct slab_class *class = &pool->classes[class_index];
    struct slab *s = &pool->slabs[slab];
    uint32_t *owners;

    assert(s->state != SLAB_USED);
    s->state = SLAB_USED;
    s->length_class = (uint8_t)class_index;
    s->used_slots = 0;
    s->free_slot = 0;
    owners = slab_pool_owners(pool, slab);
    for (uint32_t i = 0; i + 1 < class->slots_per_slab; i++)
        owners[i] = SLOT_FREE | (i + 1);
    owners[class->slots_per_slab - 1] = SLOT_FREE_LAST;
    ring_add(pool, RING_LINK, &class->slabs, slab);
    ring_add(pool, RING_OPEN, &class->open, slab);
    class->slab_count++;
    if (class->hand.slab == SLAB_NONE)
        class->hand.slab = slab;
    if (pool->starved == class_index)
        pool->starved = LENGTH_CLASS_NONE;
}

/* Removes @slab from its class. */
static void unassign_slab(struct slab_pool *pool, uint32_t slab)
{
    struct slab *s = &pool->slabs[slab];
    struct slab_class *class = &pool->classes[s->length_class];

    if (class->hand.slab == slab)
        class->hand.slab = s->link.next == slab ? SLAB_NONE : s->link.next;
    ring_remove(pool, RING_LINK, &class->slabs, slab);
    if (s->free_slot != SLOT_NONE)
        ring_remove(pool, RING_OPEN, &class->open, slab);
    assert(class->slab_count > 0);
    class->slab_count--;
    class->victim_count = 0; /* some victims may lie in the slab */
}

static void pop_free_slot(struct slab_pool *pool, uint32_t slab)
{
    struct slab *s = &pool->slabs[slab];
    uint32_t next = slab_pool_owners(pool, slab)[s->free_slot];

    assert(s->free_slot != SLOT_NONE);
    s->free_slot = next == SLOT_FREE_LAST ? SLOT_NONE : next & ~SLOT_FREE;
    s->used_slots++;
    if (s->free_slot == SLOT_NONE && s->state == SLAB_USED)
        ring_remove(pool, RING_OPEN, &pool->classes[s->length_class].open, slab);
}

uint32_t slab_pool_take_slot(struct slab_pool *pool, uint32_t class_index)
{
    struct slab_class *class = &pool->classes[class_index];
    uint32_t slab, slot;

    if (class->open == SLAB_NONE) {
        if (pool->free_slabs == SLAB_NONE)
            return SLOT_NONE;
        slab = pool->free_slabs;
        remove_free_slab(pool, slab);
        assign_slab(pool, slab, class_index);
    }
    slab = class->open;
    slot = slab_pool_slot(pool, slab, pool->slabs[slab].free_slot);
    pop_free_slot(pool, slab);
    return slot;
}

void slab_pool_free_slot(struct slab_pool *pool, uint32_t slot)
{
    uint32_t slab = slab_pool_slab_of(pool, slot);
    uint32_t index = slab_pool_slot_index(pool, slot);
    struct slab *s = &pool->slabs[slab];

    assert(s->state == SLAB_USED || s->state == SLAB_DRAINING);
    slab_pool_owners(pool, slab)[index] =
        s->free_slot == SLOT_NONE ? SLOT_FREE_LAST : SLOT_FREE | s->free_slot;
    if (s->free_slot == SLOT_NONE && s->state == SLAB_USED)
        ring_add(pool, RING_OPEN, &pool->classes[s->length_class].open, slab);
    s->free_slot = index;
    assert(s->used_slots > 0);
    s->used_slots--;
}

void slab_pool_retake_slot(struct slab_pool *pool, uint32_t slot)
{
    pop_free_slot(pool, slab_pool_slab_of(pool, slot));
}

void slab_pool_release_if_empty(struct slab_pool *pool, uint32_t slot)
{
    uint32_t slab = slab_pool_slab_of(pool, slot);

    if (pool->slabs[slab].state != SLAB_USED || pool->slabs[slab].used_slots)
        return;
    unassign_slab(pool, slab);
    add_free_slab(pool, slab);
}

void slab_pool_drain(struct slab_pool *pool, uint32_t slab, uint32_t heir)
{
    assert(pool->slabs[slab].state == SLAB_USED && pool->draining == SLAB_NONE);
    unassign_slab(pool, slab);
    pool->slabs[slab].state = SLAB_DRAINING;
    pool->slabs[slab].heir = (uint8_t)heir;
    pool->draining = slab;
    pool->drain_slot = 0;
}

void slab_pool_finish_drain(struct slab_pool *pool)
{
    uint32_t slab = pool->draining;
    uint32_t heir = pool->slabs[slab].heir;

    assert(pool->slabs[slab].state == SLAB_DRAINING && pool->slabs[slab].used_slots == 0);
    pool->draining = SLAB_NONE;
    if (slab >= pool->limit) {
        add_free_slab(pool, slab);
    } else if (heir == SLAB_HEIR_INDEX) {
        pool->slabs[slab].state = SLAB_INDEX;
        pool->slabs[slab].length_class = LENGTH_CLASS_NONE;
    } else if (heir == SLAB_HEIR_POOL) {
        add_free_slab(pool, slab);
    } else {
        assign_slab(pool, slab, heir);
    }
}

void slab_pool_take_away(struct slab_pool *pool, uint32_t slab)
{
    assert(pool->slabs[slab].state == SLAB_FREE || pool->slabs[slab].state == SLAB_ABSENT);
    if (pool->slabs[slab].state == SLAB_FREE)
        remove_free_slab(pool, slab);
    pool->slabs[slab].state = SLAB_INDEX;
}

void slab_pool_give_back(struct slab_pool *pool, uint32_t slab)
{
    assert(pool->slabs[slab].state == SLAB_INDEX);
    add_free_slab(pool, slab);
}

void slab_pool_raise(struct slab_pool *pool, uint32_t limit)
{
    const uint32_t from = pool->limit;

    assert(limit >= from && limit <= pool->slab_count);
    pool->limit = limit;
    pool->top = MAX(pool->top, limit);
    for (uint32_t i = from; i < limit; i++)
        if (pool->slabs[i].state == SLAB_ABSENT)
            add_free_slab(pool, i);
}

void slab_pool_lower(struct slab_pool *pool, uint32_t limit)
{
    assert(limit <= pool->limit);
    for (uint32_t i = limit; i < pool->limit; i++)
        if (pool->slabs[i].state == SLAB_FREE) {
            remove_free_slab(pool, i);
            pool->slabs[i].state = SLAB_ABSENT;
        }
    pool->limit = limit;
}

uint32_t slab_pool_next_to_leave(struct slab_pool *pool)
{
    while (slab_pool_is_leaving(pool) && pool->slabs[pool->top - 1].state == SLAB_ABSENT)
        pool->top--;
    for (uint32_t i = pool->top; i > pool->limit; i--)
        if (pool->slabs[i - 1].state == SLAB_USED)
            return i - 1;
    return SLAB_NONE;
}

struct slab_run slab_pool_turn_hand(const struct slab_pool *pool, uint32_t class_index,
                                    struct slab_hand *hand)
{
    const struct slab_class *class = &pool->classes[class_index];
    uint32_t first = hand->run * SLAB_RUN_SLOTS;
    struct slab_run run = {
        .first_slot = slab_pool_slot(pool, hand->slab, first),
        .count = MIN((uint32_t)SLAB_RUN_SLOTS, class->slots_per_slab - first),
        .owners = slab_pool_owners(pool, hand->slab) + first,
    };

    hand->slab = pool->slabs[hand->slab].link.next;
    if (hand->slab == class->slabs)
        hand->run = (hand->run + class->run_stride) % class->runs_per_slab;
    return run;
}

static const char *validate_slab(const struct slab_pool *pool, uint32_t slab)
{
    const struct slab *s = &pool->slabs[slab];
    const uint32_t *owners = slab_pool_owners(pool, slab);
    uint32_t slots = pool->classes[s->length_class].slots_per_slab;
    uint32_t used = 0, listed = 0;

    for (uint32_t i = 0; i < slots; i++)
        used += !(owners[i] & SLOT_FREE);
    for (uint32_t i = s->free_slot; i != SLOT_NONE; listed++) {
        if (i >= slots || !(owners[i] & SLOT_FREE) || listed > slots)
            return "a slab's list of free slots is broken";
        i = owners[i] == SLOT_FREE_LAST ? SLOT_NONE : owners[i] & ~SLOT_FREE;
    }
    if (used != s->used_slots || used + listed != slots)
        return "a slab's count of used slots is wrong";
    return NULL;
}

static const char *validate_class(const struct slab_pool *pool, uint32_t class_index)
{
    const struct slab_class *class = &pool->classes[class_index];
    uint32_t in_ring = 0, open = 0, with_free_slot = 0;

    for (uint32_t s = class->slabs; s != SLAB_NONE;) {
        if (pool->slabs[s].length_class != class_index || pool->slabs[s].state != SLAB_USED)
            return "a slab of another class is in a class's ring";
        with_free_slot += pool->slabs[s].free_slot != SLOT_NONE;
        if (++in_ring > pool->slab_count)
            return "a class's ring of slabs is broken";
        s = pool->slabs[s].link.next;
        if (s == class->slabs)
            break;
    }
    for (uint32_t s = class->open; s != SLAB_NONE;) {
        if (pool->slabs[s].free_slot == SLOT_NONE || ++open > pool->slab_count)
            return "a class's ring of slabs with free slots is broken";
        s = pool->slabs[s].open.next;
        if (s == class->open)
            break;
    }
    if (in_ring != class->slab_count || open != with_free_slot)
        return "a class's count of slabs is wrong";
    if ((class->hand.slab == SLAB_NONE) != (class->slab_count == 0))
        return "a class's hand points nowhere";
    return NULL;
}

const char *slab_pool_validate(const struct slab_pool *pool)
{
    uint32_t free_count = 0, classed = 0, draining = 0;
    const char *wrong;

    for (uint32_t i = 0; i < pool->slab_count; i++) {
        free_count += pool->slabs[i].state == SLAB_FREE;
        draining += pool->slabs[i].state == SLAB_DRAINING;
        if (i < pool->limit ? pool->slabs[i].state == SLAB_ABSENT
                            : pool->slabs[i].state == SLAB_FREE)
            return "a slab is absent below the tier's end, or free behind it";
        if (i >= pool->top && pool->slabs[i].state != SLAB_ABSENT &&
            pool->slabs[i].state != SLAB_INDEX)
            return "a slab behind the tier's top has rows";
        if (pool->slabs[i].state != SLAB_USED && pool->slabs[i].state != SLAB_DRAINING)
            continue;
        classed += pool->slabs[i].state == SLAB_USED;
        wrong = validate_slab(pool, i);
        if (wrong)
            return wrong;
    }
    if (free_count != pool->free_slab_count || draining != (pool->draining != SLAB_NONE))
        return "the tier's count of free or draining slabs is wrong";
    for (uint32_t i = 0; i < LENGTH_CLASS_COUNT; i++) {
        wrong = validate_class(pool, i);
        if (wrong)
            return wrong;
        classed -= pool->classes[i].slab_count;
    }
    return classed ? "a slab in use is in no class's ring" : NULL;
}
