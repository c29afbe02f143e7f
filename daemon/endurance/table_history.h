/* SPDX-License-Identifier: Apache-2.0 */
/* table_history.h: bytes written for one table, as write_history.h for a device, in fewer buckets,
 * as there may be thousands of tables. A plain value. Thread: the owner's. */
#ifndef EMBTIER_DAEMON_ENDURANCE_TABLE_HISTORY_H
#define EMBTIER_DAEMON_ENDURANCE_TABLE_HISTORY_H

#include <stddef.h>

#include "daemon/endurance/write_history.h"

#define TABLE_HISTORY_FIVES   12 /* five minutes each */
#define TABLE_HISTORY_HOURS   24
#define TABLE_HISTORY_DAYS    7
#define TABLE_HISTORY_BUCKETS (TABLE_HISTORY_FIVES + TABLE_HISTORY_HOURS + TABLE_HISTORY_DAYS)

struct table_history {
    struct write_past past;
    uint64_t buckets[TABLE_HISTORY_BUCKETS];
};

/* With its zero, a number for each bucket, each with a blank. */
#define TABLE_HISTORY_TEXT_BYTES (TABLE_HISTORY_BUCKETS * 21 + 1)

void table_history_begin(struct table_history *history, uint64_t now_ms);
/* Adds bytes that were written just now. */
void table_history_add(struct table_history *history, uint64_t now_ms, uint64_t bytes);
/* Adds the bytes of @other. table_history_add() came last for both, at the same time. */
void table_history_join(struct table_history *history, const struct table_history *other);
/* As write_history_rate(). The last ten minutes are five to ten, and the last week six to seven
 * days. */
struct write_rate table_history_rate(const struct table_history *history, enum write_window window,
                                     uint64_t now_ms);

/* The buckets as text, which takes less memory than JSON's numbers. */
void table_history_print(const struct table_history *history,
                         char ret_text[TABLE_HISTORY_TEXT_BYTES]);
/* False: @text holds no buckets. */
MUST_CHECK bool table_history_parse(const char *text, struct table_history *history);

#endif
