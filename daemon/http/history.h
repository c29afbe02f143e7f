/* SPDX-License-Identifier: Apache-2.0 */
/* history.h: some figures of the last hour, one of each in ten seconds, for the charts of the page.
 * Thread: one at a time. */
#ifndef EMBTIER_DAEMON_HTTP_HISTORY_H
#define EMBTIER_DAEMON_HTTP_HISTORY_H

#include <stdint.h>

#include "base/macros.h"

struct page;
struct snapshot;

#define HISTORY_POINTS    361
#define HISTORY_PERIOD_MS 10000

/* SERIES(name, metric, value of its label; "": the sum of all) */
#define HISTORY_SERIES(SERIES)                                                                     \
    SERIES(get_rows, request_rows, "get")                                                          \
    SERIES(set_rows, request_rows, "set")                                                          \
    SERIES(push_rows, request_rows, "push")                                                        \
    SERIES(lookup_rows, lookup_rows, "")                                                           \
    SERIES(ssd_rows, lookup_rows, "ssd")                                                           \
    SERIES(written_bytes, store_written_bytes, "")                                                 \
    SERIES(read_bytes, store_read_bytes, "")                                                       \
    SERIES(sessions, sessions, "")                                                                 \
    SERIES(resident_bytes, process_resident_bytes, "")

enum history_series {
#define SERIES(name, metric, label) HISTORY_##name,
    HISTORY_SERIES(SERIES)
#undef SERIES
        HISTORY_SERIES_COUNT
};

struct history_point {
    uint64_t uptime_ms;
    double values[HISTORY_SERIES_COUNT];
};

/* Zeroed at first. */
struct history {
    uint32_t count;
    uint32_t next; /* place of the next point: the oldest one's, when all are used */
    struct history_point points[HISTORY_POINTS];
};

void history_add(struct history *history, const struct snapshot *snapshot);
/* Writes {"now_ms": …, "uptime_ms": […], "series": {"get_rows": […], …}}, oldest first. Counters
 * are as they were, so readers take differences. */
void history_write(const struct history *history, uint64_t now_ms, struct page *page);

#endif
