/* SPDX-License-Identifier: Apache-2.0 */
/* bound.h: a proven lower bound of the largest lookup time (Lenstra, Shmoys and Tardos,
 * "Approximation algorithms for scheduling unrelated parallel machines", 1990, section 2).
 *
 * For a limit T, no item may take a place where it alone needs longer than T. The linear program
 * that then spreads items over places bounds each assignment whose largest time is at most T. The
 * bound bisects T.
 *
 * The linear program is not solved. Weights of the GPUs and prices of the rooms (its dual prices)
 * prove the bound, and come from Shor's r-algorithm. Any weights and prices of at least 0 give a
 * true bound, so bound_certify() needs no trust in their making. It rounds to the safe side, and
 * refuses numbers that could overflow.
 *
 * Thread: any. */
#ifndef EMBTIER_PLACEMENT_SOLVE_BOUND_H
#define EMBTIER_PLACEMENT_SOLVE_BOUND_H

#include "placement/model/instance.h"

struct bound {
    double bound_s;        /* no assignment has a smaller largest time */
    double limit_s;        /* T */
    double *weights;       /* gpu_count; they add up to 1, or nearly */
    double *prices_s_byte; /* room_count; seconds for a byte */
};

/* @upper_s is the largest time of a known assignment, or larger than any. NO_MEMORY. */
MUST_CHECK enum embtier_err bound_new(const struct instance *x, double upper_s,
                                      struct bound **ret_bound);
void bound_free(struct bound *bound);
DEFINE_CLEANUP(struct bound, bound_free)

/* Returns what limit, weights and prices prove: at most the limit. 0: they prove nothing, or one of
 * them is negative, NaN or above 1e100, or the weights' sum is 0. */
double bound_certify(const struct instance *x, const struct bound *bound);

/* Returns what the place costs an item at these weights and prices. */
static inline double bound_cost_s(const struct instance *x, const struct bound *b, uint32_t item,
                                  uint32_t place)
{
    return b->weights[instance_gpu(x, place)] * instance_time_s(x, item, place) +
           b->prices_s_byte[x->room_of_place[place]] * (double)x->bytes[item];
}

/* Returns the least cost of the item over the places that the limit leaves it, or INFINITY if there
 * is none. */
double bound_best_cost_s(const struct instance *x, const struct bound *b, uint32_t item);

#endif
