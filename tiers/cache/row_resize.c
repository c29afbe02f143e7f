/* SPDX-License-Identifier: Apache-2.0 */
/* row_resize.c: lets tiers grow and shrink by slabs while the cache serves.
 *
 * A tier has numbers for all slabs that it may ever have, from the start on: addresses without
 * memory, and 32 bytes of tier 0 each. The slabs that are there are the first ones. So a tier grows
 * in one step, once its memory is there. It shrinks from the end: free slabs go at once, others
 * drain first as they do when they change class (row_upkeep.c), one at a time, a few rows in each
 * call. A row moves to another slot if it is younger than the row that would leave for it, else
 * down or out. Nothing is lost: a dirty row that evict() does not take stays, and so does its slab.
 *
 * The index lies at the front of the first tier, and may take half of it. If it has more, it
 * shrinks first (row_growth.c), and its last slabs go to the rows or leave. Maps lie at the end of
 * the tier's addresses and stay as large as they were made.
 *
 * Pinned rows count against the size that the tier is to have as soon as it is known, so no more
 * are pinned than that holds. Those that are pinned already must fit, or the tier is not shrunk. */
#include "tiers/cache/row_cache_impl.h"

#include <assert.h>
#include <inttypes.h>

#include "base/text/bytes.h"

uint32_t row_cache_slabs(const struct row_cache *c, uint32_t tier)
{
    return c->pools[tier].top + row_cache_maps_of(c, tier);
}

void row_resize_note(struct row_cache *c, uint32_t tier)
{
    counter_set(&c->stats.tiers[tier].capacity_bytes, row_cache_slabs(c, tier) * ARENA_SLAB_BYTES);
    if (tier == 0)
        c->pinned_most = row_cache_wanted_slabs(c, 0) * ARENA_SLAB_BYTES / ROW_CACHE_PINNED_PART;
}

/* Pins of all tiers together may take a part of the first; those of another tier must lie in it. */
static enum embtier_err check_pins(const struct row_cache *c, uint32_t tier, uint64_t slabs,
                                   struct err_msg *msg)
{
    const uint64_t pinned_bytes =
        tier == 0 ? c->stats.pinned_bytes : c->stats.tiers[tier].pinned_bytes;
    const uint64_t most_bytes = slabs * ARENA_SLAB_BYTES / (tier == 0 ? ROW_CACHE_PINNED_PART : 1);

    if (pinned_bytes <= most_bytes)
        return EMBTIER_OK;
    return err_set(msg, EMBTIER_BUSY, "%" PRIu64 " bytes of its rows are pinned", pinned_bytes);
}

enum embtier_err row_cache_check_resize(const struct row_cache *c, uint32_t tier, uint32_t slabs,
                                        struct err_msg *msg)
{
    uint32_t slab_counts[TIERS_MAX], room_slabs[TIERS_MAX];

    assert(tier < c->tier_count);
    for (uint32_t i = 0; i < c->tier_count; i++) {
        slab_counts[i] = i == tier ? slabs : row_cache_wanted_slabs(c, i);
        room_slabs[i] = c->pools[i].slab_count;
    }
    if (slabs > room_slabs[tier])
        return err_set(msg, EMBTIER_TOO_LARGE,
                       "%" PRIu32 " slabs of 2 MiB per lane, and addresses for %" PRIu32, slabs,
                       room_slabs[tier]);
    TRY(row_cache_check_slabs(slab_counts, room_slabs, c->tier_count, c->map_slabs, msg));
    return check_pins(c, tier, slabs, msg);
}

void row_cache_resize(struct row_cache *c, uint32_t tier, uint32_t slabs)
{
    const uint32_t limit = slabs - row_cache_maps_of(c, tier);
    struct slab_pool *const pool = &c->pools[tier];

    assert(slabs >= row_cache_maps_of(c, tier) && slabs <= pool->slab_count);
    if (limit >= pool->limit)
        slab_pool_raise(pool, limit);
    else
        slab_pool_lower(pool, limit);
    (void)slab_pool_next_to_leave(pool); /* those that were free have left */
    row_resize_note(c, tier);
    row_growth_fit(c);
}

/* Any work on the slabs that leave, or on an index that is in their way, changes this. */
static uint64_t marker_of(const struct row_cache *c, uint32_t tier)
{
    const struct slab_pool *const pool = &c->pools[tier];
    uint64_t marker = c->stats.slab_moves + c->index.boundary + c->index.set_count;

    for (uint32_t i = pool->limit; i < pool->top; i++)
        marker += pool->slabs[i].used_slots;
    if (pool->draining != SLAB_NONE)
        marker += UINT64_C(3) * pool->slabs[pool->draining].used_slots; /* may lie below @limit */
    return marker + ((uint64_t)pool->top << 32);
}

struct row_cache_leaving row_cache_resize_step(struct row_cache *c, uint32_t tier, uint32_t rows)
{
    const struct slab_pool *const pool = &c->pools[tier];

    if (slab_pool_is_leaving(pool)) {
        if (tier == 0 && c->wanted_sets == c->index.set_count && !row_index_is_resizing(&c->index))
            row_growth_look(c); /* an index that is too large shrinks */
        row_upkeep_work(c, rows);
        row_upkeep_end(c);
        (void)slab_pool_next_to_leave(&c->pools[tier]);
        row_resize_note(c, tier);
    }
    return (struct row_cache_leaving){ .slabs = row_cache_slabs(c, tier),
                                       .done = !slab_pool_is_leaving(pool),
                                       .marker = marker_of(c, tier) };
}
