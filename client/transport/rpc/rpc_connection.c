/* SPDX-License-Identifier: Apache-2.0 */
#include "client/transport/rpc/rpc_connection.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/net/loopback.h"
#include "client/transport/connect.h"
#include "client/transport/rpc/wire.h"

#define BUFFER_BYTES 4096
#define BUFFERS_MAX  64
/* Bytes of narrow ids that are packed for one call of the system. */
#define PACKED_MAX (64 << 10)
/* Bytes of an answer for which a poll wakes up: few, so that they are taken while others come, but
 * not for each packet. */
#define WAKE_BYTES (UINT64_C(128) << 10)

enum step { STEP_HEAD, STEP_MESSAGE, STEP_PAYLOAD };

/* The rest of a frame that is still to be sent. */
struct sending {
    struct sending *next;
    const uint8_t *bytes;
    size_t count;
    const uint64_t *spans;
    struct narrow_spans narrow; /* of these */
    size_t span_numbers, span_at;
    uint64_t span_done; /* bytes of the payload that have been sent for that one */
};

struct rpc_connection {
    struct wire wire;
    struct sending
        *sending; /* frames that the system has not taken whole, oldest first; malloced */
    struct sending **sending_end;
    uint8_t *packed;             /* narrow ids for the call that sends them; or NULL */
    struct rpc_sink *sink;       /* NULL: no session with a region */
    struct frame_reader replies; /* as on a Unix socket */
    bool is_over;
    enum embtier_err over_err;
    struct err_msg over_reason;

    /* The frame that is arriving. */
    enum step step;
    struct rpc_head head;
    const uint64_t *spans; /* where the payload goes; the sink's */
    size_t span_numbers, span_at;
    uint64_t span_done, payload_left;
    uint8_t *in;
    size_t in_at, in_end, in_room;
    uint64_t wake_bytes; /* a poll ends when as many have come */
};

/* ---- The end ---- */

static enum embtier_err end(struct rpc_connection *c, enum embtier_err err, struct err_msg *msg)
{
    c->is_over = true;
    c->over_err = err;
    c->over_reason = *msg;
    return err;
}

static enum embtier_err over(const struct rpc_connection *c, struct err_msg *msg)
{
    return err_set(msg, c->over_err, "%s", c->over_reason.text);
}

/* ---- Receiving ---- */

static size_t in_bytes(const struct rpc_connection *c)
{
    return c->in_end - c->in_at;
}

/* Appends bytes to the replies. */
static enum embtier_err keep_bytes(struct rpc_connection *c, const uint8_t *bytes, size_t count,
                                   struct err_msg *msg)
{
    while (count > 0) {
        enum embtier_err err;
        uint8_t *space;
        size_t room;

        err = frame_reader_space(&c->replies, &space, &room);
        if (err == EMBTIER_NO_MEMORY)
            return err_set(msg, err, "out of memory");
        if (err != EMBTIER_OK) /* as much as one reply may have is kept */
            return err_set(msg, EMBTIER_PROTOCOL, "the server sent replies that nobody waits for");
        room = MIN(room, count);
        memcpy(space, bytes, room);
        frame_reader_added(&c->replies, room);
        bytes += room;
        count -= room;
    }
    return EMBTIER_OK;
}

static enum embtier_err keep_reply(struct rpc_connection *c, const uint8_t *message,
                                   struct err_msg *msg)
{
    const uint32_t length = htole32(c->head.message_bytes);

    TRY(keep_bytes(c, (const uint8_t *)&length, sizeof(length), msg));
    return keep_bytes(c, message, c->head.message_bytes, msg);
}

/* The server ends the connection because of a frame, and says why. */
static enum embtier_err refused(const struct rpc_connection *c, const uint8_t *message,
                                struct err_msg *msg)
{
    Embtier__Error *const error = embtier__error__unpack(NULL, c->head.message_bytes, message);
    enum embtier_err err;

    if (!error)
        return err_set(msg, EMBTIER_PROTOCOL, "the server refused a frame, for no known reason");
    err = err_set(msg, EMBTIER_PROTOCOL, "the server refused a frame: %s", error->message);
    embtier__error__free_unpacked(error, NULL);
    return err;
}

static enum embtier_err take_message(struct rpc_connection *c, struct err_msg *msg)
{
    const uint8_t *const message = c->in + c->in_at;

