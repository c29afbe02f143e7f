/* SPDX-License-Identifier: Apache-2.0 */
/* progress.h: how long work reports its progress, and is told to stop. Thread: the job's. */
#ifndef EMBTIER_DAEMON_ENGINE_TABLES_PROGRESS_H
#define EMBTIER_DAEMON_ENGINE_TABLES_PROGRESS_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/err.h"

/* Receives the reports of long work: @done of @total @unit. */
struct progress_sink {
    void (*report)(void *context, uint64_t done, uint64_t total, const char *unit);
    void *context;
    const _Atomic uint32_t *stop; /* may be NULL; enum embtier_err: why the work must end */
    const char *(*words)(enum embtier_err why); /* tells users that; NULL: err_text() does */
};
/* OK if the work is to go on. Else DISCONNECTED (no client wants it any more), CANCELLED or
 * SHUTDOWN.
 * @sink may be NULL. */
MUST_CHECK enum embtier_err progress_look(const struct progress_sink *sink, struct err_msg *msg);
/* The same; if the work is to go on, reports to @sink. */
MUST_CHECK enum embtier_err progress_tell(const struct progress_sink *sink, uint64_t done,
                                          uint64_t total, const char *unit, struct err_msg *msg);

#endif
