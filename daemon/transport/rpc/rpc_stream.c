/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/transport/rpc/rpc_stream.h"

#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log/log.h"
#include "base/net/dead_link.h"
#include "base/net/loopback.h"
#include "base/tls/tls_context.h"
#include "base/tls/tls_stream.h"
#include "daemon/engine/memory/engine_reserved.h"
#include "daemon/engine/sessions/session.h"
#include "daemon/transport/listen/peer_ids.h"
#include "daemon/transport/rpc/net/certificates.h"
#include "daemon/transport/rpc/rpc_stream_impl.h"

/* The system takes no more bytes than that for a client that does not read. */
#define UNSENT_BYTES (512 << 10)
/* Bytes of regions that are given back to the system in a turn. */
#define FREED_BYTES (UINT64_C(2) << 20)

_Static_assert(sizeof(struct session) + CONFIG_LANES_MAX * sizeof(struct session_lane) +
                       sizeof(struct rpc_channel) + RPC_STREAM_BYTES +
                       OP_SLOTS_DEFAULT * sizeof(struct request_time) <=
                   SESSION_BYTES + SESSION_RPC_BYTES,
               "the configuration counts it");
/* Before a session, no message and no spans are kept. */
_Static_assert(sizeof(struct rpc_stream) + RPC_BUFFER_BYTES <= STRANGER_BYTES / 2,
               "the configuration counts it");

const char *rpc_stream_origin(const struct rpc_stream *stream, struct peer_origin *buffer)
{
    const struct transport_peer *const peer = &stream->peer;

    return peer_origin_write(buffer, peer->address.text, peer->pid, peer->uid);
}

struct io *rpc_stream_io(const struct rpc_stream *stream)
{
    return stream->host->io;
}

/* ---- The host's list ---- */

static void link_stream(struct rpc_host *host, struct rpc_stream *stream)
{
    stream->next = host->streams;
    if (stream->next)
        stream->next->link = &stream->next;
    stream->link = &host->streams;
    host->streams = stream;
}

static void unlink_stream(struct rpc_host *host, struct rpc_stream *stream)
{
    *stream->link = stream->next;
    if (stream->next)
        stream->next->link = stream->link;
    atomic_fetch_sub(host->count, 1);
}

/* ---- The end ---- */

/* Frees the stream once nothing refers to it. */
static void free_if_over(struct rpc_stream *stream)
{
    if (!stream->is_net_closed || !stream->is_pair_closed || !stream->is_forgotten)
        return;
    if (stream->channel)
        rpc_channel_put(stream->channel);
    rpc_receive_free(stream);
    rpc_handshake_free(stream);
    unlink_stream(stream->host, stream);
    free(stream->names);
    free(stream->peer.gids);
    free(stream);
}

static void on_pair_closed(struct io_file *file)
{
    struct rpc_stream *const stream = CONTAINER_OF(file, struct rpc_stream, pair);

    stream->is_pair_closed = true;
    free_if_over(stream);
}

/* The system takes a millisecond for some MiB. */
static void leave_region(struct rpc_host *host, struct rpc_channel *channel)
{
    if (!rpc_channel_leave_region(channel))
        return;
    atomic_fetch_add(&channel->holders, 1);
    channel->next_freed = host->freed;
    host->freed = channel;
}

bool rpc_streams_free_some(struct rpc_host *host)
{
    struct rpc_channel *const channel = host->freed;

    if (channel && rpc_channel_free_region(channel, FREED_BYTES)) {
        host->freed = channel->next_freed;
        rpc_channel_put(channel);
    }
    return host->freed != NULL;
}

static void on_net_closed(struct net *net)
{
    struct rpc_stream *const stream = CONTAINER_OF(net, struct rpc_stream, net);

    stream->is_net_closed = true;
    rpc_outputs_drop(&stream->outputs);
    rpc_outputs_drop(&stream->held);
    if (stream->channel)
        leave_region(stream->host, stream->channel);
    if (!stream->is_pair_closed)
        io_close(rpc_stream_io(stream), &stream->pair, on_pair_closed);
    free_if_over(stream);
}

/* The pair is closed behind the connection, so that the control thread, once it sees that, knows
 * that no byte of the region is used any more. */
void rpc_stream_close(struct rpc_stream *stream)
{
    rpc_strangers_remove(&stream->host->strangers, &stream->stranger);
    stream->is_ending = true;
    stream->is_given_up = true;
    if (!stream->is_shaking)
        net_close(&stream->net, on_net_closed);
}

