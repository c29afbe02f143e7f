/* SPDX-License-Identifier: Apache-2.0 */
/* rpc_script.h: makes a client's frames from a short script, which stays one whatever a fuzzer does
 * to it. In encoded frames a changed number seldom keeps its length, so few changed spans would
 * reach the check of the region.
 *
 *     bytes  contents of each step
 *         1  kind in the lower four bits, in the order of kinds[], modulo; in the upper ones a bit
 *            for each span sent: it is narrow, with a width that the number gives
 *         1  number of the request
 *         1  spans sent, 0 to RPC_SCRIPT_SPANS; modulo
 *         1  spans wanted; likewise
 *   8 * sum  spans: offset and bytes, 32 bits each, little-endian */
#ifndef EMBTIER_TESTS_FUZZ_LIB_RPC_SCRIPT_H
#define EMBTIER_TESTS_FUZZ_LIB_RPC_SCRIPT_H

#include "proto/ops.h"
#include "proto/rpc_frame.h"
#include "tests/fuzz/lib/fuzz.h"

#define RPC_SCRIPT_SPANS 4
/* A payload that should have more bytes ends there, and with it the connection. */
#define RPC_SCRIPT_PAYLOAD_MAX 8192
#define RPC_SCRIPT_BYTES_MAX   (UINT32_C(1) << 20) /* of a span */

struct rpc_script_step {
    enum rpc_kind kind;
    uint8_t number;
    uint64_t sent[2 * RPC_SCRIPT_SPANS], wanted[2 * RPC_SCRIPT_SPANS];
    size_t sent_numbers, wanted_numbers;
    struct narrow_spans narrow;
};

/* The frames that a script has made. */
struct rpc_script {
    uint8_t *bytes;
    size_t count;
};

static inline size_t rpc_script_spans(struct fuzz_input *input, uint8_t count, uint64_t *ret_spans)
{
    const size_t spans = count % (RPC_SCRIPT_SPANS + 1);

    for (size_t i = 0; i < spans; i++) {
        uint32_t numbers[2];

        fuzz_take(input, numbers, sizeof(numbers));
        ret_spans[2 * i] = numbers[0];
        ret_spans[2 * i + 1] = numbers[1] % RPC_SCRIPT_BYTES_MAX;
    }
    return 2 * spans;
}

static inline struct rpc_script_step rpc_script_take(struct fuzz_input *input)
{
    static const enum rpc_kind kinds[] = { RPC_SUBMIT, RPC_WRITE, RPC_READ, RPC_CALL };
    const uint8_t kind = fuzz_byte(input);
    struct rpc_script_step step = { .kind = kinds[(kind & 15) % ARRAY_LEN(kinds)] };
    uint8_t sent, wanted;

    step.number = fuzz_byte(input);
    for (uint32_t span = 0; span < RPC_SCRIPT_SPANS; span++)
        if (kind >> (4 + span) & 1)
            narrow_spans_set(&step.narrow, span, NARROW_WIDTH_MAX - step.number % NARROW_WIDTH_MAX);
    sent = fuzz_byte(input);
    wanted = fuzz_byte(input);
    step.sent_numbers = rpc_script_spans(input, sent, step.sent);
    step.wanted_numbers = rpc_script_spans(input, wanted, step.wanted);
    return step;
}

/* Adds a frame. Its message is packed already. */
static inline void rpc_script_add(struct rpc_script *script, const struct rpc_head *head,
                                  const ProtobufCMessage *message)
{
    const size_t payload = MIN(head->payload_bytes, (uint64_t)RPC_SCRIPT_PAYLOAD_MAX);
    uint8_t *at;

    script->bytes =
        realloc(script->bytes, script->count + RPC_HEAD_BYTES + head->message_bytes + payload);
    FUZZ_CHECK(script->bytes);
    at = script->bytes + script->count;
    rpc_head_encode(head, at);
    protobuf_c_message_pack(message, at + RPC_HEAD_BYTES);
    memset(at + RPC_HEAD_BYTES + head->message_bytes, 'p', payload);
    script->count += RPC_HEAD_BYTES + head->message_bytes + payload;
}

static inline void rpc_script_add_message(struct rpc_script *script,
                                          const struct rpc_script_step *step,
                                          const ProtobufCMessage *message, uint64_t payload_bytes)
{
    const struct rpc_head head = {
        .kind = (uint8_t)step->kind,
        .number = step->number,
        .message_bytes = (uint32_t)protobuf_c_message_get_packed_size(message),
        .payload_bytes = payload_bytes,
    };

    rpc_script_add(script, &head, message);
}

static inline void rpc_script_run(struct rpc_script *script, struct rpc_script_step *step)
{
    const uint64_t sent_bytes = narrow_spans_payload(&step->narrow, step->sent, step->sent_numbers);
    uint32_t narrow[RPC_SPANS_MAX];
    Embtier__RpcSubmit submit = EMBTIER__RPC_SUBMIT__INIT;
    Embtier__RpcWrite write = EMBTIER__RPC_WRITE__INIT;
    Embtier__RpcRead read = EMBTIER__RPC_READ__INIT;

    submit.op = OP_GET;
    submit.narrow = write.narrow = narrow;
    submit.n_narrow = write.n_narrow = narrow_spans_write(&step->narrow, RPC_SCRIPT_SPANS, narrow);
    submit.sent = write.sent = step->sent;
    submit.n_sent = write.n_sent = step->sent_numbers;
    submit.wanted = read.wanted = step->wanted;
    submit.n_wanted = read.n_wanted = step->wanted_numbers;
    if (step->kind == RPC_WRITE)
        rpc_script_add_message(script, step, &write.base, sent_bytes);
    else if (step->kind == RPC_READ)
        rpc_script_add_message(script, step, &read.base, 0);
    else
        rpc_script_add_message(script, step, &submit.base, step->kind == RPC_CALL ? 0 : sent_bytes);
}

/* Returns the frames of all steps; their bytes are malloced. */
static inline struct rpc_script rpc_script_make(struct fuzz_input *input)
{
    struct rpc_script script = { .bytes = fuzz_copy(NULL, 0) };

    while (input->left > 0) {
        struct rpc_script_step step = rpc_script_take(input);

        rpc_script_run(&script, &step);
    }
    return script;
}

#endif
