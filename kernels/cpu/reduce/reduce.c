/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/reduce/reduce.h"

#include <math.h>

#include "kernels/cpu/reduce/reduce_loops.h"

static const struct reduce_loops *const loops_by_isa[] = {
#define X(isa) [KERNELS_ISA_##isa] = &reduce_loops_##isa,
    KERNELS_ISA_TABLE(X)
#undef X
};

void reduce_runs_with(enum kernels_isa isa, const struct reduce_batch *batch)
{
    loops_by_isa[isa]->runs(batch);
}

void reduce_runs(const struct reduce_batch *batch)
{
    reduce_runs_with(kernels_isa_best(), batch);
}

void reduce_add(float *restrict sums, const float *restrict more, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        sums[i] += more[i];
}

float reduce_greatest_with(enum kernels_isa isa, const float *numbers, uint64_t count)
{
    return loops_by_isa[isa]->greatest(numbers, count);
}

float reduce_greatest(const float *numbers, uint64_t count)
{
    return reduce_greatest_with(kernels_isa_best(), numbers, count);
}

bool reduce_all_finite_with(enum kernels_isa isa, const float *numbers, uint64_t count)
{
    return isfinite(reduce_greatest_with(isa, numbers, count));
}

bool reduce_all_finite(const float *numbers, uint64_t count)
{
    return reduce_all_finite_with(kernels_isa_best(), numbers, count);
}

void reduce_weight_gradients_with(enum kernels_isa isa, enum embtier_dtype dtype, uint32_t dim,
                                  const void *const *rows, const float *const *bags,
                                  const float *divisors, uint32_t count, float *ret_gradients)
{
    loops_by_isa[isa]->weight_gradients(dtype, dim, rows, bags, divisors, count, ret_gradients);
}

void reduce_weight_gradients(enum embtier_dtype dtype, uint32_t dim, const void *const *rows,
                             const float *const *bags, const float *divisors, uint32_t count,
                             float *ret_gradients)
{
    reduce_weight_gradients_with(kernels_isa_best(), dtype, dim, rows, bags, divisors, count,
                                 ret_gradients);
}
