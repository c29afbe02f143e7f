/* SPDX-License-Identifier: Apache-2.0 */
/* frame.h: control frames as they arrive byte by byte, and every check that a control message
 * passes.
 *
 * The Unix socket and TCP share one encoding. The reader holds one growing buffer of up to
 * FRAME_BYTES_MAX. A client that announces a large length but sends no bytes therefore costs no
 * memory. Thread: the owner's. */
#ifndef EMBTIER_PROTO_FRAME_H
#define EMBTIER_PROTO_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "proto/control_limits.h"

#define PROTOCOL_VERSION        1
#define FRAME_HEADER_BYTES      4
#define FRAME_BYTES_MAX         (UINT32_C(4) << 20)  /* server to client */
#define FRAME_REQUEST_BYTES_MAX (UINT32_C(64) << 10) /* client to server */
#define FRAME_READER_BYTES      UINT32_C(4096)       /* initial size of a reader's buffer */

struct Embtier__Request;
struct Embtier__Reply;

struct frame_reader {
    uint8_t *bytes;
    size_t used;
    size_t capacity;
    uint32_t limit; /* FRAME_BYTES_MAX or FRAME_REQUEST_BYTES_MAX */
};

void frame_reader_init(struct frame_reader *reader, uint32_t limit);
void frame_reader_done(struct frame_reader *reader);

/* Returns room for at least one more byte of the current frame, for recv() to fill. Call
 * frame_reader_added() afterwards. */
MUST_CHECK enum embtier_err frame_reader_space(struct frame_reader *reader, uint8_t **ret_space,
                                               size_t *ret_bytes);
void frame_reader_added(struct frame_reader *reader, size_t bytes);

/* Returns the next whole frame's payload, borrowed until frame_reader_next_done(). AGAIN when more
 * bytes are needed; PROTOCOL when the length is 0 or over the limit. */
MUST_CHECK enum embtier_err frame_reader_next(struct frame_reader *reader,
                                              const uint8_t **ret_payload, uint32_t *ret_bytes,
                                              struct err_msg *msg);
void frame_reader_next_done(struct frame_reader *reader);

/* Encode header and message into a malloced buffer; TOO_LARGE when the other side would refuse the
 * length. An Error's message is cut and escaped on the way. */
MUST_CHECK enum embtier_err frame_encode_request(const struct Embtier__Request *request,
                                                 uint8_t **ret_bytes, size_t *ret_count);
MUST_CHECK enum embtier_err frame_encode_reply(const struct Embtier__Reply *reply,
                                               uint8_t **ret_bytes, size_t *ret_count);

/* Decode and check a message. After PROTOCOL the session should end. Both check that the body is
 * known and every required part is there. They check that strings are within their limits and free
 * of NUL and control characters. A request's table spec gets no further checks: a dim or dtype out
 * of range is a user's mistake. table_spec_from_wire() reports it as INVALID, and the session goes
 * on. A reply must have `last` set unless it is Progress, complete specs in range, and row bytes
 * that match the spec. Free messages with embtier__request__free_unpacked() and
 * embtier__reply__free_unpacked(). */
MUST_CHECK enum embtier_err frame_decode_request(const uint8_t *payload, uint32_t bytes,
                                                 struct Embtier__Request **ret_request,
                                                 struct err_msg *msg);
MUST_CHECK enum embtier_err frame_decode_reply(const uint8_t *payload, uint32_t bytes,
                                               struct Embtier__Reply **ret_reply,
                                               struct err_msg *msg);

#endif
