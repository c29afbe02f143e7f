/* SPDX-License-Identifier: Apache-2.0 */
/* split_bound.h: a proven lower bound of the largest lookup time of a row-wise placement.
 *
 * Weights of the GPUs and prices of the rooms' bytes bound the time: at them, each item takes its
 * cheapest GPU, and each of its tables its cheapest mode and cut, whatever the others do
 * (Lagrangian relaxation; the dual of SCRec's program without whole numbers). Any weights and
 * prices of at least 0 give a true bound, so split_bound_certify() needs no trust in their making.
 * It rounds to the safe side, and refuses numbers that could overflow. Shor's r-algorithm finds
 * them.
 *
 * Relaxed: an item may be spread over GPUs, and a table over modes; rows and bytes are not whole;
 * curves with a cliff are replaced by their hull. Thread: any. */
#ifndef EMBTIER_PLACEMENT_SPLIT_SPLIT_BOUND_H
#define EMBTIER_PLACEMENT_SPLIT_SPLIT_BOUND_H

#include "placement/split/split_instance.h"

#define SPLIT_HEAVY_MAX 12

/* A large item. */
struct split_heavy {
    uint32_t item;
    double weight;       /* of its own time */
    double price_s_byte; /* of its own bytes in the private level; 0 if there is none */
};

struct split_bound {
    double bound_s;                 /* no placement has a smaller largest time */
    double weights[MODEL_GPUS_MAX]; /* with those of heavy items they add up to 1, or nearly */
    double prices_s_byte[SPLIT_ROOMS_MAX];
    uint32_t heavy_count;
    struct split_heavy heavy[SPLIT_HEAVY_MAX]; /* each of another item */
};

/* NO_MEMORY. */
MUST_CHECK enum embtier_err split_bound_find(const struct split_instance *x,
                                             struct split_bound *ret_bound);
/* Returns the bound that weights and prices prove. 0: none, or one of them is negative, NaN or
 * above 1e100, or the weights' sum is 0. */
double split_bound_certify(const struct split_instance *x, const struct split_bound *bound);

/* Returns the prices of a table on a GPU. */
struct split_prices split_bound_prices(const struct split_instance *x,
                                       const struct split_bound *bound, uint32_t table,
                                       uint32_t gpu);
/* Returns the price of the whole private level for an item, which its costs are to be reduced by.
 */
double split_bound_own_room(const struct split_instance *x, const struct split_bound *bound,
                            uint32_t item, uint32_t gpu);

#endif
