/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of a stream on a pair of sockets, on both engines, with a test that plays client, control
 * thread and lanes. Calls and replies are passed on, requests come and go, and each end of the one
 * is the end of the other. */
#include <endian.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "daemon/transport/rpc/rpc_stream_impl.h"
#include "proto/control.pb-c.h"

#define LIMIT_NS     (UINT64_C(60) * 1000000000)
#define SLOTS        4
#define REGION_BYTES (16 * MIB)
#define PART_BYTES   (UINT64_C(128) << 10)
#define AT           4096 /* where the tests' spans begin */

struct fixture {
    struct rpc_host host;
    _Atomic uint32_t count;
    struct strangers strangers;
    int client;  /* the other end of the stream */
    int control; /* the control thread's end of its pair; -1: closed */
    struct transport_peer *peer;
    struct rpc_stream *stream;
    struct transport_channel *channel; /* NULL: no session */
};

/* ---- The loop, a turn at a time ---- */

static void turn(struct fixture *f)
{
    struct message *message;

    io_run(f->host.io, 1000000);
    message = inbox_take_all(&f->host.mailbox.inbox);
    while (message) {
        struct message *const next = message->next;

        message->kind->take(&(struct receiver){ .rpc_host = &f->host }, message);
        message = next;
    }
}

/* Runs until the condition holds. */
#define AWAIT(f, condition)                                                                        \
    for (const uint64_t until_ns = clock_now_ns(&clock_monotonic) + LIMIT_NS; !(condition);) {     \
        assert_true(clock_now_ns(&clock_monotonic) < until_ns);                                    \
        turn(f);                                                                                   \
    }

/* ---- The fixture ---- */

static void make_session(struct fixture *f)
{
    const struct channel_spec spec = { .peer = f->peer,
                                       .region_bytes = REGION_BYTES,
                                       .slot_count = SLOTS };
    int fds[TRANSPORT_FDS_MAX];
    struct err_msg msg;

    assert_int_equal(rpc_transport.prepare(&spec, &f->channel, &msg), EMBTIER_OK);
    assert_int_equal(rpc_transport.reserve(f->channel, 4096, &msg), EMBTIER_AGAIN);
    assert_int_equal(rpc_transport.reserve(f->channel, UINT64_MAX, &msg), EMBTIER_OK);
    assert_int_equal(rpc_transport.announce(f->channel, fds), 0);
    AWAIT(f, f->stream->channel);
}

/* The control thread's part: notes the client that is let in. */
static void take_client(void *owner, struct message *message)
{
    struct fixture *const f = owner;

    f->peer = CONTAINER_OF(message, struct transport_peer, arrived_message);
}

static int setup_on(const struct io_engine *engine, void **state)
{
    struct fixture *const f = aligned_alloc(CACHE_LINE, align_up(sizeof(*f), CACHE_LINE));
    struct err_msg msg = { { 0 } }, refusal;
    int pair[2];

    memset(f, 0, sizeof(*f));
    f->host.count = &f->count;
    f->host.most = 1;
    rpc_strangers_init(&f->host.strangers, &f->strangers, 1, 1);
    assert_int_equal(mailbox_init(&f->host.mailbox, "test", 0, &msg), EMBTIER_OK);
    if (io_new(engine, f->host.mailbox.wake_fd, &f->host.io, &refusal, &msg) != EMBTIER_OK)
        fail_msg("%s: %s", engine->name, msg.text);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
    f->client = pair[1];
    f->host.send = take_client;
    f->host.owner = f;
    rpc_stream_new(&f->host, pair[0], false);
    assert_non_null(f->peer);
    f->control = f->peer->fd;
    f->stream = CONTAINER_OF(f->peer, struct rpc_stream, peer);
    make_session(f);
    *state = f;
    return 0;
}

static int setup_uring(void **state)
{
    return setup_on(&io_uring_engine, state);
}

static int setup_epoll(void **state)
{
    return setup_on(&io_epoll_engine, state);
}

/* As the control thread does with a client that has gone. */
static void forget(struct fixture *f)
{
    closep(&f->control);
    f->control = -1;
    if (f->channel) {
        rpc_transport.release(f->channel, true);
        transport_channel_free(f->channel);
    }
    transport_forget(f->peer);
    AWAIT(f, !f->host.streams);
    f->peer = NULL;
}

