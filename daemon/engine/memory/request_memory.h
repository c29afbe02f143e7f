/* SPDX-License-Identifier: Apache-2.0 */
/* request_memory.h: the memory that requests under way live in, reserved and touched at start.
 *
 * One region for the daemon. When it is used up, sessions wait: their next request stays in their
 * own region until an earlier one is done. When nothing is under way, the largest request
 * fits again, whatever was under way before.
 *
 * It is shared out fairly. A part is for small requests, one of each session at a time: however
 * large and slow others' requests are, there is room for them. Of the rest, a session that holds
 * some gets as much as is left for others, at most. A session that finds no room stands in line,
 * and does not ask again: memory that is given back goes to the first in line at once, which is
 * told. The line is in the order of turns.h, by bytes. So a session that asks for little passes
 * those that have got much. A large request has its turn however many sessions ask for less: then
 * no session is given any before there is room for it.
 *
 * A push that waits for others of its group stays for as long as they please: so it takes none of
 * the part for small requests. Thread: any. */
#ifndef EMBTIER_DAEMON_ENGINE_MEMORY_REQUEST_MEMORY_H
#define EMBTIER_DAEMON_ENGINE_MEMORY_REQUEST_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "daemon/engine/turns/turns.h"

struct request_memory;

/* The part for small requests, and the one for all. */
enum { REQUEST_MEMORY_SMALL, REQUEST_MEMORY_MAIN, REQUEST_MEMORY_PARTS };

/* How long a block is kept, and by what right it is asked for. */
enum request_memory_use {
    REQUEST_MEMORY_ENDS,  /* by a request that ends by itself */
    REQUEST_MEMORY_WAITS, /* until others have asked for something: none of the small part */
    REQUEST_MEMORY_LEADS, /* others wait for it, and its session holds what waited: the same, and
                             past the session's share */
};

/* What a session holds, and its place in the line while it has one. Zeroed at first, but for
 * `wake`; of the memory then, until everything is given back and it has left. */
struct request_memory_share {
    uint64_t held_bytes[REQUEST_MEMORY_PARTS];
    struct turn_flow flows[REQUEST_MEMORY_PARTS];
    uint64_t wanted_bytes; /* in line, or granted */
    enum request_memory_use wanted_use;
    void *granted; /* a block that is kept for it */
    bool is_told;  /* of that, and has not heard it yet */
    /* It has been granted what it stood in line for, or has to ask again. Called by the thread that
     * gave memory back, under the memory's lock. NULL: nobody is to be told. */
    void (*wake)(struct request_memory_share *share);
};

MUST_CHECK enum embtier_err request_memory_new(uint64_t bytes, struct request_memory **ret_memory,
                                               struct err_msg *msg);
void request_memory_free(struct request_memory *memory);
DEFINE_CLEANUP(struct request_memory, request_memory_free)

/* Whether @bytes are there for the session: then they are kept for its next request_memory_take().
 * False: it stands in line and will be told; or it has its share, and is to ask again when it has
 * given something back. What it stood in line for before, or was granted, it keeps if that is as
 * much. */
MUST_CHECK bool request_memory_reserve(struct request_memory *memory,
                                       struct request_memory_share *share, uint64_t bytes,
                                       enum request_memory_use use);
/* The same, and takes it. NULL: not now. Aligned to a cache line. */
void *request_memory_take(struct request_memory *memory, struct request_memory_share *share,
                          uint64_t bytes, enum request_memory_use use);
/* Takes what nobody stands in line for. NULL: nothing, and it does not stand in line for it. */
void *request_memory_take_spare(struct request_memory *memory, struct request_memory_share *share,
                                uint64_t bytes);
void request_memory_give(struct request_memory *memory, void *block);
/* It has heard what it was told. */
void request_memory_heard(struct request_memory *memory, struct request_memory_share *share);
/* Whether it stands in line, and so will be told. */
bool request_memory_waits(struct request_memory *memory, const struct request_memory_share *share);
/* Leaves the line, and gives back what it was granted: the session asks for nothing any more. It
 * is told of nothing afterwards, but may have been before (`is_told`). */
void request_memory_leave(struct request_memory *memory, struct request_memory_share *share);

/* The largest request that may ever fit; more is TOO_LARGE, not a matter of waiting. */
uint64_t request_memory_largest(const struct request_memory *memory);
/* The largest that is a small one. */
uint64_t request_memory_small(const struct request_memory *memory);

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
