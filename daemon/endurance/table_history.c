/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/endurance/table_history.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static const struct write_ring rings[] = { { 0, TABLE_HISTORY_FIVES, 5 * MINUTE_MS },
                                           { TABLE_HISTORY_FIVES, TABLE_HISTORY_HOURS, HOUR_MS },
                                           { TABLE_HISTORY_FIVES + TABLE_HISTORY_HOURS,
                                             TABLE_HISTORY_DAYS, DAY_MS } };

_Static_assert(TABLE_HISTORY_BUCKETS <= WRITE_TOTAL_MAX / WRITE_BUCKET_MAX,
               "a sum of all does not overflow");

void table_history_begin(struct table_history *history, uint64_t now_ms)
{
    *history = (struct table_history){ .past = { .since_ms = now_ms, .seen_ms = now_ms } };
}

void table_history_add(struct table_history *history, uint64_t now_ms, uint64_t bytes)
{
    write_rings_spread(&history->past, history->buckets, rings, ARRAY_LEN(rings),
                       MAX(now_ms, history->past.seen_ms), now_ms, bytes);
}

void table_history_join(struct table_history *history, const struct table_history *other)
{
    history->past.total_bytes =
        write_sum(history->past.total_bytes, other->past.total_bytes, WRITE_TOTAL_MAX);
    for (uint32_t i = 0; i < TABLE_HISTORY_BUCKETS; i++)
        history->buckets[i] = write_sum(history->buckets[i], other->buckets[i], WRITE_BUCKET_MAX);
}

struct write_rate table_history_rate(const struct table_history *history, enum write_window window,
                                     uint64_t now_ms)
{
    static const struct {
        uint32_t ring, buckets;
    } windows[WRITE_WINDOWS] = { [WRITE_HOUR] = { 0, TABLE_HISTORY_FIVES },
                                 [WRITE_DAY] = { 1, TABLE_HISTORY_HOURS },
                                 [WRITE_WEEK] = { 2, TABLE_HISTORY_DAYS },
                                 [WRITE_NOW] = { 0, 2 } };

    return write_ring_rate(&history->past, history->buckets, &rings[windows[window].ring],
                           windows[window].buckets, now_ms);
}

void table_history_print(const struct table_history *history,
                         char ret_text[TABLE_HISTORY_TEXT_BYTES])
{
    size_t used = 0;

    for (uint32_t i = 0; i < TABLE_HISTORY_BUCKETS; i++)
        used += (size_t)snprintf(ret_text + used, TABLE_HISTORY_TEXT_BYTES - used, "%" PRIu64 " ",
                                 history->buckets[i]);
}

bool table_history_parse(const char *text, struct table_history *history)
{
    for (uint32_t i = 0; i < TABLE_HISTORY_BUCKETS; i++) {
        char *end;

        if (*text < '0' || *text > '9')
            return false;
        errno = 0;
        history->buckets[i] = strtoull(text, &end, 10);
        if (errno != 0 || *end != ' ' || history->buckets[i] > WRITE_BUCKET_MAX)
            return false;
        text = end + 1;
    }
    return *text == '\0';
}
