/* SPDX-License-Identifier: Apache-2.0 */
/* key_files.h: files that are made together, all or none.
 *
 * All are written and synced beside their names, then each gets its name. Their folder is made if
 * it is missing, for the user alone. On a failure all that was made is removed. Two cases remain. A
 * program that is killed, or a machine that stops, may leave the first file without the second. And
 * of files that replace others, the first may be replaced when a later step fails: the message
 * says so. Ctrl-C and the signals to end wait until the files are there. */
#ifndef EMBTIER_TOOLS_CLI_KEYS_KEY_FILES_H
#define EMBTIER_TOOLS_CLI_KEYS_KEY_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/macros.h"

#define KEY_FILES_MAX   2
#define KEY_MODE        0600 /* of files with secrets */
#define PUBLIC_MODE     0644
#define KEY_FOLDER_MODE 0700

struct key_file {
    const char *path; /* all of one folder */
    mode_t mode;      /* whatever the umask */
    const char *text;
    size_t bytes;
};

/* Writes 1 to KEY_FILES_MAX files. EXISTS: there is one already, and @force is false. */
MUST_CHECK enum embtier_err key_files_write(const struct key_file *files, size_t count, bool force,
                                            struct err_msg *msg);

#endif
