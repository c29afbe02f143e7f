/* SPDX-License-Identifier: Apache-2.0 */
/* request_memory.h: the memory that requests under way live in, reserved and touched at start.
 *
 * One region for the daemon. When it is used up, sessions wait: their next request stays in their
 * own shared memory until an earlier one is done. When nothing is under way, the largest request
 * fits again, whatever was under way before. Thread: any. */
#ifndef EMBTIER_DAEMON_REQUEST_MEMORY_H
#define EMBTIER_DAEMON_REQUEST_MEMORY_H

#include <stdint.h>

#include "base/err.h"

struct request_memory;

MUST_CHECK enum embtier_err request_memory_new(uint64_t bytes, struct request_memory **ret_memory,
                                               struct err_msg *msg);
void request_memory_free(struct request_memory *memory);
DEFINE_CLEANUP(struct request_memory, request_memory_free)

/* NULL: used up for now. Aligned to a cache line. */
void *request_memory_take(struct request_memory *memory, uint64_t bytes);
void request_memory_give(struct request_memory *memory, void *block);

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
