/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that heads of frames and lists of spans are taken as they were sent, or refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/macros.h"
#include "proto/rpc_frame.h"

static const struct rpc_head example = {
    .kind = RPC_SUBMIT,
    .number = 0x01020304,
    .message_bytes = 77,
    .payload_bytes = UINT64_C(0x0a0b0c0d0e),
};

static enum embtier_err decode(const uint8_t *bytes, struct rpc_head *head)
{
    struct err_msg msg = { { 0 } };

    return rpc_head_decode(bytes, RPC_MESSAGE_BYTES_MAX, head, &msg);
}

/* The bytes are those of docs/protocol.md. */
static void test_a_head_has_a_fixed_layout(void **state)
{
    static const uint8_t expected[28] = { 'E',  'B', 'T', '1', 1, 3, 0,    0,    4,    3,
                                          2,    1,   77,  0,   0, 0, 0x0e, 0x0d, 0x0c, 0x0b,
                                          0x0a, 0,   0,   0,   0, 0, 0,    0 };
    uint8_t bytes[RPC_HEAD_BYTES];
    struct rpc_head head;

    (void)state;
    rpc_head_encode(&example, bytes);
    assert_memory_equal(bytes, expected, sizeof(expected));
    assert_int_equal(decode(bytes, &head), EMBTIER_OK);
    assert_int_equal(head.kind, example.kind);
    assert_int_equal(head.number, example.number);
    assert_int_equal(head.message_bytes, example.message_bytes);
    assert_int_equal(head.payload_bytes, example.payload_bytes);
}

static void test_each_changed_bit_is_noticed(void **state)
{
    uint8_t bytes[RPC_HEAD_BYTES];
    struct rpc_head head;

    (void)state;
    rpc_head_encode(&example, bytes);
    for (uint32_t bit = 0; bit < 8 * RPC_HEAD_BYTES; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_int_equal(decode(bytes, &head), EMBTIER_PROTOCOL);
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    assert_int_equal(decode(bytes, &head), EMBTIER_OK);
}

static void test_lengths_are_limited(void **state)
{
    struct rpc_head head = example;
    uint8_t bytes[RPC_HEAD_BYTES];

    (void)state;
    head.message_bytes = RPC_MESSAGE_BYTES_MAX;
    head.payload_bytes = RPC_PAYLOAD_BYTES_MAX;
    rpc_head_encode(&head, bytes);
    assert_int_equal(decode(bytes, &head), EMBTIER_OK);
    head.message_bytes++;
    rpc_head_encode(&head, bytes);
    assert_int_equal(decode(bytes, &head), EMBTIER_TOO_LARGE);
    head.message_bytes = 0;
    head.payload_bytes = RPC_PAYLOAD_BYTES_MAX + 1;
    rpc_head_encode(&head, bytes);
    assert_int_equal(decode(bytes, &head), EMBTIER_TOO_LARGE);
}

/* ---- Spans ---- */

static enum embtier_err decode_spans(const uint64_t *sent, size_t sent_count,
                                     const uint64_t *wanted, size_t wanted_count,
                                     uint64_t payload_bytes)
{
    Embtier__RpcSubmit message = EMBTIER__RPC_SUBMIT__INIT;
    Embtier__RpcSubmit *decoded = NULL;
    struct narrow_spans narrow;
    struct err_msg msg = { { 0 } };
    enum embtier_err err;
    uint8_t *bytes;
    size_t count;

    message.op = 1;
    message.sent = (uint64_t *)(uintptr_t)sent;
    message.n_sent = sent_count;
    message.wanted = (uint64_t *)(uintptr_t)wanted;
    message.n_wanted = wanted_count;
    count = embtier__rpc_submit__get_packed_size(&message);
    bytes = malloc(count);
    assert_non_null(bytes);
    embtier__rpc_submit__pack(&message, bytes);
    err = rpc_decode_submit(bytes, (uint32_t)count, payload_bytes, &decoded, &narrow, &msg);
    if (err == EMBTIER_OK) {
        assert_int_equal(decoded->n_sent, sent_count);
        assert_int_equal(decoded->n_wanted, wanted_count);
        embtier__rpc_submit__free_unpacked(decoded, NULL);
    } else {
        assert_string_not_equal(msg.text, "");
    }
    free(bytes);
    return err;
}

static void test_spans_must_fit_the_payload(void **state)
{
    const uint64_t good[] = { 64, 10, 128, 5 };
    const uint64_t empty[] = { 64, 0 };
    const uint64_t to_the_end[] = { UINT64_MAX - 4, 4 };
    const uint64_t over_the_end[] = { UINT64_MAX - 4, 5 };
    const uint64_t huge[] = { 64, RPC_PAYLOAD_BYTES_MAX + 1 };

    (void)state;
    assert_int_equal(decode_spans(good, 4, good, 4, 15), EMBTIER_OK);
    assert_int_equal(decode_spans(NULL, 0, NULL, 0, 0), EMBTIER_OK);
    assert_int_equal(decode_spans(NULL, 0, to_the_end, 2, 0), EMBTIER_OK);
    assert_int_equal(decode_spans(good, 4, NULL, 0, 14), EMBTIER_PROTOCOL);
    assert_int_equal(decode_spans(good, 4, NULL, 0, 16), EMBTIER_PROTOCOL);
    assert_int_equal(decode_spans(good, 3, NULL, 0, 10), EMBTIER_PROTOCOL);
    assert_int_equal(decode_spans(empty, 2, NULL, 0, 0), EMBTIER_PROTOCOL);
    assert_int_equal(decode_spans(NULL, 0, empty, 2, 0), EMBTIER_PROTOCOL);
    assert_int_equal(decode_spans(NULL, 0, over_the_end, 2, 0), EMBTIER_PROTOCOL);
    assert_int_equal(decode_spans(NULL, 0, huge, 2, 0), EMBTIER_PROTOCOL);
}

static void test_there_are_so_many_spans_and_no_more(void **state)
{
    static uint64_t spans[2 * (RPC_SPANS_MAX + 1)];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(spans); i++)
        spans[i] = i % 2 == 0 ? 64 + i : 1;
    assert_int_equal(decode_spans(spans, 2 * RPC_SPANS_MAX, NULL, 0, RPC_SPANS_MAX), EMBTIER_OK);
    assert_int_equal(decode_spans(spans, ARRAY_LEN(spans), NULL, 0, RPC_SPANS_MAX + 1),
                     EMBTIER_PROTOCOL);
}

