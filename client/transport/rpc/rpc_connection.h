/* SPDX-License-Identifier: Apache-2.0 */
/* rpc_connection.h: a connection that carries both control messages and requests
 * (proto/rpc_frame.h).
 *
 * Whoever waits for something receives all that comes: replies are kept for the control socket, and
 * answers go into the channel. Sending never waits: bytes that the system does not take go out when
 * the connection is looked at again.
 *
 * Thread: the connection's. */
#ifndef EMBTIER_CLIENT_TRANSPORT_RPC_RPC_CONNECTION_H
#define EMBTIER_CLIENT_TRANSPORT_RPC_RPC_CONNECTION_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/err.h"
#include "base/net/address.h"
#include "client/transport/client_channel.h"
#include "client/transport/rpc/tls_contexts.h"
#include "proto/control.pb-c.h"
#include "proto/frame.h"
#include "proto/rpc_frame.h"

struct rpc_connection;

/* Connects before @deadline_ns (of the monotonic clock; UINT64_MAX: no limit). @beside: to the host
 * that this one has found behind the address's name; NULL: to any. @contexts: of the session, for
 * TLS; others may have NULL. UNREACHABLE, TIMEOUT, or the system's error. */
MUST_CHECK enum embtier_err rpc_connection_new(const struct address *address, const char *text,
                                               const struct rpc_connection *beside,
                                               struct tls_contexts *contexts, uint64_t deadline_ns,
                                               struct rpc_connection **ret_connection,
                                               struct err_msg *msg);
/* Its channel stays, and gets no more answers. */
void rpc_connection_free(struct rpc_connection *connection);

/* True: nothing more can be sent or received. */
bool rpc_connection_is_over(const struct rpc_connection *connection);
/* For poll(): the descriptor, and the events after which rpc_connection_receive() gets on. */
int rpc_connection_fd(const struct rpc_connection *connection);
short rpc_connection_events(const struct rpc_connection *connection);
/* The replies that came, with a length in front of each. */
struct frame_reader *rpc_connection_replies(struct rpc_connection *connection);
/* Sends what has waited, and receives what has come. AGAIN: nothing has. DISCONNECTED, PROTOCOL:
 * the connection is over. Never waits. */
MUST_CHECK enum embtier_err rpc_connection_receive(struct rpc_connection *connection,
                                                   struct err_msg *msg);
/* Waits at most @wait_ms (-1: no limit) until rpc_connection_receive() gets on, after it found
 * nothing. Meanwhile serves the other connections of the session, so that the server never waits
 * for this client there. May return early. Returns as poll() does. */
int rpc_connection_wait(struct rpc_connection *connection, int wait_ms);
/* Why the connection is over, if it is. */
MUST_CHECK enum embtier_err rpc_connection_ended(const struct rpc_connection *connection,
                                                 struct err_msg *msg);
/* Sends a control request. NO_MEMORY, or as above. */
MUST_CHECK enum embtier_err rpc_connection_call(struct rpc_connection *connection,
                                                const uint8_t *bytes, size_t count,
                                                struct err_msg *msg);

/* Makes the channel that @hello describes, with a region of at most @region_bytes_max. It waits for
 * bytes that it gets (get()) for at most @timeout_ns; UINT64_MAX: no limit. PROTOCOL, NO_MEMORY. */
MUST_CHECK enum embtier_err rpc_channel_open(struct rpc_connection *connection,
                                             const Embtier__HelloReply *hello,
                                             uint64_t region_bytes_max, uint64_t timeout_ns,
                                             struct client_channel **ret_channel,
                                             struct err_msg *msg);

/* Gives the channel a further connection of its session, which the channel frees. Request n goes
 * over connection (n % slots) % connections. */
void rpc_channel_add(struct client_channel *channel, struct rpc_connection *connection);

/* ---- Between rpc_connection.c and rpc_channel.c ---- */

/* Where payloads of answers go. The channel has one for each connection. */
struct rpc_sink {
    /* Returns the spans that an answer brings, which must have @payload_bytes. PROTOCOL. */
    enum embtier_err (*begin)(struct rpc_sink *sink, const struct rpc_head *head,
                              const uint8_t *message, const uint64_t **ret_spans,
                              size_t *ret_numbers, struct err_msg *msg);
    /* All of it has come. */
    void (*end)(struct rpc_sink *sink);
    /* Waits for the connection: see rpc_connection_wait(). */
    int (*wait)(struct rpc_sink *sink, int wait_ms);
    /* The connection is freed. */
    void (*lose)(struct rpc_sink *sink);
    uint8_t *region;
};

void rpc_connection_set_sink(struct rpc_connection *connection, struct rpc_sink *sink);
/* Sends a frame: a head and the message in @bytes, which has room for the head in front, and then
 * spans of the region, whose bytes must stay until the server has answered. @sent: NULL if there
 * are none. */
MUST_CHECK enum embtier_err rpc_connection_send(struct rpc_connection *connection,
                                                const struct rpc_head *head, uint8_t *bytes,
                                                const struct span_list *sent, struct err_msg *msg);

#endif