    if (in_bytes(c) < c->head.message_bytes)
        return EMBTIER_AGAIN;
    c->in_at += c->head.message_bytes;
    c->step = STEP_HEAD;
    switch (c->head.kind) {
    case RPC_REPLY:
        return keep_reply(c, message, msg);
    case RPC_REFUSED:
        return refused(c, message, msg);
    default:
        break;
    }
    if (!c->sink)
        return err_set(msg, EMBTIER_PROTOCOL, "the server sent an answer to no request");
    TRY(c->sink->begin(c->sink, &c->head, message, &c->spans, &c->span_numbers, msg));
    c->span_at = 0;
    c->span_done = 0;
    c->payload_left = c->head.payload_bytes;
    c->step = STEP_PAYLOAD;
    return EMBTIER_OK;
}

static enum embtier_err take_head(struct rpc_connection *c, struct err_msg *msg)
{
    if (in_bytes(c) < RPC_HEAD_BYTES)
        return EMBTIER_AGAIN;
    TRY(rpc_head_decode(c->in + c->in_at, FRAME_BYTES_MAX, &c->head, msg));
    c->in_at += RPC_HEAD_BYTES;
    if (c->head.kind != RPC_REPLY && c->head.kind != RPC_DONE && c->head.kind != RPC_DATA &&
        c->head.kind != RPC_REFUSED)
        return err_set(msg, EMBTIER_PROTOCOL, "the server sent a frame of kind %u", c->head.kind);
    c->step = STEP_MESSAGE;
    return EMBTIER_OK;
}

static void payload_came(struct rpc_connection *c, uint64_t bytes)
{
    c->payload_left -= bytes;
    while (bytes > 0) {
        const uint64_t here = MIN(bytes, c->spans[c->span_at + 1] - c->span_done);

        bytes -= here;
        c->span_done += here;
        if (c->span_done < c->spans[c->span_at + 1])
            continue;
        c->span_at += 2;
        c->span_done = 0;
    }
}

static enum embtier_err take_payload(struct rpc_connection *c)
{
    while (c->payload_left > 0 && in_bytes(c) > 0) {
        const uint64_t room = c->spans[c->span_at + 1] - c->span_done;
        const uint64_t bytes = MIN(room, in_bytes(c));

        memcpy(c->sink->region + c->spans[c->span_at] + c->span_done, c->in + c->in_at, bytes);
        c->in_at += bytes;
        payload_came(c, bytes);
    }
    if (c->payload_left > 0)
        return EMBTIER_AGAIN;
    c->step = STEP_HEAD;
    c->sink->end(c->sink);
    return EMBTIER_OK;
}

/* Takes all frames apart that have come. */
static enum embtier_err take(struct rpc_connection *c, struct err_msg *msg)
{
    enum embtier_err err = EMBTIER_OK;

    while (err == EMBTIER_OK) {
        if (c->step == STEP_HEAD)
            err = take_head(c, msg);
        else if (c->step == STEP_MESSAGE)
            err = take_message(c, msg);
        else
            err = take_payload(c);
    }
    return err == EMBTIER_AGAIN ? EMBTIER_OK : err;
}

static enum embtier_err make_room(struct rpc_connection *c, struct err_msg *msg)
{
    const size_t bytes = in_bytes(c);
    uint8_t *larger;

    if (c->in_at > 0)
        memmove(c->in, c->in + c->in_at, bytes);
    c->in_at = 0;
    c->in_end = bytes;
    if (c->in && bytes < c->in_room)
        return EMBTIER_OK;
    larger = realloc(c->in, MAX(c->in_room * 2, (size_t)BUFFER_BYTES));
    if (!larger)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    c->in = larger;
    c->in_room = MAX(c->in_room * 2, (size_t)BUFFER_BYTES);
    return EMBTIER_OK;
}

/* Fills in the buffers of one read. Returns the bytes of those that belong to the payload. */
static uint64_t fill_buffers(const struct rpc_connection *c, struct iovec *buffers,
                             uint32_t *ret_count)
{
    size_t at = c->step == STEP_PAYLOAD ? c->span_at : c->span_numbers;
    uint64_t direct = 0;
    uint32_t count = 0;

    for (; at < c->span_numbers && count < BUFFERS_MAX; at += 2) {
        const uint64_t done = at == c->span_at ? c->span_done : 0;

        buffers[count++] = (struct iovec){ .iov_base = c->sink->region + c->spans[at] + done,
                                           .iov_len = c->spans[at + 1] - done };
        direct += c->spans[at + 1] - done;
    }
    if (count < BUFFERS_MAX)
        buffers[count++] =
            (struct iovec){ .iov_base = c->in + c->in_end, .iov_len = c->in_room - c->in_end };
    *ret_count = count;
    return direct;
}

