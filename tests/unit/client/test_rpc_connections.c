/* SPDX-License-Identifier: Apache-2.0 */
/* Tests a session over two connections with a server that the test plays itself: which of them are
 * served in a wait, which answers are accepted, and which reason is told at the end. */
#include "tests/unit/client/listener.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "client/transport/control_socket.h"
#include "client/transport/rpc/rpc_connection.h"

#define LIMIT_S     60
#define LIMIT_NS    (LIMIT_S * UINT64_C(1000000000))
#define CONNECTIONS 2
/* More than the systems of both sides take by themselves. */
#define ROW_BYTES    (UINT64_C(32) << 20)
#define REGION_BYTES (2 * ROW_BYTES)
#define SENT_AT      4096
#define WANTED_AT    (SENT_AT + ROW_BYTES)
#define READ_AT      128
#define SMALL_BYTES  64

struct fixture {
    struct control_socket socket;
    struct client_channel *channel;
    int server[CONNECTIONS];
    enum rpc_kind
        expected; /* of the frame on the first connection, which waits for the other one */
    pthread_t thread;
    bool is_served;
};

/* ---- The server ---- */

static bool pass(int fd, uint8_t *bytes, uint64_t count,
                 ssize_t (*some)(int fd, uint8_t *bytes, size_t count))
{
    for (uint64_t at = 0; at < count;) {
        const ssize_t passed = some(fd, bytes + at, count - at);

        if (passed <= 0)
            return false;
        at += (uint64_t)passed;
    }
    return true;
}

static ssize_t send_some(int fd, uint8_t *bytes, size_t count)
{
    return send(fd, bytes, count, MSG_NOSIGNAL);
}

static ssize_t receive_some(int fd, uint8_t *bytes, size_t count)
{
    return recv(fd, bytes, count, 0);
}

static bool send_frame(int fd, enum rpc_kind kind, uint32_t number, const uint8_t *message,
                       uint32_t message_bytes, uint64_t payload_bytes)
{
    const struct rpc_head head = { .kind = (uint8_t)kind,
                                   .number = number,
                                   .message_bytes = message_bytes,
                                   .payload_bytes = payload_bytes };
    uint8_t bytes[RPC_HEAD_BYTES + 256] = { 0 };

    assert_true(message_bytes <= sizeof(bytes) - RPC_HEAD_BYTES);
    rpc_head_encode(&head, bytes);
    if (message_bytes > 0)
        memcpy(bytes + RPC_HEAD_BYTES, message, message_bytes);
    return pass(fd, bytes, RPC_HEAD_BYTES + message_bytes, send_some);
}

static bool send_payload(int fd, uint64_t count)
{
    uint8_t *const bytes = calloc(1, count);
    const bool is_sent = bytes && pass(fd, memset(bytes, 7, count), count, send_some);

    free(bytes);
    return is_sent;
}

/* Takes a whole frame. */
static bool take_frame(int fd, struct rpc_head *ret_head)
{
    uint8_t head[RPC_HEAD_BYTES];
    struct err_msg msg;
    uint8_t *rest;
    bool is_taken;

    if (!pass(fd, head, sizeof(head), receive_some) ||
        rpc_head_decode(head, FRAME_BYTES_MAX, ret_head, &msg) != EMBTIER_OK)
        return false;
    rest = malloc(ret_head->message_bytes + ret_head->payload_bytes);
    is_taken =
        rest && pass(fd, rest, ret_head->message_bytes + ret_head->payload_bytes, receive_some);
    free(rest);
    return is_taken;
}

static bool send_done(int fd, uint32_t number, uint64_t payload_bytes)
{
    return send_frame(fd, RPC_DONE, number, NULL, 0, payload_bytes);
}

static bool send_refused(int fd, const char *why)
{
    Embtier__Error error = EMBTIER__ERROR__INIT;
    uint8_t message[128];

    error.err = EMBTIER_PROTOCOL;
    error.message = (char *)(uintptr_t)why;
    assert_true(embtier__error__get_packed_size(&error) <= sizeof(message));
    return send_frame(fd, RPC_REFUSED, 0, message, (uint32_t)embtier__error__pack(&error, message),
                      0);
}

static bool send_reply(int fd)
{
    Embtier__Reply reply = EMBTIER__REPLY__INIT;
    Embtier__TableListReply body = EMBTIER__TABLE_LIST_REPLY__INIT;
    uint8_t *bytes;
    size_t count;
    bool is_sent;

    reply.id = 1;
    reply.last = true;
    reply.body_case = EMBTIER__REPLY__BODY_TABLE_LIST;
    reply.table_list = &body;
    if (frame_encode_reply(&reply, &bytes, &count) != EMBTIER_OK)
        return false;
    is_sent = send_frame(fd, RPC_REPLY, 0, bytes + FRAME_HEADER_BYTES,
                         (uint32_t)(count - FRAME_HEADER_BYTES), 0);
    free(bytes);
    return is_sent;
}

