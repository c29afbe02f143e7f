/* SPDX-License-Identifier: Apache-2.0 */
/* inline.h: for functions of one number that both the C loops and their CUDA twins compile. They
 * must give the same bits in both, so they contain only arithmetic in which each operation is
 * rounded on its own. */
#ifndef EMBTIER_KERNELS_CPU_INLINE_H
#define EMBTIER_KERNELS_CPU_INLINE_H

#ifdef __CUDACC__
#include <math.h>
#define KERNEL_INLINE static __host__ __device__ __forceinline__
#elif defined(__OPTIMIZE__)
#define KERNEL_INLINE static inline __attribute__((always_inline))
#else
#define KERNEL_INLINE static inline /* copies take long to compile, and are no faster */
#endif

KERNEL_INLINE float kernel_sqrt(float value)
{
#ifdef __CUDA_ARCH__
    return __fsqrt_rn(value);
#else
    return __builtin_sqrtf(value);
#endif
}

KERNEL_INLINE double kernel_sqrt_f64(double value)
{
#ifdef __CUDA_ARCH__
    return __dsqrt_rn(value);
#else
    return __builtin_sqrt(value);
#endif
}

#endif