/* Decodes a WRITE of a narrow span of 16 bytes and a wide one of 5. */
static enum embtier_err decode_narrow(uint32_t span, uint32_t width, uint64_t payload_bytes)
{
    uint64_t sent[] = { 64, 16, 128, 5 };
    Embtier__RpcWrite message = EMBTIER__RPC_WRITE__INIT;
    Embtier__RpcWrite *decoded = NULL;
    struct narrow_spans narrow;
    uint32_t number = 8 * span + width;
    struct err_msg msg = { { 0 } };
    uint8_t bytes[64];
    enum embtier_err err;

    message.sent = sent;
    message.n_sent = ARRAY_LEN(sent);
    message.narrow = &number;
    message.n_narrow = 1;
    err = rpc_decode_write(bytes, (uint32_t)embtier__rpc_write__pack(&message, bytes),
                           payload_bytes, &decoded, &narrow, &msg);
    if (err == EMBTIER_OK) {
        assert_int_equal(narrow_spans_width(&narrow, span), width);
        embtier__rpc_write__free_unpacked(decoded, NULL);
    }
    return err;
}

static void test_a_narrow_span_has_fewer_bytes(void **state)
{
    (void)state;
    assert_int_equal(decode_narrow(0, 4, 13), EMBTIER_OK);
    assert_int_equal(decode_narrow(0, 3, 11), EMBTIER_OK);
    assert_int_equal(decode_narrow(0, 1, 7), EMBTIER_OK);
    assert_int_equal(decode_narrow(0, 4, 21), EMBTIER_PROTOCOL);
    assert_int_equal(decode_narrow(0, 3, 13), EMBTIER_PROTOCOL);
    assert_int_equal(decode_narrow(1, 4, 18), EMBTIER_PROTOCOL);
    assert_int_equal(decode_narrow(2, 4, 21), EMBTIER_PROTOCOL);
}

static void test_a_damaged_message_is_refused(void **state)
{
    static const uint8_t bytes[] = { 0x4a, 0x05, 1, 2 }; /* `sent` of 5 bytes, of which 2 came */
    Embtier__RpcSubmit *submit = NULL;
    struct narrow_spans narrow;
    struct err_msg msg;

    (void)state;
    assert_int_equal(rpc_decode_submit(bytes, sizeof(bytes), 0, &submit, &narrow, &msg),
                     EMBTIER_PROTOCOL);
    assert_null(submit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_head_has_a_fixed_layout),
        cmocka_unit_test(test_each_changed_bit_is_noticed),
        cmocka_unit_test(test_lengths_are_limited),
        cmocka_unit_test(test_spans_must_fit_the_payload),
        cmocka_unit_test(test_there_are_so_many_spans_and_no_more),
        cmocka_unit_test(test_a_narrow_span_has_fewer_bytes),
        cmocka_unit_test(test_a_damaged_message_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
