/* SPDX-License-Identifier: Apache-2.0 */
/* array_space.h: shares out a tier's memory for arrays of whole tables in slabs (ARENA_SLAB_BYTES).
 *
 * Each array is one piece, taken from the smallest gap that is large enough. So after drops, the
 * sum of the gaps can exceed the largest gap; a start lays arrays out anew, which joins the gaps.
 * Thread: one at a time. The caller owns the memory. */
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

/* @base lies on a slab boundary. */
MUST_CHECK enum embtier_err array_space_new(void *base, uint64_t slabs,
                                            struct array_space **ret_space);
void array_space_free(struct array_space *space);
DEFINE_CLEANUP(struct array_space, array_space_free)

/* @bytes is a whole number of slabs, at least one. TOO_LARGE: no gap is that large. NO_MEMORY: no
 * room for the list of pieces. */
MUST_CHECK enum embtier_err array_space_take(struct array_space *space, uint64_t bytes,
                                             void **ret_piece);
/* True if @piece comes from this space. */
bool array_space_has(const struct array_space *space, const void *piece);
void array_space_give(struct array_space *space, void *piece);
void array_space_stats(const struct array_space *space, struct array_space_stats *ret_stats);

#endif
