/* SPDX-License-Identifier: Apache-2.0 */
/* arena_alloc.h: hands out pieces of the arena that client and server share.
 *
 * First fit in order of address; free neighbours are merged. The list of pieces is in private
 * memory, so neither the server nor a wild pointer of the trainer can corrupt it. Batches are few
 * and live long, so a list is enough.
 *
 * Thread: the connection's. */
#ifndef EMBTIER_CLIENT_LIB_ARENA_ALLOC_H
#define EMBTIER_CLIENT_LIB_ARENA_ALLOC_H

#include <stdint.h>

#include "base/err.h"

struct arena_alloc;

/* One piece; its fields are read-only outside. */
struct arena_block {
    uint64_t offset; /* in the arena, a multiple of SHM_ALIGN */
    uint64_t bytes;  /* a multiple of SHM_ALIGN */
    struct arena_block *previous;
    struct arena_block *next;
    uint32_t is_free;
};

/* Makes an allocator of the bytes from @begin to @end of the arena; NO_MEMORY. */
MUST_CHECK enum embtier_err arena_alloc_new(uint64_t begin, uint64_t end,
                                            struct arena_alloc **ret_alloc);
void arena_alloc_free(struct arena_alloc *alloc); /* and all its blocks */

/* Takes a piece of @bytes, rounded up; 0 takes the smallest possible one. ARENA_FULL, NO_MEMORY. */
MUST_CHECK enum embtier_err arena_alloc_take(struct arena_alloc *alloc, uint64_t bytes,
                                             struct arena_block **ret_block);
/* Gives a piece back; cannot fail. NULL is allowed. */
void arena_alloc_give(struct arena_alloc *alloc, struct arena_block *block);

uint64_t arena_alloc_free_bytes(const struct arena_alloc *alloc);
uint64_t arena_alloc_largest_bytes(const struct arena_alloc *alloc); /* in one piece */

#endif
