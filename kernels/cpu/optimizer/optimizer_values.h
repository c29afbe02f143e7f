/* SPDX-License-Identifier: Apache-2.0 */
/* optimizer_values.h: how each optimizer updates one number. It defines every update: the C loops
 * and their CUDA twins both compile it.
 *
 * Each function returns the new weight. @state has the numbers kept for this weight, in the order
 * of EMBTIER_OPTIMIZER_TABLE; @row_state is the number kept for its row, already updated. Gradients
 * are already clipped and have the weight decay added. IEEE 754 single precision, each operation
 * rounded on its own: compiled with -ffp-contract=off, for CUDA with -fmad=false. Choices are
 * written so that a NaN passes through. */
#ifndef EMBTIER_KERNELS_CPU_OPTIMIZER_OPTIMIZER_VALUES_H
#define EMBTIER_KERNELS_CPU_OPTIMIZER_OPTIMIZER_VALUES_H

#include "kernels/cpu/cast/dtype.h"
#include "kernels/cpu/init/philox.h"
#include "kernels/cpu/optimizer/optimizer_numbers.h"

/* Returns the factor that clips a row's gradient; @squares is the sum of its squares. */
KERNEL_INLINE float optimizer_clip_scale(const struct optimizer_numbers *n, double squares)
{
    const double norm = kernel_sqrt_f64(squares);

    return n->clip_norm > 0.0f && norm > (double)n->clip_norm ? (float)((double)n->clip_norm / norm)
                                                              : 1.0f;
}

/* Returns g + weight_decay w if there is weight decay. Without decay an infinite weight leaves g
 * alone. */
KERNEL_INLINE float optimizer_decay(const struct optimizer_numbers *n, float weight, float gradient)
{
    return n->weight_decay > 0.0f ? gradient + n->weight_decay * weight : gradient;
}

/* State saturates: a finite number stays finite, because an infinite one would never change again.
 * A number that a client has set to infinity or NaN stays as it is. */
KERNEL_INLINE float optimizer_saturated(const struct optimizer_numbers *n, float old, float value)
{
    const float high = old > n->state_limit ? old : n->state_limit;

    return value > high ? high : value;
}

/* The same for numbers that may be negative. */
KERNEL_INLINE float optimizer_saturated_both(const struct optimizer_numbers *n, float old,
                                             float value)
{
    const float low = old < -n->state_limit ? old : -n->state_limit;
    const float below = optimizer_saturated(n, old, value);

    return below < low ? low : below;
}

/* Returns g², saturated, so that times 0 it is 0. */
KERNEL_INLINE float optimizer_square(const struct optimizer_numbers *n, float gradient)
{
    const float square = gradient * gradient;

    return square > n->state_limit ? n->state_limit : square;
}

/* Returns a sum of squares. A negative one, which only a client can have set, has no root and
 * counts as 0. */
KERNEL_INLINE float optimizer_squares(float state)
{
    return state < 0.0f ? 0.0f : state;
}

/* The divisor is 0 only in tables whose eps is 0, where nothing has been learned yet. Then there is
 * no step. */
KERNEL_INLINE float optimizer_quotient(float dividend, float divisor)
{
    const float quotient = dividend / divisor;

    return divisor == 0.0f ? 0.0f : quotient;
}

/* Returns the new state number of a row, for optimizers that keep one: the sum of the row's means
 * of g². */
KERNEL_INLINE float optimizer_row_state(const struct optimizer_numbers *n, float row_state,
                                        double squares, uint32_t dim)
{
    return optimizer_saturated(n, row_state,
                               optimizer_squares(row_state) + (float)(squares / (double)dim));
}

/* w - lr g */
KERNEL_INLINE float optimizer_sgd(const struct optimizer_numbers *n, float weight, float gradient,
                                  float *state, float row_state)
{
    (void)state;
    (void)row_state;
    return weight - n->learning_rate * gradient;
}

