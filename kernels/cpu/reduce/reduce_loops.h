/* SPDX-License-Identifier: Apache-2.0 */
/* reduce_loops.h: the inner loops of reduce.h, one set per instruction set, all compiled from
 * reduce_loops.c. Only for use inside kernels/. Thread: any. */
#ifndef EMBTIER_KERNELS_CPU_REDUCE_REDUCE_LOOPS_H
#define EMBTIER_KERNELS_CPU_REDUCE_REDUCE_LOOPS_H

#include "kernels/cpu/isa.h"
#include "kernels/cpu/reduce/reduce.h"

struct reduce_loops {
    void (*runs)(const struct reduce_batch *batch);
    float (*greatest)(const float *numbers, uint64_t count);
    void (*weight_gradients)(enum embtier_dtype dtype, uint32_t dim, const void *const *rows,
                             const float *const *bags, const float *divisors, uint32_t count,
                             float *ret_gradients);
};

/* reduce_run_avx2() and so on write one run's gradient, batch->dim numbers, for loops that consume
 * it while it is in the cache. */
#define X(isa)                                                                                     \
    extern const struct reduce_loops reduce_loops_##isa;                                           \
    void reduce_run_##isa(const struct reduce_batch *batch, uint32_t run, float *ret_gradient);
KERNELS_ISA_TABLE(X)
#undef X

#endif