static enum embtier_err receive(struct rpc_connection *c, struct err_msg *msg)
{
    struct iovec buffers[BUFFERS_MAX];
    uint64_t direct;
    uint32_t count;
    size_t got;

    TRY(make_room(c, msg));
    direct = fill_buffers(c, buffers, &count);
    TRY(wire_receive(&c->wire, buffers, count, &got, msg));
    direct = MIN(direct, (uint64_t)got);
    payload_came(c, direct);
    c->in_end += got - direct;
    return take(c, msg);
}

/* ---- Sending ---- */

/* Returns the bytes of the payload that a span has. */
static uint64_t bytes_of(const struct sending *s, size_t at)
{
    return narrow_spans_sent(&s->narrow, at / 2, s->spans[at + 1]);
}

/* Packs ids of a narrow span, from the id on in which its byte @done lies, until the room behind
 * @ret_used bytes is full. The ids themselves stay as the caller has them. */
static struct iovec pack(const struct rpc_connection *c, const struct sending *s, size_t at,
                         uint64_t done, size_t *ret_used)
{
    const uint64_t *const ids = (const uint64_t *)(const void *)(c->sink->region + s->spans[at]);
    const uint32_t width = narrow_spans_width(&s->narrow, at / 2);
    const uint64_t begin = done / width, skip = done % width;
    const uint64_t count =
        MIN(s->spans[at + 1] / ID_WIDTH - begin, (PACKED_MAX - *ret_used) / width);
    uint8_t *const room = c->packed + *ret_used;

    narrow_ids_pack(ids + begin, count, width, room);
    *ret_used += count * width;
    return (struct iovec){ .iov_base = room + skip, .iov_len = count * width - skip };
}

/* Returns the bytes of a span from @done on, or as many as there is room for. */
static struct iovec rest_of(const struct rpc_connection *c, const struct sending *s, size_t at,
                            uint64_t done, size_t *ret_packed)
{
    if (narrow_spans_has(&s->narrow, at / 2))
        return pack(c, s, at, done, ret_packed);
    return (struct iovec){ .iov_base = c->sink->region + s->spans[at] + done,
                           .iov_len = s->spans[at + 1] - done };
}

/* Returns the number of buffers, which end early where no more ids can be packed. */
static uint32_t fill_sending(const struct rpc_connection *c, const struct sending *s,
                             struct iovec *buffers)
{
    uint32_t count = 0;
    size_t packed = 0;

    if (s->count > 0)
        buffers[count++] =
            (struct iovec){ .iov_base = (void *)(uintptr_t)s->bytes, .iov_len = s->count };
    for (size_t i = s->span_at;
         i < s->span_numbers && count < BUFFERS_MAX && packed <= PACKED_MAX - NARROW_WIDTH_MAX;
         i += 2)
        buffers[count++] = rest_of(c, s, i, i == s->span_at ? s->span_done : 0, &packed);
    return count;
}

static void bytes_sent(struct sending *s, uint64_t bytes)
{
    const uint64_t first = MIN(bytes, s->count);

    s->bytes += first;
    s->count -= first;
    bytes -= first;
    assert(bytes == 0 || s->spans);
    while (bytes > 0) {
        const uint64_t room = bytes_of(s, s->span_at) - s->span_done;
        const uint64_t here = MIN(bytes, room);

        bytes -= here;
        s->span_done += here;
        if (here < room)
            continue;
        s->span_at += 2;
        s->span_done = 0;
    }
}

/* Sends as much as the system takes. AGAIN: something is left. */
static enum embtier_err send_some(struct rpc_connection *c, struct sending *s, struct err_msg *msg)
{
    struct iovec buffers[BUFFERS_MAX];
    uint32_t count;

    while ((count = fill_sending(c, s, buffers)) > 0) {
        size_t sent;

        TRY(wire_send(&c->wire, buffers, count, &sent, msg));
        bytes_sent(s, sent);
    }
    return EMBTIER_OK;
}

/* Sends more of the frames that wait. AGAIN: some are left. */
static enum embtier_err flush(struct rpc_connection *c, struct err_msg *msg)
{
    TRY(wire_flush(&c->wire, msg));
    while (c->sending) {
        struct sending *const first = c->sending;

        TRY(send_some(c, first, msg));
        c->sending = first->next;
        if (!c->sending)
            c->sending_end = &c->sending;
        free(first);
    }
    return EMBTIER_OK;
}