/* s += g²; w - lr g / (sqrt(s) + eps). Duchi et al., "Adaptive subgradient methods", 2011. */
KERNEL_INLINE float optimizer_adagrad(const struct optimizer_numbers *n, float weight,
                                      float gradient, float *state, float row_state)
{
    (void)row_state;
    state[0] = optimizer_saturated(n, state[0], optimizer_squares(state[0]) + gradient * gradient);
    return weight - n->learning_rate * optimizer_quotient(gradient, kernel_sqrt(state[0]) + n->eps);
}

/* r += mean(g²) over the row, before this call; w - lr g / (sqrt(r) + eps). */
KERNEL_INLINE float optimizer_rowwise_adagrad(const struct optimizer_numbers *n, float weight,
                                              float gradient, float *state, float row_state)
{
    (void)state;
    return weight -
           n->learning_rate * optimizer_quotient(gradient, kernel_sqrt(row_state) + n->eps);
}

/* v = alpha v + (1 - alpha) g²; w - lr g / (sqrt(v) + eps). */
KERNEL_INLINE float optimizer_rmsprop(const struct optimizer_numbers *n, float weight,
                                      float gradient, float *state, float row_state)
{
    (void)row_state;
    state[0] = optimizer_saturated(n, state[0],
                                   n->alpha * optimizer_squares(state[0]) +
                                       n->one_minus_alpha * optimizer_square(n, gradient));
    return weight - n->learning_rate * optimizer_quotient(gradient, kernel_sqrt(state[0]) + n->eps);
}

KERNEL_INLINE float optimizer_limited(const struct optimizer_numbers *n, float value)
{
    const float below = value > n->quotient_limit ? n->quotient_limit : value;

    return below < -n->quotient_limit ? -n->quotient_limit : below;
}

/* m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g²; w - lr / (1 - b1^t) m / (sqrt(v) / sqrt(1 - b2^t)
 * + eps). Kingma and Ba, "Adam", 2015, in the lazy form: t is the push's step, not the number of
 * the row's updates. The quotient of the moments saturates too. With consistent moments it is at
 * most some tens, but a client may set any moments. */
KERNEL_INLINE float optimizer_adam(const struct optimizer_numbers *n, float weight, float gradient,
                                   float *state, float row_state)
{
    (void)row_state;
    float quotient;

    state[0] =
        optimizer_saturated_both(n, state[0], n->beta1 * state[0] + n->one_minus_beta1 * gradient);
    state[1] = optimizer_saturated(n, state[1],
                                   n->beta2 * optimizer_squares(state[1]) +
                                       n->one_minus_beta2 * optimizer_square(n, gradient));
    quotient = optimizer_quotient(state[0], kernel_sqrt(state[1]) / n->second_moment_fix + n->eps);
    return weight - n->step_size * optimizer_limited(n, quotient);
}

/* u = momentum u + g; w - lr u. Like PyTorch's SGD, without dampening and without Nesterov's
 * look-ahead. The velocity saturates like Adam's quotient. */
KERNEL_INLINE float optimizer_momentum(const struct optimizer_numbers *n, float weight,
                                       float gradient, float *state, float row_state)
{
    (void)row_state;
    state[0] = optimizer_saturated_both(n, state[0], n->momentum * state[0] + gradient);
    return weight - n->learning_rate * optimizer_limited(n, state[0]);
}

/* w (1 - lr decay), then Adam's step by the gradient alone. Loshchilov and Hutter, "Decoupled
 * weight decay regularization", 2019. */
KERNEL_INLINE float optimizer_adamw(const struct optimizer_numbers *n, float weight, float gradient,
                                    float *state, float row_state)
{
    return optimizer_adam(n, weight * n->kept, gradient, state, row_state);
}

/* The most numbers kept per weight. */
#define OPTIMIZER_STATES_MAX 2

