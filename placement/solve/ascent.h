/* SPDX-License-Identifier: Apache-2.0 */
/* ascent.h: the highest point of a concave function of a few variables that are at least 0, and
 * that has kinks (Shor's r-algorithm: steps along slopes, in a space that is stretched across each
 * kink; "Minimization Methods for Non-Differentiable Functions", 1985, chapter 3).
 *
 * It stops by the number of steps, so it is deterministic. Thread: any. */
#ifndef EMBTIER_PLACEMENT_SOLVE_ASCENT_H
#define EMBTIER_PLACEMENT_SOLVE_ASCENT_H

#include <stdint.h>

#include "base/err.h"

/* Returns the value at @point, and the slopes there. */
typedef double ascent_fn(void *ctx, const double *point, double *ret_slopes);

struct ascent {
    uint32_t count;    /* variables */
    double *start;     /* where the next run starts: the best point of the last one */
    double *best;      /* of the last run */
    double best_value; /* at @best */
    double *work;      /* of the run */
};

MUST_CHECK enum embtier_err ascent_new(uint32_t count, struct ascent **ret_ascent);
void ascent_free(struct ascent *ascent);
DEFINE_CLEANUP(struct ascent, ascent_free)

/* Calls @fn at most about @steps times, or until it returns more than @enough. */
void ascent_run(struct ascent *ascent, ascent_fn *fn, void *ctx, uint32_t steps, double enough);

#endif
