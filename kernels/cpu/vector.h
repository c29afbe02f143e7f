/* SPDX-License-Identifier: Apache-2.0 */
/* vector.h: vectors of numbers as long as the instruction set's registers. The inner loops (isa.h)
 * use them where the compiler must be told which values stay in registers. Rows lie anywhere, so
 * all loads are unaligned, and none reads a byte beyond the numbers asked for. */
#ifndef EMBTIER_KERNELS_CPU_VECTOR_H
#define EMBTIER_KERNELS_CPU_VECTOR_H

#include <stdint.h>
#include <string.h>

#include "base/embtier_types.h"
#include "base/macros.h"
#include "kernels/cpu/cast/dtype.h"
#include "kernels/cpu/inline.h"

#ifdef __SSE2__
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
#define VECTOR_LANES 16
#elif defined(__AVX2__)
#define VECTOR_LANES 8
#else
#define VECTOR_LANES 4
#endif

typedef float vector_f32 __attribute__((vector_size(4 * VECTOR_LANES)));
typedef int32_t vector_i32 __attribute__((vector_size(4 * VECTOR_LANES)));
typedef uint32_t vector_u32 __attribute__((vector_size(4 * VECTOR_LANES)));
typedef uint64_t vector_u64 __attribute__((vector_size(4 * VECTOR_LANES)));
typedef uint16_t vector_u16 __attribute__((vector_size(2 * VECTOR_LANES)));

KERNEL_INLINE uint32_t vector_dtype_bytes(enum embtier_dtype dtype)
{
    return dtype == EMBTIER_DTYPE_F32 ? 4 : 2;
}

/* Intrinsics are used only for instructions that GCC 12 does not find by itself. */

#if defined(__AVX512F__)
typedef __mmask16 vector_mask;
#else
typedef vector_i32 vector_mask; /* all bits of a lane are set, or none */
#endif

KERNEL_INLINE vector_mask vector_greater(vector_f32 a, vector_f32 b)
{
#if defined(__AVX512F__)
    return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_GT_OQ);
#else
    return a > b;
#endif
}

/* Returns @yes in the lanes of @mask, @no in the others. */
KERNEL_INLINE vector_u32 vector_select(vector_mask mask, vector_u32 yes, vector_u32 no)
{
#if defined(__AVX512F__)
    return (vector_u32)_mm512_mask_blend_epi32(mask, (__m512i)no, (__m512i)yes);
#elif defined(__AVX2__)
    return (vector_u32)_mm256_blendv_epi8((__m256i)no, (__m256i)yes, (__m256i)mask);
#else
    return (yes & (vector_u32)mask) | (no & ~(vector_u32)mask);
#endif
}

KERNEL_INLINE vector_u32 vector_widen(vector_u16 halves)
{
#if defined(__AVX512F__)
    return (vector_u32)_mm512_cvtepu16_epi32((__m256i)halves);
#elif defined(__AVX2__)
    return (vector_u32)_mm256_cvtepu16_epi32((__m128i)halves);
#elif defined(__SSE2__)
    const __m128i both = _mm_cvtsi64_si128((int64_t)halves);

    return (vector_u32)_mm_unpacklo_epi16(both, _mm_setzero_si128());
#else
    return __builtin_convertvector(halves, vector_u32);
#endif
}

/* Returns the low halves of the lanes, times @factor. */
KERNEL_INLINE vector_u64 vector_multiply_u32(vector_u64 lanes, uint32_t factor)
{
    const vector_u64 factors = (vector_u64){ 0 } + factor;

#if defined(__AVX512F__)
    return (vector_u64)_mm512_mul_epu32((__m512i)lanes, (__m512i)factors);
#elif defined(__AVX2__)
    return (vector_u64)_mm256_mul_epu32((__m256i)lanes, (__m256i)factors);
#elif defined(__SSE2__)
    return (vector_u64)_mm_mul_epu32((__m128i)lanes, (__m128i)factors);
#else
    return (lanes & 0xffffffff) * factors;
#endif
}