/* True if nothing is on its way to the client, and no rest of a reply comes. */
static bool is_all_sent(const struct rpc_stream *stream)
{
    const bool has_rest = rpc_relay_is_in_reply(stream) && !stream->is_pair_over;

    return rpc_outputs_are_empty(&stream->outputs) && rpc_outputs_are_empty(&stream->held) &&
           !net_is_writing(&stream->net) && !has_rest;
}

/* A socket that is closed with unread bytes in it would take back what it has sent. So it waits for
 * the client to close, for a while. */
void rpc_stream_go_on_ending(struct rpc_stream *stream)
{
    if (stream->is_lingering || net_is_closing(&stream->net) || !is_all_sent(stream))
        return;
    stream->is_lingering = true;
    stream->ended_ns = clock_now_ns(&clock_monotonic);
    net_shut(&stream->net);
    rpc_receive_nothing(stream);
}

void rpc_stream_end(struct rpc_stream *stream)
{
    if (!stream->is_ending)
        stream->ended_ns = clock_now_ns(&clock_monotonic);
    stream->is_ending = true;
    rpc_stream_go_on_ending(stream);
}

/* The control thread closes its end before it forgets, which ends the stream if nothing else did. A
 * client that left would not take what is on its way to it. */
static void forgotten(struct rpc_host *host, struct rpc_stream *stream)
{
    assert(stream->host == host);
    if (stream->peer.is_left)
        rpc_stream_close(stream);
    else if (!net_is_closing(&stream->net) && !rpc_stranger_is_one(&stream->stranger))
        rpc_strangers_add(&host->strangers, &stream->stranger, stream->net.file.fd);
    stream->is_forgotten = true;
    free_if_over(stream);
}

static void greeted(struct rpc_host *host, struct rpc_stream *stream)
{
    assert(stream->host == host);
    rpc_strangers_remove(&host->strangers, &stream->stranger);
}

/* True if the stranger's client has done all it can: it has sent its part of a handshake, or its
 * first call. */
static bool waits_for_server(const struct rpc_stream *stream)
{
    const bool is_asking = stream->has_called && !stream->has_reply && !stream->is_ending;

    return stream->is_shaking || is_asking;
}

/* If the first one to go waits for this server, so does the new connection. A younger one is not
 * ended instead, as that may be the only one whose client means to stay. */
bool rpc_streams_make_place(struct rpc_host *host)
{
    while (rpc_strangers_are_full(&host->strangers)) {
        struct rpc_stream *const stream =
            CONTAINER_OF(rpc_strangers_first(&host->strangers), struct rpc_stream, stranger);

        if (waits_for_server(stream))
            return false;
        rpc_stream_close(stream);
        host->ended_strangers++;
        atomic_fetch_add(&host->strangers.all->ended, 1);
    }
    return atomic_load(host->count) < host->most;
}

/* A client may close while the stream reads nothing from it. */
static bool has_hung_up(const struct rpc_stream *stream)
{
    struct pollfd at = { .fd = stream->net.file.fd, .events = POLLRDHUP };

    return !net_is_reading(&stream->net) && !net_is_closing(&stream->net) && poll(&at, 1, 0) > 0;
}

static bool is_overdue(const struct rpc_stream *stream, uint64_t now_ns)
{
    if (stream->handshake && clock_since(now_ns, stream->began_ns) > RPC_HANDSHAKE_NS)
        return true;
    if (net_is_writing(&stream->net) && clock_since(now_ns, stream->net.moved_ns) > RPC_UNREAD_NS)
        return true;
    if (stream->is_lingering && clock_since(now_ns, stream->ended_ns) > RPC_LINGER_NS)
        return true;
    return stream->is_ending && clock_since(now_ns, stream->ended_ns) > RPC_UNREAD_NS;
}

static void tell_warnings(struct rpc_host *host)
{
    if (host->warnings > RPC_WARNINGS_MAX)
        log_warn("more clients over RPC were dropped", "count=%u",
                 host->warnings - RPC_WARNINGS_MAX);
    host->warnings = 0;
    if (host->ended_strangers > 0)
        log_warn("clients that had not said hello were dropped to make place for others: if these "
                 "were no attack, set socket.max_sessions higher",
                 "count=%u places=%u", host->ended_strangers, host->strangers.most);
    host->ended_strangers = 0;
}

void rpc_streams_tick(struct rpc_host *host, uint64_t now_ns)
{
    tell_warnings(host);
    for (struct rpc_stream *stream = host->streams; stream; stream = stream->next) {
        rpc_receive_tick(stream, now_ns);
        if (is_overdue(stream, now_ns) || has_hung_up(stream))
            rpc_stream_close(stream);
    }
}

