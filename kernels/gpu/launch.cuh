/* SPDX-License-Identifier: Apache-2.0 */
/* launch.cuh: sets the number of threads of a kernel, and each thread's share of the work. Only for
 * use inside the .cu files.
 *
 * Kernels walk over their work with a stride, so that any grid does all of it:
 *
 *     for (uint64_t i = gpu_thread(); i < count; i += gpu_threads())
 *
 * A piece of work may have @lanes threads, a power of two up to a warp. Piece and lane are then
 * gpu_thread() / lanes and gpu_thread() % lanes. The lanes of a piece are neighbours in one warp
 * and stay together; gpu_lanes_mask() names them to the warp's functions. */
#ifndef EMBTIER_KERNELS_GPU_LAUNCH_CUH
#define EMBTIER_KERNELS_GPU_LAUNCH_CUH

#include <cuda_runtime.h>
#include <stdint.h>

#include "kernels/gpu/gpu.h"
#include "kernels/gpu/gpu_err.h"

#define GPU_BLOCK_THREADS 256
#define GPU_WARP_THREADS  32

static inline cudaStream_t gpu_cuda_stream(struct gpu_stream *stream)
{
    return (cudaStream_t)stream;
}

/* Returns the blocks for that many threads. More than a few million threads fill no GPU any
 * better. */
static inline unsigned gpu_blocks(uint64_t threads)
{
    const uint64_t blocks = div_round_up(threads, GPU_BLOCK_THREADS);

    return (unsigned)(blocks < (1u << 16) ? blocks : (1u << 16));
}

/* Returns the result of the last launch. */
static inline enum embtier_err gpu_launched(void)
{
    return gpu_err(cudaPeekAtLastError());
}

static __device__ __forceinline__ uint64_t gpu_thread(void)
{
    return (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
}

static __device__ __forceinline__ uint64_t gpu_threads(void)
{
    return (uint64_t)gridDim.x * blockDim.x;
}

static __device__ __forceinline__ uint32_t gpu_lanes_mask(uint32_t lanes)
{
    const uint32_t first = threadIdx.x % GPU_WARP_THREADS / lanes * lanes;

    return (UINT32_MAX >> (GPU_WARP_THREADS - lanes)) << first;
}

#endif
