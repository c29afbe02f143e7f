/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/endurance/write_rings.h"

#include <string.h>

/* Bytes of a time, written evenly. */
struct writing {
    uint64_t from_ms, until_ms;
    uint64_t bytes;
};

/* Empties the buckets between the newest, of @seen_ms, and that of @now_ms. */
static void advance(uint64_t *bytes, const struct write_ring *ring, uint64_t seen_ms,
                    uint64_t now_ms)
{
    const uint64_t newest = seen_ms / ring->bucket_ms;
    const uint64_t passed = now_ms / ring->bucket_ms - newest;

    for (uint64_t i = 1; i <= MIN(passed, (uint64_t)ring->length); i++)
        bytes[(newest + i) % ring->length] = 0;
}

static uint64_t bytes_until(const struct writing *writing, uint64_t ms)
{
    if (ms <= writing->from_ms)
        return 0;
    if (ms >= writing->until_ms)
        return writing->bytes;
    return (uint64_t)((double)writing->bytes * (double)(ms - writing->from_ms) /
                      (double)(writing->until_ms - writing->from_ms));
}

/* Bytes written before the oldest bucket are left out. */
static void fill(uint64_t *bytes, const struct write_ring *ring, const struct writing *writing)
{
    const uint64_t newest = writing->until_ms / ring->bucket_ms;
    const uint64_t oldest = newest >= ring->length - 1 ? newest - (ring->length - 1) : 0;

    for (uint64_t i = MAX(oldest, writing->from_ms / ring->bucket_ms); i <= newest; i++)
        bytes[i % ring->length] = write_sum(bytes[i % ring->length],
                                            bytes_until(writing, (i + 1) * ring->bucket_ms) -
                                                bytes_until(writing, i * ring->bucket_ms),
                                            WRITE_BUCKET_MAX);
}

/* Forgets all but the total. */
static void begin_anew(struct write_past *past, uint64_t *buckets, const struct write_ring *rings,
                       uint32_t count, uint64_t now_ms)
{
    past->since_ms = past->seen_ms = now_ms;
    for (uint32_t i = 0; i < count; i++)
        memset(&buckets[rings[i].first], 0, rings[i].length * sizeof(*buckets));
}

void write_rings_spread(struct write_past *past, uint64_t *buckets, const struct write_ring *rings,
                        uint32_t count, uint64_t from_ms, uint64_t now_ms, uint64_t bytes)
{
    struct writing writing = { .bytes = bytes };

    if (now_ms + DAY_MS < past->seen_ms)
        begin_anew(past, buckets, rings, count, now_ms);
    writing.until_ms = MAX(now_ms, past->seen_ms);
    writing.from_ms = MIN(MAX(from_ms, past->since_ms), writing.until_ms);
    for (uint32_t i = 0; i < count; i++) {
        advance(&buckets[rings[i].first], &rings[i], past->seen_ms, writing.until_ms);
        fill(&buckets[rings[i].first], &rings[i], &writing);
    }
    past->seen_ms = writing.until_ms;
    past->total_bytes = write_sum(past->total_bytes, bytes, WRITE_TOTAL_MAX);
}

struct write_rate write_ring_rate(const struct write_past *past, const uint64_t *buckets,
                                  const struct write_ring *ring, uint32_t count, uint64_t now_ms)
{
    const uint64_t newest = past->seen_ms / ring->bucket_ms;
    const uint64_t oldest = newest >= count - 1 ? newest - (count - 1) : 0;
    const uint64_t begin_ms = MAX(oldest * ring->bucket_ms, past->since_ms);
    struct write_rate rate = { .ms = now_ms > begin_ms ? now_ms - begin_ms : 0 };

    for (uint64_t i = oldest; i <= newest; i++)
        rate.bytes += buckets[ring->first + i % ring->length];
    return rate;
}

double write_rate_daily(const struct write_rate *rate)
{
    return rate->ms > 0 ? (double)rate->bytes * (double)DAY_MS / (double)rate->ms : 0;
}
