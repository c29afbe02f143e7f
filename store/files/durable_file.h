/* SPDX-License-Identifier: Apache-2.0 */
/* durable_file.h: small whole files that are there in full or not at all after a crash.
 *
 * A file is written beside the old one, fsynced, renamed over it, and its directory fsynced; if
 * that fails the old one is put back. Thread: any, but one writer per file. */
#ifndef EMBTIER_STORE_FILES_DURABLE_FILE_H
#define EMBTIER_STORE_FILES_DURABLE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/paths.h"

/* A longer one is not read. */
#define DURABLE_FILE_BYTES_MAX ((size_t)(64 * MIB))
/* Where a file is written before it gets its name. */
#define DURABLE_FILE_SUFFIX ".tmp"
/* A second name of the file before, until the new one is certain to stay. */
#define DURABLE_FILE_OLD_SUFFIX ".old"

MUST_CHECK enum embtier_err directory_sync(const char *directory, struct err_msg *msg);

/* Mode 0600. On failure the file is what it was. */
MUST_CHECK enum embtier_err durable_file_write(const char *directory, const char *name,
                                               const char *text, struct err_msg *msg);
/* Adds @text to a file that has @at bytes, and syncs it. On failure it is cut off there again; if
 * that fails too, *@ret_cut is false, and a part of @text, or all of it, may stay. */
MUST_CHECK enum embtier_err durable_file_append(const char *directory, const char *name,
                                                uint64_t at, const char *text, bool *ret_cut,
                                                struct err_msg *msg);
/* Bytes that all of it has written in this process, and file_tree.h, in whole pages, as they go to
 * SSD. */
uint64_t durable_file_written_bytes(void);
void durable_file_count(uint64_t bytes);
/* A malloced string. NOT_FOUND when there is no such file. */
MUST_CHECK enum embtier_err durable_file_read(const char *directory, const char *name,
                                              char **ret_text, struct err_msg *msg);
/* The same of a file that may hold zero bytes: one that was being added to when power failed. A
 * zero follows its last byte. */
MUST_CHECK enum embtier_err durable_file_read_bytes(const char *directory, const char *name,
                                                    char **ret_text, size_t *ret_bytes,
                                                    struct err_msg *msg);

#endif
