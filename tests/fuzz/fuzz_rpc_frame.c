/* SPDX-License-Identifier: Apache-2.0 */
/* Heads and messages of RPC frames (proto/rpc_frame.h), one frame each: head, message. A head that
 * is accepted is that which its numbers encode. */
#include "tests/fuzz/lib/rpc_sums.h"

/* Accepted spans are pairs, and have as many bytes as the payload. */
static void check_spans(const uint64_t *spans, size_t count, const struct narrow_spans *narrow,
                        uint64_t bytes)
{
    uint64_t sum = 0;

    FUZZ_CHECK(count % 2 == 0 && count / 2 <= RPC_SPANS_MAX);
    for (size_t i = 1; i < count; i += 2) {
        const bool is_narrow = narrow_spans_has(narrow, i / 2);

        FUZZ_CHECK(spans[i] > 0 && sum + spans[i] > sum);
        FUZZ_CHECK(!is_narrow || (spans[i] % 8 == 0 && spans[i - 1] % 8 == 0));
        sum += is_narrow ? spans[i] / 8 * narrow_spans_width(narrow, i / 2) : spans[i];
    }
    FUZZ_CHECK(sum == bytes && narrow_spans_payload(narrow, spans, count) == bytes);
}

static void check_wide_spans(const uint64_t *spans, size_t count)
{
    check_spans(spans, count, &(struct narrow_spans){ { 0 } }, rpc_spans_bytes(spans, count));
}

static void decode_submit(const uint8_t *message, uint32_t bytes, uint64_t payload_bytes)
{
    Embtier__RpcSubmit *submit = NULL;
    struct narrow_spans narrow;
    struct err_msg msg = { { 0 } };

    if (rpc_decode_submit(message, bytes, payload_bytes, &submit, &narrow, &msg) != EMBTIER_OK)
        return;
    check_spans(submit->sent, submit->n_sent, &narrow, payload_bytes);
    check_wide_spans(submit->wanted, submit->n_wanted);
    embtier__rpc_submit__free_unpacked(submit, NULL);
}

static void decode_write(const uint8_t *message, uint32_t bytes, uint64_t payload_bytes)
{
    Embtier__RpcWrite *write = NULL;
    struct narrow_spans narrow;
    struct err_msg msg = { { 0 } };

    if (rpc_decode_write(message, bytes, payload_bytes, &write, &narrow, &msg) != EMBTIER_OK)
        return;
    check_spans(write->sent, write->n_sent, &narrow, payload_bytes);
    embtier__rpc_write__free_unpacked(write, NULL);
}

static void decode_read(const uint8_t *message, uint32_t bytes, uint64_t payload_bytes)
{
    Embtier__RpcRead *read = NULL;
    struct err_msg msg = { { 0 } };

    if (rpc_decode_read(message, bytes, payload_bytes, &read, &msg) != EMBTIER_OK)
        return;
    check_wide_spans(read->wanted, read->n_wanted);
    embtier__rpc_read__free_unpacked(read, NULL);
}

static void decode_done(const uint8_t *message, uint32_t bytes)
{
    Embtier__RpcDone *done = NULL;
    struct err_msg msg = { { 0 } };

    if (rpc_decode_done(message, bytes, &done, &msg) == EMBTIER_OK)
        embtier__rpc_done__free_unpacked(done, NULL);
}

static void decode(const struct rpc_head *head, const uint8_t *message, uint32_t bytes)
{
    switch (head->kind) {
    case RPC_SUBMIT:
        decode_submit(message, bytes, head->payload_bytes);
        break;
    case RPC_WRITE:
        decode_write(message, bytes, head->payload_bytes);
        break;
    case RPC_READ:
        decode_read(message, bytes, head->payload_bytes);
        break;
    case RPC_DONE:
        decode_done(message, bytes);
        break;
    default:
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct fuzz_input input = { .at = data, .left = bytes };
    uint8_t bytes_of_head[RPC_HEAD_BYTES], again[RPC_HEAD_BYTES];
    struct err_msg msg = { { 0 } };
    struct rpc_head head;

    fuzz_take(&input, bytes_of_head, sizeof(bytes_of_head));
    rpc_repair_head(bytes_of_head);
    if (rpc_head_decode(bytes_of_head, RPC_MESSAGE_BYTES_MAX, &head, &msg) == EMBTIER_OK) {
        _cleanup_(freep) uint8_t *message = fuzz_copy(input.at, input.left);

        rpc_head_encode(&head, again);
        FUZZ_CHECK(memcmp(bytes_of_head, again, sizeof(again)) == 0);
        FUZZ_CHECK(head.message_bytes <= RPC_MESSAGE_BYTES_MAX);
        decode(&head, message, (uint32_t)MIN(input.left, (size_t)RPC_MESSAGE_BYTES_MAX));
    } else {
        FUZZ_CHECK(msg.text[0]);
    }
    return 0;
}
