/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of the bytes of requests and answers, on both engines: the system receives them into their
 * place in the region, and sends them from it. */
#include "tests/unit/daemon/transport/rpc_stream_fixture.h"

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

/* ---- Final buffers ---- */

static bool is_in_payload(const struct fixture *f)
{
    return f->stream->arrival.step == RPC_STEP_PAYLOAD && f->stream->net.file.read.done;
}

/* The buffer that the engine gives to the system lies at @at of the region. */
static void must_lie_at(const struct fixture *f, const struct io_task *task, size_t buffer,
                        uint64_t at, uint64_t bytes)
{
    const struct msghdr *const message = &task->message;

    assert_true(task->done && buffer < message->msg_iovlen);
    assert_ptr_equal(message->msg_iov[buffer].iov_base, f->channel->channel.region + at);
    assert_int_equal(message->msg_iov[buffer].iov_len, bytes);
}

static void test_the_system_receives_a_payload_into_its_spans(void **state)
{
    struct fixture *const f = *state;
    const struct io_task *const read = &f->stream->net.file.read;

    begin_submit(f, 0, 8);
    AWAIT(f, is_in_payload(f));
    must_lie_at(f, read, 0, AT, 4);
    must_lie_at(f, read, 1, 2 * AT, 4);
    send_all(f, f->client, "abc", 3);
    AWAIT(f, is_in_payload(f) && f->stream->arrival.bytes_left == 5);
    must_lie_at(f, read, 0, AT + 3, 1);
    must_lie_at(f, read, 1, 2 * AT, 4);
    send_all(f, f->client, "defg", 4);
    AWAIT(f, is_in_payload(f) && f->stream->arrival.bytes_left == 1);
    must_lie_at(f, read, 0, 2 * AT + 3, 1);
    send_all(f, f->client, "h", 1);
    AWAIT(f, tail_of(f) == 1);
    assert_memory_equal(f->channel->channel.region + AT, "abcd", 4);
    assert_memory_equal(f->channel->channel.region + 2 * AT, "efgh", 4);
    answer(f, 0, EMBTIER_IO);
}

/* Rows that the system did not take stay where they lie. */
static void test_the_system_sends_rows_from_their_span(void **state)
{
    static uint8_t got[PART_BYTES];
    struct fixture *const f = *state;
    const struct io_task *const write = &f->stream->net.file.write;
    uint8_t *const rows = f->channel->channel.region + AT;
    uint8_t none;

    for (size_t i = 0; i < sizeof(got); i++)
        rows[i] = (uint8_t)(i * 5 + (i >> 8));
    (void)setsockopt(f->stream->net.file.fd, SOL_SOCKET, SO_SNDBUF, &(int){ 4096 }, sizeof(int));
    send_read(f, 1, sizeof(got));
    AWAIT(f, write->done && write->message.msg_iovlen == 1); /* the head has gone */
    assert_in_range(write->message.msg_iov->iov_len, 1, sizeof(got) - 1);
    must_lie_at(f, write, 0, AT + sizeof(got) - write->message.msg_iov->iov_len,
                write->message.msg_iov->iov_len);
    assert_int_equal(receive_message(f, RPC_DATA, &none).payload_bytes, sizeof(got));
    receive_all(f, f->client, got, sizeof(got));
    assert_memory_equal(got, rows, sizeof(got));
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON(test_a_payload_goes_into_its_spans_and_an_answer_brings_its_own),
        ON(test_the_system_receives_a_payload_into_its_spans),
        ON(test_the_system_sends_rows_from_their_span),
        ON(test_narrow_ids_are_widened_wherever_they_are_cut),
        ON(test_narrow_ids_a_byte_at_a_time),
        ON(test_a_long_narrow_span_is_widened_whole),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
