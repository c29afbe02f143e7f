/* SPDX-License-Identifier: Apache-2.0 */
/* rpc_stream_impl.h: private state of a stream. These share it: rpc_stream.c (life, frames that
 * go to the client), rpc_handshake.c (TLS, before the first frame), rpc_receive.c
 * (frames that come from it) and rpc_relay.c (the pair of sockets to the control thread). */
#ifndef EMBTIER_DAEMON_TRANSPORT_RPC_RPC_STREAM_IMPL_H
#define EMBTIER_DAEMON_TRANSPORT_RPC_RPC_STREAM_IMPL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "daemon/transport/rpc/io/io.h"
#include "daemon/transport/rpc/net/net.h"
#include "daemon/transport/rpc/rpc_channel.h"
#include "daemon/transport/rpc/rpc_output.h"
#include "daemon/transport/rpc/rpc_stream.h"
#include "proto/frame.h"

/* A stream's buffers, at first and mostly. They are small, because idle clients have them too. */
#define RPC_BUFFER_BYTES 2048
#define RPC_REPLY_BYTES  1024

/* The meaning of the next bytes from the client. */
enum rpc_step {
    RPC_STEP_HEAD,
    RPC_STEP_MESSAGE,
    RPC_STEP_CALL, /* a message that goes to the control thread */
    RPC_STEP_PAYLOAD,
    RPC_STEP_SKIP, /* the rest of a frame that is not understood */
};

/* The frame that is arriving. */
struct rpc_arrival {
    enum rpc_step step;
    struct rpc_head head;
    struct rpc_slot *slot;      /* SUBMIT; else NULL */
    uint64_t *spans;            /* where the payload goes, pairs of offset and bytes; or NULL */
    struct narrow_spans narrow; /* of these */
    size_t span_numbers;
    size_t span_at;
    uint64_t span_done;  /* bytes of the payload that have come for that one */
    uint64_t bytes_left; /* of the payload or call, or to be skipped */
};

struct rpc_stream {
    struct transport_peer peer;
    struct rpc_host *host;
    struct rpc_stream *next;
    struct rpc_stream **link;
    struct net net;
    struct io_file pair;
    struct rpc_stranger stranger;
    struct handshake *handshake; /* of TLS; NULL: it is over */
    struct rpc_channel *channel; /* NULL: no session yet */
    bool is_ending;              /* nothing more is taken from the client */
    bool is_pair_over;           /* the control thread has closed its end */
    bool is_lingering;           /* all is sent; it waits for the client to close */
    bool is_net_closed, is_pair_closed, is_forgotten;
    bool is_shaking;  /* a thread of the handshakes has net's TLS */
    bool is_given_up; /* it is closed when that thread is done */
    bool has_called;  /* its first call has gone to the control thread */
    bool has_reply;   /* which has answered */
    uint64_t began_ns;
    uint64_t ended_ns; /* when it began to end */
    char *names;       /* of the client's certificate; or NULL */

    /* From the client. */
    struct rpc_arrival arrival;
    uint8_t *in;
    size_t in_at, in_end, in_room;
    uint64_t direct_bytes; /* of the read under way: those that go to the payload */
    uint64_t reading_ns;   /* when that was begun */
    struct iovec in_buffers[IO_BUFFERS_MAX];

    /* A piece of a call on its way to the control thread. It lies in `in`, which stays as it is
     * meanwhile. In front of the first piece goes the call's length. */
    const uint8_t *call; /* NULL: none is on its way */
    size_t call_left, call_head_left;
    uint32_t call_head; /* little-endian */
    struct iovec call_buffers[2];

    /* A reply on its way from there. */
    uint8_t reply[RPC_REPLY_BYTES];
    size_t reply_at, reply_end;
    uint32_t reply_left; /* of the frame, not yet given to an output */
    bool is_reply_out;
    struct rpc_output reply_output;
    struct iovec reply_buffer;

    /* To the client. Others wait while a reply goes out in pieces. */
    struct rpc_outputs outputs, held;
    struct iovec out_buffers[IO_BUFFERS_MAX];
    struct rpc_output data_output; /* answers a READ */
    Embtier__RpcRead *read;        /* the READ; NULL: none is being answered */
    struct rpc_output refusal_output;
    uint8_t *refusal; /* its bytes; NULL: none is on its way */
};

/* The most that a stream has: itself, a message, and the spans of a payload and of a READ. */
#define RPC_STREAM_BYTES                                                                           \
    (sizeof(struct rpc_stream) + RPC_REQUEST_BYTES_MAX + 2 * 2 * RPC_SPANS_MAX * sizeof(uint64_t))

/* ---- rpc_stream.c ---- */

struct io *rpc_stream_io(const struct rpc_stream *stream);
/* Says where its client comes from, as pairs of a log line (peer_origin.h). */
const char *rpc_stream_origin(const struct rpc_stream *stream, struct peer_origin *buffer);
/* Adds an output behind the others. */
void rpc_stream_add(struct rpc_stream *stream, struct rpc_output *output);
/* Sends what there is, if nothing is being sent. */
void rpc_stream_send(struct rpc_stream *stream);
/* The client is let in: makes the pair of sockets, and sends the peer to the control thread. */
void rpc_stream_let_in(struct rpc_stream *stream);
/* Closes its sockets now. */
void rpc_stream_close(struct rpc_stream *stream);
/* Takes no more from the client, and closes once all is sent. */
void rpc_stream_end(struct rpc_stream *stream);
/* Goes on with that. */
void rpc_stream_go_on_ending(struct rpc_stream *stream);

/* ---- rpc_handshake.c ---- */

/* Begins the handshake of @tls, which is net's. Then the client is let in, or told why not. */
void rpc_handshake_begin(struct rpc_stream *stream, struct tls_stream *tls);
void rpc_handshake_free(struct rpc_stream *stream);

/* ---- rpc_receive.c ---- */

/* Takes frames apart, as far as they have come, and reads more. */
void rpc_receive(struct rpc_stream *stream);
void rpc_receive_free(struct rpc_stream *stream);
/* Tells the client of a mistake, and ends the stream. */
void rpc_receive_break_off(struct rpc_stream *stream, enum embtier_err err,
                           const struct err_msg *msg);
/* Throws away what comes, until the client closes. */
void rpc_receive_nothing(struct rpc_stream *stream);
/* Ends a stream whose client has stopped in the middle of a frame. */
void rpc_receive_tick(struct rpc_stream *stream, uint64_t now_ns);

/* ---- rpc_relay.c ---- */

/* Begins to read replies. */
void rpc_relay_replies(struct rpc_stream *stream);
/* A call of so many bytes comes. */
void rpc_relay_begin(struct rpc_stream *stream, uint32_t count);
/* Sends more of it to the control thread, and then goes on receiving. @bytes are borrowed until
 * stream->call is NULL again. */
void rpc_relay_call(struct rpc_stream *stream, const uint8_t *bytes, size_t count);
/* True while a reply is half sent. */
static inline bool rpc_relay_is_in_reply(const struct rpc_stream *stream)
{
    return stream->reply_left > 0;
}

#endif
