/* SPDX-License-Identifier: Apache-2.0 */
/* secret_file.h: a file with a key or a token, in memory that is overwritten before it is freed.
 *
 * stdio and OpenSSL's files would leave parts of it in their buffers. Thread: any. */
#ifndef EMBTIER_BASE_TLS_SECRET_FILE_H
#define EMBTIER_BASE_TLS_SECRET_FILE_H

#include <stddef.h>

#include "base/err.h"
#include "base/macros.h"

struct secret_file {
    char *text; /* with a NUL behind the last byte; NULL: nothing is read */
    size_t bytes;
};

/* Reads the whole file. TOO_LARGE: it has more than @bytes_max. Else errno's error. */
MUST_CHECK enum embtier_err secret_file_read(const char *path, size_t bytes_max,
                                             struct secret_file *ret_file, struct err_msg *msg);
/* For _cleanup_. Overwrites the text, and frees it. */
void secret_file_clear(struct secret_file *file);

#endif
