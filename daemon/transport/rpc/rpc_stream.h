/* SPDX-License-Identifier: Apache-2.0 */
/* rpc_stream.h: one client's connection, and its end of the pair of sockets to the control thread.
 *
 * Frames that come (proto/rpc_frame.h) are taken apart. Calls go to the control thread; payloads
 * are received straight into the region of the session's channel, and then the request is
 * submitted. Replies, answers and rows go back. While a piece of a call, or an answer that the
 * client asked for outside a request, is on its way, no further frame is read. So one client keeps
 * little memory, whatever it sends: its slots, and one message of a request.
 *
 * A stream is a stranger's (rpc_strangers.h) until the control thread has accepted its client's
 * hello, and again when that thread has forgotten the client.
 *
 * With TLS, a stream is unknown to the control thread until its handshake is over.
 *
 * A stream ends when the client closes or breaks a rule, or when the control thread closes its end.
 * Then what is on its way to the client is still sent, for a while. The stream is freed when its
 * sockets are closed and the control thread has forgotten the client.
 *
 * Thread: the loop's, except where said. */
#ifndef EMBTIER_DAEMON_TRANSPORT_RPC_RPC_STREAM_H
#define EMBTIER_DAEMON_TRANSPORT_RPC_RPC_STREAM_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/engine/mail/mailbox.h"
#include "daemon/transport/rpc/rpc_strangers.h"

struct certificates;
struct handshakes;
struct io;
struct rpc_channel;
struct rpc_stream;

/* Answers that a client does not read are dropped after this time, with the client. */
#define RPC_UNREAD_NS (UINT64_C(30) * 1000 * 1000 * 1000)
/* A client that has begun a frame must send more of it within this time. */
#define RPC_STALLED_NS (UINT64_C(30) * 1000 * 1000 * 1000)
/* Most lines about clients that are logged between two ticks. */
#define RPC_WARNINGS_MAX 20
/* Room for bytes that are thrown away. */
#define RPC_TRASH_BYTES 4096

/* The part of a loop that its streams use. */
struct rpc_host {
    struct io *io;
    struct mailbox mailbox;
    struct rpc_stream *streams;
    struct rpc_channel *freed;         /* a list of channels whose regions are to be freed */
    _Atomic uint32_t *count;           /* of the streams of all hosts */
    uint32_t most;                     /* of these */
    struct rpc_strangers strangers;    /* those that are no session */
    uint32_t ended_strangers;          /* to make place, since the last tick */
    uint8_t trash[RPC_TRASH_BYTES];    /* what ending streams receive */
    uint32_t warnings;                 /* about clients, since the last tick */
    struct certificates *certificates; /* for TLS; NULL: none has it */
    struct handshakes *handshakes;
    bool is_deaf;                                       /* no client is let in any more */
    void (*send)(void *owner, struct message *message); /* to the control thread */
    void *owner;
};

/* A handshake of TLS that is not over after this time is given up. */
#define RPC_HANDSHAKE_NS (UINT64_C(10) * 1000 * 1000 * 1000)

/* A stream that is over waits so long for its client to close. */
#define RPC_LINGER_NS (UINT64_C(2) * 1000 * 1000 * 1000)

/* Takes over @fd, an accepted connection, and adds the stream to the host's. Its peer is sent to
 * the control thread, with TLS after the handshake. The connection is closed if the system has no
 * room, or there are as many as may be. */
void rpc_stream_new(struct rpc_host *host, int fd, bool is_tls);
/* True if one more connection may be accepted. If it needs the place of a stranger, that one is
 * ended. False: it must wait until others have got on. */
bool rpc_streams_make_place(struct rpc_host *host);
/* Every second: closes streams whose clients have read nothing, or sent nothing of a frame, for too
 * long. */
void rpc_streams_tick(struct rpc_host *host, uint64_t now_ns);
/* In each turn: gives a piece of a region back to the system. False: there is none left. */
bool rpc_streams_free_some(struct rpc_host *host);
/* Closes all sockets now, or those that the control thread is done with and whose clients have been
 * sent all that there is. */
void rpc_streams_close(struct rpc_host *host, bool at_once);
/* Lets no client in any more: ends those whose handshake is not over. */
void rpc_streams_shut_out(struct rpc_host *host);

#endif
