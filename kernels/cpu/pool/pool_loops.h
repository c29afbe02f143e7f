/* SPDX-License-Identifier: Apache-2.0 */
/* pool_loops.h: the inner loops of pool.h, one set per instruction set, all compiled from
 * pool_loops.c. Only for use inside kernels/. Thread: any. */
#ifndef EMBTIER_KERNELS_CPU_POOL_POOL_LOOPS_H
#define EMBTIER_KERNELS_CPU_POOL_POOL_LOOPS_H

#include "kernels/cpu/isa.h"
#include "kernels/cpu/pool/pool.h"

struct pool_loops {
    void (*pool)(const struct pool_batch *batch);
    void (*divide)(float *bags, uint32_t dim, const uint32_t *counts, uint32_t bag_count);
};

#define X(isa) extern const struct pool_loops pool_loops_##isa;
KERNELS_ISA_TABLE(X)
#undef X

#endif