/* Updates a weight by @optimizer, which is a constant where speed matters. */
KERNEL_INLINE float optimizer_value(enum embtier_optimizer optimizer,
                                    const struct optimizer_numbers *n, float weight, float gradient,
                                    float *state, float row_state)
{
    switch (optimizer) {
    case EMBTIER_OPTIMIZER_NONE:
        break;
    case EMBTIER_OPTIMIZER_SGD:
        return optimizer_sgd(n, weight, gradient, state, row_state);
    case EMBTIER_OPTIMIZER_ADAGRAD:
        return optimizer_adagrad(n, weight, gradient, state, row_state);
    case EMBTIER_OPTIMIZER_ROWWISE_ADAGRAD:
        return optimizer_rowwise_adagrad(n, weight, gradient, state, row_state);
    case EMBTIER_OPTIMIZER_RMSPROP:
        return optimizer_rmsprop(n, weight, gradient, state, row_state);
    case EMBTIER_OPTIMIZER_ADAM:
    case EMBTIER_OPTIMIZER_SPARSE_ADAM: /* optimizer_prepare() has adapted its eps */
        return optimizer_adam(n, weight, gradient, state, row_state);
    case EMBTIER_OPTIMIZER_MOMENTUM:
        return optimizer_momentum(n, weight, gradient, state, row_state);
    case EMBTIER_OPTIMIZER_ADAMW:
        return optimizer_adamw(n, weight, gradient, state, row_state);
    }
    return weight;
}

/* ---- Stochastic rounding ---- */

/* One block of random words serves this many columns, 16 bits each. */
#define OPTIMIZER_ROUND_COLUMNS 8

KERNEL_INLINE struct philox_block optimizer_counter(uint64_t row_id, uint32_t block, uint64_t step)
{
    return (struct philox_block){ { (uint32_t)row_id, (uint32_t)(row_id >> 32),
                                    block | (uint32_t)(step >> 32) << 10, (uint32_t)step } };
}

/* Returns random bits for the columns from 8 * @block on. Column 8 * block + i has the low half of
 * word i / 2 for even i, the high half for odd i. */
KERNEL_INLINE struct philox_block optimizer_random(const uint32_t key[2], uint64_t row_id,
                                                   uint32_t block, uint64_t step)
{
    return philox4x32_10(optimizer_counter(row_id, block, step), key[0], key[1]);
}

/* Rounds @value to bf16: away from zero if the 16 bits cut off and @random (16 bits) carry.
 * Infinity and NaN become the same as by f32_to_bf16(); a finite value stays finite. */
KERNEL_INLINE uint16_t optimizer_round_bf16(float value, uint32_t random)
{
    const uint32_t bits = f32_bits(value);
    const uint32_t magnitude = bits & 0x7fffffff;
    const uint32_t rounded = (bits + random) >> 16;
    const uint32_t cut = (rounded & 0x7fff) >= 0x7f80 ? bits >> 16 : rounded;

    return magnitude >= 0x7f800000 ? f32_to_bf16(value) : (uint16_t)cut;
}

/* Rounds @value to f16, likewise; numbers beyond f16's range round as by f32_to_f16(). */
KERNEL_INLINE uint16_t optimizer_round_f16(float value, uint32_t random)
{
    const uint32_t bits = f32_bits(value);
    const uint32_t sign = (bits >> 16) & 0x8000;
    const uint32_t magnitude = bits & 0x7fffffff;
    const uint32_t normal = (magnitude - (112u << 23) + (random >> 3)) >> 13;
    /* Below 2^-14 the unit is 2^-24. The sum is an integer with 16 bits after the point. In f32 the
     * sum itself would be rounded, and an exact f16 number could become the next one. */
    const float small = f32_from_bits(magnitude < 0x38800000 ? magnitude : 0) * 0x1p+40f;
    const uint32_t denormal = ((uint32_t)(int32_t)small + random) >> 16;
    const uint32_t half = magnitude < 0x38800000 ? denormal : normal;

    return magnitude >= 0x477fe000 ? f32_to_f16(value) /* the greatest of f16 and beyond */
                                   : (uint16_t)(sign | half);
}

#endif
