/* SPDX-License-Identifier: Apache-2.0 */
/* dtype.h: converts f32 to f16 and bf16 and back, in integer arithmetic. The bits are the same on
 * every processor, whatever its rounding of denormals. Rounds to nearest, ties to even; numbers
 * that are too large become infinity; a NaN stays a (quiet) NaN. Branch-free, so that a loop
 * vectorises. */
#ifndef EMBTIER_KERNELS_CPU_CAST_DTYPE_H
#define EMBTIER_KERNELS_CPU_CAST_DTYPE_H

#include <stdint.h>
#include <string.h>

#include "kernels/cpu/inline.h"

KERNEL_INLINE uint32_t f32_bits(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

KERNEL_INLINE float f32_from_bits(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

KERNEL_INLINE uint16_t f32_to_f16(float value)
{
    const uint32_t bits = f32_bits(value);
    const uint32_t sign = (bits >> 16) & 0x8000;
    const uint32_t magnitude = bits & 0x7fffffff;
    /* Moves the exponent's bias from 127 to 15 and rounds off 13 bits. */
    const uint32_t normal = (magnitude - (112u << 23) + 0xfff + ((magnitude >> 13) & 1)) >> 13;
    /* Below 2^-14: adding 0.5 leaves a unit of 2^-24, the unit of f16's denormals, and rounds to
     * it. */
    const uint32_t denormal = f32_bits(f32_from_bits(magnitude) + 0.5f) - f32_bits(0.5f);
    uint32_t half = magnitude < 0x38800000 ? denormal : normal;

    half = magnitude >= 0x47800000 ? 0x7c00 : half; /* 65536 and more */
    half = magnitude > 0x7f800000 ? 0x7e00 : half;
    return (uint16_t)(sign | half);
}

KERNEL_INLINE uint16_t f32_to_bf16(float value)
{
    const uint32_t bits = f32_bits(value);
    const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    const uint32_t nan = (bits >> 16) | 0x40;

    return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? nan : rounded);
}

KERNEL_INLINE float f16_to_f32(uint16_t half)
{
    const uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    const uint32_t magnitude = half & 0x7fff;
    const uint32_t normal = (magnitude << 13) + (112u << 23);
    /* Infinity or NaN. A NaN gets its quiet bit, as by the processors' instruction. */
    const uint32_t quiet = magnitude > 0x7c00 ? 1u << 22 : 0;
    const uint32_t special = ((magnitude << 13) + (224u << 23)) | quiet;
    /* Denormals are whole multiples of 2^-24. */
    const uint32_t denormal = f32_bits((float)(int32_t)magnitude * 0x1p-24f);
    uint32_t bits = magnitude < 0x0400 ? denormal : normal;

    bits = magnitude >= 0x7c00 ? special : bits;
    return f32_from_bits(sign | bits);
}

KERNEL_INLINE float bf16_to_f32(uint16_t half)
{
    return f32_from_bits((uint32_t)half << 16);
}

#endif
