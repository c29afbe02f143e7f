/* SPDX-License-Identifier: Apache-2.0 */
/* request_memory.h: the memory of the requests under way, reserved and touched at start.
 *
 * The daemon has one region. When it is used up, sessions wait: their next request stays in their
 * own region until an earlier one is done. When nothing is under way, the largest request fits
 * again, whatever was under way before.
 *
 * The memory is shared out fairly. One part is for small requests, one of each session at a time.
 * So there is room for these, however large and slow others' requests are. In the rest, a session
 * that holds some may have at most as much as is left for others. A session that finds no room
 * queues, and does not ask again: memory that is given back goes at once to the first in
 * line, which is told. The line is in the order of turns.h, by bytes. So a session that asks for
 * little passes those that have got much. A large request has its turn however many sessions ask
 * for less: once it is first, no session is given any memory before there is room for it.
 *
 * A push that waits for others of its group keeps its memory for as long as they take. So it takes
 * none of the part for small requests. Thread: any. */
#ifndef EMBTIER_DAEMON_ENGINE_MEMORY_REQUEST_MEMORY_H
#define EMBTIER_DAEMON_ENGINE_MEMORY_REQUEST_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "daemon/engine/turns/turns.h"

struct request_memory;

/* The part for small requests, and the part for all requests. */
enum { REQUEST_MEMORY_SMALL, REQUEST_MEMORY_MAIN, REQUEST_MEMORY_PARTS };

/* How long a block is kept, and on which terms it is asked for. */
enum request_memory_use {
    REQUEST_MEMORY_ENDS,  /* for a request that ends by itself */
    REQUEST_MEMORY_WAITS, /* until others have asked for something; takes none of the small part */
    REQUEST_MEMORY_LEADS, /* others wait for it, and its session holds the push that waited: the
                             same, and may exceed the session's share */
};

/* A session's blocks, and its place in the line while it has one. Initially zero, except `wake`.
 * The struct belongs to the memory until everything is given back and the session has left the
 * line. */
struct request_memory_share {
    uint64_t held_bytes[REQUEST_MEMORY_PARTS];
    struct turn_flow flows[REQUEST_MEMORY_PARTS];
    uint64_t wanted_bytes; /* that it queues for, or has been granted */
    enum request_memory_use wanted_use;
    void *granted; /* a block that is kept for its next request_memory_take() */
    bool is_told;  /* it was told of the grant, and has not heard that yet */
    /* Tells the session that it has been granted its memory, or has to ask again. Called under the
     * memory's lock, by the thread that gave memory back. NULL: no session is told. */
    void (*wake)(struct request_memory_share *share);
};

MUST_CHECK enum embtier_err request_memory_new(uint64_t bytes, struct request_memory **ret_memory,
                                               struct err_msg *msg);
void request_memory_free(struct request_memory *memory);
DEFINE_CLEANUP(struct request_memory, request_memory_free)

/* True if @bytes are kept for the session's next request_memory_take(). False if the session queues
 * and will be told. Also false if it has its share: then it must ask again when it has
 * given something back. It keeps an earlier place in line or grant that was for the same bytes and
 * use. */
MUST_CHECK bool request_memory_reserve(struct request_memory *memory,
                                       struct request_memory_share *share, uint64_t bytes,
                                       enum request_memory_use use);
/* The same, and takes the block, which is aligned to a cache line. NULL: not now. */
void *request_memory_take(struct request_memory *memory, struct request_memory_share *share,
                          uint64_t bytes, enum request_memory_use use);
/* Takes memory that no session queues for. NULL: there is none, and the session does not queue for
 * it. */
void *request_memory_take_spare(struct request_memory *memory, struct request_memory_share *share,
                                uint64_t bytes);
void request_memory_give(struct request_memory *memory, void *block);
/* Notes that the session has heard of its grant. */
void request_memory_heard(struct request_memory *memory, struct request_memory_share *share);
/* True if the session queues, and so will be told. */
bool request_memory_waits(struct request_memory *memory, const struct request_memory_share *share);
/* Leaves the line and gives back a granted block, since the session no longer asks. It is told
 * nothing afterwards, but may have been told before (`is_told`). */
void request_memory_leave(struct request_memory *memory, struct request_memory_share *share);

/* The largest request that can ever fit. More is TOO_LARGE, not a matter of waiting. */
uint64_t request_memory_largest(const struct request_memory *memory);
/* The largest request that counts as small. */
uint64_t request_memory_small(const struct request_memory *memory);

/* A place in the region as a 32-bit link, for chains. Places are multiples of 8. Link 0 is none. */
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
