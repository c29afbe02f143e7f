/* SPDX-License-Identifier: Apache-2.0 */
/* Derivation of the bound. Let g be the gradient, and d the divisor of an optimizer that has one.
 *
 * A weight w becomes w - step, rounded. The greatest finite f32 is 2^128 - 2^104: with a step below
 * half of its last digit, 2^103, the result is finite. In bf16 weights are smaller still, and a sum
 * below 2^128 - 2^119 rounds to a finite one. In f16 the greatest is 65504, and numbers below 65520
 * round to it at most. This holds to nearest and stochastically, because numbers from 65504 on are
 * rounded to nearest. step_max() has room for the rounding of the step itself.
 *
 * The divisor of the Adagrads and RMSprop is the root of a sum that includes g². So the quotient is
 * at most about 1, or 1 / sqrt(1 - alpha), or sqrt(dim) if the sum has the row's mean. Two things
 * can make it greater. The sum saturates: its root is then slightly less than 2^64. And squares
 * below 2^-150 are 0 in f32: then eps divides alone, but |g| is below 2^-75. */
#include "kernels/cpu/optimizer/finite.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/macros.h"
#include "kernels/cpu/cast/dtype.h"
#include "kernels/cpu/reduce/reduce.h"

/* Sums, gradients and quotients up to this do not overflow when they are rounded. */
#define NUMBER_MAX 0x1p127
#define ROOT_MAX   0x1p63  /* slightly less than the root of FLT_MAX */
#define NO_SQUARE  0x1p-74 /* smaller numbers may have a square of 0; twice the true limit */

double finite_sum_bound(float greatest, float scale, uint64_t pair_count)
{
    /* Each product and each addition grows by a factor of at most 1 + 2^-24. So the total grows by
     * at most (1 + 2^-24)^(pairs + 1), which is below 2 * 2^(pairs / 2^23). */
    return ldexp(2.0 * (double)greatest * (double)scale * (double)pair_count,
                 (int)(pair_count >> 23));
}

static double step_max(enum embtier_dtype dtype)
{
    return dtype == EMBTIER_DTYPE_F16 ? 15.0 : 0x1p102;
}

static double weight_max(enum embtier_dtype dtype)
{
    switch (dtype) {
    case EMBTIER_DTYPE_F16:
        return 65504.0;
    case EMBTIER_DTYPE_BF16:
        return 0x1.fep127;
    case EMBTIER_DTYPE_F32:
        break;
    }
    return FLT_MAX;
}

/* Returns the greatest gradient after clipping. */
static double clipped(const struct optimizer_numbers *n, double greatest)
{
    return n->clip_norm > 0.0f ? MIN(greatest, (double)n->clip_norm * 1.000001 + 0x1p-20)
                               : greatest;
}

/* Returns how far SGD moves a weight away from 0. Decay that shortens a weight does not count: that
 * needs a positive learning rate, and decay that does not carry the weight past 0. */
static double sgd_step(const struct optimizer_numbers *n, double greatest, double decayed)
{
    const double shrink = (double)n->learning_rate * (double)n->weight_decay;

    if (decayed > NUMBER_MAX)
        return INFINITY;
    return fabs((double)n->learning_rate) * (shrink >= 0 && shrink <= 1 ? greatest : decayed);
}

/* Returns the greatest g / (root + eps). @share is the share of g² in the sum under the root. */
static double quotient_max(const struct optimizer_numbers *n, double greatest, double share)
{
    const double eps = (double)n->eps;
    const double without = eps > 0 ? greatest / eps : greatest / 0x1p-75; /* if g² is 0 */
    const double root = sqrt(share);
    double most;

    if (greatest > NUMBER_MAX)
        return INFINITY;
    if (!(share > 0))
        return without;
    most = MAX(2.0 / root, greatest / (ROOT_MAX * root));
    if (eps > 0) /* with an eps of 0 there is no step if the square is 0 */
        most = MAX(most, NO_SQUARE / (root * eps));
    return MIN(most, without);
}

bool finite_is_proven(const struct optimizer_push *push, double greatest)
{
    const struct optimizer_numbers *const n = &push->numbers;
    const double clipped_most = clipped(n, greatest);
    const double decayed =
        clipped_most + (double)n->weight_decay * weight_max(push->dtype); /* after clipping */
    const double rate = fabs((double)n->learning_rate);
    double quotient = 0;
    double step = 0;

    if (!(greatest <= NUMBER_MAX))
        return false;
    switch (push->optimizer) {
    case EMBTIER_OPTIMIZER_NONE:
        break;
    case EMBTIER_OPTIMIZER_SGD:
        step = sgd_step(n, clipped_most, decayed);
        break;
    case EMBTIER_OPTIMIZER_ADAGRAD:
        quotient = quotient_max(n, decayed, 1);
        step = rate * quotient;
        break;
    case EMBTIER_OPTIMIZER_ROWWISE_ADAGRAD:
        quotient = quotient_max(n, decayed, 1.0 / push->dim);
        step = rate * quotient;
        break;
    case EMBTIER_OPTIMIZER_RMSPROP:
        quotient = quotient_max(n, decayed, (double)n->one_minus_alpha);
        step = rate * quotient;
        break;
    case EMBTIER_OPTIMIZER_MOMENTUM: /* a client may have set the velocity, like Adam's moments */
        quotient = (double)n->quotient_limit;
        step = rate * quotient;
        break;
    case EMBTIER_OPTIMIZER_ADAM:
    case EMBTIER_OPTIMIZER_ADAMW:
    case EMBTIER_OPTIMIZER_SPARSE_ADAM:
        if (!(n->kept >= 0.0f && n->kept <= 1.0f)) /* decay makes weights longer */
            return false;
        quotient = (double)n->quotient_limit;
        step = fabs((double)n->step_size) * quotient;
        break;
    }
    return quotient <= NUMBER_MAX && step <= step_max(push->dtype);
}

