/* SPDX-License-Identifier: Apache-2.0 */
/* optimizer_loops.h: the inner loops of optimizer.h, one set per instruction set, all compiled from
 * optimizer_loops.c. Only for use inside kernels/. Thread: any. */
#ifndef EMBTIER_KERNELS_CPU_OPTIMIZER_OPTIMIZER_LOOPS_H
#define EMBTIER_KERNELS_CPU_OPTIMIZER_OPTIMIZER_LOOPS_H

#include "kernels/cpu/isa.h"
#include "kernels/cpu/optimizer/optimizer.h"

/* The rows' gradients, or the runs to make each one from. */
struct optimizer_gradients {
    float *numbers;                  /* of all rows; with runs: room for one */
    const struct reduce_batch *runs; /* or NULL */
};

struct optimizer_loops {
    void (*update)(const struct optimizer_push *push, const uint64_t *row_ids, void *const *rows,
                   uint32_t count, struct optimizer_gradients gradients);
};

#define X(isa) extern const struct optimizer_loops optimizer_loops_##isa;
KERNELS_ISA_TABLE(X)
#undef X

#endif
