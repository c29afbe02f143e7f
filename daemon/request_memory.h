/* SPDX-License-Identifier: Apache-2.0 */
/* request_memory.h: the memory that requests under way live in, reserved and touched at start.
 *
 * One region for the daemon. When it is used up, sessions wait: their next request stays in their
 * own shared memory until an earlier one is done. When nothing is under way, the largest request
 * fits again, whatever was under way before.
 *
 * It is shared out fairly. A part is for small requests, one of each session at a time: however
 * large and slow what others ask for, there is room for them. Of the rest, a session that holds
 * some gets as much as is left for others, at most. And one that found no room stands in line: once
 * the first has stood there for a moment, none is served that would then hold more than the first
 * does, if that left no room for it. So a large request gets its turn however many sessions ask for
 * less. Thread: any. */
#ifndef EMBTIER_DAEMON_REQUEST_MEMORY_H
#define EMBTIER_DAEMON_REQUEST_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/err.h"

struct request_memory;

/* What a session holds, and its place in the line while it has one. Zeroed at first; of the memory
 * then, until everything is given back and it has left. */
struct request_memory_share {
    uint64_t held_bytes;   /* of the part for all */
    uint64_t small_bytes;  /* of the part for small requests */
    uint64_t wanted_bytes; /* in line */
    struct request_memory_share *next;
    struct request_memory_share *previous;
    uint64_t since_ns;
    uint64_t tried_ns;
    bool in_line;
};

MUST_CHECK enum embtier_err request_memory_new(uint64_t bytes, const struct clock *clock,
                                               struct request_memory **ret_memory,
                                               struct err_msg *msg);
void request_memory_free(struct request_memory *memory);
DEFINE_CLEANUP(struct request_memory, request_memory_free)

/* NULL: used up for now, or it is another's turn, or the session has its share. It tries again
 * every millisecond or so, and when it has given something back: who stops trying loses its place
 * in the line. Aligned to a cache line. */
void *request_memory_take(struct request_memory *memory, struct request_memory_share *share,
                          uint64_t bytes);
void request_memory_give(struct request_memory *memory, void *block);
/* Leaves the line: the session asks for nothing any more. */
void request_memory_leave(struct request_memory *memory, struct request_memory_share *share);

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