/* Keeps the rest of a frame, with its own bytes and spans behind it in one piece of memory. The
 * region's bytes stay where they are. */
static enum embtier_err keep(struct rpc_connection *c, const struct sending *s, struct err_msg *msg)
{
    const size_t span_bytes = s->span_numbers * sizeof(uint64_t);
    struct sending *const kept = malloc(sizeof(*kept) + span_bytes + s->count);
    uint8_t *const spans = (uint8_t *)(kept + 1);

    if (!kept)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    if (span_bytes > 0)
        memcpy(spans, s->spans, span_bytes);
    if (s->count > 0)
        memcpy(spans + span_bytes, s->bytes, s->count);
    *kept = *s;
    kept->next = NULL;
    kept->bytes = spans + span_bytes;
    kept->spans = (const uint64_t *)(const void *)spans;
    *c->sending_end = kept;
    c->sending_end = &kept->next;
    return EMBTIER_OK;
}

static enum embtier_err send_or_keep(struct rpc_connection *c, struct sending *s,
                                     struct err_msg *msg)
{
    enum embtier_err err = flush(c, msg);

    if (err == EMBTIER_OK)
        err = send_some(c, s, msg);
    return err == EMBTIER_AGAIN ? keep(c, s, msg) : err;
}

/* A server that refused the connection may have said why before it closed. */
static enum embtier_err last_words(struct rpc_connection *c, struct err_msg *msg)
{
    struct err_msg reason = { { 0 } };
    enum embtier_err err;

    do
        err = receive(c, &reason);
    while (err == EMBTIER_OK);
    if (err != EMBTIER_PROTOCOL && err != EMBTIER_PERMISSION)
        return EMBTIER_DISCONNECTED;
    *msg = reason;
    return err;
}

static bool has_narrow(const struct span_list *sent)
{
    for (size_t i = 0; i < sent->count; i += 2)
        if (narrow_spans_has(&sent->narrow, i / 2))
            return true;
    return false;
}

/* Has the room for narrow ids made, which stays for those that follow. */
static enum embtier_err make_packed(struct rpc_connection *c, struct err_msg *msg)
{
    if (!c->packed)
        c->packed = malloc(PACKED_MAX + NARROW_PACK_MORE);
    return c->packed ? EMBTIER_OK : err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
}

enum embtier_err rpc_connection_send(struct rpc_connection *connection, const struct rpc_head *head,
                                     uint8_t *bytes, const struct span_list *sent,
                                     struct err_msg *msg)
{
    struct sending sending = { .bytes = bytes, .count = RPC_HEAD_BYTES + head->message_bytes };
    enum embtier_err err;

    if (connection->is_over)
        return over(connection, msg);
    if (sent) {
        sending.spans = sent->numbers;
        sending.span_numbers = sent->count;
        sending.narrow = sent->narrow;
    }
    if (sent && has_narrow(sent))
        TRY(make_packed(connection, msg));
    rpc_head_encode(head, bytes);
    err = send_or_keep(connection, &sending, msg);
    if (err == EMBTIER_DISCONNECTED)
        err = last_words(connection, msg);
    return err == EMBTIER_OK ? err : end(connection, err, msg);
}

/* Receives what poll() does not tell of, as the caller may poll next. */
static enum embtier_err drain(struct rpc_connection *c, struct err_msg *msg)
{
    enum embtier_err err = EMBTIER_OK;

    while (err == EMBTIER_OK && wire_has_more(&c->wire))
        err = receive(c, msg);
    return err == EMBTIER_AGAIN ? EMBTIER_OK : err;
}

static void set_wake(struct rpc_connection *c, uint64_t bytes)
{
    c->wake_bytes = bytes;
    (void)setsockopt(c->wire.fd, SOL_SOCKET, SO_RCVLOWAT, &(int){ (int)bytes }, sizeof(int));
}

/* The caller may poll next, for whatever comes. Few answers are so long that they need a call here.
 * Records of TLS are taken as they come. */
static void choose_wake(struct rpc_connection *c, bool has_all)
{
    const uint64_t left = c->step == STEP_PAYLOAD ? c->payload_left : 1;
    const uint64_t bytes = MIN(left, WAKE_BYTES);

    if (bytes < c->wake_bytes || (bytes > c->wake_bytes && has_all && !c->wire.tls))
        set_wake(c, bytes);
}

enum embtier_err rpc_connection_receive(struct rpc_connection *connection, struct err_msg *msg)
{
    enum embtier_err err;

