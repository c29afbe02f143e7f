/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of a stream, on both engines: calls and replies are passed on, requests come and go, and
 * each end of the one is the end of the other. */
#include "tests/unit/daemon/transport/rpc_stream_fixture.h"

/* ---- Requests ---- */

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

int main(void)
{
    const struct CMUnitTest tests[] = {
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