/* Answers what came over the first connection after all that came over the second. */
static void *serve_the_second_first(void *context)
{
    struct fixture *const f = context;
    struct rpc_head first, second;

    f->is_served = take_frame(f->server[0], &first) && first.kind == f->expected &&
                   take_frame(f->server[1], &second) && second.kind == RPC_SUBMIT &&
                   send_done(f->server[1], second.number, ROW_BYTES) &&
                   send_payload(f->server[1], ROW_BYTES);
    if (f->is_served && f->expected == RPC_CALL)
        f->is_served = send_reply(f->server[0]);
    else if (f->is_served)
        f->is_served = send_frame(f->server[0], RPC_DATA, 0, NULL, 0, SMALL_BYTES) &&
                       send_payload(f->server[0], SMALL_BYTES);
    if (!f->is_served) /* the client waits no longer */
        (void)shutdown(f->server[0], SHUT_RDWR);
    return NULL;
}

/* ---- The client ---- */

static void connect_both(struct fixture *f, struct rpc_connection **ret_connections)
{
    const struct timeval limit = { .tv_sec = LIMIT_S };
    struct err_msg msg = { { 0 } };
    struct test_listener listener;

    test_listen(&listener, CONNECTIONS);
    for (int i = 0; i < CONNECTIONS; i++) {
        assert_int_equal(rpc_connection_new(&listener.address, listener.text, NULL, NULL,
                                            UINT64_MAX, &ret_connections[i], &msg),
                         EMBTIER_OK);
        f->server[i] = accept(listener.fd, NULL, NULL);
        assert_true(f->server[i] >= 0);
        assert_int_equal(setsockopt(f->server[i], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)),
                         0);
        assert_int_equal(setsockopt(f->server[i], SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)),
                         0);
    }
    close(listener.fd);
}

static int setup(void **state)
{
    static struct fixture f;
    struct rpc_connection *connections[CONNECTIONS];
    Embtier__HelloReply hello = EMBTIER__HELLO_REPLY__INIT;
    struct err_msg msg = { { 0 } };

    f = (struct fixture){ .channel = NULL };
    connect_both(&f, connections);
    control_socket_init(&f.socket, 0);
    f.socket.rpc = connections[0];
    hello.arena_bytes = REGION_BYTES + SENT_AT;
    hello.slot_count = CONNECTIONS;
    assert_int_equal(
        rpc_channel_open(connections[0], &hello, UINT64_MAX, LIMIT_NS, &f.channel, &msg),
        EMBTIER_OK);
    rpc_channel_add(f.channel, connections[1]);
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *const f = *state;

    control_socket_close(&f->socket);
    client_channel_free(f->channel);
    for (int i = 0; i < CONNECTIONS; i++)
        close(f->server[i]);
    return 0;
}

/* Submits a request that sends and wants @bytes. */
static void submit(const struct fixture *f, uint32_t number, uint64_t bytes)
{
    const struct op_submission submission = { .op = OP_GET };
    struct err_msg msg = { { 0 } };

    f->channel->sent->numbers[0] = SENT_AT;
    f->channel->wanted->numbers[0] = WANTED_AT;
    f->channel->sent->numbers[1] = f->channel->wanted->numbers[1] = bytes;
    f->channel->sent->count = f->channel->wanted->count = 2;
    assert_int_equal(f->channel->ops->submit(f->channel, number, &submission, &msg), EMBTIER_OK);
}

static bool is_done(const struct fixture *f, uint32_t number)
{
    return client_channel_sequence(client_channel_completion(f->channel, number)) == number + 1;
}

static void begin(struct fixture *f, enum rpc_kind expected)
{
    submit(f, 0, SMALL_BYTES);
    submit(f, 1, ROW_BYTES);
    f->expected = expected;
}

/* Takes the first request, which no test answers there. */
static void start_server(struct fixture *f)
{
    struct rpc_head head = { 0 };

    assert_true(take_frame(f->server[0], &head));
    assert_int_equal(head.kind, RPC_SUBMIT);
    assert_int_equal(pthread_create(&f->thread, NULL, serve_the_second_first, f), 0);
}

/* The server has sent all of the second connection's answer before the first one's. But the end of
 * it may still be on its way. */
static void expect_served(const struct fixture *f)
{
    const uint64_t began_ns = clock_now_ns(&clock_monotonic);

    assert_int_equal(pthread_join(f->thread, NULL), 0);
    assert_true(f->is_served);
    while (!is_done(f, 1)) {
        f->channel->ops->look(f->channel);
        assert_true(clock_since(clock_now_ns(&clock_monotonic), began_ns) < LIMIT_NS);
    }
    assert_false(is_done(f, 0));
    assert_int_equal(f->channel->region[WANTED_AT + ROW_BYTES - 1], 7);
}

