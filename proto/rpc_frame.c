/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/rpc_frame.h"

#include <endian.h>
#include <inttypes.h>
#include <string.h>
#include <zlib.h>

#include "proto/control_check.h"

/* As in the header's table. */
struct wire_head {
    uint8_t magic[4];
    uint8_t version;
    uint8_t kind;
    uint16_t zero;
    uint32_t number;
    uint32_t message_bytes;
    uint64_t payload_bytes;
    uint32_t zero_too;
    uint32_t crc;
};
static_assert(sizeof(struct wire_head) == RPC_HEAD_BYTES, "wire layout");

static const uint8_t magic[4] = { 'E', 'B', 'T', '1' };

static uint32_t crc_of(const struct wire_head *wire)
{
    return (uint32_t)crc32(0, (const uint8_t *)wire, offsetof(struct wire_head, crc));
}

void rpc_head_encode(const struct rpc_head *head, uint8_t ret_bytes[RPC_HEAD_BYTES])
{
    struct wire_head wire = {
        .version = RPC_VERSION,
        .kind = head->kind,
        .number = htole32(head->number),
        .message_bytes = htole32(head->message_bytes),
        .payload_bytes = htole64(head->payload_bytes),
    };

    memcpy(wire.magic, magic, sizeof(magic));
    wire.crc = htole32(crc_of(&wire));
    memcpy(ret_bytes, &wire, sizeof(wire));
}

enum embtier_err rpc_head_decode(const uint8_t bytes[RPC_HEAD_BYTES], uint32_t message_bytes_max,
                                 struct rpc_head *ret_head, struct err_msg *msg)
{
    struct wire_head wire;

    memcpy(&wire, bytes, sizeof(wire));
    if (memcmp(wire.magic, magic, sizeof(magic)) != 0)
        return err_set(msg, EMBTIER_PROTOCOL,
                       "these bytes begin no frame: %02x %02x %02x %02x, expected \"EBT1\"",
                       bytes[0], bytes[1], bytes[2], bytes[3]);
    if (le32toh(wire.crc) != crc_of(&wire))
        return err_set(msg, EMBTIER_PROTOCOL, "the checksum of a frame's head is %08x, not %08x",
                       crc_of(&wire), le32toh(wire.crc));
    if (wire.version != RPC_VERSION)
        return err_set(msg, EMBTIER_VERSION, "a frame of version %u; this side knows version %d",
                       wire.version, RPC_VERSION);
    if (wire.zero != 0 || wire.zero_too != 0)
        return err_set(msg, EMBTIER_PROTOCOL,
                       "a frame's head has other bytes than 0 where 0 is due");
    *ret_head = (struct rpc_head){
        .kind = wire.kind,
        .number = le32toh(wire.number),
        .message_bytes = le32toh(wire.message_bytes),
        .payload_bytes = le64toh(wire.payload_bytes),
    };
    if (ret_head->message_bytes > message_bytes_max)
        return err_set(msg, EMBTIER_TOO_LARGE, "a frame's message of %u bytes, allowed: %u",
                       ret_head->message_bytes, message_bytes_max);
    if (ret_head->payload_bytes > RPC_PAYLOAD_BYTES_MAX)
        return err_set(msg, EMBTIER_TOO_LARGE,
                       "a frame's payload of %" PRIu64 " bytes, allowed: %" PRIu64,
                       ret_head->payload_bytes, RPC_PAYLOAD_BYTES_MAX);
    return EMBTIER_OK;
}

/* ---- Messages ---- */

uint64_t rpc_spans_bytes(const uint64_t *spans, size_t count)
{
    uint64_t sum = 0;

    for (size_t i = 1; i < count; i += 2)
        sum += spans[i];
    return sum;
}

static enum embtier_err check_spans(const uint64_t *spans, size_t count, struct err_msg *msg)
{
    if (count % 2 != 0)
        return err_set(msg, EMBTIER_PROTOCOL, "a list of spans has %zu numbers, which are no pairs",
                       count);
    if (count / 2 > RPC_SPANS_MAX)
        return err_set(msg, EMBTIER_PROTOCOL, "a list of %zu spans, allowed: %d", count / 2,
                       RPC_SPANS_MAX);
    for (size_t i = 0; i < count; i += 2)
        if (spans[i + 1] == 0 || spans[i + 1] > RPC_PAYLOAD_BYTES_MAX ||
            spans[i] > UINT64_MAX - spans[i + 1])
            return err_set(msg, EMBTIER_PROTOCOL,
                           "span %zu, of %" PRIu64 " bytes at %" PRIu64 ", can lie in no region",
                           i / 2, spans[i + 1], spans[i]);
    return EMBTIER_OK;
}

