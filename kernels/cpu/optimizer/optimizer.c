/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/optimizer/optimizer.h"

#include <assert.h>
#include <float.h>
#include <math.h>

#include "base/macros.h"
#include "kernels/cpu/inline.h"
#include "kernels/cpu/optimizer/optimizer_loops.h"

/* Makes the random bits for rounding differ from those of initial values, whose key is the table's
 * seed. */
#define ROUND_KEY_0 UINT32_C(0x8f1bbcdc)
#define ROUND_KEY_1 UINT32_C(0xca62c1d6)

static const struct optimizer_loops *const loops_by_isa[] = {
#define X(isa) [KERNELS_ISA_##isa] = &optimizer_loops_##isa,
    KERNELS_ISA_TABLE(X)
#undef X
};

/* Computes powers by repeated squaring, not by libm, whose last bit differs between versions. */
static double power(double base, uint64_t exponent)
{
    double result = 1.0;

    for (; exponent > 0; exponent >>= 1) {
        if (exponent & 1)
            result *= base;
        base *= base;
    }
    return result;
}

static float narrow(double value)
{
    return (float)MIN(MAX(value, -(double)FLT_MAX), (double)FLT_MAX);
}

void optimizer_prepare(const struct table_spec *spec, double learning_rate, uint64_t step,
                       struct optimizer_push *ret_push)
{
    const double fix = kernel_sqrt_f64(1.0 - power(spec->beta2, step));
    const bool is_apart = spec->optimizer == EMBTIER_OPTIMIZER_ADAMW;
    /* SPARSE_ADAM adds eps to the root before the root is divided by the correction. */
    const double eps =
        spec->optimizer == EMBTIER_OPTIMIZER_SPARSE_ADAM ? spec->eps / fix : spec->eps;

    assert(step >= 1 && step <= OPTIMIZER_STEP_MAX);
    *ret_push = (struct optimizer_push){
        .optimizer = spec->optimizer,
        .dtype = spec->dtype,
        .dim = spec->dim,
        .weight_bytes = table_spec_weight_bytes(spec),
        .stochastic = spec->dtype != EMBTIER_DTYPE_F32 && !spec->rounds_to_nearest,
        .key = { (uint32_t)spec->seed ^ ROUND_KEY_0, (uint32_t)(spec->seed >> 32) ^ ROUND_KEY_1 },
        .step = step,
        .numbers = {
            .learning_rate = narrow(learning_rate),
            .weight_decay = is_apart ? 0.0f : narrow(spec->weight_decay),
            .clip_norm = narrow(spec->clip_norm),
            .eps = narrow(eps),
            .alpha = narrow(spec->alpha),
            .one_minus_alpha = narrow(1.0 - spec->alpha),
            .beta1 = narrow(spec->beta1),
            .one_minus_beta1 = narrow(1.0 - spec->beta1),
            .beta2 = narrow(spec->beta2),
            .one_minus_beta2 = narrow(1.0 - spec->beta2),
            .momentum = narrow(spec->momentum),
            .kept = is_apart ? narrow(1.0 - learning_rate * spec->weight_decay) : 1.0f,
            .step_size = narrow(learning_rate / (1.0 - power(spec->beta1, step))),
            .second_moment_fix = narrow(fix),
            .state_limit = spec->allows_nonfinite ? INFINITY : FLT_MAX,
            .quotient_limit = spec->allows_nonfinite ? INFINITY : OPTIMIZER_QUOTIENT_MAX,
        },
    };
}

void optimizer_update_with(enum kernels_isa isa, const struct optimizer_push *push,
                           const uint64_t *row_ids, void *const *rows, float *gradients,
                           uint32_t count)
{
    loops_by_isa[isa]->update(push, row_ids, rows, count,
                              (struct optimizer_gradients){ .numbers = gradients });
}

void optimizer_update(const struct optimizer_push *push, const uint64_t *row_ids, void *const *rows,
                      float *gradients, uint32_t count)
{
    optimizer_update_with(kernels_isa_best(), push, row_ids, rows, gradients, count);
}

void optimizer_update_runs_with(enum kernels_isa isa, const struct optimizer_push *push,
                                const uint64_t *row_ids, void *const *rows,
                                const struct reduce_batch *batch)
{
    assert(batch->dim == push->dim);
    loops_by_isa[isa]->update(
        push, row_ids, rows, batch->run_count,
        (struct optimizer_gradients){ .numbers = batch->rows, .runs = batch });
}

void optimizer_update_runs(const struct optimizer_push *push, const uint64_t *row_ids,
                           void *const *rows, const struct reduce_batch *batch)
{
    optimizer_update_runs_with(kernels_isa_best(), push, row_ids, rows, batch);
}
