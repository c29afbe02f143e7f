/* SPDX-License-Identifier: Apache-2.0 */
#include "tiers/array/array_space.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "tiers/arena/arena.h"

struct piece {
    uint64_t first; /* slab */
    uint64_t slabs;
};

struct array_space {
    uint8_t *base;
    uint64_t slabs;
    struct piece *pieces; /* pieces in use, by place */
    uint32_t count;
    uint32_t room;
};

enum embtier_err array_space_new(void *base, uint64_t slabs, struct array_space **ret_space)
{
    struct array_space *const space = calloc(1, sizeof(*space));

    if (!space)
        return EMBTIER_NO_MEMORY;
    assert((uintptr_t)base % ARENA_SLAB_BYTES == 0);
    space->base = base;
    space->slabs = slabs;
    *ret_space = space;
    return EMBTIER_OK;
}

void array_space_free(struct array_space *space)
{
    if (!space)
        return;
    free(space->pieces);
    free(space);
}

static uint64_t end_of(const struct piece *piece)
{
    return piece->first + piece->slabs;
}

/* Returns the gap before piece @i, or after the last one. */
static struct piece gap_before(const struct array_space *space, uint32_t i)
{
    const uint64_t first = i > 0 ? end_of(&space->pieces[i - 1]) : 0;
    const uint64_t end = i < space->count ? space->pieces[i].first : space->slabs;

    return (struct piece){ .first = first, .slabs = end - first };
}

static bool make_room(struct array_space *space)
{
    const uint32_t room = MAX(2 * space->room, 16u);
    struct piece *pieces;

    if (space->count < space->room)
        return true;
    pieces = realloc(space->pieces, room * sizeof(*pieces));
    if (!pieces)
        return false;
    space->pieces = pieces;
    space->room = room;
    return true;
}

enum embtier_err array_space_take(struct array_space *space, uint64_t bytes, void **ret_piece)
{
    const uint64_t slabs = bytes / ARENA_SLAB_BYTES;
    struct piece best = { .slabs = UINT64_MAX };
    uint32_t at = 0;

    assert(bytes > 0 && bytes % ARENA_SLAB_BYTES == 0);
    for (uint32_t i = 0; i <= space->count; i++) {
        const struct piece gap = gap_before(space, i);

        if (gap.slabs < slabs || gap.slabs >= best.slabs)
            continue;
        best = gap;
        at = i;
    }
    if (best.slabs == UINT64_MAX)
        return EMBTIER_TOO_LARGE;
    if (!make_room(space))
        return EMBTIER_NO_MEMORY;
    memmove(&space->pieces[at + 1], &space->pieces[at],
            (space->count - at) * sizeof(*space->pieces));
    space->pieces[at] = (struct piece){ .first = best.first, .slabs = slabs };
    space->count++;
    *ret_piece = space->base + best.first * ARENA_SLAB_BYTES;
    return EMBTIER_OK;
}

bool array_space_has(const struct array_space *space, const void *piece)
{
    const uintptr_t base = (uintptr_t)space->base;
    const uintptr_t at = (uintptr_t)piece;

    return at >= base && at - base < space->slabs * ARENA_SLAB_BYTES;
}

void array_space_give(struct array_space *space, void *piece)
{
    const uint64_t first = (uint64_t)((uint8_t *)piece - space->base) / ARENA_SLAB_BYTES;
    uint32_t i = 0;

    while (i < space->count && space->pieces[i].first != first)
        i++;
    assert(i < space->count);
    space->count--;
    memmove(&space->pieces[i], &space->pieces[i + 1], (space->count - i) * sizeof(*space->pieces));
}

void array_space_stats(const struct array_space *space, struct array_space_stats *ret_stats)
{
    struct array_space_stats stats = { .bytes = space->slabs * ARENA_SLAB_BYTES };

    for (uint32_t i = 0; i <= space->count; i++) {
        const uint64_t gap = gap_before(space, i).slabs * ARENA_SLAB_BYTES;

        stats.free_bytes += gap;
        stats.largest_free_bytes = MAX(stats.largest_free_bytes, gap);
    }
    *ret_stats = stats;
}
