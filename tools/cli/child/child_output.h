/* SPDX-License-Identifier: Apache-2.0 */
/* child_output.h: runs another program and takes its output. A child that does not end in time is
 * killed and left to itself: the kernel may hold it for as long as a drive does not answer. Thread:
 * one. */
#ifndef EMBTIER_TOOLS_CLI_CHILD_CHILD_OUTPUT_H
#define EMBTIER_TOOLS_CLI_CHILD_CHILD_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

struct child {
    int out, said; /* files in memory: nothing blocks, whatever the child prints */
    int pidfd;
    pid_t pid;
};
#define NO_CHILD ((struct child){ .out = -1, .said = -1, .pidfd = -1 })

struct child_output {
    char *text; /* standard output, with a NUL behind it */
    size_t bytes;
    struct err_msg said; /* the first line of standard error */
    int exit_status;     /* -1: a signal ended it */
};

/* Starts @arguments[0], which is looked for in PATH if it has no slash, with @arguments. NOT_FOUND
 * and other errors of errno: it cannot be started. */
MUST_CHECK enum embtier_err child_start(const char *const arguments[], struct child *ret_child,
                                        struct err_msg *msg);
bool child_is_started(const struct child *child);
/* Waits until @until_ns of clock_monotonic, and frees the child. Takes at most @bytes_max of its
 * output; the rest is lost. TIMEOUT: it did not end, and was killed. */
MUST_CHECK enum embtier_err child_finish(struct child *child, uint64_t until_ns, size_t bytes_max,
                                         struct child_output *ret_output, struct err_msg *msg);

/* Does both. TIMEOUT: it did not end within @limit_ms. */
MUST_CHECK enum embtier_err child_output_take(const char *const arguments[], int limit_ms,
                                              size_t bytes_max, struct child_output *ret_output,
                                              struct err_msg *msg);
void child_output_clear(struct child_output *output);

#endif