static int teardown(void **state)
{
    struct fixture *const f = *state;

    closep(&f->client);
    if (f->peer)
        forget(f);
    while (rpc_streams_free_some(&f->host))
        continue;
    assert_int_equal(f->count, 0);
    io_free(f->host.io);
    mailbox_destroy(&f->host.mailbox);
    free(f);
    return 0;
}

/* ---- Client and control thread ---- */

static void send_all(struct fixture *f, int fd, const void *bytes, size_t count)
{
    for (size_t sent = 0; sent < count;) {
        const ssize_t result =
            send(fd, (const uint8_t *)bytes + sent, count - sent, MSG_DONTWAIT | MSG_NOSIGNAL);

        assert_true(result > 0 || errno == EAGAIN);
        sent += result > 0 ? (size_t)result : 0;
        turn(f);
    }
}

static void receive_all(struct fixture *f, int fd, void *bytes, size_t count)
{
    const uint64_t until_ns = clock_now_ns(&clock_monotonic) + LIMIT_NS;

    for (size_t got = 0; got < count; turn(f)) {
        const ssize_t result = recv(fd, (uint8_t *)bytes + got, count - got, MSG_DONTWAIT);

        assert_true(result > 0 || (result < 0 && errno == EAGAIN));
        assert_true(clock_now_ns(&clock_monotonic) < until_ns);
        got += result > 0 ? (size_t)result : 0;
    }
}

static void await_end(struct fixture *f, int fd)
{
    ssize_t result;
    uint8_t byte;

    AWAIT(f, (result = recv(fd, &byte, 1, MSG_DONTWAIT)) >= 0 || errno != EAGAIN);
    assert_true(result == 0 || errno == ECONNRESET);
}

static void send_head(struct fixture *f, uint8_t kind, uint32_t number, size_t message_bytes,
                      uint64_t payload_bytes)
{
    const struct rpc_head head = { .kind = kind,
                                   .number = number,
                                   .message_bytes = (uint32_t)message_bytes,
                                   .payload_bytes = payload_bytes };
    uint8_t bytes[RPC_HEAD_BYTES];

    rpc_head_encode(&head, bytes);
    send_all(f, f->client, bytes, sizeof(bytes));
}

/* Receives a head, which must be of that kind, and its message. */
static struct rpc_head receive_message(struct fixture *f, uint8_t kind, uint8_t *ret_message)
{
    uint8_t bytes[RPC_HEAD_BYTES];
    struct rpc_head head;
    struct err_msg msg;

    receive_all(f, f->client, bytes, sizeof(bytes));
    assert_int_equal(rpc_head_decode(bytes, FRAME_BYTES_MAX, &head, &msg), EMBTIER_OK);
    assert_int_equal(head.kind, kind);
    receive_all(f, f->client, ret_message, head.message_bytes);
    return head;
}

/* ---- Requests ---- */

/* A SET with a payload of @bytes that lies in two spans, and which wants the first of them. */
static void send_submit(struct fixture *f, uint32_t number, const uint8_t *payload, uint64_t bytes)
{
    uint64_t sent[] = { AT, bytes / 2, 2 * AT, bytes - bytes / 2 };
    Embtier__RpcSubmit submit = EMBTIER__RPC_SUBMIT__INIT;
    uint8_t message[128];
    size_t count;

    submit.op = 2;
    submit.step = number;
    submit.sent = submit.wanted = sent;
    submit.n_sent = 4;
    submit.n_wanted = 2;
    count = embtier__rpc_submit__pack(&submit, message);
    send_head(f, RPC_SUBMIT, number, count, bytes);
    send_all(f, f->client, message, count);
    send_all(f, f->client, payload, bytes);
}

static uint32_t tail_of(const struct fixture *f)
{
    return atomic_load(f->channel->channel.tail);
}

static void answer(struct fixture *f, uint32_t number, enum embtier_err err)
{
    const struct channel *const channel = &f->channel->channel;
    const struct answer done = { .refusal = { .err = err, .segment = UINT32_MAX }, .hit_rows = 7 };

    channel->ops->complete(channel, number, &done);
}

