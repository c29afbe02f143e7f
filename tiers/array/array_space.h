/* SPDX-License-Identifier: Apache-2.0 */
/* array_space.h: the part of a tier's memory that is kept for arrays of whole tables, shared out in
 * slabs (ARENA_SLAB_BYTES).
 *
 * Each array is one piece. A piece comes from the smallest gap that is large enough. So the sum of
 * the gaps can exceed the largest one after drops; a start, which lays arrays out anew, joins them.
 * Thread: one at a time. The memory is the caller's. */
#ifndef EMBTIER_TIERS_ARRAY_ARRAY_SPACE_H
#define EMBTIER_TIERS_ARRAY_ARRAY_SPACE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct array_space;

struct array_space_stats {
    uint64_t bytes;
    uint64_t free_bytes;
    uint64_t largest_free_bytes; /* in one piece */
};

/* @base: on a slab boundary. */
MUST_CHECK enum embtier_err array_space_new(void *base, uint64_t slabs,
                                            struct array_space **ret_space);
void array_space_free(struct array_space *space);
DEFINE_CLEANUP(struct array_space, array_space_free)

/* @bytes: a whole number of slabs, at least one. TOO_LARGE: no gap is that large; NO_MEMORY: for
 * the list of pieces. */
MUST_CHECK enum embtier_err array_space_take(struct array_space *space, uint64_t bytes,
                                             void **ret_piece);
/* True if @piece comes from this space. */
bool array_space_has(const struct array_space *space, const void *piece);
void array_space_give(struct array_space *space, void *piece);
void array_space_stats(const struct array_space *space, struct array_space_stats *ret_stats);

#endif
