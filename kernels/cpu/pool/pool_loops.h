/* SPDX-License-Identifier: Apache-2.0 */
/* pool_loops.h: the inner loops of pool.h, one set per instruction set, all compiled from
 * pool_loops.c. Inside kernels/ only. Thread: any. */
#ifndef EMBTIER_KERNELS_CPU_POOL_POOL_LOOPS_H
#define EMBTIER_KERNELS_CPU_POOL_POOL_LOOPS_H

#include "kernels/cpu/isa.h"
#include "kernels/cpu/pool/pool.h"

/* In the place of a row that is not there: zeros, as what is added up for nothing may be seen. */
extern const float pool_no_row[EMBTIER_DIM_MAX];

struct pool_loops {
    void (*pool)(const struct pool_batch *batch);
    void (*divide)(float *bags, uint32_t dim, const uint32_t *counts, uint32_t bag_count);
};

#define X(isa) extern const struct pool_loops pool_loops_##isa;
KERNELS_ISA_TABLE(X)
#undef X

#endif