/* Gives the bits of f16_to_f32() in dtype.h. */
KERNEL_INLINE vector_f32 vector_from_f16(vector_u16 halves)
{
#if defined(__AVX512F__)
    return (vector_f32)_mm512_cvtph_ps((__m256i)halves);
#elif defined(__AVX2__)
    return (vector_f32)_mm256_cvtph_ps((__m128i)halves);
#else
    const vector_u32 wide = vector_widen(halves);
    const vector_u32 sign = (wide & 0x8000) << 16;
    const vector_u32 magnitude = wide & 0x7fff;
    const vector_u32 normal = (magnitude << 13) + (112u << 23);
    const vector_u32 quiet = (vector_u32)((vector_i32)magnitude > 0x7c00) & (1u << 22);
    const vector_u32 special = ((magnitude << 13) + (224u << 23)) | quiet;
    const vector_f32 tiny = __builtin_convertvector((vector_i32)magnitude, vector_f32) * 0x1p-24f;
    vector_u32 bits = vector_select((vector_i32)magnitude < 0x0400, (vector_u32)tiny, normal);

    bits = vector_select((vector_i32)magnitude >= 0x7c00, special, bits);
    return (vector_f32)(sign | bits);
#endif
}

KERNEL_INLINE vector_f32 vector_from_bf16(vector_u16 halves)
{
    return (vector_f32)(vector_widen(halves) << 16);
}

/* Loads as many numbers as a vector holds. */
KERNEL_INLINE vector_f32 vector_load(enum embtier_dtype dtype, const void *numbers)
{
    vector_u16 halves;
    vector_f32 vector;

    if (dtype == EMBTIER_DTYPE_F32) {
        memcpy(&vector, numbers, sizeof(vector));
        return vector;
    }
    memcpy(&halves, numbers, sizeof(halves));
    return dtype == EMBTIER_DTYPE_F16 ? vector_from_f16(halves) : vector_from_bf16(halves);
}

/* Loads the first @count numbers, fewer than a vector holds, and zeros after them. Copies pieces of
 * constant length, because a call of memcpy() costs more than the rest of the work on so few
 * numbers. */
KERNEL_INLINE vector_f32 vector_load_few(enum embtier_dtype dtype, const void *numbers,
                                         uint32_t count)
{
    const uint32_t bytes = count * vector_dtype_bytes(dtype);
    const char *from = numbers;
    char buffer[4 * VECTOR_LANES] __attribute__((aligned(CACHE_LINE))) = { 0 };
    char *to = buffer;

#define PIECE(length)                                                                              \
    if ((length) < sizeof(buffer) && (bytes & (length))) {                                         \
        memcpy(to, from, length);                                                                  \
        to += (length);                                                                            \
        from += (length);                                                                          \
    }
    PIECE(32)
    PIECE(16)
    PIECE(8)
    PIECE(4)
    PIECE(2)
#undef PIECE
    return vector_load(dtype, buffer);
}

/* ---- Rows that lie anywhere ---- */

/* Returns the number of rows of @row_bytes to prefetch, which keeps the processor's outstanding
 * loads busy. It is the best of those tried; half or twice as many are nearly as good. */
KERNEL_INLINE uint32_t vector_rows_ahead(uint32_t row_bytes)
{
    return MIN(MAX(8192 / row_bytes, 2u), 24u);
}

/* Prefetches the cache lines of a row into the first-level cache. For many rows use the second
 * level, because an L1 cache can have only few lines in flight. */
enum vector_level { VECTOR_L1, VECTOR_L2 };

KERNEL_INLINE void vector_ask_for_in(enum vector_level level, const void *row, uint32_t row_bytes)
{
    const char *const end = (const char *)row + row_bytes;
    const char *line = (const char *)((uintptr_t)row & -(uintptr_t)CACHE_LINE);

    /* Not unrolled: the loops around this need the registers that counts of lines would take. */
#pragma GCC unroll 1
    do {
        if (level == VECTOR_L1)
            __builtin_prefetch(line, 0, 3);
        else
            __builtin_prefetch(line, 0, 2);
        line += CACHE_LINE;
    } while (line < end);
}

KERNEL_INLINE void vector_ask_for(const void *row, uint32_t row_bytes)
{
    vector_ask_for_in(VECTOR_L1, row, row_bytes);
}

#endif
