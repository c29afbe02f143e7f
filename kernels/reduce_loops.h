/* SPDX-License-Identifier: Apache-2.0 */
/* reduce_loops.h: the inner loops of reduce.h, one set per instruction set, all compiled from
 * reduce_loops.c. Inside kernels/ only. Thread: any. */
#ifndef EMBTIER_KERNELS_REDUCE_LOOPS_H
#define EMBTIER_KERNELS_REDUCE_LOOPS_H

#include "kernels/isa.h"
#include "kernels/reduce.h"

struct reduce_loops {
    /* reduce_runs() of a maximum: with winners. */
    void (*won)(const struct reduce_batch *batch);
    bool (*all_finite)(const float *numbers, uint64_t count);
    void (*weight_gradients)(enum embtier_dtype dtype, uint32_t dim, const void *const *rows,
                             const float *const *bags, const float *divisors, uint32_t count,
                             float *ret_gradients);
};

#define X(isa) extern const struct reduce_loops reduce_loops_##isa;
KERNELS_ISA_TABLE(X)
#undef X

#endif
