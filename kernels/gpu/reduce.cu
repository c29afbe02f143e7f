/* SPDX-License-Identifier: Apache-2.0 */
/* reduce.h on a GPU. For the gradients of rows, each thread handles one column of one run, and
 * walks the run's pairs in order. For the gradients of weights, as many threads share a row as the
 * contract has partial sums. */
#include "kernels/gpu/gpu.h"
#include "kernels/gpu/launch.cuh"
#include "kernels/gpu/numbers.cuh"

template <bool is_max>
static __global__ void __launch_bounds__(GPU_BLOCK_THREADS)
    reduce_pairs(const struct reduce_batch batch)
{
    const uint64_t count = (uint64_t)batch.run_count * batch.dim;

    for (uint64_t i = gpu_thread(); i < count; i += gpu_threads()) {
        const uint32_t number = (uint32_t)(i / batch.dim);
        const uint32_t run = batch.runs ? batch.runs[number] : number;
        const uint32_t column = (uint32_t)(i % batch.dim);
        const uint32_t end = batch.starts[run + 1];
        float sum = 0.0f;

#pragma unroll 4 /* their loads run at the same time */
        for (uint32_t p = batch.starts[run]; p < end; p++) {
            const struct cast_pair pair = batch.pairs[p];
            const uint64_t at = (uint64_t)pair.bag * batch.dim + column;
            const float value =
                batch.bag_places ? batch.bag_places[pair.bag][column] : batch.bags[at];
            const float scaled = batch.scales ? batch.scales[pair.position] * value : value;

            if (!is_max || batch.winners[at] == pair.position - batch.offsets[pair.bag])
                sum = sum + scaled;
        }
        batch.rows[i] = sum;
    }
}

enum embtier_err gpu_reduce_runs(const struct reduce_batch *batch, struct gpu_stream *stream)
{
    const cudaStream_t cuda_stream = gpu_cuda_stream(stream);
    const unsigned blocks = gpu_blocks((uint64_t)batch->run_count * batch->dim);

    if (batch->run_count == 0)
        return EMBTIER_OK;
    if (batch->winners)
        reduce_pairs<true><<<blocks, GPU_BLOCK_THREADS, 0, cuda_stream>>>(*batch);
    else
        reduce_pairs<false><<<blocks, GPU_BLOCK_THREADS, 0, cuda_stream>>>(*batch);
    return gpu_launched();
}

static __global__ void __launch_bounds__(GPU_BLOCK_THREADS)
    find_nonfinite(const float *numbers, uint64_t count, uint32_t *found)
{
    const uint32_t exponent = 0x7f800000;
    bool is_found = false;

    for (uint64_t i = gpu_thread(); i < count; i += gpu_threads())
        is_found |= (f32_bits(numbers[i]) & exponent) == exponent;
    if (is_found)
        *found = 1; /* several threads may store this same value */
}

enum embtier_err gpu_reduce_all_finite(const float *numbers, uint64_t count, uint32_t *scratch,
                                       struct gpu_stream *stream, bool *ret_all_finite)
{
    const cudaStream_t cuda_stream = gpu_cuda_stream(stream);
    uint32_t found = 0;

    if (count > 0) {
        TRY(gpu_err(cudaMemsetAsync(scratch, 0, sizeof(*scratch), cuda_stream)));
        find_nonfinite<<<gpu_blocks(count), GPU_BLOCK_THREADS, 0, cuda_stream>>>(numbers, count,
                                                                                 scratch);
        TRY(gpu_launched());
        TRY(gpu_memory_read(scratch, sizeof(*scratch), stream, &found));
    }
    *ret_all_finite = found == 0;
    return EMBTIER_OK;
}

#define PARTIAL_SUMS 16

struct weight_gradients {
    enum embtier_dtype dtype;
    uint32_t dim;
    const void *const *rows;
    const float *const *bags;
    const float *divisors;
    uint32_t count;
    float *gradients;
};

static __global__ void __launch_bounds__(GPU_BLOCK_THREADS)
    multiply_rows(const struct weight_gradients w)
{
    const uint32_t lane = threadIdx.x % PARTIAL_SUMS;
    const uint32_t mask = gpu_lanes_mask(PARTIAL_SUMS);

    for (uint64_t i = gpu_thread() / PARTIAL_SUMS; i < w.count; i += gpu_threads() / PARTIAL_SUMS) {
        const float *const gradients = w.bags[i];
        float sum = 0.0f;

        for (uint32_t c = lane; c < w.dim; c += PARTIAL_SUMS)
            sum = sum + gpu_load(w.dtype, w.rows[i], c) * gradients[c];
        for (uint32_t lanes = PARTIAL_SUMS / 2; lanes > 0; lanes /= 2)
            sum = sum + __shfl_down_sync(mask, sum, lanes, PARTIAL_SUMS);
        if (lane == 0)
            w.gradients[i] = w.divisors ? sum / w.divisors[i] : sum;
    }
}

enum embtier_err gpu_reduce_weight_gradients(enum embtier_dtype dtype, uint32_t dim,
                                             const void *const *rows, const float *const *bags,
                                             const float *divisors, uint32_t count,
                                             struct gpu_stream *stream, float *ret_gradients)
{
    const struct weight_gradients w = { dtype, dim, rows, bags, divisors, count, ret_gradients };

    if (count == 0)
        return EMBTIER_OK;
    multiply_rows<<<gpu_blocks((uint64_t)count * PARTIAL_SUMS), GPU_BLOCK_THREADS, 0,
                    gpu_cuda_stream(stream)>>>(w);
    return gpu_launched();
}