/* Takes in what comes until the session has ended with @wanted. */
static void await_end(const struct fixture *f, enum embtier_err wanted, struct err_msg *msg)
{
    const uint64_t began_ns = clock_now_ns(&clock_monotonic);

    do {
        f->channel->ops->look(f->channel);
        assert_true(clock_since(clock_now_ns(&clock_monotonic), began_ns) < LIMIT_NS);
    } while (f->channel->ops->ended(f->channel, msg) != wanted);
}

static void expect_reason(const struct fixture *f, const char *reason)
{
    struct err_msg msg = { { 0 } };

    await_end(f, EMBTIER_PROTOCOL, &msg);
    assert_string_equal(msg.text, reason);
}

/* ---- Tests ---- */

static void test_a_call_serves_the_other_connection(void **state)
{
    struct fixture *const f = *state;
    _cleanup_(reply_freep) Embtier__Reply *reply = NULL;
    Embtier__Request request = EMBTIER__REQUEST__INIT;
    Embtier__TableList body = EMBTIER__TABLE_LIST__INIT;
    struct err_msg msg = { { 0 } };
    enum embtier_err err;

    request.body_case = EMBTIER__REQUEST__BODY_TABLE_LIST;
    request.table_list = &body;
    begin(f, RPC_CALL);
    start_server(f);
    err = control_socket_call(&f->socket, &request, NULL, NULL, &reply, &msg);
    expect_served(f);
    assert_int_equal(err, EMBTIER_OK);
}

static void test_a_read_serves_the_other_connection(void **state)
{
    struct fixture *const f = *state;
    struct err_msg msg = { { 0 } };
    enum embtier_err err;

    begin(f, RPC_READ);
    start_server(f);
    err = f->channel->ops->get(f->channel, READ_AT, SMALL_BYTES, &msg);
    expect_served(f);
    assert_int_equal(err, EMBTIER_OK);
    assert_int_equal(f->channel->region[READ_AT], 7);
}

/* The end of another connection neither ends the call nor keeps the client busy. */
static void test_a_call_goes_on_without_the_other_connection(void **state)
{
    struct fixture *const f = *state;
    struct rpc_connection *const first = f->socket.rpc;
    struct err_msg msg = { { 0 } };

    assert_int_equal(shutdown(f->server[1], SHUT_WR), 0);
    await_end(f, EMBTIER_DISCONNECTED, &msg);
    assert_int_equal(rpc_connection_wait(first, 1), 0);
    assert_true(send_reply(f->server[0]));
    assert_int_equal(rpc_connection_wait(first, LIMIT_S * 1000), 1);
    assert_int_equal(rpc_connection_receive(first, &msg), EMBTIER_OK);
}

static void test_an_answer_comes_over_the_connection_of_its_request(void **state)
{
    struct fixture *const f = *state;

    submit(f, 0, SMALL_BYTES);
    submit(f, 1, SMALL_BYTES);
    assert_true(send_done(f->server[0], 0, SMALL_BYTES));
    assert_true(send_done(f->server[1], 0, SMALL_BYTES));
    expect_reason(f, "the server answered request 0 over another connection");
}

static void test_data_comes_over_the_first_connection(void **state)
{
    struct fixture *const f = *state;
    struct err_msg msg = { { 0 } };

    /* The end of the first connection makes get() return. */
    assert_true(send_frame(f->server[1], RPC_DATA, 0, NULL, 0, SMALL_BYTES));
    assert_int_equal(shutdown(f->server[0], SHUT_WR), 0);
    assert_int_equal(f->channel->ops->get(f->channel, READ_AT, SMALL_BYTES, &msg),
                     EMBTIER_DISCONNECTED);
    expect_reason(f, "the server sent bytes that nobody asked for");
}

static void test_a_reason_on_any_connection_is_told(void **state)
{
    struct fixture *const f = *state;
    struct err_msg msg = { { 0 } };

    assert_int_equal(shutdown(f->server[0], SHUT_WR), 0);
    await_end(f, EMBTIER_DISCONNECTED, &msg);
    assert_true(send_refused(f->server[1], "it is wrong"));
    expect_reason(f, "the server refused a frame: it is wrong");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        TEST(test_a_call_serves_the_other_connection),
        TEST(test_a_read_serves_the_other_connection),
        TEST(test_a_call_goes_on_without_the_other_connection),
        TEST(test_an_answer_comes_over_the_connection_of_its_request),
        TEST(test_data_comes_over_the_first_connection),
        TEST(test_a_reason_on_any_connection_is_told),
#undef TEST
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