static void must_be_done(struct fixture *f, uint32_t number, const uint8_t *rows, uint64_t bytes)
{
    uint8_t message[128], got[4096];
    const struct rpc_head head = receive_message(f, RPC_DONE, message);
    Embtier__RpcDone *const done = embtier__rpc_done__unpack(NULL, head.message_bytes, message);

    assert_non_null(done);
    assert_int_equal(head.number, number);
    assert_int_equal(head.payload_bytes, bytes);
    assert_int_equal(done->hit_rows, 7);
    embtier__rpc_done__free_unpacked(done, NULL);
    receive_all(f, f->client, got, bytes);
    assert_memory_equal(got, rows, bytes);
}

static void test_a_payload_goes_into_its_spans_and_an_answer_brings_its_own(void **state)
{
    struct fixture *const f = *state;
    const uint8_t payload[] = "abcdefgh";

    send_submit(f, 0, payload, 8);
    AWAIT(f, tail_of(f) == 1);
    assert_memory_equal(f->channel->channel.region + AT, "abcd", 4);
    assert_memory_equal(f->channel->channel.region + 2 * AT, "efgh", 4);
    assert_int_equal(f->channel->channel.submissions[0].op, 2);
    memcpy(f->channel->channel.region + AT, "rows", 4);
    answer(f, 0, EMBTIER_OK);
    must_be_done(f, 0, (const uint8_t *)"rows", 4);
    send_submit(f, 1, payload, 8);
    AWAIT(f, tail_of(f) == 2);
    answer(f, 1, EMBTIER_IO);
    must_be_done(f, 1, payload, 0); /* none after an error */
}

/* ---- Narrow ids ---- */

#define NARROW_IDS 19

/* Ids that need three bytes. */
static uint64_t narrow_id(uint64_t i)
{
    return 0xffffff - 257 * i;
}

static uint8_t *put(uint8_t *at, const void *bytes, size_t count)
{
    memcpy(at, bytes, count);
    return at + count;
}

/* A WRITE of a wide span, a narrow one of NARROW_IDS ids of @width bytes, a wide one and one that
 * has one more id. Returns its bytes. */
static size_t make_narrow_write(uint32_t width, uint8_t *ret_bytes)
{
    static const uint8_t front[3] = { 'a', 'b', 'c' }, middle[5] = { 'd', 'e', 'f', 'g', 'h' };
    uint64_t spans[] = { AT, 3, 2 * AT, 8 * NARROW_IDS, 3 * AT, 5, 4 * AT, 8 };
    uint32_t narrow[] = { 1 * 8 + width, 3 * 8 + width };
    uint8_t ids[(NARROW_IDS + 1) * sizeof(uint64_t)];
    Embtier__RpcWrite write = EMBTIER__RPC_WRITE__INIT;
    struct rpc_head head = { .kind = RPC_WRITE, .payload_bytes = 8 + (NARROW_IDS + 1) * width };
    uint8_t *at = ret_bytes + RPC_HEAD_BYTES;

    for (uint64_t i = 0; i <= NARROW_IDS; i++)
        memcpy(ids + i * width, &(uint64_t){ narrow_id(i) }, width);
    write.sent = spans;
    write.n_sent = ARRAY_LEN(spans);
    write.narrow = narrow;
    write.n_narrow = ARRAY_LEN(narrow);
    head.message_bytes = (uint32_t)embtier__rpc_write__pack(&write, at);
    rpc_head_encode(&head, ret_bytes);
    at = put(at + head.message_bytes, front, sizeof(front));
    at = put(at, ids, NARROW_IDS * width);
    at = put(at, middle, sizeof(middle));
    at = put(at, ids + NARROW_IDS * width, width);
    return (size_t)(at - ret_bytes);
}

/* The bytes behind each span are untouched. */
static void must_be_widened(const uint8_t *region)
{
    const uint64_t last = narrow_id(NARROW_IDS);

    assert_memory_equal(region + AT, "abc\0", 4);
    for (uint64_t i = 0; i < NARROW_IDS; i++) {
        const uint64_t id = narrow_id(i);

        assert_memory_equal(region + 2 * AT + 8 * i, &id, sizeof(id));
    }
    assert_int_equal(region[2 * AT + 8 * NARROW_IDS], 0);
    assert_memory_equal(region + 3 * AT, "defgh\0", 6);
    assert_memory_equal(region + 4 * AT, &last, sizeof(last));
}