/* ---- Rows ---- */

static uint32_t states_of(const struct optimizer_push *push)
{
    switch (push->optimizer) {
#define X(name, number, word, per_weight, per_row, hyperparameters, eps, decay, text)              \
    case EMBTIER_OPTIMIZER_##name:                                                                 \
        return (per_weight)*push->dim + (per_row);
        EMBTIER_OPTIMIZER_TABLE(X)
#undef X
    }
    return 0;
}

static uint32_t row_bytes_of(const struct optimizer_push *push)
{
    return push->weight_bytes + states_of(push) * (uint32_t)sizeof(float);
}

/* Returns the exponent bits of a 16-bit number; all of them are set in infinity and NaN. */
static uint16_t special_bits(enum embtier_dtype dtype)
{
    return dtype == EMBTIER_DTYPE_F16 ? 0x7c00 : 0x7f80;
}

static bool is_finite_half(enum embtier_dtype dtype, uint16_t half)
{
    return (half & special_bits(dtype)) != special_bits(dtype);
}

/* True if no number at @at is infinite or NaN. @special has the exponent bits of each number in a
 * word, @signs the sign bits. Exponent bits plus (signs - special) reach the sign bit only if all
 * of them are set. */
static bool words_are_finite(const char *at, uint32_t bytes, uint64_t special, uint64_t signs)
{
    uint64_t found = 0;
    uint64_t word;

    for (; bytes >= sizeof(word); at += sizeof(word), bytes -= sizeof(word)) {
        memcpy(&word, at, sizeof(word));
        found |= (word & special) + (signs - special);
    }
    word = 0;
    memcpy(&word, at, bytes);
    found |= (word & special) + (signs - special);
    return (found & signs) == 0;
}

static bool row_is_finite(const struct optimizer_push *push, const void *row)
{
    const char *const states = (const char *)row + push->weight_bytes;
    const uint32_t count = states_of(push);

    if (push->dtype == EMBTIER_DTYPE_F32)
        return reduce_all_finite(row, row_bytes_of(push) / sizeof(float));
    if (!words_are_finite(row, push->weight_bytes,
                          special_bits(push->dtype) * UINT64_C(0x0001000100010001),
                          UINT64_C(0x8000800080008000)))
        return false;
    if ((uintptr_t)states % sizeof(float) == 0) /* after an even number of weights */
        return reduce_all_finite((const float *)states, count);
    return words_are_finite(states, count * (uint32_t)sizeof(float), UINT64_C(0x7f8000007f800000),
                            UINT64_C(0x8000000080000000));
}

static void mend_float(char *at, const char *old)
{
    float number;

    memcpy(&number, at, sizeof(number));
    if (isinf(number))
        number = copysignf(FLT_MAX, number);
    else if (isnan(number))
        memcpy(&number, old, sizeof(number));
    memcpy(at, &number, sizeof(number));
}

static void mend_half(enum embtier_dtype dtype, char *at, const char *old)
{
    uint16_t half;

    memcpy(&half, at, sizeof(half));
    if (is_finite_half(dtype, half))
        return;
    if ((half & 0x7fff) == special_bits(dtype)) /* infinity becomes the greatest */
        half--;
    else
        memcpy(&half, old, sizeof(half));
    memcpy(at, &half, sizeof(half));
}

static void mend_row(const struct optimizer_push *push, char *row, const char *old)
{
    const bool is_f32 = push->dtype == EMBTIER_DTYPE_F32;

    for (uint32_t at = 0; at < push->weight_bytes; at += is_f32 ? sizeof(float) : sizeof(uint16_t))
        if (is_f32)
            mend_float(row + at, old + at);
        else
            mend_half(push->dtype, row + at, old + at);
    for (uint32_t at = push->weight_bytes; at < row_bytes_of(push); at += sizeof(float))
        mend_float(row + at, old + at);
}

bool finite_try(const struct optimizer_push *push, uint64_t row_id, const void *row,
                float *gradient, void *copy)
{
    if (!row_is_finite(push, row))
        return true;
    memcpy(copy, row, row_bytes_of(push));
    optimizer_update(push, &row_id, (void *const[]){ copy }, gradient, 1);
    return row_is_finite(push, copy);
}

void finite_update(const struct optimizer_push *push, uint64_t row_id, void *row, float *gradient,
                   void *copy)
{
    const bool was_finite = row_is_finite(push, row);

    if (was_finite)
        memcpy(copy, row, row_bytes_of(push));
    optimizer_update(push, &row_id, (void *const[]){ row }, gradient, 1);
    if (was_finite && !row_is_finite(push, row))
        mend_row(push, row, copy);
}
