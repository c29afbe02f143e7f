/* SPDX-License-Identifier: Apache-2.0 */
/* openssl_err.h: the one map from OpenSSL's errors, and messages with OpenSSL's reason.
 *
 * OpenSSL queues the errors of each thread. The first one names the cause, the others the callers
 * that gave up because of it. Thread: any; it takes its own queue. */
#ifndef EMBTIER_BASE_TLS_OPENSSL_ERR_H
#define EMBTIER_BASE_TLS_OPENSSL_ERR_H

#include "base/err.h"
#include "base/macros.h"

/* Writes the message with ": reason" behind it, and empties the queue. Returns NO_MEMORY if that
 * was the reason, else @err. It is a macro for the compiler's analyser, like err_set(). */
#define openssl_failed(msg, err, ...) err_not_ok(openssl_write((msg), (err), __VA_ARGS__))
enum embtier_err openssl_write(struct err_msg *msg, enum embtier_err err, const char *format, ...)
    PRINTF_LIKE(3, 4);

#endif
