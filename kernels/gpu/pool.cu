/* SPDX-License-Identifier: Apache-2.0 */
/* pool.h on a GPU. Each thread handles one column of one bag, and walks the bag's rows in the
 * contract's order. Neighbouring threads have neighbouring columns, so a warp reads a row at once.
 * A long bag takes time in proportion to its rows, because the fixed order of a sum cannot be
 * split. */
#include "kernels/gpu/gpu.h"
#include "kernels/gpu/launch.cuh"
#include "kernels/gpu/numbers.cuh"

template <enum embtier_dtype dtype>
static __device__ __forceinline__ void pool_sum(const struct pool_batch &batch, uint32_t bag,
                                                uint32_t column)
{
    const uint32_t end = batch.offsets[bag + 1];
    float *const out = batch.bags + (uint64_t)bag * batch.dim + column;
    float sum = bag == 0 && batch.begun > 0 ? *out : 0.0f;

#pragma unroll 4 /* their loads run at the same time */
    for (uint32_t i = batch.offsets[bag]; i < end; i++) {
        const float value = gpu_load(dtype, batch.rows[i], column);

        sum = sum + (batch.weights ? batch.weights[i] * value : value);
    }
    *out = sum;
}

template <enum embtier_dtype dtype>
static __device__ __forceinline__ void pool_max(const struct pool_batch &batch, uint32_t bag,
                                                uint32_t column)
{
    const uint32_t first = batch.offsets[bag];
    const uint32_t end = batch.offsets[bag + 1];
    const uint64_t at = (uint64_t)bag * batch.dim + column;
    const uint32_t before = bag == 0 ? batch.begun : 0;
    bool is_empty = before == 0;
    float best = is_empty ? 0.0f : batch.bags[at];
    uint32_t winner = is_empty || !batch.winners ? UINT32_MAX : batch.winners[at];

#pragma unroll 4 /* their loads run at the same time */
    for (uint32_t i = first; i < end; i++) {
        const float value = gpu_load(dtype, batch.rows[i], column);

        if (is_empty || value > best) {
            best = value;
            winner = before + (i - first);
        }
        is_empty = false;
    }
    batch.bags[at] = best;
    if (batch.winners)
        batch.winners[at] = winner;
}

template <enum embtier_dtype dtype, bool is_max>
static __global__ void __launch_bounds__(GPU_BLOCK_THREADS) pool_bags(const struct pool_batch batch)
{
    const uint64_t count = (uint64_t)batch.bag_count * batch.dim;

    for (uint64_t i = gpu_thread(); i < count; i += gpu_threads()) {
        const uint32_t bag = (uint32_t)(i / batch.dim);
        const uint32_t column = (uint32_t)(i % batch.dim);

        if (is_max)
            pool_max<dtype>(batch, bag, column);
        else
            pool_sum<dtype>(batch, bag, column);
    }
}

template <enum embtier_dtype dtype>
static enum embtier_err launch_pool(const struct pool_batch *batch, cudaStream_t stream)
{
    const unsigned blocks = gpu_blocks((uint64_t)batch->bag_count * batch->dim);

    if (batch->mode == EMBTIER_POOL_MAX)
        pool_bags<dtype, true><<<blocks, GPU_BLOCK_THREADS, 0, stream>>>(*batch);
    else
        pool_bags<dtype, false><<<blocks, GPU_BLOCK_THREADS, 0, stream>>>(*batch);
    return gpu_launched();
}

enum embtier_err gpu_pool_rows(const struct pool_batch *batch, struct gpu_stream *stream)
{
    if (batch->bag_count == 0)
        return EMBTIER_OK;
    switch (batch->dtype) {
    case EMBTIER_DTYPE_F16:
        return launch_pool<EMBTIER_DTYPE_F16>(batch, gpu_cuda_stream(stream));
    case EMBTIER_DTYPE_BF16:
        return launch_pool<EMBTIER_DTYPE_BF16>(batch, gpu_cuda_stream(stream));
    case EMBTIER_DTYPE_F32:
        return launch_pool<EMBTIER_DTYPE_F32>(batch, gpu_cuda_stream(stream));
    }
    return EMBTIER_INVALID;
}

static __global__ void __launch_bounds__(GPU_BLOCK_THREADS)
    divide_bags(float *bags, uint32_t dim, const uint32_t *counts, uint32_t bag_count)
{
    const uint64_t count = (uint64_t)bag_count * dim;

    for (uint64_t i = gpu_thread(); i < count; i += gpu_threads()) {
        const uint32_t row_count = counts[i / dim];

        if (row_count > 0)
            bags[i] = bags[i] / (float)row_count;
    }
}

enum embtier_err gpu_pool_divide(float *bags, uint32_t dim, const uint32_t *counts,
                                 uint32_t bag_count, struct gpu_stream *stream)
{
    if (bag_count == 0)
        return EMBTIER_OK;
    divide_bags<<<gpu_blocks((uint64_t)bag_count * dim), GPU_BLOCK_THREADS, 0,
                  gpu_cuda_stream(stream)>>>(bags, dim, counts, bag_count);
    return gpu_launched();
}
