/* SPDX-License-Identifier: Apache-2.0 */
/* control_check.h: what a control message must fulfil before anyone looks at it. Private to
 * frame.c, which decodes.
 *
 * Two passes. The first walks the encoded bytes along the message's descriptor, before anything is
 * allocated: it finds what decoding hides, such as a NUL inside a string, which protobuf-c would
 * silently cut there. The second looks at the values of the decoded message. */
#ifndef EMBTIER_PROTO_CONTROL_CHECK_H
#define EMBTIER_PROTO_CONTROL_CHECK_H

#include <stdint.h>

#include "base/err.h"
#include "proto/control.pb-c.h"

/* PROTOCOL unless @payload is well-formed, and its strings are within their limits and free of NUL
 * and control characters. Fields that the descriptor does not know are skipped. */
MUST_CHECK enum embtier_err control_check_bytes(const ProtobufCMessageDescriptor *message,
                                                const uint8_t *payload, uint32_t bytes,
                                                struct err_msg *msg);
MUST_CHECK enum embtier_err control_check_request(const Embtier__Request *request,
                                                  struct err_msg *msg);
MUST_CHECK enum embtier_err control_check_reply(const Embtier__Reply *reply, struct err_msg *msg);

/* A malloced copy of @text that passes the first check as @message's field @tag: as far as the
 * limit allows, and escaped (base/text/text_escape.h). NULL when out of memory. */
MUST_CHECK char *control_clean_string(const ProtobufCMessageDescriptor *message, uint32_t tag,
                                      const char *text);

#endif
