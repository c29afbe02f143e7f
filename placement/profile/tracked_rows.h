/* SPDX-License-Identifier: Apache-2.0 */
/* tracked_rows.h: a hash table of rows of one table, with the time of their last lookup.
 *
 * Where a row lies is random, and changes no result.
 * It grows by doubling up to a fixed number of slots, and refuses rows beyond three quarters of
 * that. Thread: one. */
#ifndef EMBTIER_PLACEMENT_PROFILE_TRACKED_ROWS_H
#define EMBTIER_PLACEMENT_PROFILE_TRACKED_ROWS_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct tracked_row {
    uint64_t row;
    uint64_t last_time;
    uint32_t lookups; /* 0: the slot is free; stays at UINT32_MAX */
    uint32_t last_batch : 31;
    uint32_t is_updated : 1; /* by its last batch */
};
static_assert(sizeof(struct tracked_row) == 24, "rows are most of a profile's memory");

struct tracked_rows {
    struct tracked_row *slots; /* NULL: no slots yet */
    uint32_t slot_count;       /* a power of two, or 0 */
    uint32_t slots_max;        /* a power of two */
    uint32_t row_count;
    uint64_t seed;     /* of the hash that decides which rows are sampled */
    uint64_t slot_key; /* random, so that no file can aim all its rows at one slot */
};

/* Says which rows stay. */
typedef bool (*tracked_rows_keep_fn)(const struct tracked_row *row, const void *context);

static inline uint32_t tracked_rows_max(const struct tracked_rows *rows)
{
    return rows->slots_max / 4 * 3;
}

/* Returns a hash of 64 even bits (the finalizer of MurmurHash3). */
static inline uint64_t tracked_rows_hash(uint64_t seed, uint64_t row)
{
    uint64_t hash = row ^ seed;

    hash = (hash ^ hash >> 33) * UINT64_C(0xff51afd7ed558ccd);
    hash = (hash ^ hash >> 33) * UINT64_C(0xc4ceb9fe1a85ec53);
    return hash ^ hash >> 33;
}

void tracked_rows_init(struct tracked_rows *rows, uint32_t slots_max, uint64_t seed);
void tracked_rows_clear(struct tracked_rows *rows); /* frees the slots */
/* Returns the row, or NULL. Valid until the next insertion or removal. */
struct tracked_row *tracked_rows_find(const struct tracked_rows *rows, uint64_t row);
/* Adds a row that is not there, as it is given. TOO_LARGE: there are tracked_rows_max(). NO_MEMORY:
 * nothing was added. */
MUST_CHECK enum embtier_err tracked_rows_insert(struct tracked_rows *rows,
                                                const struct tracked_row *row);
/* Removes the rows that @keep refuses. NO_MEMORY: none was removed. */
MUST_CHECK enum embtier_err tracked_rows_filter(struct tracked_rows *rows,
                                                tracked_rows_keep_fn keep, const void *context);

static inline void tracked_row_count(struct tracked_row *row)
{
    row->lookups += row->lookups < UINT32_MAX ? 1 : 0;
}

#endif
