/* SPDX-License-Identifier: Apache-2.0 */
/* err.h: names and texts of errors, the one map from errno, and error messages with context.
 *
 * Functions return `enum embtier_err`. Where a user needs more than the number (a file, a key, a
 * limit), the function also takes a `struct err_msg *`, which may be NULL. On failure it fills that
 * with one line, without newline or full stop.
 *
 * A message is plain text (base/text/text_escape.h) that fits. Quoted characters that are not plain
 * are escaped, and a text that is too long loses its middle. Quote input with TEXT_SHOWN, so that
 * long input leaves room for the reason. */
#ifndef EMBTIER_BASE_ERR_H
#define EMBTIER_BASE_ERR_H

#include "base/embtier_err.h"
#include "base/macros.h"

struct err_msg {
    char text[512];
};

const char *err_name(enum embtier_err err); /* "NO_TABLE"; "UNKNOWN" for any other number */
const char *err_text(enum embtier_err err); /* "no such table" */
enum embtier_err err_from_errno(int errnum);

/* Writes the message and returns @err, so that a failing line reads `return err_set(msg,
 * EMBTIER_IO, "…", …)`. It is a macro so that the compiler and its analyser see the error's
 * value. */
#define err_set(msg, err, ...) (err_write((msg), __VA_ARGS__), err_not_ok(err))
/* The same from errno, appending ": strerror". Never returns OK, even for an errno of 0. */
#define err_set_errno(msg, errnum, ...)                                                            \
    (err_write_errno((msg), (errnum), __VA_ARGS__), err_not_ok(err_from_errno(errnum)))

/* Returns SHUTDOWN, with its message: work was given up because the server stops. */
enum embtier_err err_shutdown(struct err_msg *msg);

void err_write(struct err_msg *msg, const char *format, ...) PRINTF_LIKE(2, 3);
/* Appends to a message that is already written. */
void err_append(struct err_msg *msg, const char *format, ...) PRINTF_LIKE(2, 3);
void err_write_errno(struct err_msg *msg, int errnum, const char *format, ...) PRINTF_LIKE(3, 4);

static inline enum embtier_err err_not_ok(enum embtier_err err)
{
    return err == EMBTIER_OK ? EMBTIER_INTERNAL : err;
}

#endif
