/* SPDX-License-Identifier: Apache-2.0 */
/* trace.h: accesses to rows, and how many of them hit: in a simulated policy, in our row cache.
 *
 * A cache is asked for TRACE_BATCH ids at a time, and what it has not comes in after all of them
 * are answered, in the simulations too. The first third warms up and is not counted.
 *
 * Thread: one. What cannot be set up ends the program. */
#ifndef EMBTIER_TESTS_BENCH_LIB_TRACE_H
#define EMBTIER_TESTS_BENCH_LIB_TRACE_H

#include <stdint.h>

#include "tests/bench/lib/policies.h"

#define TRACE_BATCH 256

struct trace {
    uint32_t ids;     /* draws are below this */
    uint32_t count;   /* a multiple of TRACE_BATCH */
    uint32_t warm_up; /* likewise */
    uint32_t *draws;
};

/* @count draws, rounded down to whole batches, of ids below @ids, id i with a probability that goes
 * with (i + 1)^-@exponent. The same at every call. */
struct trace trace_zipf(uint32_t ids, uint32_t count, double exponent);
/* The draws of a file of 32-bit little-endian numbers, rounded down likewise. */
struct trace trace_read(const char *path);
void trace_free(struct trace *trace);

/* The share of accesses that find their id in a cache of @capacity ids. */
double trace_simulate(const struct trace *trace, const struct policy *policy, uint32_t capacity);
/* The same for a row cache of @tier_count tiers of @tier_bytes each and rows of @row_bytes.
 * *@ret_rows: the rows it held in the end. */
double trace_row_cache(const struct trace *trace, uint32_t tier_count, uint64_t tier_bytes,
                       uint32_t row_bytes, uint32_t *ret_rows);

#endif