/* Bytes that come with the head are copied out of the stream's buffer, and the rest is received
 * into the span. */
static void test_narrow_ids_are_widened_wherever_they_are_cut(void **state)
{
    struct fixture *const f = *state;
    uint8_t *const region = f->channel->channel.region;
    uint8_t bytes[512];
    size_t count;

    for (size_t cut = 1; cut < (count = make_narrow_write(3 + cut % 2, bytes)); cut++) {
        memset(region + AT, 0, 4 * AT);
        send_all(f, f->client, bytes, cut);
        AWAIT(f, f->stream->net.file.read.done);
        send_all(f, f->client, bytes + cut, count - cut);
        AWAIT(f, f->stream->arrival.step == RPC_STEP_HEAD && f->stream->in_at == f->stream->in_end);
        must_be_widened(region);
    }
}

static void test_narrow_ids_a_byte_at_a_time(void **state)
{
    struct fixture *const f = *state;
    uint8_t bytes[512];
    const size_t count = make_narrow_write(3, bytes);

    for (size_t i = 0; i < count; i++) {
        send_all(f, f->client, bytes + i, 1);
        turn(f);
    }
    AWAIT(f, f->stream->arrival.step == RPC_STEP_HEAD && f->stream->in_at == f->stream->in_end);
    must_be_widened(f->channel->channel.region);
}

/* More than one read brings, in front of a request that wants them back. */
static void test_a_long_narrow_span_is_widened_whole(void **state)
{
    static uint32_t ids[100000];
    static uint64_t got[ARRAY_LEN(ids)];
    struct fixture *const f = *state;
    uint64_t sent[] = { AT, sizeof(got) };
    Embtier__RpcSubmit submit = EMBTIER__RPC_SUBMIT__INIT;
    uint8_t message[128];
    size_t count;

    for (size_t i = 0; i < ARRAY_LEN(ids); i++)
        ids[i] = (uint32_t)(i * 2654435761U);
    submit.op = 1;
    submit.sent = submit.wanted = sent;
    submit.n_sent = submit.n_wanted = 2;
    submit.narrow = &(uint32_t){ 4 };
    submit.n_narrow = 1;
    count = embtier__rpc_submit__pack(&submit, message);
    send_head(f, RPC_SUBMIT, 0, count, sizeof(ids));
    send_all(f, f->client, message, count);
    send_all(f, f->client, ids, sizeof(ids));
    AWAIT(f, tail_of(f) == 1);
    answer(f, 0, EMBTIER_OK);
    assert_int_equal(receive_message(f, RPC_DONE, message).payload_bytes, sizeof(got));
    receive_all(f, f->client, got, sizeof(got));
    for (size_t i = 0; i < ARRAY_LEN(ids); i++)
        assert_int_equal(got[i], ids[i]);
}

static void test_lanes_see_requests_in_the_order_of_their_numbers(void **state)
{
    struct fixture *const f = *state;
    const uint8_t payload[8] = { 0 };

    send_submit(f, 1, payload, 8);
    send_submit(f, 2, payload, 8);
    assert_int_equal(tail_of(f), 0);
    send_submit(f, 0, payload, 8);
    AWAIT(f, tail_of(f) == 3);
    answer(f, 2, EMBTIER_IO);
    must_be_done(f, 2, payload, 0);
    answer(f, 0, EMBTIER_IO);
    must_be_done(f, 0, payload, 0);
    answer(f, 1, EMBTIER_IO);
    must_be_done(f, 1, payload, 0);
}

/* Slots are a power of two, so those of 2^32 - 1 and 0 are neighbours. */
static void test_numbers_wrap(void **state)
{
    struct fixture *const f = *state;
    struct rpc_channel *const channel = CONTAINER_OF(f->channel, struct rpc_channel, base);
    const uint8_t payload[8] = { 0 };
    const uint32_t first = UINT32_MAX - 1;

    channel->submitted = first;
    atomic_store(&channel->tail, first);
    for (uint32_t i = 0; i < SLOTS; i++)
        send_submit(f, first + i, payload, 8);
    AWAIT(f, tail_of(f) == first + SLOTS);
    for (uint32_t i = 0; i < SLOTS; i++) {
        answer(f, first + i, EMBTIER_IO);
        must_be_done(f, first + i, payload, 0);
    }
}

