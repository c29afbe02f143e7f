/* SPDX-License-Identifier: Apache-2.0 */
/* request_memory.h: the memory that requests under way live in, reserved and touched at start.
 *
 * One region for the daemon. When it is used up, sessions wait: their next request stays in their
 * own shared memory until an earlier one is done. When nothing is under way, the largest request
 * fits again, whatever was under way before. Thread: any.
 *
 * Nobody waits for ever. Small requests could take each block that comes free before a large one
 * fits, so of all who were refused the one that has got nothing for longest is first in line. The
 * others may still take as much as the whole region, so that memory does not lie idle for the sake
 * of one who would have found room anyway; then they are refused until the first has been served:
 * what is under way ends, and the memory runs together until it fits. Then the next who is refused
 * is first, or gives way to one who has waited longer.
 *
 * Whoever is first has to ask again, or say that he no longer does (request_memory_leave()): until
 * then he may keep the others waiting. */
#ifndef EMBTIER_DAEMON_REQUEST_MEMORY_H
#define EMBTIER_DAEMON_REQUEST_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct request_memory;

MUST_CHECK enum embtier_err request_memory_new(uint64_t bytes, struct request_memory **ret_memory,
                                               struct err_msg *msg);
void request_memory_free(struct request_memory *memory);
DEFINE_CLEANUP(struct request_memory, request_memory_free)

/* NULL: used up for now, or others are to be served before. Aligned to a cache line. @who is not
 * looked into, and has got nothing since @since_ns, which stays the same until he has. */
void *request_memory_take(struct request_memory *memory, uint64_t bytes, const void *who,
                          uint64_t since_ns);
void request_memory_give(struct request_memory *memory, void *block);

/* True: @who would be refused now, whatever he asked for, and nothing else would change. Without
 * the lock; while nobody waits, one load. */
bool request_memory_must_wait(const struct request_memory *memory, const void *who,
                              uint64_t since_ns);
/* @who wants nothing any more, or not now. To be called by the thread that asked for him; unless he
 * is the first, one load. */
void request_memory_leave(struct request_memory *memory, const void *who);

/* The largest request that may ever fit; more is TOO_LARGE, not a matter of waiting. */
uint64_t request_memory_largest(const struct request_memory *memory);

/* A place in the region as 32 bits, for chains; places are multiples of 8. 0 is none. */
static inline uint32_t request_memory_link(const uint8_t *base, const void *place)
{
    return (uint32_t)(((uint64_t)((const uint8_t *)place - base) >> 3) + 1);
}
static inline void *request_memory_place(uint8_t *base, uint32_t link)
{
    return base + ((uint64_t)(link - 1) << 3);
}
uint8_t *request_memory_base(const struct request_memory *memory);

#endif
