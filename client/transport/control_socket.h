/* SPDX-License-Identifier: Apache-2.0 */
/* control_socket.h: the way to the daemon for control messages, and calls over it: a Unix socket,
 * or a connection that carries requests too (rpc/rpc_connection.h).
 *
 * The server answers requests in order, so a call sends, then reads replies until its last one. It
 * skips replies to calls given up earlier, by their id. The socket never blocks and never raises
 * SIGPIPE; every wait is a poll with a deadline.
 *
 * Thread: the connection's. */
#ifndef EMBTIER_CLIENT_TRANSPORT_CONTROL_SOCKET_H
#define EMBTIER_CLIENT_TRANSPORT_CONTROL_SOCKET_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "client/include/embtier_common.h"
#include "client/transport/rpc/rpc_connection.h"
#include "proto/control.pb-c.h"
#include "proto/frame.h"

#define CONTROL_FDS_MAX 3

struct control_socket {
    int fd;                     /* of the Unix socket; or -1 */
    struct rpc_connection *rpc; /* or NULL */
    bool over;                  /* nothing more can be sent or received */
    bool was_told_why;          /* it is over, and the server has said why */
    uint32_t timeout_ms;        /* 0: wait for ever */
    uint32_t told_ms;           /* messages name this limit: calls may share it */
    uint32_t last_call_id;
    struct frame_reader reader;
    int fds[CONTROL_FDS_MAX]; /* received with a reply; -1: none */
    uint32_t fd_count;
};

/* Makes a socket that is not connected; control_socket_close() is safe on it. Messages name
 * @timeout_ms too. */
void control_socket_init(struct control_socket *sock, uint32_t timeout_ms);
void control_socket_close(struct control_socket *sock);

/* Connects to an address, which the caller wrote as @text. @beside, @contexts: see
 * rpc_connection_new(); for streams alone. UNREACHABLE: no server listens. PERMISSION, TIMEOUT. */
MUST_CHECK enum embtier_err control_socket_connect(struct control_socket *sock,
                                                   const struct address *address, const char *text,
                                                   const struct rpc_connection *beside,
                                                   struct tls_contexts *contexts,
                                                   struct err_msg *msg);

/* PERMISSION: the listener is neither this user nor root. */
MUST_CHECK enum embtier_err control_socket_check_peer(const struct control_socket *sock,
                                                      const char *path, struct err_msg *msg);

/* Sends @request (its id is set here) and returns the last reply, freed with
 * embtier__reply__free_unpacked(). A reply that is an Error becomes the error and the message. The
 * timeout counts from the server's last sign of life; after TIMEOUT other calls can be made. If the
 * error has ended the session, @sock->over is true. */
MUST_CHECK enum embtier_err control_socket_call(struct control_socket *sock,
                                                Embtier__Request *request,
                                                embtier_progress_fn *progress,
                                                void *progress_context, Embtier__Reply **ret_reply,
                                                struct err_msg *msg);

/* Checks whether the other side is still there. OK, or DISCONNECTED with its last message, if any.
 * Never waits. */
MUST_CHECK enum embtier_err control_socket_check(struct control_socket *sock, struct err_msg *msg);

void reply_free(Embtier__Reply *reply);
DEFINE_CLEANUP(Embtier__Reply, reply_free)

#endif