/* ---- Refusals ---- */

static void must_be_refused(struct fixture *f, uint32_t number, enum embtier_err err)
{
    uint8_t message[1024];
    const struct rpc_head head = receive_message(f, RPC_REFUSED, message);
    Embtier__Error *const error = embtier__error__unpack(NULL, head.message_bytes, message);

    assert_non_null(error);
    assert_int_equal(head.number, number);
    assert_int_equal(error->err, err);
    embtier__error__free_unpacked(error, NULL);
}

static void test_a_number_under_way_ends_the_stream_on_both_sides(void **state)
{
    struct fixture *const f = *state;
    const uint8_t payload[8] = { 0 };

    send_submit(f, 0, payload, 8);
    AWAIT(f, tail_of(f) == 1);
    send_head(f, RPC_SUBMIT, 0, 4, 0);
    send_all(f, f->client, "\x08\x02\x18\x01", 4);
    must_be_refused(f, 0, EMBTIER_PROTOCOL);
    await_end(f, f->client);
    closep(&f->client);
    f->client = -1;
    await_end(f, f->control);
    answer(f, 0, EMBTIER_OK); /* the lane's last word: nobody hears it */
    forget(f);
}

/* The control thread's replies and lanes' answers may come after the reason for the end. */
static void test_a_stream_that_has_said_why_it_ends_says_no_more(void **state)
{
    struct fixture *const f = *state;
    const uint32_t length = htole32(4);
    uint8_t byte;

    send_submit(f, 0, (const uint8_t *)"12345678", 8);
    AWAIT(f, tail_of(f) == 1);
    send_head(f, RPC_WRITE, 3, 0, 0);
    must_be_refused(f, 3, EMBTIER_PROTOCOL);
    AWAIT(f, f->stream->is_lingering);
    for (uint32_t i = 0; i < 3; i++) {
        send_all(f, f->control, &length, sizeof(length));
        send_all(f, f->control, "late", 4);
    }
    answer(f, 0, EMBTIER_OK);
    for (uint32_t i = 0; i < 10; i++)
        turn(f);
    assert_int_equal(recv(f->client, &byte, 1, MSG_DONTWAIT), 0);
}

/* ---- Calls and replies ---- */

/* A call's length, and its bytes: as the control thread reads them. */
static void must_be_called(struct fixture *f, const uint8_t *call, size_t count)
{
    _cleanup_(freep) uint8_t *got = malloc(count);
    uint32_t length;

    receive_all(f, f->control, &length, sizeof(length));
    assert_int_equal(le32toh(length), count);
    receive_all(f, f->control, got, count);
    assert_memory_equal(got, call, count);
}

static void test_a_long_call_is_passed_on_as_it_comes(void **state)
{
    static uint8_t call[60000];
    struct fixture *const f = *state;

    for (size_t i = 0; i < sizeof(call); i++)
        call[i] = (uint8_t)(i * 7 + (i >> 8));
    send_head(f, RPC_CALL, 0, sizeof(call), 0);
    send_all(f, f->client, call, sizeof(call) / 2);
    assert_true(f->stream->in_room <= RPC_BUFFER_BYTES); /* the stream keeps little of it */
    send_all(f, f->client, call + sizeof(call) / 2, sizeof(call) / 2);
    send_head(f, RPC_CALL, 0, 3, 0);
    send_all(f, f->client, "abc", 3);
    must_be_called(f, call, sizeof(call));
    must_be_called(f, (const uint8_t *)"abc", 3);
}

static void test_calls_a_byte_at_a_time(void **state)
{
    struct fixture *const f = *state;
    struct rpc_head head = { .kind = RPC_CALL, .message_bytes = 5 };
    uint8_t bytes[RPC_HEAD_BYTES + 5];

    rpc_head_encode(&head, bytes);
    memset(bytes + RPC_HEAD_BYTES, 'h', 5);
    for (uint32_t i = 0; i < 3; i++) {
        for (size_t at = 0; at < sizeof(bytes); at++)
            send_all(f, f->client, bytes + at, 1);
        must_be_called(f, (const uint8_t *)"hhhhh", 5);
    }
}

