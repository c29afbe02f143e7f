/* SPDX-License-Identifier: Apache-2.0 */
/* rpc_stream_fixture.h: a stream on a pair of sockets, with a test that plays client, control
 * thread and lanes. Each test program includes it once. */
#ifndef EMBTIER_TESTS_UNIT_DAEMON_TRANSPORT_RPC_STREAM_FIXTURE_H
#define EMBTIER_TESTS_UNIT_DAEMON_TRANSPORT_RPC_STREAM_FIXTURE_H

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

static inline void turn(struct fixture *f)
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

static inline void make_session(struct fixture *f)
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
static inline void take_client(void *owner, struct message *message)
{
    struct fixture *const f = owner;

    f->peer = CONTAINER_OF(message, struct transport_peer, arrived_message);
}

static inline int setup_on(const struct io_engine *engine, void **state)
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

static inline int setup_uring(void **state)
{
    return setup_on(&io_uring_engine, state);
}

static inline int setup_epoll(void **state)
{
    return setup_on(&io_epoll_engine, state);
}

/* As the control thread does with a client that has gone. */
static inline void forget(struct fixture *f)
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

static inline int teardown(void **state)
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

static inline void send_all(struct fixture *f, int fd, const void *bytes, size_t count)
{
    for (size_t sent = 0; sent < count;) {
        const ssize_t result =
            send(fd, (const uint8_t *)bytes + sent, count - sent, MSG_DONTWAIT | MSG_NOSIGNAL);

        assert_true(result > 0 || errno == EAGAIN);
        sent += result > 0 ? (size_t)result : 0;
        turn(f);
    }
}

static inline void receive_all(struct fixture *f, int fd, void *bytes, size_t count)
{
    const uint64_t until_ns = clock_now_ns(&clock_monotonic) + LIMIT_NS;

    for (size_t got = 0; got < count; turn(f)) {
        const ssize_t result = recv(fd, (uint8_t *)bytes + got, count - got, MSG_DONTWAIT);

        assert_true(result > 0 || (result < 0 && errno == EAGAIN));
        assert_true(clock_now_ns(&clock_monotonic) < until_ns);
        got += result > 0 ? (size_t)result : 0;
    }
}

static inline void await_end(struct fixture *f, int fd)
{
    ssize_t result;
    uint8_t byte;

    AWAIT(f, (result = recv(fd, &byte, 1, MSG_DONTWAIT)) >= 0 || errno != EAGAIN);
    assert_true(result == 0 || errno == ECONNRESET);
}

static inline void send_head(struct fixture *f, uint8_t kind, uint32_t number, size_t message_bytes,
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
static inline struct rpc_head receive_message(struct fixture *f, uint8_t kind, uint8_t *ret_message)
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

/* The head and message of a SET with a payload of @bytes that lies in two spans, and which wants
 * the first of them. */
static inline void begin_submit(struct fixture *f, uint32_t number, uint64_t bytes)
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
}

static inline void send_submit(struct fixture *f, uint32_t number, const uint8_t *payload,
                               uint64_t bytes)
{
    begin_submit(f, number, bytes);
    send_all(f, f->client, payload, bytes);
}

static inline uint32_t tail_of(const struct fixture *f)
{
    return atomic_load(f->channel->channel.tail);
}

static inline void answer(struct fixture *f, uint32_t number, enum embtier_err err)
{
    const struct channel *const channel = &f->channel->channel;
    const struct answer done = { .refusal = { .err = err, .segment = UINT32_MAX }, .hit_rows = 7 };

    channel->ops->complete(channel, number, &done);
}

static inline void must_be_done(struct fixture *f, uint32_t number, const uint8_t *rows,
                                uint64_t bytes)
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

/* Wants so many bytes of the region, from AT on. */
static inline void send_read(struct fixture *f, uint32_t number, uint64_t bytes)
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

/* A test on each engine. */
#define ON(test)                                                                                   \
    cmocka_unit_test_setup_teardown(test, setup_uring, teardown),                                  \
        cmocka_unit_test_setup_teardown(test, setup_epoll, teardown)

#endif
