/* SPDX-License-Identifier: Apache-2.0 */
/* The searching loops, compiled once per instruction set (kernels/cpu/isa.h). The walk over the
 * rows (kernels/cpu/pool/pool_walk.h) looks ahead twice: it prefetches a spot, and some rows later
 * it finds the row by that spot and prefetches the row. */
#include "tiers/spots/spot_pool_loops.h"

#include "kernels/cpu/vector.h"

/* Prefetch distances: rows into the second-level cache, and spots ahead of these. Measured: fewer,
 * or the first level, is up to a fifth slower; more is no faster. */
#define SEARCH_BYTES    (12 * KIB)
#define SEARCH_ROWS_MAX 64u
#define SEARCH_SPOTS    24u

struct walk_rows {
    struct row_spots where;
    const uint64_t *ids;
    const void **rows;
    uint32_t *missed;
    uint32_t count;
    uint32_t ahead;       /* rows from the current one to the one that is found */
    uint32_t spots_ahead; /* the same to the one whose spot is prefetched */
    uint32_t row_bytes;
    bool by_stride; /* known when this is compiled */
};

#include "kernels/cpu/pool/pool_walk.h"

KERNEL_INLINE void ask_for_spot(const struct walk_rows *rows, uint32_t i)
{
    if (!rows->by_stride)
        __builtin_prefetch(&rows->where.spots[rows->ids[i]]);
}

/* Returns the row of @id, whose spot was prefetched. A row that is not there counts, and is
 * zeros. */
KERNEL_INLINE const void *row_at_spot(const struct walk_rows *rows, uint64_t id)
{
    const struct row_spots *const where = &rows->where;
    struct row_spot *const spot = &where->spots[id];
    const uint32_t slot = spot->slot_and_1 - 1;
    const void *row = where->base + ((uint64_t)slot << where->slot_shift);

    if (UNLIKELY(slot >= where->slot_end)) {
        ++*rows->missed;
        row = spot_pool_no_row;
    } else if (UNLIKELY(spot->stamp != where->now)) {
        spot->stamp = where->now;
    }
    return row;
}

KERNEL_INLINE void find_row(const struct walk_rows *rows, uint32_t i)
{
    const uint64_t id = rows->ids[i];
    const void *const row =
        rows->by_stride ? rows->where.base + id * rows->where.row_stride : row_at_spot(rows, id);

    rows->rows[i] = row;
    vector_ask_for_in(VECTOR_L2, row, rows->row_bytes);
}

KERNEL_INLINE void walk_look(const struct walk_rows *rows, uint32_t i)
{
    if (LIKELY(i + rows->spots_ahead < rows->count))
        ask_for_spot(rows, i + rows->spots_ahead);
    if (LIKELY(i + rows->ahead < rows->count))
        find_row(rows, i + rows->ahead);
}

/* Finds the first rows, for which no walk looked ahead. */
KERNEL_INLINE void find_first_rows(const struct walk_rows *rows)
{
    for (uint32_t i = 0; i < MIN(rows->count, rows->spots_ahead); i++)
        ask_for_spot(rows, i);
    for (uint32_t i = 0; i < MIN(rows->count, rows->ahead); i++)
        find_row(rows, i);
}

KERNEL_INLINE void pool(const struct pool_batch *batch, struct spot_search *search, bool by_stride)
{
    const uint32_t row_bytes = batch->dim * vector_dtype_bytes(batch->dtype);
    const uint32_t ahead = MIN(MAX((uint32_t)SEARCH_BYTES / row_bytes, 2u), SEARCH_ROWS_MAX);
    const struct walk_rows rows = {
        .where = search->where,
        .ids = search->ids,
        .rows = search->rows,
        .missed = &search->missed,
        .count = batch->offsets[batch->bag_count],
        .ahead = ahead,
        .spots_ahead = ahead + SEARCH_SPOTS,
        .row_bytes = row_bytes,
        .by_stride = by_stride,
    };

    find_first_rows(&rows);
    walk(batch, &rows);
}

static void pool_by_spots(const struct pool_batch *batch, struct spot_search *search)
{
    pool(batch, search, false);
}

static void pool_by_stride(const struct pool_batch *batch, struct spot_search *search)
{
    pool(batch, search, true);
}

const struct spot_pool_loops KERNELS_ISA_SYMBOL(spot_pool_loops) = {
    .pool_by_spots = pool_by_spots,
    .pool_by_stride = pool_by_stride,
};
