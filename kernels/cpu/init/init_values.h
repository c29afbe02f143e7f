/* SPDX-License-Identifier: Apache-2.0 */
/* init_values.h: version 1 of the initial values, from one random word to one number. This defines
 * a table's content before its first update: not a bit of a result may change (init_rows.h).
 *
 * Column c of a row takes word c % 4 of a Philox4x32-10 block. The block's counter is (row low, row
 * high, c / 4, version), its key (seed low, seed high).
 *
 * Uses only IEEE 754 single-precision add, subtract, multiply, square root, conversion and
 * comparison, each rounded on its own. The tree is compiled with -ffp-contract=off, and a CUDA twin
 * needs -fmad=false and __fsqrt_rn. Nothing here may call libm, whose last bit differs between
 * versions. */
#ifndef EMBTIER_KERNELS_CPU_INIT_INIT_VALUES_H
#define EMBTIER_KERNELS_CPU_INIT_INIT_VALUES_H

#include <stdint.h>

#include "kernels/cpu/cast/dtype.h"

#define INIT_VERSION_1 1 /* in the counter */

/* Uniform: low + span * u with u = 0, 2^-24 … 1 - 2^-24. The sum may round up to `high`, which is
 * excluded, so it is cut at @top: the greatest number of the table's dtype below `high`. */
KERNEL_INLINE float init_uniform_v1(uint32_t word, float low, float span, float top)
{
    const float u = (float)(int32_t)(word >> 8) * 0x1p-24f;
    const float value = low + span * u;

    return value > top ? top : value;
}

/* Natural logarithm of a normal number, to 2e-7. The number is 2^e * (1 + f) with 1 + f in
 * [sqrt(1/2), sqrt(2)); log(1 + f) = f - f²/2 + f³ P(f), where P comes from Chebyshev
 * interpolation. */
KERNEL_INLINE float init_log_v1(float value)
{
    const uint32_t bits = f32_bits(value);
    const int32_t e = (int32_t)(bits - 0x3f3504f3) >> 23;
    const float f = f32_from_bits(bits - ((uint32_t)e << 23)) - 1.0f;
    const float square = f * f;
    float p = -0x1.43b246p-4f;

    p = p * f + 0x1.02814ep-3f;
    p = p * f - 0x1.0a33eap-3f;
    p = p * f + 0x1.231ce6p-3f;
    p = p * f - 0x1.54d03ep-3f;
    p = p * f + 0x1.999f14p-3f;
    p = p * f - 0x1.0000cep-2f;
    p = p * f + 0x1.555554p-2f;
    return (float)e * 0x1.62e430p-1f + (f - 0.5f * square + f * square * p);
}

/* Standard normal by inversion of its distribution function: one word gives one number, and the
 * tails reach 6.3 standard deviations.
 *
 * The word is a sign and 31 bits m. q = 2^-32 (m + 1/2) is the distance from the median, and r =
 * 1/2 - q is the rest of the tail. Both come from integers, so neither loses digits. The quantile
 * is 2q G(w), w = -log(4 r (1 - r)), where G is smooth. This is the shape of M. Giles,
 * "Approximating the erfinv function" (GPU Computing Gems, 2010). The polynomials are our own
 * (Chebyshev interpolation of degree 8), since his end at 2^-24. The relative error is below 1e-6.
 * Both halves are computed and one is chosen, so that there is no branch. */
KERNEL_INLINE float init_normal_v1(uint32_t word)
{
    const uint32_t sign = (word & 0x80000000) ^ 0x80000000;
    const int32_t m = (int32_t)((word ^ (sign ? 0xffffffff : 0)) & 0x7fffffff);
    const float q2 = ((float)m + 0.5f) * 0x1p-31f;
    const float r = ((float)(0x7fffffff - m) + 0.5f) * 0x1p-32f;
    const float w = -init_log_v1(r * 4.0f * (1.0f - r));
    const float c = w - 2.5f;
    const float t = kernel_sqrt(w > 0.0f ? w : 0.0f) - 3.0f;
    float centre = 0x1.129e12p-25f;
    float tail = 0x1.1d14d0p-17f;
    float magnitude;

    centre = centre * c + 0x1.03d58cp-21f;
    centre = centre * c - 0x1.47e156p-18f;
    centre = centre * c - 0x1.9fb8ecp-18f;
    centre = centre * c + 0x1.43bd14p-12f;
    centre = centre * c - 0x1.d0cd92p-10f;
    centre = centre * c - 0x1.832a16p-8f;
    centre = centre * c + 0x1.652c8ap-2f;
    centre = centre * c + 0x1.0fc8bcp+1f;
    tail = tail * t - 0x1.2d3124p-12f;
    tail = tail * t + 0x1.bedbecp-10f;
    tail = tail * t - 0x1.36227ep-8f;
    tail = tail * t + 0x1.0a1cbcp-7f;
    tail = tail * t - 0x1.660b48p-7f;
    tail = tail * t + 0x1.b5c500p-7f;
    tail = tail * t + 0x1.6aa5dcp+0f;
    tail = tail * t + 0x1.00696ap+2f;
    magnitude = q2 * (w < 5.0f ? centre : tail);
    return f32_from_bits(f32_bits(magnitude) | sign);
}

/* Normal with that mean and deviation; the dtype's range ends at @lowest and @highest. */
KERNEL_INLINE float init_normal_in_v1(uint32_t word, float mean, float stddev, float lowest,
                                      float highest)
{
    const float value = mean + stddev * init_normal_v1(word);
    const float cut = value < lowest ? lowest : value;

    return cut > highest ? highest : cut;
}

#endif
