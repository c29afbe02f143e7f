/* SPDX-License-Identifier: Apache-2.0 */
/* rpc_frame.h: frames of a session that runs over a stream, TCP or a Unix socket. docs/protocol.md
 * describes them for clients in other languages.
 *
 * A frame is a head of RPC_HEAD_BYTES, a message (rpc.proto, or control.proto for calls and
 * replies), and a payload: ids, rows, gradients as they are, which no message contains. All numbers
 * are little-endian.
 *
 *     offset  bytes  field
 *          0      4  magic "EBT1"
 *          4      1  version of the frame: RPC_VERSION
 *          5      1  kind
 *          6      2  0
 *          8      4  number of the request (SUBMIT, DONE), or a number that the answer repeats
 *         12      4  bytes of the message
 *         16      8  bytes of the payload
 *         24      4  0
 *         28      4  CRC-32 of the 28 bytes before
 *
 * Thread: any. */
#ifndef EMBTIER_PROTO_RPC_FRAME_H
#define EMBTIER_PROTO_RPC_FRAME_H

#include <stdint.h>

#include "base/err.h"
#include "proto/narrow_ids.h"
#include "proto/rpc.pb-c.h"

#define RPC_VERSION           1
#define RPC_HEAD_BYTES        32
#define RPC_MESSAGE_BYTES_MAX (UINT32_C(64) << 10) /* of a CALL, as of a control request */
/* Messages of SUBMIT, WRITE and READ: full lists have a little more than 10 KiB. */
#define RPC_REQUEST_BYTES_MAX (UINT32_C(16) << 10)
/* The longest payload. Those that a client sends lie in its region; spans that it wants may
 * overlap. */
#define RPC_PAYLOAD_BYTES_MAX (UINT64_C(1) << 40)

/* KIND(name, number): from the client to the server, or back. Those of the client are odd, so that
 * neither takes its own bytes for those of the other. */
#define RPC_KINDS(KIND)                                                                            \
    KIND(CALL, 1)    /* a control request; a REPLY answers it */                                   \
    KIND(REPLY, 2)   /* a control reply */                                                         \
    KIND(SUBMIT, 3)  /* RpcSubmit; a DONE answers it */                                            \
    KIND(DONE, 4)    /* RpcDone */                                                                 \
    KIND(WRITE, 5)   /* RpcWrite; no answer */                                                     \
    KIND(DATA, 6)    /* no message; the payload that a READ asked for */                           \
    KIND(READ, 7)    /* RpcRead; DATA answers it */                                                \
    KIND(REFUSED, 8) /* an Error of control.proto: a frame of an unknown kind was skipped, or the  \
                        session ends */

enum rpc_kind {
#define KIND(name, number) RPC_##name = number,
    RPC_KINDS(KIND)
#undef KIND
};

struct rpc_head {
    uint8_t kind; /* enum rpc_kind, or one of a later version */
    uint32_t number;
    uint32_t message_bytes;
    uint64_t payload_bytes;
};

void rpc_head_encode(const struct rpc_head *head, uint8_t ret_bytes[RPC_HEAD_BYTES]);
/* PROTOCOL: no head, or one that was damaged. VERSION: of another version. TOO_LARGE: the message
 * is longer than @message_bytes_max, or the payload than any may be. An unknown kind is no error.
 */
MUST_CHECK enum embtier_err rpc_head_decode(const uint8_t bytes[RPC_HEAD_BYTES],
                                            uint32_t message_bytes_max, struct rpc_head *ret_head,
                                            struct err_msg *msg);

/* Decode a message of a frame whose head has this @payload_bytes. PROTOCOL: it is malformed, a list
 * of spans is no list of pairs, is too long or has an empty span, one that cannot be narrow is to
 * be it, or the payload's length is not that of the spans sent. The receiver checks that spans lie
 * in the region. Free with
 * embtier__rpc_…__free_unpacked(). */
MUST_CHECK enum embtier_err rpc_decode_submit(const uint8_t *message, uint32_t bytes,
                                              uint64_t payload_bytes,
                                              Embtier__RpcSubmit **ret_submit,
                                              struct narrow_spans *ret_narrow, struct err_msg *msg);
MUST_CHECK enum embtier_err rpc_decode_write(const uint8_t *message, uint32_t bytes,
                                             uint64_t payload_bytes, Embtier__RpcWrite **ret_write,
                                             struct narrow_spans *ret_narrow, struct err_msg *msg);
MUST_CHECK enum embtier_err rpc_decode_read(const uint8_t *message, uint32_t bytes,
                                            uint64_t payload_bytes, Embtier__RpcRead **ret_read,
                                            struct err_msg *msg);
MUST_CHECK enum embtier_err rpc_decode_done(const uint8_t *message, uint32_t bytes,
                                            Embtier__RpcDone **ret_done, struct err_msg *msg);

/* Returns the sum of the bytes of spans, which have passed a check. @count counts numbers, two for
 * each span. */
uint64_t rpc_spans_bytes(const uint64_t *spans, size_t count);

#endif
