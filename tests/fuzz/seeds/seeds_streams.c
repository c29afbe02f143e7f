/* SPDX-License-Identifier: Apache-2.0 */
/* Seeds of fuzz_rpc_stream and fuzz_reply: whole connections, as one side sends them. */
#include <endian.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "proto/control.pb-c.h"
#include "proto/ops.h"
#include "proto/rpc_frame.h"
#include "tests/fuzz/lib/reply_input.h"
#include "tests/fuzz/seeds/sample_message.h"

static void add_rpc_frame(struct seed *stream, enum rpc_kind kind, uint32_t number,
                          const ProtobufCMessage *message, uint64_t payload_bytes)
{
    _cleanup_(seed_clear) struct seed packed = { .bytes = NULL };
    uint8_t head[RPC_HEAD_BYTES];

    if (message)
        sample_pack(&packed, message);
    rpc_head_encode(&(struct rpc_head){ .kind = (uint8_t)kind,
                                        .number = number,
                                        .message_bytes = (uint32_t)packed.count,
                                        .payload_bytes = payload_bytes },
                    head);
    seed_add(stream, head, sizeof(head));
    seed_add(stream, packed.bytes, packed.count);
    for (uint64_t i = 0; i < payload_bytes; i++)
        seed_add_byte(stream, (uint8_t)i);
}

/* ---- A client ---- */

static void add_call(struct seed *stream, const char *body)
{
    _cleanup_(sample_freep) ProtobufCMessage *call =
        sample_message(&embtier__request__descriptor, body);

    add_rpc_frame(stream, RPC_CALL, 0, call, 0);
}

/* A request with @count spans of 100 bytes, each 300 bytes behind the one before, and as many that
 * it wants. */
static void add_submit(struct seed *stream, uint32_t number, size_t count)
{
    Embtier__RpcSubmit submit = EMBTIER__RPC_SUBMIT__INIT;
    uint64_t spans[2 * RPC_SPANS_MAX];

    for (size_t i = 0; i < count; i++) {
        spans[2 * i] = OP_ALIGN + 300 * i;
        spans[2 * i + 1] = 100;
    }
    submit.op = OP_GET;
    submit.segment_count = 1;
    submit.segments_offset = OP_ALIGN;
    submit.sent = submit.wanted = spans;
    submit.n_sent = submit.n_wanted = 2 * count;
    add_rpc_frame(stream, RPC_SUBMIT, number, &submit.base, 100 * count);
}

static void add_write(struct seed *stream)
{
    Embtier__RpcWrite write = EMBTIER__RPC_WRITE__INIT;
    uint64_t spans[] = { 4096, 300, 64, 1 };

    write.sent = spans;
    write.n_sent = ARRAY_LEN(spans);
    add_rpc_frame(stream, RPC_WRITE, 0, &write.base, 301);
}

/* A span of 40 ids that is narrow, between others. */
static void add_narrow_submit(struct seed *stream, uint32_t number)
{
    Embtier__RpcSubmit submit = EMBTIER__RPC_SUBMIT__INIT;
    uint64_t spans[] = { OP_ALIGN, 32, 4096, 320, 8192, 7 };
    uint32_t narrow[] = { 1 * 8 + 4 };

    submit.op = OP_GET;
    submit.segment_count = 1;
    submit.segments_offset = OP_ALIGN;
    submit.sent = submit.wanted = spans;
    submit.n_sent = submit.n_wanted = ARRAY_LEN(spans);
    submit.narrow = narrow;
    submit.n_narrow = ARRAY_LEN(narrow);
    add_rpc_frame(stream, RPC_SUBMIT, number, &submit.base, 32 + 160 + 7);
}

static void add_read(struct seed *stream)
{
    Embtier__RpcRead read = EMBTIER__RPC_READ__INIT;
    uint64_t spans[] = { 4096, 3000, 64, 60000 };

    read.wanted = spans;
    read.n_wanted = ARRAY_LEN(spans);
    add_rpc_frame(stream, RPC_READ, 5, &read.base, 0);
}

static void write_stream(uint8_t flags, uint8_t pieces, const char *name)
{
    struct seed stream = { .bytes = NULL };

    seed_add_byte(&stream, flags);
    seed_add_byte(&stream, pieces);
    add_call(&stream, "status");
    if (!(flags & 1)) {
        add_submit(&stream, 0, 1);
        add_submit(&stream, 2, 20);
        add_submit(&stream, 1, 2);
        add_narrow_submit(&stream, 3);
        add_write(&stream);
        add_read(&stream);
    }
    add_rpc_frame(&stream, (enum rpc_kind)99, 6, NULL, 70);
    add_call(&stream, "table_list");
    seed_write(&stream, "fuzz_rpc_stream", name);
}

