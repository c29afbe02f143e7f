/* SPDX-License-Identifier: Apache-2.0 */
/* tensor_io.h: reads and writes bytes at an offset of a file, all of them or an error. */
#ifndef EMBTIER_CLIENT_FILES_TENSOR_IO_H
#define EMBTIER_CLIENT_FILES_TENSOR_IO_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Reads @count bytes. @name is the file's, for messages. CORRUPT: the file ends before. */
MUST_CHECK enum embtier_err tensor_io_read(int fd, const char *name, uint64_t at, void *bytes,
                                           size_t count, struct err_msg *msg);
/* Reads a whole file as text, malloced, with a NUL at its end. NOT_FOUND. CORRUPT: it is not a
 * regular file, or has more than @bytes_max. */
MUST_CHECK enum embtier_err tensor_io_read_text(const char *path, uint64_t bytes_max,
                                                char **ret_text, struct err_msg *msg);
MUST_CHECK enum embtier_err tensor_io_write(int fd, const char *name, uint64_t at,
                                            const void *bytes, size_t count, struct err_msg *msg);
/* Asks the disk to begin writing, while the caller makes more. This is only a hint:
 * tensor_io_sync() then has less to wait for, and readers of the same disk see no burst at the
 * end. */
void tensor_io_begin_sync(int fd, uint64_t at, size_t count);
/* Waits until a file, or the names in a folder, are on disk. */
MUST_CHECK enum embtier_err tensor_io_sync(int fd, const char *name, struct err_msg *msg);

#endif
