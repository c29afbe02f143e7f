/* SPDX-License-Identifier: Apache-2.0 */
/* connection.h: one client's socket: frames in, replies out, never waiting for either.
 *
 * Replies the client does not read are kept up to a limit; then the connection is broken. Thread:
 * the control thread. */
#ifndef EMBTIER_DAEMON_CONNECTION_H
#define EMBTIER_DAEMON_CONNECTION_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "proto/frame.h"

struct job;
struct session;
struct Embtier__Reply;

/* A client that has this much unread is not coming back. */
#define CONNECTION_UNSENT_MAX (UINT32_C(16) << 20)
/* A client must say hello within this time. */
#define CONNECTION_HELLO_NS (UINT64_C(10) * 1000 * 1000 * 1000)

struct connection {
    struct connection *next;
    struct connection **link; /* where `next` of the one before, or the list's head, points here */
    int fd;                   /* -1: closed, waiting for session and job to let go */
    uint64_t number;
    pid_t peer_pid;
    uid_t peer_uid;
    uint64_t since_ns;
    bool said_hello;
    bool wants_output; /* EPOLLOUT is asked for */
    struct session *session;
    bool session_detached;
    struct job *job; /* under way: no further request is read before it is answered */
    struct frame_reader reader;
    uint8_t *unsent;
    size_t unsent_at;
    size_t unsent_bytes;
    size_t unsent_capacity;
};

MUST_CHECK enum embtier_err connection_new(int fd, struct connection **ret_connection);
/* Closes the socket, if it still is open, and frees. */
void connection_free(struct connection *connection);

/* Reads what there is, once. DISCONNECTED at its end. */
MUST_CHECK enum embtier_err connection_receive(struct connection *connection, struct err_msg *msg);
/* Sends or keeps a reply; @fds (may be NULL) go along and need it to be the first thing to send. */
MUST_CHECK enum embtier_err connection_reply(struct connection *connection,
                                             const struct Embtier__Reply *reply, const int *fds,
                                             uint32_t fd_count, struct err_msg *msg);
/* Sends more of what is kept. */
MUST_CHECK enum embtier_err connection_flush(struct connection *connection, struct err_msg *msg);
static inline bool connection_has_unsent(const struct connection *connection)
{
    return connection->unsent_bytes > 0;
}

#endif
