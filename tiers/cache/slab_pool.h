/* SPDX-License-Identifier: Apache-2.0 */
/* slab_pool.h: the slabs of one tier of one lane, each cut into slots of one length class.
 *
 * A slab holds its slots from the front, so that rows of 512 bytes lie on cache lines. At its end
 * it has four bytes per slot: the index entry that owns the slot or, for a free slot, the next free
 * one. They lie in the slab because their number depends on its class. Besides, the owner of a slot
 * is needed only when a row moves, which touches the slab anyway.
 *
 * A slot's number is its offset in granules in the lane's whole space (all tiers one after the
 * other). So it fits 32 bits, and its address is one shift and one addition.
 *
 * A slab is free, in use by a class, draining, absent or, in tier 0, part of the index or of maps.
 * Rows leave a draining slab and none come; its heir is known. Slabs are given out from the tier's
 * end, so that the index can grow from its front, and return slabs that it no longer needs.
 *
 * The pool has numbers for as many slabs as its tier may ever have. Those below @limit are there,
 * or are to be there; those from @limit on are absent, or leave as soon as they are empty. From
 * @top on all are absent, but for maps. Only the owner of the memory gives it to the system, and
 * only from @top on. Thread: the lane. */
#ifndef EMBTIER_TIERS_CACHE_SLAB_POOL_H
#define EMBTIER_TIERS_CACHE_SLAB_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/macros.h"
#include "tiers/arena/arena.h"
#include "tiers/cache/length_class.h"

#define SLAB_BYTES_SHIFT 21
#define SLAB_NONE        UINT32_MAX
#define SLOT_NONE        UINT32_MAX
#define SLOT_FREE        UINT32_C(0x80000000) /* in an owner word: the slot is free */
#define SLOT_FREE_LAST   UINT32_MAX           /* free, and the last one */

/* A few rows chosen to leave next (row_victims.c). */
#define VICTIMS_MAX 8
struct victim {
    uint32_t slot;
    uint16_t stamp;
    uint16_t spare;
};

#define SLAB_RUN_SLOTS 16
struct slab_hand {
    uint32_t slab;
    uint32_t run;
};

enum slab_state { SLAB_FREE, SLAB_USED, SLAB_DRAINING, SLAB_INDEX, SLAB_ABSENT };
#define SLAB_HEIR_POOL  254 /* no class: back to the free slabs */
#define SLAB_HEIR_INDEX 253

struct slab_link {
    uint32_t previous, next;
};

struct slab {
    uint32_t used_slots;
    uint32_t free_slot;    /* number within the slab of its first free slot, or SLOT_NONE */
    struct slab_link link; /* ring of the tier's free slabs, or of the class's slabs */
    struct slab_link open; /* ring of the class's slabs that have a free slot */
    uint8_t state;
    uint8_t length_class;
    uint8_t heir; /* while draining */
    uint8_t spare[5];
};
_Static_assert(sizeof(struct slab) == 32, "16 bytes per MiB of cache");

struct slab_class {
    uint32_t slot_bytes;
    uint32_t slots_per_slab;
    uint32_t slab_count; /* in use, without draining ones */
    uint32_t slabs;      /* any slab of the ring, or SLAB_NONE */
    uint32_t open;       /* a slab with a free slot, or SLAB_NONE */
    uint32_t runs_per_slab;
    uint32_t run_stride; /* from one turn to the next; coprime to runs_per_slab */
    struct slab_hand hand;
    uint32_t evicted_since; /* rows that left since the last comparison of slabs */
    uint32_t evicted_age;   /* in ticks, moving mean, times 16 */
    uint32_t victim_count;
    struct victim victims[VICTIMS_MAX];
};

struct slab_pool {
    uint8_t *base;       /* of slab 0 */
    uint32_t slab_count; /* numbers of slabs, absent ones included */
    uint32_t limit;
    uint32_t top;
    uint32_t first_slot; /* the slot number of its first byte */
    uint32_t granule_shift;
    uint32_t slab_shift; /* log2 of the granules per slab */
    uint32_t free_slabs; /* a free slab, or SLAB_NONE */
    uint32_t free_slab_count;
    uint32_t draining;      /* the one slab that drains, or SLAB_NONE */
    uint32_t drain_slot;    /* its next slot to check */
    uint32_t evicted_since; /* rows that left since the last comparison of classes */
    uint32_t starved;       /* a class that wants a slab and has none, or LENGTH_CLASS_NONE */
    struct slab *slabs;
    struct slab_class classes[LENGTH_CLASS_COUNT];
};

/* @slabs has room for @slab_count of them and belongs to the caller. The first @present slabs are
 * free afterwards, the others absent. */
void slab_pool_init(struct slab_pool *pool, void *base, uint32_t slab_count, uint32_t present,
                    uint32_t first_slot, uint32_t granule_shift, struct slab *slabs);