/* Longer than any buffer of the stream, and with an answer that comes meanwhile. */
static void test_a_long_reply_is_passed_on_whole(void **state)
{
    static uint8_t reply[100000], got[sizeof(reply)];
    struct fixture *const f = *state;
    const uint32_t length = htole32(sizeof(reply));
    const uint8_t payload[8] = { 0 };

    for (size_t i = 0; i < sizeof(reply); i++)
        reply[i] = (uint8_t)(i * 3 + (i >> 9));
    send_submit(f, 0, payload, 8);
    AWAIT(f, tail_of(f) == 1);
    send_all(f, f->control, &length, sizeof(length));
    send_all(f, f->control, reply, 10);
    answer(f, 0, EMBTIER_IO);
    send_all(f, f->control, reply + 10, sizeof(reply) - 10);
    assert_int_equal(receive_message(f, RPC_REPLY, got).message_bytes, sizeof(reply));
    assert_memory_equal(got, reply, sizeof(reply));
    must_be_done(f, 0, payload, 0);
}

/* ---- Back-pressure ---- */

static void send_read(struct fixture *f, uint32_t number, uint64_t bytes)
{
    uint64_t wanted[] = { AT, bytes };
    Embtier__RpcRead read = EMBTIER__RPC_READ__INIT;
    uint8_t message[64];
    size_t count;

    read.wanted = wanted;
    read.n_wanted = 2;
    count = embtier__rpc_read__pack(&read, message);
    send_head(f, RPC_READ, number, count, 0);
    send_all(f, f->client, message, count);
}

/* Nothing is read from a client that has not taken what it asked for. */
static void test_a_client_that_does_not_read_is_not_read(void **state)
{
    static uint8_t got[PART_BYTES];
    const uint64_t bytes = PART_BYTES;
    struct fixture *const f = *state;
    uint8_t none;

    (void)setsockopt(f->stream->net.file.fd, SOL_SOCKET, SO_SNDBUF, &(int){ 4096 }, sizeof(int));
    send_read(f, 1, bytes);
    send_read(f, 2, bytes);
    AWAIT(f, f->stream->read && f->stream->net.file.write.done);
    for (uint32_t i = 0; i < 20; i++)
        turn(f);
    assert_null(f->stream->net.file.read.done);
    for (uint32_t number = 1; number <= 2; number++) {
        assert_int_equal(receive_message(f, RPC_DATA, &none).number, number);
        receive_all(f, f->client, got, bytes);
    }
    AWAIT(f, f->stream->net.file.read.done);
}

static void test_a_client_that_takes_no_byte_is_dropped(void **state)
{
    struct fixture *const f = *state;
    uint64_t now_ns;

    (void)setsockopt(f->stream->net.file.fd, SOL_SOCKET, SO_SNDBUF, &(int){ 4096 }, sizeof(int));
    send_read(f, 1, PART_BYTES);
    for (uint32_t i = 0; i < 20; i++)
        turn(f);
    now_ns = clock_now_ns(&clock_monotonic);
    rpc_streams_tick(&f->host, now_ns + RPC_UNREAD_NS / 2);
    assert_false(f->stream->net.file.is_closing);
    rpc_streams_tick(&f->host, now_ns + RPC_UNREAD_NS + 1);
    await_end(f, f->control);
}

/* ---- Stalled clients ---- */

static void test_a_client_that_stops_in_a_frame_is_dropped(void **state)
{
    struct fixture *const f = *state;
    const uint64_t now_ns = clock_now_ns(&clock_monotonic) + 1000000;

    rpc_streams_tick(&f->host, now_ns + 2 * RPC_STALLED_NS); /* between frames it may be silent */
    assert_false(f->stream->is_ending);
    send_head(f, RPC_WRITE, 5, 8, 4);
    rpc_streams_tick(&f->host, now_ns + RPC_STALLED_NS / 2);
    assert_false(f->stream->is_ending);
    rpc_streams_tick(&f->host, clock_now_ns(&clock_monotonic) + RPC_STALLED_NS + 1);
    must_be_refused(f, 5, EMBTIER_TIMEOUT);
    await_end(f, f->client);
}

/* ---- Ends ---- */

