/* SPDX-License-Identifier: Apache-2.0 */
/* rpc_channel.h: the channel (channel.h) of a session whose requests arrive over a stream.
 *
 * Its region is the daemon's own memory. The loop of the stream (rpc_stream.h) receives ids, rows
 * and gradients straight into it, and sends rows and bags straight from it. Offsets are those that
 * the client has in its own region, so operations and their checks know no difference.
 *
 * A request has a slot, from its first byte to the last byte of its answer:
 *
 *     FREE -> ARRIVING (its payload is being received) -> WAITING (its number is past the next one)
 *          -> SUBMITTED (the home lane may have it) -> ANSWERED (in the loop's mail, or being sent)
 *
 * A session may have several streams, each with a loop of its own (transport_peer). A slot belongs
 * to the stream that first used it: so its loop has sent the last answer when the next request
 * comes.
 *
 * Threads: the loop of its stream has a slot, except those that are SUBMITTED, which the engine
 * has. The lock guards the states of slots, and the order of requests. The engine uses the
 * channel's functions. The control thread and the session maker make and free it. Each stream and
 * the owner hold the channel, and the region in addition, which takes long to free. The last one
 * frees it, a loop a piece in each turn. */
#ifndef EMBTIER_DAEMON_TRANSPORT_RPC_RPC_CHANNEL_H
#define EMBTIER_DAEMON_TRANSPORT_RPC_RPC_CHANNEL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "base/err.h"
#include "daemon/engine/mail/inbox.h"
#include "daemon/transport/rpc/rpc_output.h"
#include "daemon/transport/transport.h"
#include "proto/rpc_frame.h"

extern const struct transport rpc_transport;
/* Mail for the loop, which the stream deals with. */
extern const struct message_kind message_rpc_answered;

enum rpc_slot_state { RPC_FREE, RPC_ARRIVING, RPC_WAITING, RPC_SUBMITTED, RPC_ANSWERED };

struct rpc_slot {
    struct message answered; /* to the loop */
    struct rpc_channel *channel;
    struct transport_peer *peer; /* of the slot's stream; NULL: it was never used */
    enum rpc_slot_state state;
    uint32_t number;
    uint64_t *wanted; /* spans that the answer brings, pairs of offset and bytes; or NULL */
    size_t wanted_numbers;
    struct answer answer;     /* once it is ANSWERED */
    struct rpc_output output; /* the answer on its way */
};

struct rpc_channel {
    struct transport_channel base;
    struct transport_peer *peer; /* its first stream's, which lives as long as the session */
    _Atomic uint32_t holders, region_holders;
    bool is_released; /* by the owner */
    uint8_t *region;
    uint64_t region_bytes, reserved_bytes, freed_bytes;
    struct rpc_channel *next_freed; /* in the loop's list of regions to be freed */
    uint32_t slot_count;
    int doorbell_fd; /* an event descriptor, watched edge-triggered and never read */
    struct op_submission *submissions;
    struct rpc_slot *slots;
    pthread_mutex_t lock;
    uint32_t submitted; /* as `tail` */
    _Alignas(CACHE_LINE) _Atomic uint32_t tail;
    _Atomic uint32_t is_unpolled; /* the lane does not look at `tail`: ring */
};

/* Each gives up one hold. True: no other holds the region, which the caller must free. */
MUST_CHECK bool rpc_channel_leave_region(struct rpc_channel *channel);
void rpc_channel_put(struct rpc_channel *channel);
/* Gives at most @bytes of the region back to the system. True: that was the rest. */
MUST_CHECK bool rpc_channel_free_region(struct rpc_channel *channel, uint64_t bytes);

/* Returns the slot for a request that arrives on the stream of @peer, now ARRIVING, with all of
 * @submit but its payload. The loop calls it. PROTOCOL: the number is not among those that may be
 * under way, its slot belongs to another stream, or a span lies outside the region. NO_MEMORY. */
MUST_CHECK enum embtier_err rpc_channel_begin(struct rpc_channel *channel,
                                              struct transport_peer *peer, uint32_t number,
                                              const Embtier__RpcSubmit *submit,
                                              struct rpc_slot **ret_slot, struct err_msg *msg);
/* All of the request has arrived. */
void rpc_channel_submit(struct rpc_channel *channel, struct rpc_slot *slot);
/* The answer is here. */
void rpc_channel_answered(struct rpc_slot *slot);
/* The last byte of the answer has been given to the system. */
void rpc_channel_end(struct rpc_slot *slot);
/* PROTOCOL unless all spans lie in the client's part of the region. */
MUST_CHECK enum embtier_err rpc_channel_check_spans(const struct rpc_channel *channel,
                                                    const uint64_t *spans, size_t count,
                                                    struct err_msg *msg);

#endif