/* Returns a free slot of the class; takes a free slab for it if need be. SLOT_NONE if there is
 * none. The caller writes the slot's owner. */
uint32_t slab_pool_take_slot(struct slab_pool *pool, uint32_t class_index);
void slab_pool_free_slot(struct slab_pool *pool, uint32_t slot);
/* Takes back the slot that was freed last in its slab. */
void slab_pool_retake_slot(struct slab_pool *pool, uint32_t slot);
/* Frees the slab of @slot if it is in use and empty. */
void slab_pool_release_if_empty(struct slab_pool *pool, uint32_t slot);

/* Starts to drain @slab, which is in use: no more rows come, and it goes to @heir once it is empty.
 * One slab at a time. */
void slab_pool_drain(struct slab_pool *pool, uint32_t slab, uint32_t heir);
/* Gives the draining slab, which is empty, to its heir. */
void slab_pool_finish_drain(struct slab_pool *pool);
/* Lets more slabs be there: absent ones below @limit are free now. */
void slab_pool_raise(struct slab_pool *pool, uint32_t limit);
/* Lets slabs leave: free ones at once, the others when they are empty. */
void slab_pool_lower(struct slab_pool *pool, uint32_t limit);
/* Brings @top up to date. Returns the highest slab that has rows and is to leave, and does not
 * drain yet; SLAB_NONE: there is none. */
uint32_t slab_pool_next_to_leave(struct slab_pool *pool);
static inline bool slab_pool_is_leaving(const struct slab_pool *pool)
{
    return pool->top > pool->limit;
}

/* Takes slab @slab, free or absent, out of the pool, for the index or for maps. */
void slab_pool_take_away(struct slab_pool *pool, uint32_t slab);
/* Returns a slab that the index no longer needs. */
void slab_pool_give_back(struct slab_pool *pool, uint32_t slab);

/* A run of neighbouring slots in which to look for a class's next victims. */
struct slab_run {
    uint32_t first_slot;
    uint32_t count;         /* at most SLAB_RUN_SLOTS */
    const uint32_t *owners; /* of the slots; one cache line, or two */
};
/* Returns the next run. Consecutive runs lie in different slabs, or far apart in one: rows that
 * came together lie together, and are often all hot or all cold. Each run has its turn equally
 * often. The class must have a slab. */
struct slab_run slab_pool_turn_hand(const struct slab_pool *pool, uint32_t class_index,
                                    struct slab_hand *hand);

/* Returns NULL, or the fault. */
const char *slab_pool_validate(const struct slab_pool *pool);

static inline uint8_t *slab_pool_slab_base(const struct slab_pool *pool, uint32_t slab)
{
    return pool->base + ((uint64_t)slab << SLAB_BYTES_SHIFT);
}

static inline uint32_t *slab_pool_owners(const struct slab_pool *pool, uint32_t slab)
{
    const struct slab_class *class = &pool->classes[pool->slabs[slab].length_class];

    return (uint32_t *)(slab_pool_slab_base(pool, slab + 1) - 4 * (uint64_t) class->slots_per_slab);
}

static inline bool slab_pool_has(const struct slab_pool *pool, uint32_t slot)
{
    return (slot - pool->first_slot) >> pool->slab_shift < pool->slab_count &&
           slot >= pool->first_slot;
}

static inline uint8_t *slab_pool_address(const struct slab_pool *pool, uint32_t slot)
{
    return pool->base + ((uint64_t)(slot - pool->first_slot) << pool->granule_shift);
}

static inline uint32_t slab_pool_slab_of(const struct slab_pool *pool, uint32_t slot)
{
    return (slot - pool->first_slot) >> pool->slab_shift;
}

/* Returns a slot's place within its slab. */
static inline uint32_t slab_pool_slot_index(const struct slab_pool *pool, uint32_t slot)
{
    uint32_t granules = (slot - pool->first_slot) & ((UINT32_C(1) << pool->slab_shift) - 1);
    const struct slab *slab = &pool->slabs[slab_pool_slab_of(pool, slot)];

    return (granules << pool->granule_shift) / pool->classes[slab->length_class].slot_bytes;
}

static inline uint32_t slab_pool_slot(const struct slab_pool *pool, uint32_t slab, uint32_t index)
{
    uint32_t slot_bytes = pool->classes[pool->slabs[slab].length_class].slot_bytes;

    return pool->first_slot + (slab << pool->slab_shift) +
           index * (slot_bytes >> pool->granule_shift);
}

static inline uint32_t *slab_pool_owner(const struct slab_pool *pool, uint32_t slot)
{
    return &slab_pool_owners(pool, slab_pool_slab_of(pool, slot))[slab_pool_slot_index(pool, slot)];
}

#endif
