/* SPDX-License-Identifier: Apache-2.0 */
/* rpc_loop.h: the threads that serve clients over streams, each many of them.
 *
 * A loop accepts, receives and sends, and waits for all of its clients together (io/io.h). It never
 * waits for a lane, the control thread or a disk. A client's control messages go through a pair of
 * sockets to the control thread, which sees a client of a Unix socket; its requests go into its
 * channel (rpc_channel.h).
 *
 * Thread: the owner makes and frees; any thread sends. */
#ifndef EMBTIER_DAEMON_TRANSPORT_RPC_RPC_LOOP_H
#define EMBTIER_DAEMON_TRANSPORT_RPC_RPC_LOOP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "daemon/engine/mail/inbox.h"
#include "daemon/transport/rpc/io/io.h"

struct certificates;
struct handshakes;
struct rpc_loop;
struct strangers;

/* Most addresses that a loop listens on. */
#define RPC_LISTENERS_MAX 8

struct rpc_loop_opts {
    uint32_t index;                 /* for the thread's name and the log */
    const struct io_engine *engine; /* NULL: io_uring, or epoll where that is refused */
    _Atomic uint32_t *count;        /* of the streams of all loops */
    uint32_t streams_most;          /* of these; further clients wait to be accepted */
    uint32_t loop_count;
    struct strangers *strangers; /* of all loops (rpc_strangers.h) */
    uint32_t strangers_most;
    struct rpc_listening {
        int fd; /* a listening socket, which the loop takes over */
        bool is_tls;
    } listeners[RPC_LISTENERS_MAX];
    uint32_t listener_count;
    struct certificates *certificates; /* NULL: no listener has TLS */
    struct handshakes *handshakes;     /* likewise */
    /* Hands a new client to the control thread. Any thread. */
    void (*send)(void *owner, struct message *message);
    void *owner;
};

/* Starts the thread, which accepts clients from now on. */
MUST_CHECK enum embtier_err rpc_loop_new(const struct rpc_loop_opts *opts,
                                         struct rpc_loop **ret_loop, struct err_msg *msg);
/* Returns the engine that it runs on. */
const struct io_engine *rpc_loop_engine(const struct rpc_loop *loop);
/* Accepts no more, and sends no more clients to the control thread. Waits until that is so. Call it
 * once. */
void rpc_loop_stop_listening(struct rpc_loop *loop);
/* Closes all streams, and ends the thread. No connection of the control thread has one any more.
 * Threads of handshakes may still hold the loop's mailbox. */
void rpc_loop_end(struct rpc_loop *loop);
/* It has ended. */
void rpc_loop_free(struct rpc_loop *loop);

#endif
