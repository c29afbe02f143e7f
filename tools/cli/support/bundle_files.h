/* SPDX-License-Identifier: Apache-2.0 */
/* bundle_files.h: the files of a bundle. They gather in a folder that only the user can read, in
 * TMPDIR or /tmp, and become an archive in the end. Thread: one. */
#ifndef EMBTIER_TOOLS_CLI_SUPPORT_BUNDLE_FILES_H
#define EMBTIER_TOOLS_CLI_SUPPORT_BUNDLE_FILES_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct bundle_files;
struct json_t;

/* @name: of the folder in the archive. */
MUST_CHECK enum embtier_err bundle_files_new(const char *name, struct bundle_files **ret_files,
                                             struct err_msg *msg);
/* Removes the folder. */
void bundle_files_free(struct bundle_files *files);
DEFINE_CLEANUP(struct bundle_files, bundle_files_free)

/* Adds a file, after hiding secrets in @text. A name with slashes gets other characters for them.
 * If it cannot be written, the list of parts says why. */
void bundle_files_add(struct bundle_files *files, const char *name, char *text, size_t bytes);
/* Adds to the list of parts that this one is missing. */
void bundle_files_lack(struct bundle_files *files, const char *name, const char *why);

/* Returns the list: objects with name and bytes, or name and missing (a reason). Borrowed. */
const struct json_t *bundle_files_parts(const struct bundle_files *files);

/* Writes the list of parts as manifest.json, and all files into @path, a new file of mode 0600.
 * EXISTS: there is one. */
MUST_CHECK enum embtier_err bundle_files_pack(struct bundle_files *files, const char *path,
                                              uint64_t *ret_bytes, struct err_msg *msg);

#endif