void rpc_streams_close(struct rpc_host *host, bool at_once)
{
    for (struct rpc_stream *stream = host->streams; stream; stream = stream->next)
        if (at_once || stream->handshake || (stream->is_pair_over && is_all_sent(stream)))
            rpc_stream_close(stream);
}

void rpc_streams_shut_out(struct rpc_host *host)
{
    host->is_deaf = true;
    for (struct rpc_stream *stream = host->streams; stream; stream = stream->next)
        if (stream->handshake)
            rpc_stream_close(stream);
}

/* ---- To the client ---- */

static void on_sent(struct net *net, int result)
{
    struct rpc_stream *const stream = CONTAINER_OF(net, struct rpc_stream, net);

    if (result < 0) {
        rpc_stream_close(stream);
        return;
    }
    rpc_outputs_sent(&stream->outputs, (uint64_t)result);
    rpc_stream_send(stream);
    if (stream->is_ending)
        rpc_stream_go_on_ending(stream);
}

void rpc_stream_send(struct rpc_stream *stream)
{
    uint32_t count;

    if (stream->net.write_done || net_is_closing(&stream->net))
        return;
    count = rpc_outputs_next(&stream->outputs, stream->out_buffers, IO_BUFFERS_MAX);
    if (count > 0)
        net_write(&stream->net, stream->out_buffers, count, on_sent);
}

/* Moves those that waited behind a reply into the line. */
static void unhold(struct rpc_stream *stream)
{
    while (!rpc_outputs_are_empty(&stream->held)) {
        struct rpc_output *const output = stream->held.first;

        stream->held.first = output->next;
        rpc_outputs_add(&stream->outputs, output);
    }
    rpc_outputs_init(&stream->held);
}

void rpc_stream_add(struct rpc_stream *stream, struct rpc_output *output)
{
    const bool is_reply = output == &stream->reply_output;

    /* A lingering stream has told the client that no more comes. */
    if (net_is_closing(&stream->net) || stream->is_lingering) {
        output->sent(output);
        return;
    }
    rpc_outputs_add(!is_reply && rpc_relay_is_in_reply(stream) ? &stream->held : &stream->outputs,
                    output);
    if (is_reply && !rpc_relay_is_in_reply(stream))
        unhold(stream);
    rpc_stream_send(stream);
}

/* ---- Answers ---- */

static void answer_sent(struct rpc_output *output)
{
    rpc_channel_end(CONTAINER_OF(output, struct rpc_slot, output));
}

static void encode_answer(struct rpc_slot *slot)
{
    const struct answer *const answer = &slot->answer;
    struct rpc_output *const output = &slot->output;
    struct rpc_head head = { .kind = RPC_DONE, .number = slot->number };
    Embtier__RpcDone done = EMBTIER__RPC_DONE__INIT;

    *output = (struct rpc_output){ .sent = answer_sent };
    done.hit_rows = answer->hit_rows;
    done.ticket = answer->ticket;
    if (answer->refusal.err == EMBTIER_OK) {
        output->region = slot->channel->region;
        output->spans = slot->wanted;
        output->span_numbers = slot->wanted_numbers;
        head.payload_bytes = rpc_spans_bytes(output->spans, output->span_numbers);
    } else {
        done.err = (uint32_t)answer->refusal.err;
        done.segment = answer->refusal.segment + 1; /* UINT32_MAX: none */
        done.field = answer->refusal.field;
        done.value = answer->refusal.value;
        done.limit = answer->refusal.limit;
    }
    head.message_bytes = (uint32_t)embtier__rpc_done__get_packed_size(&done);
    assert(head.message_bytes <= RPC_OUTPUT_MESSAGE_BYTES);
    rpc_head_encode(&head, output->bytes);
    embtier__rpc_done__pack(&done, output->bytes + RPC_HEAD_BYTES);
    output->byte_count = RPC_HEAD_BYTES + head.message_bytes;
}

/* The answer's bytes are the client's as soon as the system has them, and then it may use the slot
 * again. */
static void answered(struct rpc_host *host, struct rpc_slot *slot)
{
    struct rpc_stream *const stream = CONTAINER_OF(slot->peer, struct rpc_stream, peer);

    assert(stream->host == host);
    rpc_channel_answered(slot);
    if (net_is_closing(&stream->net)) {
        rpc_channel_end(slot);
        return;
    }
    encode_answer(slot);
    rpc_stream_add(stream, &slot->output);
}

