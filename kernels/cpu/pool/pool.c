/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/pool/pool.h"

#include "kernels/cpu/pool/pool_loops.h"

static const struct pool_loops *const loops_by_isa[] = {
#define X(isa) [KERNELS_ISA_##isa] = &pool_loops_##isa,
    KERNELS_ISA_TABLE(X)
#undef X
};

void pool_rows_with(enum kernels_isa isa, const struct pool_batch *batch)
{
    loops_by_isa[isa]->pool(batch);
}

void pool_rows(const struct pool_batch *batch)
{
    pool_rows_with(kernels_isa_best(), batch);
}

void pool_divide_with(enum kernels_isa isa, float *bags, uint32_t dim, const uint32_t *counts,
                      uint32_t bag_count)
{
    loops_by_isa[isa]->divide(bags, dim, counts, bag_count);
}

void pool_divide(float *bags, uint32_t dim, const uint32_t *counts, uint32_t bag_count)
{
    pool_divide_with(kernels_isa_best(), bags, dim, counts, bag_count);
}