    if (connection->is_over)
        return over(connection, msg);
    err = flush(connection, msg);
    if (err == EMBTIER_OK || err == EMBTIER_AGAIN || err == EMBTIER_DISCONNECTED)
        err = receive(connection, msg);
    if (err == EMBTIER_OK)
        err = drain(connection, msg);
    choose_wake(connection, err == EMBTIER_AGAIN);
    return err == EMBTIER_OK || err == EMBTIER_AGAIN ? err : end(connection, err, msg);
}

int rpc_connection_wait(struct rpc_connection *connection, int wait_ms)
{
    struct pollfd at = { .fd = rpc_connection_fd(connection),
                         .events = rpc_connection_events(connection) };

    return connection->sink ? connection->sink->wait(connection->sink, wait_ms)
                            : poll(&at, 1, wait_ms);
}

short rpc_connection_events(const struct rpc_connection *connection)
{
    return connection->sending || wire_has_unsent(&connection->wire) ? POLLIN | POLLOUT : POLLIN;
}

enum embtier_err rpc_connection_call(struct rpc_connection *connection, const uint8_t *bytes,
                                     size_t count, struct err_msg *msg)
{
    const struct rpc_head head = { .kind = RPC_CALL, .message_bytes = (uint32_t)count };
    _cleanup_(freep) uint8_t *frame = malloc(RPC_HEAD_BYTES + count);

    if (!frame)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    memcpy(frame + RPC_HEAD_BYTES, bytes, count);
    return rpc_connection_send(connection, &head, frame, NULL, msg);
}

/* ---- Lifecycle ---- */

/* Puts the number of a connection's host in place of the name in @ret_address. */
static enum embtier_err name_host_of(const struct rpc_connection *beside,
                                     struct address *ret_address, struct err_msg *msg)
{
    struct sockaddr_storage peer;
    socklen_t bytes = sizeof(peer);

    if (!beside || !address_is_tcp(ret_address))
        return EMBTIER_OK;
    if (getpeername(beside->wire.fd, (struct sockaddr *)(void *)&peer, &bytes) != 0)
        return err_set(msg, EMBTIER_DISCONNECTED, "the server closed the connection");
    if (getnameinfo((struct sockaddr *)(void *)&peer, bytes, ret_address->host,
                    sizeof(ret_address->host), NULL, 0, NI_NUMERICHOST) != 0)
        return err_set(msg, EMBTIER_INTERNAL, "the server's host has no number");
    return EMBTIER_OK;
}

enum embtier_err rpc_connection_new(const struct address *address, const char *text,
                                    const struct rpc_connection *beside,
                                    struct tls_contexts *contexts, uint64_t deadline_ns,
                                    struct rpc_connection **ret_connection, struct err_msg *msg)
{
    struct address host = *address;
    struct rpc_connection *connection;
    _cleanup_(closep) int fd = -1;
    struct wire wire;

    TRY(name_host_of(beside, &host, msg));
    TRY(connect_stream(&host, text, deadline_ns, &fd, msg));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){ 1 }, sizeof(int));
    loopback_send_unpaced(fd);
    TRY(wire_open(&wire, TAKE_FD(fd), address, text, contexts, deadline_ns, msg));
    connection = calloc(1, sizeof(*connection));
    if (!connection) {
        wire_close(&wire);
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    }
    connection->wire = wire;
    connection->sending_end = &connection->sending;
    connection->wake_bytes = 1;
    frame_reader_init(&connection->replies, FRAME_BYTES_MAX);
    *ret_connection = connection;
    return EMBTIER_OK;
}

void rpc_connection_free(struct rpc_connection *connection)
{
    if (!connection)
        return;
    if (connection->sink)
        connection->sink->lose(connection->sink);
    wire_close(&connection->wire);
    while (connection->sending) {
        struct sending *const first = connection->sending;

        connection->sending = first->next;
        free(first);
    }
    frame_reader_done(&connection->replies);
    free(connection->packed);
    free(connection->in);
    free(connection);
}

enum embtier_err rpc_connection_ended(const struct rpc_connection *connection, struct err_msg *msg)
{
    return connection->is_over ? over(connection, msg) : EMBTIER_OK;
}

bool rpc_connection_is_over(const struct rpc_connection *connection)
{
    return connection->is_over;
}

int rpc_connection_fd(const struct rpc_connection *connection)
{
    return connection->wire.fd;
}

struct frame_reader *rpc_connection_replies(struct rpc_connection *connection)
{
    return &connection->replies;
}

void rpc_connection_set_sink(struct rpc_connection *connection, struct rpc_sink *sink)
{
    connection->sink = sink;
}