static void bind_channel(struct rpc_host *host, struct rpc_stream *stream)
{
    assert(stream->host == host && !stream->channel);
    stream->channel = CONTAINER_OF(TAKE(stream->peer.bound), struct rpc_channel, base);
    if (stream->is_net_closed)
        leave_region(host, stream->channel);
}

MESSAGE_KIND(message_rpc_answered, answered, rpc_host, struct rpc_slot, answered)
MESSAGE_HANDLER(take_greeted, greeted, rpc_host, struct rpc_stream, peer.greeted_message)
static const struct message_kind message_rpc_greeted = { .take = take_greeted };
MESSAGE_HANDLER(take_bound, bind_channel, rpc_host, struct rpc_stream, peer.bound_message)
static const struct message_kind message_rpc_bound = { .take = take_bound };
MESSAGE_HANDLER(take_forgotten, forgotten, rpc_host, struct rpc_stream, peer.forgotten_message)
static const struct message_kind message_rpc_forgotten = { .take = take_forgotten };

/* ---- The beginning ---- */

/* Only a client on this host has a user and a process. */
static void find_peer(int fd, struct transport_peer *peer)
{
    struct peer_ids ids;

    peer_ids_of(fd, &ids);
    peer->uid = ids.uid;
    peer->pid = ids.pid;
    peer->gids = ids.gids;
    peer->gid_count = ids.gid_count;
    peer->is_loopback = peer_is_loopback(fd);
}

/* Small frames go out at once: each is an answer, or the end of one. */
static void set_options(int fd)
{
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){ 1 }, sizeof(int));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &(int){ UNSENT_BYTES }, sizeof(int));
    dead_link_notice(fd);
    loopback_send_unpaced(fd);
}

/* NULL: there are too many, or there is no memory. */
static struct rpc_stream *make_stream(struct rpc_host *host)
{
    struct rpc_stream *stream = NULL;

    if (atomic_fetch_add(host->count, 1) < host->most)
        stream = calloc(1, sizeof(*stream));
    if (!stream) {
        atomic_fetch_sub(host->count, 1);
        return NULL;
    }
    *stream = (struct rpc_stream){
        .peer = { .arrived_message.kind = &message_peer_arrived,
                  .greeted_message.kind = &message_rpc_greeted,
                  .forgotten_message.kind = &message_rpc_forgotten,
                  .bound_message.kind = &message_rpc_bound,
                  .mailbox = &host->mailbox,
                  .transport = &rpc_transport,
                  .fd = -1,
                  .uid = (uid_t)-1 },
        .host = host,
        .is_pair_closed = true,
        .is_forgotten = true,
        .began_ns = clock_now_ns(&clock_monotonic),
    };
    link_stream(host, stream);
    rpc_outputs_init(&stream->outputs);
    rpc_outputs_init(&stream->held);
    return stream;
}

void rpc_stream_let_in(struct rpc_stream *stream)
{
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0) {
        rpc_stream_close(stream);
        return;
    }
    find_peer(stream->net.file.fd, &stream->peer);
    stream->peer.fd = pair[1];
    stream->peer.is_encrypted = stream->net.tls != NULL;
    stream->peer.certificate_names = stream->names;
    stream->is_pair_closed = stream->is_forgotten = false;
    io_open(rpc_stream_io(stream), &stream->pair, pair[0]);
    rpc_receive(stream);
    rpc_relay_replies(stream);
    stream->host->send(stream->host->owner, &stream->peer.arrived_message);
}

/* NULL: there is no memory. */
static struct tls_stream *begin_tls(struct rpc_host *host, int fd)
{
    SSL_CTX *const context = certificates_get(host->certificates);
    struct tls_stream *tls = NULL;
    struct err_msg msg;
    const enum embtier_err err = tls_stream_accept(context, fd, &tls, &msg);

    tls_context_free(context);
    return err == EMBTIER_OK ? tls : NULL;
}

void rpc_stream_new(struct rpc_host *host, int fd, bool is_tls)
{
    struct tls_stream *const tls = is_tls ? begin_tls(host, fd) : NULL;
    struct rpc_stream *const stream = !is_tls || tls ? make_stream(host) : NULL;

    if (!stream) {
        tls_stream_free(tls);
        close(fd);
        return;
    }
    set_options(fd);
    peer_address_of(fd, &stream->peer.address);
    net_open(&stream->net, host->io, fd, tls);
    rpc_strangers_add(&host->strangers, &stream->stranger, fd);
    if (tls)
        rpc_handshake_begin(stream, tls);
    else
        rpc_stream_let_in(stream);
}
