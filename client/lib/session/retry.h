/* SPDX-License-Identifier: Apache-2.0 */
/* retry.h: tries again and again to reach a server, with longer and longer pauses.
 *
 * When a server restarts, all of its clients lose it in the same moment. If they came back in step,
 * they would come as a crowd each time. So a pause is any time between none and a limit ("full
 * jitter"), and the limit doubles with each failure.
 *
 * Thread: the connection's. */
#ifndef EMBTIER_CLIENT_LIB_SESSION_RETRY_H
#define EMBTIER_CLIENT_LIB_SESSION_RETRY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/err.h"

#define RETRY_PAUSE_MS_FIRST 50
#define RETRY_PAUSE_MS_MOST  5000
#define RETRY_FOREVER_MS     UINT32_MAX

/* Time and chance, which tests replace. */
struct retry_outside {
    struct clock clock;
    void (*sleep)(void *context, uint64_t ns);
    uint64_t (*chance)(void *context); /* any 64 bits */
    void *context;
};
/* The monotonic clock, and the system's random numbers, which differ in every client. */
extern const struct retry_outside retry_outside_system;

/* Lasts from a failure to the next success, over any number of calls. Begins as zeros. */
struct retry {
    uint32_t failures;
    uint64_t next_ns; /* when the next attempt may begin */
    enum embtier_err last;
};

typedef enum embtier_err retry_fn(void *context);

/* Makes attempts until one succeeds, or fails in a way that time does not mend, or @limit_ms are
 * over (RETRY_FOREVER_MS: never). Then returns the last error. No attempt is cut short, and none
 * begins later. If @limit_ms is 0, exactly one is made, without a pause. */
MUST_CHECK enum embtier_err retry_run(struct retry *retry, const struct retry_outside *outside,
                                      uint32_t limit_ms, retry_fn *attempt, void *context);

/* True if the same attempt may succeed later: no server listens, or it is silent, busy, stopping or
 * gone. False: it refuses this client. */
bool retry_may_help(enum embtier_err err);

#endif
