/* SPDX-License-Identifier: Apache-2.0 */
/* latency.h: how long something took, counted by ranges that grow with the time.
 *
 * There are two ranges an octave: up to 1.024, 1.536, 2.048, 3.072 us … 12.9 s, and longer. A
 * quantile is interpolated within its range, so it is off by a third at most.
 *
 * Thread: one writer; any thread reads (base/counter.h). */
#ifndef EMBTIER_BASE_LATENCY_H
#define EMBTIER_BASE_LATENCY_H

#include <stdint.h>

#include "base/counter.h"

#define LATENCY_LEAST_LOG2 10 /* the first range ends at 1024 ns */
#define LATENCY_OCTAVES    24
#define LATENCY_BOUNDS     (2 * LATENCY_OCTAVES)
#define LATENCY_RANGES     (LATENCY_BOUNDS + 1) /* the last has no end */

struct latency {
    uint64_t counts[LATENCY_RANGES];
    uint64_t ns; /* of all together */
};

/* Returns the end of range @r, which belongs to it. */
static inline uint64_t latency_bound_ns(uint32_t r)
{
    return (UINT64_C(2) + r % 2) << (LATENCY_LEAST_LOG2 - 1 + r / 2);
}

static inline uint32_t latency_range(uint64_t ns)
{
    const uint64_t below = ns - (ns > 0); /* an end belongs to the range before it */
    uint32_t log2;
    uint32_t range;

    if (below < (UINT64_C(1) << LATENCY_LEAST_LOG2))
        return 0;
    log2 = 63 - (uint32_t)__builtin_clzll(below);
    range = 2 * (log2 - LATENCY_LEAST_LOG2) + 1 + (uint32_t)((below >> (log2 - 1)) & 1);
    return range < LATENCY_RANGES ? range : LATENCY_RANGES - 1;
}

static inline void latency_add(struct latency *latency, uint64_t ns)
{
    counter_add(&latency->counts[latency_range(ns)], 1);
    counter_add(&latency->ns, ns);
}

/* Adds what another thread has counted so far to @sum. */
static inline void latency_sum(struct latency *sum, const struct latency *more)
{
    for (uint32_t r = 0; r < LATENCY_RANGES; r++)
        sum->counts[r] += counter_get(&more->counts[r]);
    sum->ns += counter_get(&more->ns);
}

uint64_t latency_count(const uint64_t *counts, uint32_t range_count);
/* Returns the time that the share @quantile took no longer than. The ranges end at @bounds, but the
 * last, of which there is one more. Nothing was counted: NAN. It lies in the last range: its
 * beginning. */
double latency_quantile(const uint64_t *counts, const double *bounds, uint32_t bound_count,
                        double quantile);

#endif
