/* SPDX-License-Identifier: Apache-2.0 */
/* tune_run.h: runs embtier-layout-trial in a temporary folder, which never stays. Thread: one. */
#ifndef EMBTIER_TOOLS_CLI_TUNE_TUNE_RUN_H
#define EMBTIER_TOOLS_CLI_TUNE_TUNE_RUN_H

#include <stdint.h>

#include "base/err.h"

struct json_t;

struct tune_run {
    const char *directory; /* of the user's */
    double seconds;
    uint64_t space_bytes; /* that have to be free */
};

/* Adds the folder to @trial as "directory", runs it with progress, and returns its last line.
 * CANCELLED: *@ret_signal interrupted it. NOT_FOUND, PERMISSION, NO_SPACE: the directory is not
 * fit. */
MUST_CHECK enum embtier_err tune_run(const struct tune_run *run, struct json_t *trial,
                                     struct json_t **ret_result, int *ret_signal,
                                     struct err_msg *msg);

#endif
