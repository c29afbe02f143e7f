/* SPDX-License-Identifier: Apache-2.0 */
/* spot_pool_loops.h: the inner loops of spot_pool.h, one set per instruction set
 * (kernels/cpu/isa.h), all compiled from spot_pool_loops.c. Only for use inside this folder. */
#ifndef EMBTIER_TIERS_SPOTS_SPOT_POOL_LOOPS_H
#define EMBTIER_TIERS_SPOTS_SPOT_POOL_LOOPS_H

#include "kernels/cpu/isa.h"
#include "tiers/spots/spot_pool.h"

/* Stands in for a row that is not there. It is zeros, because a client may see the useless sum. */
extern const float spot_pool_no_row[EMBTIER_DIM_MAX];

struct spot_pool_loops {
    void (*pool_by_spots)(const struct pool_batch *batch, struct spot_search *search);
    void (*pool_by_stride)(const struct pool_batch *batch, struct spot_search *search);
};

#define X(isa) extern const struct spot_pool_loops spot_pool_loops_##isa;
KERNELS_ISA_TABLE(X)
#undef X

#endif
