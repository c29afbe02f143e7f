/* SPDX-License-Identifier: Apache-2.0 */
/* control_check.h: checks a control message before anything uses it. Private to frame.c, which
 * decodes.
 *
 * There are two passes. The first walks the encoded bytes along the message's descriptor, before
 * anything is allocated. It finds faults that decoding hides, such as a NUL inside a string, where
 * protobuf-c would silently cut it. The second checks the values of the decoded message. */
#ifndef EMBTIER_PROTO_CONTROL_CHECK_H
#define EMBTIER_PROTO_CONTROL_CHECK_H

#include <stdint.h>

#include "base/err.h"
#include "proto/control.pb-c.h"

/* PROTOCOL unless @payload is well-formed, and its strings are within their limits and free of NUL
 * and control characters. Skips fields that the descriptor does not know. */
MUST_CHECK enum embtier_err control_check_bytes(const ProtobufCMessageDescriptor *message,
                                                const uint8_t *payload, uint32_t bytes,
                                                struct err_msg *msg);
MUST_CHECK enum embtier_err control_check_request(const Embtier__Request *request,
                                                  struct err_msg *msg);
MUST_CHECK enum embtier_err control_check_reply(const Embtier__Reply *reply, struct err_msg *msg);

/* Returns a malloced copy of @text that passes the first check as @message's field @tag: cut to the
 * limit and escaped (base/text/text_escape.h). NULL when out of memory. */
MUST_CHECK char *control_clean_string(const ProtobufCMessageDescriptor *message, uint32_t tag,
                                      const char *text);

#endif