/* A step of a script (rpc_script.h) with one span, sent or wanted. */
static void add_step(struct seed *script, uint8_t kind, uint8_t number, bool is_wanted,
                     uint32_t offset, uint32_t bytes)
{
    const uint8_t head[] = { kind, number, !is_wanted, is_wanted };

    seed_add(script, head, sizeof(head));
    seed_add(script, &offset, sizeof(offset));
    seed_add(script, &bytes, sizeof(bytes));
}

/* Narrow spans within the region, and some that do not fit, or have no whole ids. */
static void write_narrow_scripts(void)
{
    static const uint32_t spans[][2] = { { OP_ALIGN, 800 }, { 69632 - 8, 8 },  { 69632 - 8, 16 },
                                         { 4096, 7 },       { 4097, 8 },       { OP_ALIGN - 8, 16 },
                                         { 69632, 8 },      { UINT32_MAX, 8 }, { 4096, 60000 } };

    for (uint8_t kind = 0; kind < 2; kind++)
        for (size_t i = 0; i < ARRAY_LEN(spans); i++) {
            struct seed script = { .bytes = NULL };
            char name[40];

            seed_add_byte(&script, 32);
            seed_add_byte(&script, (uint8_t)(i % 2));
            add_step(&script, kind | 16, 0, false, spans[i][0], spans[i][1]);
            add_step(&script, 0, 1, true, 4096, 50);
            snprintf(name, sizeof(name), "narrow-%u-%zu", kind, i);
            seed_write(&script, "fuzz_rpc_stream", name);
        }
}

/* Spans within the region, and some that just do not fit: before it, over its end, behind it. */
static void write_scripts(void)
{
    static const uint32_t spans[][2] = { { OP_ALIGN, 100 },   { OP_ALIGN - 1, 1 }, { 69600, 100 },
                                         { 69632, 1 },        { 69631, 1 },        { 69000, 700 },
                                         { UINT32_MAX, 100 }, { OP_ALIGN, 0 } };

    for (uint8_t kind = 0; kind < 3; kind++)
        for (size_t i = 0; i < ARRAY_LEN(spans); i++) {
            struct seed script = { .bytes = NULL };
            char name[40];

            seed_add_byte(&script, 32);
            seed_add_byte(&script, (uint8_t)(i % 2));
            add_step(&script, 0, 0, true, 4096, 50);
            add_step(&script, kind, 1, kind == 2, spans[i][0], spans[i][1]);
            snprintf(name, sizeof(name), "script-%u-%zu", kind, i);
            seed_write(&script, "fuzz_rpc_stream", name);
        }
}

static void seeds_of_clients(void)
{
    write_scripts();
    write_narrow_scripts();
    for (uint32_t flags = 0; flags < 32; flags++) {
        char name[40];

        snprintf(name, sizeof(name), "flags-%u", flags);
        write_stream((uint8_t)flags, (uint8_t)(flags * 8), name);
    }
}

/* ---- A server ---- */

/* Replies, and answers, of each call; the hello's comes first. "done" and "data" are frames of RPC.
 * A number of bytes follows these. */
struct answer_of_call {
    enum reply_call call;
    const char *frames[6];
    uint32_t payload_bytes[6];
};

static const struct answer_of_call answers[] = {
    { REPLY_STATUS, { "status" }, { 0 } },
    { REPLY_TABLE_LIST, { "table_list" }, { 0 } },
    { REPLY_TABLE_OPEN, { "table" }, { 0 } },
    { REPLY_TABLE_CREATE, { "progress", "table" }, { 0 } },
    { REPLY_TABLE_DROP, { "progress", "table" }, { 0 } },
    { REPLY_TABLE_MOVE, { "progress", "table_moved" }, { 0 } },
    { REPLY_CHECKPOINT_LIST, { "checkpoint_list" }, { 0 } },
    { REPLY_CHECKPOINT_SHOW, { "checkpoint" }, { 0 } },
    { REPLY_CHECKPOINT_CREATE, { "progress", "checkpoint" }, { 0 } },
    { REPLY_CHECKPOINT_RESTORE, { "progress", "table_list" }, { 0 } },
    { REPLY_JOB_LIST, { "job_list" }, { 0 } },
    { REPLY_JOB_CANCEL, { "job" }, { 0 } },
    { REPLY_ACCOUNT_LIST, { "account_list" }, { 0 } },
    { REPLY_PLAN, { "plan", "plan", "plan" }, { 0 } },
    { REPLY_PROFILE, { "profile", "profile" }, { 0 } },
    { REPLY_PROFILE_SAVE, { "profile_text" }, { 0 } },
    { REPLY_GROUP_JOIN, { "group", "group" }, { 0 } },
    { REPLY_SCAN, { "scan", "scan_rows", "data", "data", "scan_rows" }, { 0, 0, 800, 1600, 0 } },
    { REPLY_LOAD, { "table", "loaded_rows", "table" }, { 0 } },
    { REPLY_GET, { "table", "done" }, { 0, 64 } },
    { REPLY_POOL_AND_PUSH, { "table", "done", "done" }, { 0, 16, 16 } },
    { REPLY_SESSION_LIST, { "session_list" }, { 0 } },
    { REPLY_SESSION_END, { "session" }, { 0 } },
    { REPLY_KNOBS, { "knob_list", "knob_change" }, { 0 } },
    { REPLY_COMPACTION,
      { "compaction", "compaction", "progress", "compaction", "progress", "compaction" },
      { 0 } },
    { REPLY_RESHARD, { "reshard", "progress", "reshard", "reshard" }, { 0 } },
};

