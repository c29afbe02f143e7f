/* SPDX-License-Identifier: Apache-2.0 */
/* Seeds of fuzz_request, fuzz_control, fuzz_frame, fuzz_rpc_frame and fuzz_table_spec: one for each
 * message. */
#include <endian.h>
#include <stdio.h>
#include <string.h>

#include "proto/control.pb-c.h"
#include "proto/frame.h"
#include "proto/rpc_frame.h"
#include "tests/fuzz/seeds/sample_message.h"

/* A frame with pieces of all sizes, then one with pieces as large as may be. */
static void write_frames(const ProtobufCMessage *message, bool is_request, const char *name)
{
    _cleanup_(seed_clear) struct seed packed = { .bytes = NULL };
    struct seed frames = { .bytes = NULL }, alone = { .bytes = NULL };
    uint32_t length;

    sample_pack(&packed, message);
    length = htole32((uint32_t)packed.count);
    seed_add_byte(&frames, is_request);
    seed_add_byte(&frames, 7);
    for (int i = 0; i < 2; i++) {
        seed_add(&frames, &length, sizeof(length));
        seed_add(&frames, packed.bytes, packed.count);
    }
    seed_write(&frames, "fuzz_frame", name);
    if (!is_request)
        return;
    seed_add_byte(&alone, (uint8_t)packed.count);
    seed_add_byte(&alone, (uint8_t)(packed.count >> 8));
    seed_add(&alone, packed.bytes, packed.count);
    seed_write(&alone, "fuzz_control", name);
    seed_write(&packed, "fuzz_request", name);
}

/* The fields of a oneof of messages are the bodies. */
static void write_bodies(const ProtobufCMessageDescriptor *descriptor, bool is_request)
{
    for (unsigned i = 0; i < descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *const field = &descriptor->fields[i];
        _cleanup_(sample_freep) ProtobufCMessage *message = NULL;
        char name[80];

        if (field->type != PROTOBUF_C_TYPE_MESSAGE)
            continue;
        snprintf(name, sizeof(name), "%s-%s", is_request ? "request" : "reply", field->name);
        message = sample_message(descriptor, field->name);
        write_frames(message, is_request, name);
    }
}

static void write_rpc_frame(enum rpc_kind kind, const ProtobufCMessage *message, uint64_t payload,
                            const char *name)
{
    _cleanup_(seed_clear) struct seed packed = { .bytes = NULL };
    struct seed frame = { .bytes = NULL };
    uint8_t head[RPC_HEAD_BYTES];

    sample_pack(&packed, message);
    rpc_head_encode(&(struct rpc_head){ .kind = (uint8_t)kind,
                                        .number = 1,
                                        .message_bytes = (uint32_t)packed.count,
                                        .payload_bytes = payload },
                    head);
    seed_add(&frame, head, sizeof(head));
    seed_add(&frame, packed.bytes, packed.count);
    seed_write(&frame, "fuzz_rpc_frame", name);
}

/* The second one of two spans is narrow. */
static void write_narrow_frame(void)
{
    Embtier__RpcWrite write = EMBTIER__RPC_WRITE__INIT;
    uint64_t spans[] = { 4096, 3, 8192, 64 };
    uint32_t narrow[] = { 1 * 8 + 3 };

    write.sent = spans;
    write.n_sent = ARRAY_LEN(spans);
    write.narrow = narrow;
    write.n_narrow = ARRAY_LEN(narrow);
    write_rpc_frame(RPC_WRITE, &write.base, 3 + 24, "write-narrow");
}

static void write_rpc_sample(enum rpc_kind kind, const ProtobufCMessageDescriptor *descriptor,
                             uint64_t payload, const char *name)
{
    _cleanup_(sample_freep) ProtobufCMessage *message = sample_message(descriptor, NULL);

    write_rpc_frame(kind, message, payload, name);
}

static void write_table_spec(void)
{
    _cleanup_(sample_freep) ProtobufCMessage *message =
        sample_message(&embtier__table_spec__descriptor, NULL);
    struct seed seed = { .bytes = NULL };

    seed_add_byte(&seed, 0);
    sample_pack(&seed, message);
    seed_write(&seed, "fuzz_table_spec", "message");
}

void seeds_of_messages(void)
{
    write_bodies(&embtier__request__descriptor, true);
    write_bodies(&embtier__reply__descriptor, false);
    write_rpc_sample(RPC_SUBMIT, &embtier__rpc_submit__descriptor, 1, "submit");
    write_rpc_sample(RPC_WRITE, &embtier__rpc_write__descriptor, 1, "write");
    write_narrow_frame();
    write_rpc_sample(RPC_READ, &embtier__rpc_read__descriptor, 0, "read");
    write_rpc_sample(RPC_DONE, &embtier__rpc_done__descriptor, 0, "done");
    write_table_spec();
}
