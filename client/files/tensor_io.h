/* SPDX-License-Identifier: Apache-2.0 */
/* tensor_io.h: bytes at a place of a file, all of them or an error. */
#ifndef EMBTIER_CLIENT_FILES_TENSOR_IO_H
#define EMBTIER_CLIENT_FILES_TENSOR_IO_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* @name is the file's, for messages. CORRUPT: the file ends before. */
MUST_CHECK enum embtier_err tensor_io_read(int fd, const char *name, uint64_t at, void *bytes,
                                           size_t count, struct err_msg *msg);
/* A whole file as text that ends with a NUL, malloced. NOT_FOUND; CORRUPT: it is no file, or has
 * more than @bytes_max. */
MUST_CHECK enum embtier_err tensor_io_read_text(const char *path, uint64_t bytes_max,
                                                char **ret_text, struct err_msg *msg);
MUST_CHECK enum embtier_err tensor_io_write(int fd, const char *name, uint64_t at,
                                            const void *bytes, size_t count, struct err_msg *msg);
/* The disk begins with what was written, while the caller makes more: a wish. tensor_io_sync() has
 * the less to wait for, and readers of the same disk no burst in the end. */
void tensor_io_begin_sync(int fd, uint64_t at, size_t count);
/* Waits until a file, or the names in a folder, are on the disk. */
MUST_CHECK enum embtier_err tensor_io_sync(int fd, const char *name, struct err_msg *msg);

#endif
