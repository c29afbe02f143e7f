/* SPDX-License-Identifier: Apache-2.0 */
/* durable_file.h: small files that are there in full or not at all after a crash.
 *
 * A file is written beside the old one, fsynced, renamed over it, and its directory is fsynced. If
 * that fails, the old file is put back. Thread: any, but one writer per file. */
#ifndef EMBTIER_STORE_FILES_DURABLE_FILE_H
#define EMBTIER_STORE_FILES_DURABLE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/paths.h"

/* A longer file is not read. The limit is far above the needs of a catalog of many tables, and
 * keeps a wrong file from filling memory. */
#define DURABLE_FILE_BYTES_MAX ((size_t)(64 * MIB))
/* Suffix of a file until it is complete and gets its name. */
#define DURABLE_FILE_SUFFIX ".tmp"
/* Suffix of a second name of the old file, until the new file is certain to stay. */
#define DURABLE_FILE_OLD_SUFFIX ".old"

MUST_CHECK enum embtier_err directory_sync(const char *directory, struct err_msg *msg);

/* Writes a file with mode 0600. On failure the file stays as it was. */
MUST_CHECK enum embtier_err durable_file_write(const char *directory, const char *name,
                                               const char *text, struct err_msg *msg);
/* Adds @text to a file of @at bytes, and syncs it. On failure the file is cut back to @at bytes. If
 * that fails too, *@ret_cut is false, and @text may stay in part or completely. */
MUST_CHECK enum embtier_err durable_file_append(const char *directory, const char *name,
                                                uint64_t at, const char *text, bool *ret_cut,
                                                struct err_msg *msg);
/* Returns the bytes that these functions have written in this process, in whole pages, as they go
 * to SSD. */
uint64_t durable_file_written_bytes(void);
/* Returns the file as a malloced string. NOT_FOUND if there is no such file. */
MUST_CHECK enum embtier_err durable_file_read(const char *directory, const char *name,
                                              char **ret_text, struct err_msg *msg);
/* Does the same for a file that may hold zero bytes, such as one that was being appended to when
 * power failed. A zero follows its last byte. */
MUST_CHECK enum embtier_err durable_file_read_bytes(const char *directory, const char *name,
                                                    char **ret_text, size_t *ret_bytes,
                                                    struct err_msg *msg);

#endif
