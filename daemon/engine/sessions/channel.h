/* SPDX-License-Identifier: Apache-2.0 */
/* channel.h: the channel that a transport gives a session. The engine takes and answers requests
 * through it alone.
 *
 * A channel is a region of bytes, a ring of submissions, a doorbell, and functions that complete a
 * request and hang up. The client may write region and ring at any time. A
 * transport fills the struct, and keeps everything that it points to until the session is gone.
 * transport/shm has the region in memory that it shares with the client. A transport over a network
 * has it in the daemon's own memory, with the same layout, so that operations and their checks are
 * one code.
 *
 * Submissions, segments, ids, rows and gradients lie in the region, where the client likes. Their
 * bytes are hostile: the engine copies a word once, then checks the copy. */
#ifndef EMBTIER_DAEMON_ENGINE_SESSIONS_CHANNEL_H
#define EMBTIER_DAEMON_ENGINE_SESSIONS_CHANNEL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "proto/ops.h"

struct channel;

/* Why a request was refused. */
struct refusal {
    enum embtier_err err;
    uint32_t segment; /* or UINT32_MAX */
    uint64_t value;
    uint64_t limit;
    uint32_t field; /* as in struct op_completion */
};

/* How a request ended. */
struct answer {
    struct refusal refusal; /* its err is OK: it was not refused */
    uint64_t hit_rows;
    uint64_t ticket; /* or 0 */
};

struct channel_ops {
    /* Completes request @number. All that was written to the region for it is visible to the client
     * before the completion is. Any lane may call this. Lanes may call it at the same time for one
     * session, each for another number. */
    void (*complete)(const struct channel *channel, uint32_t number, const struct answer *answer);
    /* The home lane calls this. True: the lane looks at `tail` by itself from now on. False: after
     * the next change of `tail` the doorbell rings; the lane then looks at `tail` once more. */
    void (*set_polled)(const struct channel *channel, bool is_polled);
    /* Ends the channel: there will be no more answers, for this reason, and all that wait for one
     * are woken. Any thread, once. */
    void (*hang_up)(const struct channel *channel, enum embtier_err why);
};

/* Constant while a session has it. The session has a copy. */
struct channel {
    uint8_t *region;
    uint64_t region_bytes;
    uint64_t payload;                        /* the client's bytes begin at this offset; not 0 */
    uint32_t slot_count;                     /* at most OP_SLOTS_MAX */
    const _Atomic uint32_t *tail;            /* requests submitted so far; written by the client */
    const struct op_submission *submissions; /* request n is at [n % slot_count] */
    int doorbell_fd; /* an eventfd, the transport's; the home lane waits for it */
    const struct channel_ops *ops;
    void *transport; /* the functions' own data */
};

/* Reads the tail. The caller then sees all that was written before that tail. */
static inline uint32_t channel_read_tail(const struct channel *channel)
{
    return atomic_load_explicit(channel->tail, memory_order_acquire);
}

static inline const struct op_submission *channel_submission(const struct channel *channel,
                                                             uint32_t number)
{
    return &channel->submissions[number % channel->slot_count];
}

/* True if the client may name @bytes at @offset, a multiple of @align. */
static inline bool channel_holds(const struct channel *channel, uint64_t offset, uint64_t bytes,
                                 uint64_t align)
{
    return offset % align == 0 && offset >= channel->payload && offset <= channel->region_bytes &&
           bytes <= channel->region_bytes - offset;
}

#endif