static void test_a_client_that_closes_ends_the_pair(void **state)
{
    struct fixture *const f = *state;

    send_submit(f, 0, (const uint8_t *)"12345678", 8);
    AWAIT(f, tail_of(f) == 1);
    closep(&f->client);
    f->client = -1;
    await_end(f, f->control);
    answer(f, 0, EMBTIER_OK);
    forget(f);
}

static void test_a_client_that_closes_in_a_payload_is_forgotten(void **state)
{
    struct fixture *const f = *state;

    send_submit(f, 0, (const uint8_t *)"12345678", 8);
    send_head(f, RPC_WRITE, 0, 6, 100);
    send_all(f, f->client, "\x0a\x04\x80\x20\x64", 5); /* a byte of the message is missing */
    closep(&f->client);
    f->client = -1;
    await_end(f, f->control);
    forget(f);
}

static void test_the_end_of_the_clients_half_is_the_end(void **state)
{
    struct fixture *const f = *state;

    assert_int_equal(shutdown(f->client, SHUT_WR), 0);
    await_end(f, f->control);
    await_end(f, f->client);
}

/* The control thread's last words are sent before the stream ends. */
static void test_the_control_threads_end_lets_the_client_read_all(void **state)
{
    struct fixture *const f = *state;
    const uint32_t length = htole32(4);
    uint8_t got[4];

    send_all(f, f->control, &length, sizeof(length));
    send_all(f, f->control, "last", 4);
    closep(&f->control);
    f->control = -1;
    assert_int_equal(receive_message(f, RPC_REPLY, got).message_bytes, 4);
    assert_memory_equal(got, "last", 4);
    await_end(f, f->client);
}

/* The owner has given up the region first, as it does with a client that it drops. Then the loop
 * frees it, and no turn is long. */
static void test_a_region_is_freed_a_piece_in_each_turn(void **state)
{
    struct fixture *const f = *state;
    uint32_t pieces = 1;

    rpc_transport.release(f->channel, true);
    transport_channel_free(f->channel);
    f->channel = NULL;
    assert_int_equal(((volatile uint8_t *)f->stream->channel->region)[AT], 0); /* it is there */
    closep(&f->client);
    f->client = -1;
    AWAIT(f, f->host.freed);
    forget(f);
    while (rpc_streams_free_some(&f->host))
        pieces++;
    assert_in_range(pieces, 4, 100);
}

static void test_there_are_no_more_streams_than_may_be(void **state)
{
    struct fixture *const f = *state;
    uint8_t byte;
    int pair[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    rpc_stream_new(&f->host, pair[0], false);
    assert_int_equal(recv(pair[1], &byte, 1, 0), 0);
    assert_int_equal(f->count, 1);
    close(pair[1]);
}

#define ON(test)                                                                                   \
    cmocka_unit_test_setup_teardown(test, setup_uring, teardown),                                  \
        cmocka_unit_test_setup_teardown(test, setup_epoll, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON(test_a_payload_goes_into_its_spans_and_an_answer_brings_its_own),
        ON(test_narrow_ids_are_widened_wherever_they_are_cut),
        ON(test_narrow_ids_a_byte_at_a_time),
        ON(test_a_long_narrow_span_is_widened_whole),
        ON(test_lanes_see_requests_in_the_order_of_their_numbers),
        ON(test_numbers_wrap),
        ON(test_a_number_under_way_ends_the_stream_on_both_sides),
        ON(test_a_stream_that_has_said_why_it_ends_says_no_more),
        ON(test_a_long_call_is_passed_on_as_it_comes),
        ON(test_calls_a_byte_at_a_time),
        ON(test_a_long_reply_is_passed_on_whole),
        ON(test_a_client_that_does_not_read_is_not_read),
        ON(test_a_client_that_takes_no_byte_is_dropped),
        ON(test_a_client_that_stops_in_a_frame_is_dropped),
        ON(test_a_client_that_closes_ends_the_pair),
        ON(test_a_client_that_closes_in_a_payload_is_forgotten),
        ON(test_the_end_of_the_clients_half_is_the_end),
        ON(test_the_control_threads_end_lets_the_client_read_all),
        ON(test_a_region_is_freed_a_piece_in_each_turn),
        ON(test_there_are_no_more_streams_than_may_be),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
