/* SPDX-License-Identifier: Apache-2.0 */
/* numbers.cuh: loads and stores the numbers of rows in a GPU's memory. Rows are aligned to 2 bytes,
 * and so is state after 16-bit weights. A GPU faults on an f32 at an odd multiple of 2, so such a
 * number is read and written in halves. Only for use inside the .cu files. */
#ifndef EMBTIER_KERNELS_GPU_NUMBERS_CUH
#define EMBTIER_KERNELS_GPU_NUMBERS_CUH

#include <stdint.h>

#include "base/embtier_types.h"
#include "kernels/cpu/cast/dtype.h"

static __device__ __forceinline__ float gpu_load_f32(const void *at)
{
    const uint16_t *halves = (const uint16_t *)at;

    if ((uintptr_t)at % sizeof(float) == 0)
        return *(const float *)at;
    return f32_from_bits(halves[0] | (uint32_t)halves[1] << 16);
}

static __device__ __forceinline__ void gpu_store_f32(void *at, float value)
{
    uint16_t *halves = (uint16_t *)at;

    if ((uintptr_t)at % sizeof(float) == 0) {
        *(float *)at = value;
        return;
    }
    halves[0] = (uint16_t)f32_bits(value);
    halves[1] = (uint16_t)(f32_bits(value) >> 16);
}

static __device__ __forceinline__ float gpu_load(enum embtier_dtype dtype, const void *row,
                                                 uint32_t column)
{
    switch (dtype) {
    case EMBTIER_DTYPE_F16:
        return f16_to_f32(((const uint16_t *)row)[column]);
    case EMBTIER_DTYPE_BF16:
        return bf16_to_f32(((const uint16_t *)row)[column]);
    case EMBTIER_DTYPE_F32:
        break;
    }
    return gpu_load_f32((const float *)row + column);
}

/* Rounds to nearest, ties to even. */
static __device__ __forceinline__ void gpu_store(enum embtier_dtype dtype, void *row,
                                                 uint32_t column, float value)
{
    switch (dtype) {
    case EMBTIER_DTYPE_F16:
        ((uint16_t *)row)[column] = f32_to_f16(value);
        return;
    case EMBTIER_DTYPE_BF16:
        ((uint16_t *)row)[column] = f32_to_bf16(value);
        return;
    case EMBTIER_DTYPE_F32:
        gpu_store_f32((float *)row + column, value);
        return;
    }
}

#endif
