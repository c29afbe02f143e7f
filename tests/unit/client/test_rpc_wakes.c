/* SPDX-License-Identifier: Apache-2.0 */
/* Tests when a client that waits for an answer over TCP wakes up: not for every packet of a long
 * one, and for each byte of all else. The other end is the test's own. */
#include "tests/unit/client/listener.h"

#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "client/transport/rpc/rpc_connection.h"

#define LIMIT_NS      (UINT64_C(60) * 1000000000)
#define MESSAGE_BYTES 4
#define ANSWER_BYTES  300000
#define SOME_BYTES    1000

struct fixture {
    struct rpc_sink sink;
    struct rpc_connection *connection;
    int server;
    uint64_t answers;
};

static uint8_t answer[ANSWER_BYTES], region[ANSWER_BYTES];

static enum embtier_err begin(struct rpc_sink *sink, const struct rpc_head *head,
                              const uint8_t *message, const uint64_t **ret_spans,
                              size_t *ret_numbers, struct err_msg *msg)
{
    static const uint64_t spans[] = { 0, ANSWER_BYTES };

    (void)sink;
    (void)message;
    (void)msg;
    assert_int_equal(head->payload_bytes, ANSWER_BYTES);
    *ret_spans = spans;
    *ret_numbers = 2;
    return EMBTIER_OK;
}

static void end(struct rpc_sink *sink)
{
    CONTAINER_OF(sink, struct fixture, sink)->answers++;
}

static void lose(struct rpc_sink *sink)
{
    (void)sink;
}

static int setup(void **state)
{
    static struct fixture f;
    struct err_msg msg = { { 0 } };
    struct test_listener listener;

    test_listen(&listener, 1);
    f = (struct fixture){
        .sink = { .begin = begin, .end = end, .lose = lose, .region = region },
    };
    assert_int_equal(rpc_connection_new(&listener.address, listener.text, NULL, NULL, UINT64_MAX,
                                        &f.connection, &msg),
                     EMBTIER_OK);
    rpc_connection_set_sink(f.connection, &f.sink);
    f.server = accept(listener.fd, NULL, NULL);
    assert_true(f.server >= 0);
    close(listener.fd);
    for (size_t i = 0; i < ANSWER_BYTES; i++)
        answer[i] = (uint8_t)(i * 7 + (i >> 8));
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *const f = *state;

    rpc_connection_free(f->connection);
    close(f->server);
    return 0;
}

static void send_frame(const struct fixture *f, uint8_t kind, uint64_t payload_bytes)
{
    const struct rpc_head head = { .kind = kind,
                                   .message_bytes = MESSAGE_BYTES,
                                   .payload_bytes = payload_bytes };
    uint8_t bytes[RPC_HEAD_BYTES + MESSAGE_BYTES] = { 0 };

    rpc_head_encode(&head, bytes);
    assert_int_equal(send(f->server, bytes, sizeof(bytes), 0), sizeof(bytes));
}

static bool is_awake(const struct fixture *f)
{
    struct pollfd at = { .fd = rpc_connection_fd(f->connection),
                         .events = rpc_connection_events(f->connection) };

    return poll(&at, 1, 0) > 0;
}

static void receive_all(const struct fixture *f)
{
    struct err_msg msg = { { 0 } };
    enum embtier_err err;

    do
        err = rpc_connection_receive(f->connection, &msg);
    while (err == EMBTIER_OK);
    assert_int_equal(err, EMBTIER_AGAIN);
}

/* Waits until the client's system has @bytes. */
static void await_bytes(const struct fixture *f, int bytes)
{
    const uint64_t began_ns = clock_now_ns(&clock_monotonic);
    int here = 0;

    while (here < bytes) {
        assert_int_equal(ioctl(rpc_connection_fd(f->connection), FIONREAD, &here), 0);
        assert_true(clock_since(clock_now_ns(&clock_monotonic), began_ns) < LIMIT_NS);
    }
}

/* Sends what the system takes, and receives when the client wakes up. */
static void exchange(const struct fixture *f, size_t at)
{
    const uint64_t began_ns = clock_now_ns(&clock_monotonic);

    while (f->answers == 0) {
        const ssize_t sent = send(f->server, answer + at, ANSWER_BYTES - at, MSG_DONTWAIT);

        at += sent > 0 ? (size_t)sent : 0;
        if (is_awake(f))
            receive_all(f);
        assert_true(clock_since(clock_now_ns(&clock_monotonic), began_ns) < LIMIT_NS);
    }
}

static void begin_answer(const struct fixture *f)
{
    send_frame(f, RPC_DONE, ANSWER_BYTES);
    await_bytes(f, RPC_HEAD_BYTES + MESSAGE_BYTES);
    receive_all(f);
}

static void test_a_few_bytes_of_a_long_answer_wake_nobody(void **state)
{
    const struct fixture *const f = *state;

    begin_answer(f);
    assert_int_equal(send(f->server, answer, SOME_BYTES, 0), SOME_BYTES);
    await_bytes(f, SOME_BYTES);
    assert_false(is_awake(f));
    exchange(f, SOME_BYTES);
    assert_memory_equal(region, answer, ANSWER_BYTES);
}

static void test_a_short_frame_behind_a_long_answer_wakes(void **state)
{
    const struct fixture *const f = *state;

    begin_answer(f);
    exchange(f, 0);
    assert_false(is_awake(f));
    send_frame(f, RPC_REPLY, 0);
    await_bytes(f, RPC_HEAD_BYTES + MESSAGE_BYTES);
    assert_true(is_awake(f));
}

static void test_the_end_within_a_long_answer_wakes(void **state)
{
    const struct fixture *const f = *state;
    const uint64_t began_ns = clock_now_ns(&clock_monotonic);

    begin_answer(f);
    assert_int_equal(shutdown(f->server, SHUT_WR), 0);
    while (!is_awake(f))
        assert_true(clock_since(clock_now_ns(&clock_monotonic), began_ns) < LIMIT_NS);
}

static void test_loopback_is_not_paced(void **state)
{
    const struct fixture *const f = *state;
    char control[16] = "";
    socklen_t bytes = sizeof(control);

    assert_int_equal(
        getsockopt(rpc_connection_fd(f->connection), IPPROTO_TCP, TCP_CONGESTION, control, &bytes),
        0);
    assert_string_equal(control, "reno");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_few_bytes_of_a_long_answer_wake_nobody, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_a_short_frame_behind_a_long_answer_wakes, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_the_end_within_a_long_answer_wakes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_loopback_is_not_paced, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
