/* SPDX-License-Identifier: Apache-2.0 */
/* plan_gaps.h: how far the plans of all seeds are from their bounds, and what they took, in a
 * figure.
 *
 * Each gap is the part of a plan's time above its bound. A figure with a bar is met only if its
 * worst gap and its longest processor time are within their limits too: a median hides both. */
#ifndef EMBTIER_TESTS_BENCH_LIB_PLANS_PLAN_GAPS_H
#define EMBTIER_TESTS_BENCH_LIB_PLANS_PLAN_GAPS_H

#include <stdint.h>

#include <jansson.h>

/* Times and bounds of all seeds, and the processor seconds of each, with those of the child. */
struct plan_gaps {
    double *times_s, *bounds_s, *processor_s; /* count */
    uint32_t count, solver_won;
    double worst_gap_allowed; /* of each seed; 0: any */
    double allowed_s;         /* processor seconds for each seed */
};

/* Allocates room for @count seeds. @limits: what is allowed. */
void plan_gaps_new(uint32_t count, const struct plan_gaps *limits, struct plan_gaps *ret_gaps);
void plan_gaps_free(struct plan_gaps *gaps);
/* Adds gaps and times to the figure, and judges them if it has a bar. */
void plan_gaps_add(const struct plan_gaps *gaps, json_t *figure);

#endif
