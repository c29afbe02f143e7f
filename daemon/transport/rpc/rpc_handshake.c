/* SPDX-License-Identifier: Apache-2.0 */
/* The handshake of TLS. A thread of the handshakes does it; the loop sends what that leaves, and
 * waits for the client's bytes. They take turns, so only one has the connection. */
#include <assert.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/log/log.h"
#include "base/tls/tls_stream.h"
#include "daemon/transport/rpc/net/handshakes.h"
#include "daemon/transport/rpc/rpc_stream_impl.h"

struct rpc_handshake {
    struct handshake work;
    struct rpc_stream *stream;
};

static void hand_over(struct rpc_stream *stream)
{
    assert(!stream->is_shaking);
    stream->is_shaking = true;
    handshakes_add(stream->host->handshakes, stream->handshake);
}

/* True if a client begins as if there were no TLS here. */
static bool is_plain_client(const struct rpc_stream *stream)
{
    uint8_t bytes[RPC_HEAD_BYTES];
    struct rpc_head head;
    struct err_msg msg;

    return recv(stream->net.file.fd, bytes, sizeof(bytes), MSG_PEEK | MSG_DONTWAIT) ==
               sizeof(bytes) &&
           rpc_head_decode(bytes, RPC_MESSAGE_BYTES_MAX, &head, &msg) == EMBTIER_OK;
}

/* It would not understand an alert. */
static void refuse_plain_client(struct rpc_stream *stream)
{
    struct err_msg msg = { { 0 } };

    tls_stream_free(TAKE(stream->net.tls));
    rpc_handshake_free(stream);
    (void)err_set(&msg, EMBTIER_PROTOCOL,
                  "this port has TLS: connect to tls://HOST:PORT instead of tcp://");
    rpc_receive_break_off(stream, EMBTIER_PROTOCOL, &msg);
}

static void on_readable(struct io_file *file, int result)
{
    struct rpc_stream *const stream = CONTAINER_OF(file, struct rpc_stream, net.file);

    if (result < 0)
        rpc_stream_close(stream);
    else if (is_plain_client(stream))
        refuse_plain_client(stream);
    else
        hand_over(stream);
}

/* The thread's messages have been sent, so that it finds nothing under way when it goes on. */
static void on_flushed(struct net *net)
{
    struct rpc_stream *const stream = CONTAINER_OF(net, struct rpc_stream, net);

    if (net_is_closing(net))
        return;
    if (net->is_broken) {
        rpc_stream_close(stream);
    } else if (stream->handshake->err == EMBTIER_AGAIN) {
        io_await(net->io, &net->file, on_readable);
    } else { /* the client has been told why */
        net->is_broken = true;
        rpc_stream_end(stream);
    }
}

static void let_in(struct rpc_stream *stream)
{
    if (stream->handshake->has_bad_names && stream->host->warnings++ < RPC_WARNINGS_MAX)
        log_warn("a client's certificate makes it no user", "%s why=%s",
                 rpc_stream_origin(stream, &(struct peer_origin){ { 0 } }),
                 LOG_QUOTED(stream->handshake->msg.text));
    stream->names = TAKE(stream->handshake->names);
    rpc_handshake_free(stream);
    rpc_stream_let_in(stream);
}

static void log_failure(const struct rpc_stream *stream)
{
    if (stream->handshake->err == EMBTIER_DISCONNECTED)
        return;
    if (stream->host->warnings++ < RPC_WARNINGS_MAX)
        log_warn("a handshake of TLS failed", "%s why=%s",
                 rpc_stream_origin(stream, &(struct peer_origin){ { 0 } }),
                 LOG_QUOTED(stream->handshake->msg.text));
}

static void refuse(struct rpc_stream *stream)
{
    log_failure(stream);
    net_tls_flush(&stream->net, on_flushed);
}

static void go_on(struct rpc_host *host, struct rpc_stream *stream)
{
    assert(stream->host == host && stream->is_shaking);
    stream->is_shaking = false;
    if (stream->is_given_up || host->is_deaf)
        rpc_stream_close(stream);
    else if (stream->handshake->err == EMBTIER_OK)
        let_in(stream);
    else if (stream->handshake->err == EMBTIER_AGAIN)
        net_tls_flush(&stream->net, on_flushed);
    else
        refuse(stream);
}

static void shaken(struct rpc_host *host, struct rpc_handshake *handshake)
{
    go_on(host, handshake->stream);
}

MESSAGE_HANDLER(take_shaken, shaken, rpc_host, struct rpc_handshake, work.message)
static const struct message_kind message_shaken = { .take = take_shaken };

/* No thread is busy before the client has sent something. */
void rpc_handshake_begin(struct rpc_stream *stream, struct tls_stream *tls)
{
    struct rpc_handshake *const handshake = calloc(1, sizeof(*handshake));

    if (!handshake) {
        rpc_stream_close(stream);
        return;
    }
    handshake->stream = stream;
    handshake->work.tls = tls;
    handshake->work.mailbox = &stream->host->mailbox;
    handshake->work.message.kind = &message_shaken;
    stream->handshake = &handshake->work;
    io_await(rpc_stream_io(stream), &stream->net.file, on_readable);
}

void rpc_handshake_free(struct rpc_stream *stream)
{
    if (!stream->handshake)
        return;
    assert(!stream->is_shaking);
    free(stream->handshake->names);
    free(CONTAINER_OF(TAKE(stream->handshake), struct rpc_handshake, work));
}
