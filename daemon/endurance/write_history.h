/* SPDX-License-Identifier: Apache-2.0 */
/* write_history.h: bytes written in the last hour, day and week, in buckets of minutes and hours.
 *
 * A window ends now, and its first bucket is the one after the bucket that holds the same moment of
 * the window before. So the last hour is between 59 and 60 minutes long. While the history is
 * younger than the window, the window begins with it. Time in which no server ran counts too: it is
 * not known when its bytes were written, so they are spread evenly over it.
 *
 * Rates are known when the history is an hour old. A burst of seconds says nothing about a day.
 *
 * Times are milliseconds since 1970. If the clock is put back, bytes go into the newest bucket
 * until it has caught up; if it is put back by more than a day, the history begins anew. A plain
 * value. Thread: the owner's. */
#ifndef EMBTIER_DAEMON_ENDURANCE_WRITE_HISTORY_H
#define EMBTIER_DAEMON_ENDURANCE_WRITE_HISTORY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/macros.h"

struct json_t;

enum write_window { WRITE_HOUR, WRITE_DAY, WRITE_WEEK, WRITE_WINDOWS };

#define HISTORY_MINUTES   60
#define HISTORY_HOURS     (7 * 24)
#define HISTORY_JUDGED_MS UINT64_C(3600000) /* the age from which rates are known */

struct write_history {
    uint64_t since_ms;
    uint64_t seen_ms; /* bytes until then are in it; it lies in the newest buckets */
    uint64_t total_bytes;
    /* The bucket of minute or hour n since 1970 lies at n % length. */
    uint64_t minutes[HISTORY_MINUTES], hours[HISTORY_HOURS];
};

struct write_rate {
    uint64_t bytes;
    uint64_t ms; /* in which they were written; 0: none has passed */
};

void write_history_begin(struct write_history *history, uint64_t now_ms);
/* Adds bytes that were written just now. */
void write_history_add(struct write_history *history, uint64_t now_ms, uint64_t bytes);
/* Adds bytes that were written at any time from @from_ms to @now_ms. */
void write_history_spread(struct write_history *history, uint64_t from_ms, uint64_t now_ms,
                          uint64_t bytes);
/* True if the history is old enough for rates. */
bool write_history_is_judged(const struct write_history *history, uint64_t now_ms);
/* The bytes of a window that ends now. write_history_add() came first, perhaps with 0 bytes. */
struct write_rate write_history_rate(const struct write_history *history, enum write_window window,
                                     uint64_t now_ms);
/* Returns bytes a day, or 0 if no time has passed. */
double write_rate_daily(const struct write_rate *rate);

/* Returns NULL when out of memory. */
struct json_t *write_history_to_json(const struct write_history *history);
/* False: @json is no history. */
MUST_CHECK bool write_history_from_json(const struct json_t *json,
                                        struct write_history *ret_history);

#endif
