/* SPDX-License-Identifier: Apache-2.0 */
/* child_output.h: runs another program and takes its output. Thread: one. */
#ifndef EMBTIER_TOOLS_CLI_CHILD_CHILD_OUTPUT_H
#define EMBTIER_TOOLS_CLI_CHILD_CHILD_OUTPUT_H

#include <stddef.h>

#include "base/err.h"

struct child_output {
    char *text; /* standard output, with a NUL behind it */
    size_t bytes;
    struct err_msg said; /* the first line of standard error */
    int exit_status;     /* -1: a signal ended it */
};

/* Runs @arguments[0], which is looked for in PATH if it has no slash, with @arguments. Takes at
 * most @bytes_max of its output; the rest is lost. NOT_FOUND and other errors of errno: it cannot
 * be started. TIMEOUT: it did not end within @limit_ms, and was killed. */
MUST_CHECK enum embtier_err child_output_take(const char *const arguments[], int limit_ms,
                                              size_t bytes_max, struct child_output *ret_output,
                                              struct err_msg *msg);
void child_output_clear(struct child_output *output);

#endif
