/* SPDX-License-Identifier: Apache-2.0 */
/* progress.h: what long work tells of itself, and whether it is to go on. Thread: the job's. */
#ifndef EMBTIER_DAEMON_ENGINE_TABLES_PROGRESS_H
#define EMBTIER_DAEMON_ENGINE_TABLES_PROGRESS_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/err.h"

/* Told of long work: @done of @total @unit. */
struct progress_sink {
    void (*report)(void *context, uint64_t done, uint64_t total, const char *unit);
    void *context;
    const _Atomic uint32_t *stop; /* may be NULL; enum embtier_err: why it is to be given up */
};
/* Whether to go on: OK, or DISCONNECTED (nobody wants it any more), CANCELLED, SHUTDOWN. @sink may
 * be NULL. */
MUST_CHECK enum embtier_err progress_look(const struct progress_sink *sink, struct err_msg *msg);
/* The same, after a report to @sink. */
MUST_CHECK enum embtier_err progress_tell(const struct progress_sink *sink, uint64_t done,
                                          uint64_t total, const char *unit, struct err_msg *msg);

#endif
