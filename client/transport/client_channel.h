/* SPDX-License-Identifier: Apache-2.0 */
/* client_channel.h: the client's half of a session's channel, the same for every transport.
 *
 * A channel has a region of the client's memory for segments, ids, rows and gradients, and a ring
 * of completions (proto/ops.h). A transport decides how requests and answers travel between it and
 * the server's half (daemon/engine/sessions/channel.h). Offsets into the region mean the same in
 * both.
 *
 * Request n uses completion n % slot_count, which has the sequence n + 1 once the request is done.
 * All that the server wrote for it is then in the region.
 *
 * Thread: the connection's. */
#ifndef EMBTIER_CLIENT_TRANSPORT_CLIENT_CHANNEL_H
#define EMBTIER_CLIENT_TRANSPORT_CLIENT_CHANNEL_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/err.h"
#include "proto/narrow_ids.h"
#include "proto/ops.h"

/* Most spans of a list. */
#define CHANNEL_SPANS_MAX RPC_SPANS_MAX

struct client_channel;

struct client_channel_ops {
    /* Tells the server of request @number, the next one. Its segments, ids and rows are in the
     * region; the channel's lists of spans, if it has them, say where. An error ends the
     * connection. */
    enum embtier_err (*submit)(struct client_channel *channel, uint32_t number,
                               const struct op_submission *submission, struct err_msg *msg);
    /* Takes in answers that have come. Never waits. NULL: they appear by themselves. */
    void (*look)(struct client_channel *channel);
    /* Sleeps while the sequence of @completion is @seen, at most @timeout_ns. May return early. */
    void (*sleep)(struct client_channel *channel, const struct op_completion *completion,
                  uint32_t seen, uint64_t timeout_ns);
    /* Returns why the session has ended, with a text; OK: nothing that was taken in says so.
     * DISCONNECTED: the server has not said why. Never waits. */
    enum embtier_err (*ended)(const struct client_channel *channel, struct err_msg *msg);
    /* Make the server's bytes of a part of the region those of the client, or the other way, for
     * control messages that name places in it. @are_ids: they are 64-bit ids, at a multiple of 8.
     * NULL: both have the same memory. An error ends the connection. */
    enum embtier_err (*put)(struct client_channel *channel, uint64_t offset, uint64_t bytes,
                            bool are_ids, struct err_msg *msg);
    enum embtier_err (*get)(struct client_channel *channel, uint64_t offset, uint64_t bytes,
                            struct err_msg *msg);
    /* The region has another address now; NULL: the transport does not mind. */
    void (*moved)(struct client_channel *channel);
    /* Frees all but the region. */
    void (*free)(struct client_channel *channel);
};

/* Spans of the region, in the order of their offsets: offset and bytes of each, one pair after
 * another. */
struct span_list {
    size_t count; /* of numbers, two for each span */
    uint64_t numbers[2 * CHANNEL_SPANS_MAX];
    struct narrow_spans narrow; /* of those that are sent */
};

/* Most narrow spans of a list that begin beside other ones. */
#define CHANNEL_NARROW_BESIDE_MAX 32
/* Fewer ids save less than a span of their own costs. */
#define CHANNEL_NARROW_IDS_MIN 16

/* A transport embeds this in a struct of its own. */
struct client_channel {
    const struct client_channel_ops *ops;
    uint8_t *region;       /* a mapping of its own; NULL: another channel has taken it over */
    uint64_t region_bytes; /* as mapped */
    uint64_t payload;      /* the caller's bytes begin at this offset; not 0 */
    const struct op_completion *completions;
    uint32_t slot_count;
    /* The spans that the next request sends and wants, to be filled in before submit(). NULL: the
     * transport needs none, because both sides have the same memory. */
    struct span_list *sent, *wanted;
    bool takes_narrow_ids; /* the spans that it sends may be narrow */
};

/* Frees the channel, with its region. NULL is fine. */
void client_channel_free(struct client_channel *channel);
DEFINE_CLEANUP(struct client_channel, client_channel_free)

/* Moves the region of @channel to the address of that of @old, so that pointers into it stay valid.
 * Both have regions of the same size. @old has none afterwards. On failure both are as before. */
MUST_CHECK enum embtier_err client_channel_take_place(struct client_channel *channel,
                                                      struct client_channel *old,
                                                      struct err_msg *msg);

static inline const struct op_completion *
client_channel_completion(const struct client_channel *channel, uint32_t request)
{
    return &channel->completions[request % channel->slot_count];
}

/* The caller then sees all that the server wrote before this sequence. */
static inline uint32_t client_channel_sequence(const struct op_completion *completion)
{
    return atomic_load_explicit(&completion->sequence, memory_order_acquire);
}

#endif
