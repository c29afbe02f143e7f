/* SPDX-License-Identifier: Apache-2.0 */
/* write_rings.h: bytes written in the last time, in rings of buckets: for histories of devices and
 * of tables, which differ in how many buckets they have.
 *
 * A window ends now, and its first bucket is the one after the bucket that holds the same moment of
 * the window before. So an hour of minutes is between 59 and 60 minutes long. While the history is
 * younger than the window, the window begins with it.
 *
 * Times are milliseconds since 1970. If the clock is put back, bytes go into the newest bucket
 * until it has caught up; if it is put back by more than a day, the history begins anew. Plain
 * values. Thread: the owner's. */
#ifndef EMBTIER_DAEMON_ENDURANCE_WRITE_RINGS_H
#define EMBTIER_DAEMON_ENDURANCE_WRITE_RINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/macros.h"

#define MINUTE_MS UINT64_C(60000)
#define HOUR_MS   (60 * MINUTE_MS)
#define DAY_MS    (24 * HOUR_MS)

/* Numbers stop there, so a file can hold each, and a sum of all buckets does not overflow. */
#define WRITE_TOTAL_MAX  ((uint64_t)INT64_MAX)
#define WRITE_BUCKET_MAX (WRITE_TOTAL_MAX / 256) /* 32 PiB */

#define HISTORY_JUDGED_MS HOUR_MS /* the age from which rates are known */

struct write_past {
    uint64_t since_ms;
    uint64_t seen_ms; /* bytes until then are in it; it lies in the newest buckets */
    uint64_t total_bytes;
};

/* Where a ring lies among the buckets of a history. The bucket number n since 1970 is at
 * first + n % length. */
struct write_ring {
    uint32_t first, length;
    uint64_t bucket_ms;
};

struct write_rate {
    uint64_t bytes;
    uint64_t ms; /* in which they were written; 0: none has passed */
};

/* Adds @bytes to a number that is at most @most, and stays so. */
static inline uint64_t write_sum(uint64_t number, uint64_t bytes, uint64_t most)
{
    return bytes < most - number ? number + bytes : most;
}

/* Adds bytes that were written at any time from @from_ms to @now_ms. */
void write_rings_spread(struct write_past *past, uint64_t *buckets, const struct write_ring *rings,
                        uint32_t count, uint64_t from_ms, uint64_t now_ms, uint64_t bytes);
/* The bytes of the newest @count buckets. write_rings_spread() came first, perhaps with 0 bytes. */
struct write_rate write_ring_rate(const struct write_past *past, const uint64_t *buckets,
                                  const struct write_ring *ring, uint32_t count, uint64_t now_ms);
/* True if the history is old enough for rates. */
static inline bool write_past_is_judged(const struct write_past *past, uint64_t now_ms)
{
    return now_ms >= past->since_ms && now_ms - past->since_ms >= HISTORY_JUDGED_MS;
}
/* Returns bytes a day, or 0 if no time has passed. */
double write_rate_daily(const struct write_rate *rate);

#endif
