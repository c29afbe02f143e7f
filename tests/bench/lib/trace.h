/* SPDX-License-Identifier: Apache-2.0 */
/* trace.h: traces of accesses to rows, and their hit rates in a simulated policy or in our row
 * cache.
 *
 * A cache is asked for TRACE_BATCH ids at a time. Missing ids come in after all of the batch are
 * answered, in the simulations too. The first third warms up and is not counted.
 *
 * Thread: one. Failures of set-up end the program. */
#ifndef EMBTIER_TESTS_BENCH_LIB_TRACE_H
#define EMBTIER_TESTS_BENCH_LIB_TRACE_H

#include <stdint.h>

#include "tests/bench/lib/policies.h"

#define TRACE_BATCH 256

struct trace {
    uint32_t ids;     /* all draws are below this */
    uint32_t count;   /* a multiple of TRACE_BATCH */
    uint32_t warm_up; /* the same */
    uint32_t *draws;
};

/* Makes @count draws, rounded down to whole batches, of ids below @ids. The probability of id i
 * is proportional to (i + 1)^-@exponent. Every call gives the same draws. */
struct trace trace_zipf(uint32_t ids, uint32_t count, double exponent);
/* Reads the draws from a file of 32-bit little-endian numbers, rounded down to whole batches. */
struct trace trace_read(const char *path);
void trace_free(struct trace *trace);

/* Returns the share of accesses that find their id in a cache of @capacity ids. */
double trace_simulate(const struct trace *trace, const struct policy *policy, uint32_t capacity);
/* The same for a row cache of @tier_count tiers of @tier_bytes each and rows of @row_bytes.
 * *@ret_rows: the number of rows it held in the end. */
double trace_row_cache(const struct trace *trace, uint32_t tier_count, uint64_t tier_bytes,
                       uint32_t row_bytes, uint32_t *ret_rows);

#endif