static enum embtier_err check_payload(uint64_t payload_bytes, const uint64_t *sent, size_t count,
                                      const struct narrow_spans *narrow, struct err_msg *msg)
{
    const uint64_t expected = narrow_spans_payload(narrow, sent, count);

    if (payload_bytes != expected)
        return err_set(msg, EMBTIER_PROTOCOL,
                       "a payload of %" PRIu64 " bytes for spans of %" PRIu64, payload_bytes,
                       expected);
    return EMBTIER_OK;
}

static enum embtier_err undecodable(struct err_msg *msg)
{
    return err_set(msg, EMBTIER_PROTOCOL, "malformed message: protobuf-c cannot decode it");
}

/* UNPACK(Name, name): unpack_name() decodes a message. */
#define UNPACK(Name, name)                                                                         \
    static void free_##name(Embtier__##Name *message)                                              \
    {                                                                                              \
        embtier__##name##__free_unpacked(message, NULL);                                           \
    }                                                                                              \
    DEFINE_CLEANUP(Embtier__##Name, free_##name)                                                   \
    static enum embtier_err unpack_##name(const uint8_t *message, uint32_t bytes,                  \
                                          Embtier__##Name **ret_message, struct err_msg *msg)      \
    {                                                                                              \
        TRY(control_check_bytes(&embtier__##name##__descriptor, message, bytes, msg));             \
        *ret_message = embtier__##name##__unpack(NULL, bytes, message);                            \
        return *ret_message ? EMBTIER_OK : undecodable(msg);                                       \
    }
UNPACK(RpcSubmit, rpc_submit)
UNPACK(RpcWrite, rpc_write)
UNPACK(RpcRead, rpc_read)
UNPACK(RpcDone, rpc_done)

enum embtier_err rpc_decode_submit(const uint8_t *message, uint32_t bytes, uint64_t payload_bytes,
                                   Embtier__RpcSubmit **ret_submit, struct narrow_spans *ret_narrow,
                                   struct err_msg *msg)
{
    _cleanup_(free_rpc_submitp) Embtier__RpcSubmit *submit = NULL;
    struct narrow_spans narrow;

    TRY(unpack_rpc_submit(message, bytes, &submit, msg));
    TRY(check_spans(submit->sent, submit->n_sent, msg));
    TRY(narrow_spans_read(submit->narrow, submit->n_narrow, submit->sent, submit->n_sent, &narrow,
                          msg));
    TRY(check_payload(payload_bytes, submit->sent, submit->n_sent, &narrow, msg));
    TRY(check_spans(submit->wanted, submit->n_wanted, msg));
    *ret_submit = TAKE(submit);
    *ret_narrow = narrow;
    return EMBTIER_OK;
}

enum embtier_err rpc_decode_write(const uint8_t *message, uint32_t bytes, uint64_t payload_bytes,
                                  Embtier__RpcWrite **ret_write, struct narrow_spans *ret_narrow,
                                  struct err_msg *msg)
{
    _cleanup_(free_rpc_writep) Embtier__RpcWrite *write = NULL;
    struct narrow_spans narrow;

    TRY(unpack_rpc_write(message, bytes, &write, msg));
    TRY(check_spans(write->sent, write->n_sent, msg));
    TRY(narrow_spans_read(write->narrow, write->n_narrow, write->sent, write->n_sent, &narrow,
                          msg));
    TRY(check_payload(payload_bytes, write->sent, write->n_sent, &narrow, msg));
    *ret_write = TAKE(write);
    *ret_narrow = narrow;
    return EMBTIER_OK;
}

enum embtier_err rpc_decode_read(const uint8_t *message, uint32_t bytes, uint64_t payload_bytes,
                                 Embtier__RpcRead **ret_read, struct err_msg *msg)
{
    _cleanup_(free_rpc_readp) Embtier__RpcRead *read = NULL;

    TRY(unpack_rpc_read(message, bytes, &read, msg));
    TRY(check_payload(payload_bytes, NULL, 0, &(struct narrow_spans){ { 0 } }, msg));
    TRY(check_spans(read->wanted, read->n_wanted, msg));
    *ret_read = TAKE(read);
    return EMBTIER_OK;
}

enum embtier_err rpc_decode_done(const uint8_t *message, uint32_t bytes,
                                 Embtier__RpcDone **ret_done, struct err_msg *msg)
{
    return unpack_rpc_done(message, bytes, ret_done, msg);
}
