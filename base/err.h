/* SPDX-License-Identifier: Apache-2.0 */
/* err.h: names and texts of errors, the one map from errno, and error messages with context.
 *
 * Functions return `enum embtier_err`. Where a user needs more than the number (a file, a key, a
 * limit) the function also takes `struct err_msg *`, may be NULL, and fills it on failure with one
 * line, no newline, no full stop. */
#ifndef EMBTIER_BASE_ERR_H
#define EMBTIER_BASE_ERR_H

#include "base/embtier_err.h"
#include "base/macros.h"

struct err_msg {
    char text[512];
};

const char *
err_name(enum embtier_err err); /* "NO_TABLE"; "UNKNOWN" for a number that is none of ours */
const char *err_text(enum embtier_err err); /* "no such table" */
enum embtier_err err_from_errno(int errnum);

/* Writes the message and returns @err, so that a failing line reads `return err_set(msg,
 * EMBTIER_IO, "…", …)`. */
enum embtier_err err_set(struct err_msg *msg, enum embtier_err err, const char *format, ...)
    PRINTF_LIKE(3, 4);
/* The same from errno: appends ": strerror". */
enum embtier_err err_set_errno(struct err_msg *msg, int errnum, const char *format, ...)
    PRINTF_LIKE(3, 4);

#endif