static void add_reply(struct seed *stream, bool is_rpc, const char *body, uint32_t id)
{
    _cleanup_(sample_freep) ProtobufCMessage *reply =
        sample_message(&embtier__reply__descriptor, body);
    _cleanup_(seed_clear) struct seed packed = { .bytes = NULL };
    uint32_t length;

    sample_set(reply, "id", id);
    sample_set(reply, "last", strcmp(body, "progress") != 0);
    if (is_rpc) {
        add_rpc_frame(stream, RPC_REPLY, 0, reply, 0);
        return;
    }
    sample_pack(&packed, reply);
    length = htole32((uint32_t)packed.count);
    seed_add(stream, &length, sizeof(length));
    seed_add(stream, packed.bytes, packed.count);
}

static void add_answer(struct seed *stream, const char *frame, uint32_t number,
                       uint32_t payload_bytes)
{
    Embtier__RpcDone done = EMBTIER__RPC_DONE__INIT;

    done.ticket = 1;
    if (strcmp(frame, "done") == 0)
        add_rpc_frame(stream, RPC_DONE, number, &done.base, payload_bytes);
    else
        add_rpc_frame(stream, RPC_DATA, 0, NULL, payload_bytes);
}

/* Answers have @more bytes than the client wants. */
static void write_answers(const struct answer_of_call *answer, bool is_rpc, uint32_t more,
                          const char *name)
{
    struct seed stream = { .bytes = NULL };
    uint32_t id = 1, number = 0;

    seed_add_byte(&stream, is_rpc ? REPLY_RPC : 0);
    seed_add_byte(&stream, 1);
    seed_add_byte(&stream, (uint8_t)answer->call);
    add_reply(&stream, is_rpc, "hello", id);
    for (uint32_t i = 0; i < ARRAY_LEN(answer->frames) && answer->frames[i]; i++) {
        const char *const frame = answer->frames[i];

        if (strcmp(frame, "done") == 0 || strcmp(frame, "data") == 0)
            add_answer(&stream, frame, number++, answer->payload_bytes[i] + more);
        else if (i > 0 && strcmp(answer->frames[i - 1], "progress") == 0)
            add_reply(&stream, is_rpc, frame, id);
        else
            add_reply(&stream, is_rpc, frame, ++id);
    }
    seed_write(&stream, "fuzz_reply", name);
}

static void seeds_of_servers(void)
{
    static const char *const names[] = {
#define X(name, function) #function,
        REPLY_CALLS(X)
#undef X
    };

    _Static_assert(ARRAY_LEN(answers) == REPLY_CALL_COUNT, "each call has answers");
    for (size_t i = 0; i < ARRAY_LEN(answers); i++) {
        char name[80];

        for (int is_rpc = 0; is_rpc < 2; is_rpc++) {
            snprintf(name, sizeof(name), "%s-%s", is_rpc ? "rpc" : "unix", names[answers[i].call]);
            write_answers(&answers[i], is_rpc, 0, name);
        }
        if (strcmp(answers[i].frames[1] ? answers[i].frames[1] : "", "done") == 0 ||
            answers[i].call == REPLY_SCAN) {
            snprintf(name, sizeof(name), "more-%s", names[answers[i].call]);
            write_answers(&answers[i], true, 1, name);
        }
    }
}

void seeds_of_streams(void)
{
    seeds_of_clients();
    seeds_of_servers();
}
