/* SPDX-License-Identifier: Apache-2.0 */
/* optimizer_numbers.h: the constants of one push to one table, made by optimizer_prepare() and used
 * by all loops. */
#ifndef EMBTIER_KERNELS_CPU_OPTIMIZER_OPTIMIZER_NUMBERS_H
#define EMBTIER_KERNELS_CPU_OPTIMIZER_OPTIMIZER_NUMBERS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/spec/table_spec.h"

#define OPTIMIZER_STEP_MAX EMBTIER_STEP_MAX
/* Limits Adam's quotient of moments and the velocity, unless the table allows NaN and infinity. */
#define OPTIMIZER_QUOTIENT_MAX 0x1p100f

/* The constants of one push to one table. */
struct optimizer_numbers {
    float learning_rate;
    float weight_decay;
    float clip_norm;
    float eps;
    float alpha, one_minus_alpha;
    float beta1, one_minus_beta1;
    float beta2, one_minus_beta2;
    float momentum;
    float kept;      /* AdamW: the weight's factor before the step: 1 - learning rate * decay */
    float step_size; /* Adam: learning rate / (1 - beta1^step) */
    float second_moment_fix; /* Adam: sqrt(1 - beta2^step) */
    float state_limit;       /* where state saturates; infinity: never */
    float quotient_limit;    /* the same for Adam's m / sqrt(v), and for the velocity of momentum */
};

struct optimizer_push {
    enum embtier_optimizer optimizer;
    enum embtier_dtype dtype;
    uint32_t dim;
    uint32_t weight_bytes;
    bool stochastic; /* rounding of f16 and bf16 */
    uint32_t key[2]; /* of the random generator */
    uint64_t step;
    struct optimizer_numbers numbers;
};

#endif
