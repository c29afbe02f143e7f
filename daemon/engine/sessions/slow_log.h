/* SPDX-License-Identifier: Apache-2.0 */
/* slow_log.h: log lines about requests that took longer than log.slow_request_ms.
 *
 * A lane writes at most SLOW_LINES lines a second, so that a slow disk does not fill the log. It
 * counts the others, and its next line has their number. Thread: the lane. */
#ifndef EMBTIER_DAEMON_ENGINE_SESSIONS_SLOW_LOG_H
#define EMBTIER_DAEMON_ENGINE_SESSIONS_SLOW_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/macros.h"

struct request_time;
struct session;

#define SLOW_LINES 5

/* Zeroed at first: nothing is logged. */
struct slow_log {
    uint64_t limit_ns; /* 0: off */
    uint64_t second;   /* of the lane's last line */
    uint32_t lines;    /* in that second */
    uint64_t left_out; /* since the last line */
};

/* A request that has just ended. */
struct slow_request {
    uint64_t now_ns;
    uint64_t hit_rows;
    enum embtier_err err;
};

static inline bool slow_log_takes(const struct slow_log *log, uint64_t ns)
{
    return log->limit_ns != 0 && UNLIKELY(ns >= log->limit_ns);
}

/* Logs it, or counts it as left out. Returns true if it was logged. */
bool slow_log_add(struct slow_log *log, const struct session *session,
                  const struct request_time *time, const struct slow_request *request);

#endif
