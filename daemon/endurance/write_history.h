/* SPDX-License-Identifier: Apache-2.0 */
/* write_history.h: bytes written in the last hour, day and week, in buckets of minutes and hours
 * (write_rings.h). Time in which no server ran counts too: it is not known when its bytes were
 * written, so they are spread evenly over it.
 *
 * Rates are known when the history is an hour old. A burst of seconds says nothing about a day. A
 * plain value. Thread: the owner's. */
#ifndef EMBTIER_DAEMON_ENDURANCE_WRITE_HISTORY_H
#define EMBTIER_DAEMON_ENDURANCE_WRITE_HISTORY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/macros.h"
#include "daemon/endurance/write_rings.h"

struct json_t;

/* The last is that of the last ten minutes. */
enum write_window { WRITE_HOUR, WRITE_DAY, WRITE_WEEK, WRITE_NOW, WRITE_WINDOWS };

#define HISTORY_MINUTES 60
#define HISTORY_HOURS   (7 * 24)
#define HISTORY_NOW     10 /* minutes */

struct write_history {
    struct write_past past;
    uint64_t buckets[HISTORY_MINUTES + HISTORY_HOURS]; /* minutes, then hours */
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

/* Returns NULL when out of memory. */
struct json_t *write_history_to_json(const struct write_history *history);
/* False: @json is no history. */
MUST_CHECK bool write_history_from_json(const struct json_t *json,
                                        struct write_history *ret_history);

#endif
