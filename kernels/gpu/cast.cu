/* SPDX-License-Identifier: Apache-2.0 */
/* cast.h on a GPU, with CUB's radix sort, which is stable, and its selection, which keeps the
 * order. The sort wants keys and values in separate arrays, so pairs are split before it and joined
 * after it. */
#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_select.cuh>
#include <thrust/iterator/counting_iterator.h>

#include "kernels/gpu/gpu.h"
#include "kernels/gpu/launch.cuh"

#define ALIGN 256

/* The parts of scratch memory. */
struct scratch {
    uint32_t *run_count;
    cub::DoubleBuffer<uint64_t> rows;
    cub::DoubleBuffer<uint64_t> rests; /* bag, with the position in the high half */
    void *cub;
    size_t cub_bytes;
    uint64_t bytes; /* in all */
};

/* True if a pair begins a run. */
struct begins_run {
    const struct cast_pair *pairs;

    __device__ __forceinline__ bool operator()(uint32_t i) const
    {
        return i == 0 || pairs[i].row != pairs[i - 1].row;
    }
};

static cudaError_t sort_pairs(struct scratch *s, uint32_t count, cudaStream_t stream)
{
    return cub::DeviceRadixSort::SortPairs(s->cub, s->cub_bytes, s->rows, s->rests, count, 0, 64,
                                           stream);
}

static cudaError_t find_starts(struct scratch *s, const struct cast_pair *pairs, uint32_t count,
                               uint32_t *ret_starts, cudaStream_t stream)
{
    return cub::DeviceSelect::If(s->cub, s->cub_bytes, thrust::counting_iterator<uint32_t>(0),
                                 ret_starts, s->run_count, count, begins_run{ pairs }, stream);
}

/* Without memory, CUB returns the size that it needs. */
static enum embtier_err cub_bytes_of(uint32_t count, size_t *ret_bytes)
{
    struct scratch s = {};
    size_t sort_bytes;

    TRY(gpu_err(sort_pairs(&s, count, NULL)));
    sort_bytes = s.cub_bytes;
    TRY(gpu_err(find_starts(&s, NULL, count, NULL, NULL)));
    *ret_bytes = MAX(sort_bytes, s.cub_bytes);
    return EMBTIER_OK;
}

/* Divides @memory, which may be NULL, for @count pairs. */
static enum embtier_err scratch_cut(void *memory, uint32_t count, struct scratch *ret_scratch)
{
    const uint64_t array_bytes = align_up(count * sizeof(uint64_t), ALIGN);
    char *const arrays = (char *)memory + ALIGN;
    struct scratch s = {};

    TRY(cub_bytes_of(count, &s.cub_bytes));
    s.run_count = (uint32_t *)memory;
    s.rows = cub::DoubleBuffer<uint64_t>((uint64_t *)arrays, (uint64_t *)(arrays + array_bytes));
    s.rests = cub::DoubleBuffer<uint64_t>((uint64_t *)(arrays + 2 * array_bytes),
                                          (uint64_t *)(arrays + 3 * array_bytes));
    s.cub = arrays + 4 * array_bytes;
    s.bytes = ALIGN + 4 * array_bytes + s.cub_bytes;
    *ret_scratch = s;
    return EMBTIER_OK;
}

enum embtier_err gpu_cast_scratch_bytes(uint32_t count, uint64_t *ret_bytes)
{
    struct scratch s;

    TRY(scratch_cut(NULL, count, &s));
    *ret_bytes = s.bytes;
    return EMBTIER_OK;
}

static __global__ void __launch_bounds__(GPU_BLOCK_THREADS)
    take_apart(const struct cast_pair *pairs, uint32_t count, uint64_t *rows, uint64_t *rests)
{
    for (uint64_t i = gpu_thread(); i < count; i += gpu_threads()) {
        const struct cast_pair pair = pairs[i];

        rows[i] = pair.row;
        rests[i] = pair.bag | (uint64_t)pair.position << 32;
    }
}

static __global__ void __launch_bounds__(GPU_BLOCK_THREADS)
    put_together(const uint64_t *rows, const uint64_t *rests, uint32_t count,
                 struct cast_pair *ret_pairs)
{
    for (uint64_t i = gpu_thread(); i < count; i += gpu_threads()) {
        struct cast_pair pair;

        pair.row = rows[i];
        pair.bag = (uint32_t)rests[i];
        pair.position = (uint32_t)(rests[i] >> 32);
        ret_pairs[i] = pair;
    }
}

enum embtier_err gpu_cast_sort(struct cast_pair *pairs, uint32_t count, void *scratch,
                               uint64_t scratch_bytes, struct gpu_stream *stream)
{
    const cudaStream_t cuda_stream = gpu_cuda_stream(stream);
    const unsigned blocks = gpu_blocks(count);
    struct scratch s;

    if (count == 0)
        return EMBTIER_OK;
    TRY(scratch_cut(scratch, count, &s));
    if (scratch_bytes < s.bytes)
        return EMBTIER_INVALID;
    take_apart<<<blocks, GPU_BLOCK_THREADS, 0, cuda_stream>>>(pairs, count, s.rows.Current(),
                                                              s.rests.Current());
    TRY(gpu_launched());
    TRY(gpu_err(sort_pairs(&s, count, cuda_stream)));
    put_together<<<blocks, GPU_BLOCK_THREADS, 0, cuda_stream>>>(s.rows.Current(), s.rests.Current(),
                                                                count, pairs);
    return gpu_launched();
}

static __global__ void end_last_run(const uint32_t *run_count, uint32_t count, uint32_t *starts)
{
    starts[*run_count] = count;
}

enum embtier_err gpu_cast_runs(const struct cast_pair *pairs, uint32_t count, void *scratch,
                               uint64_t scratch_bytes, struct gpu_stream *stream,
                               uint32_t *ret_starts, uint32_t *ret_run_count)
{
    const cudaStream_t cuda_stream = gpu_cuda_stream(stream);
    struct scratch s;

    TRY(scratch_cut(scratch, count, &s));
    if (scratch_bytes < s.bytes)
        return EMBTIER_INVALID;
    if (count > 0)
        TRY(gpu_err(find_starts(&s, pairs, count, ret_starts, cuda_stream)));
    else
        TRY(gpu_err(cudaMemsetAsync(s.run_count, 0, sizeof(*s.run_count), cuda_stream)));
    end_last_run<<<1, 1, 0, cuda_stream>>>(s.run_count, count, ret_starts);
    TRY(gpu_launched());
    return gpu_memory_read(s.run_count, sizeof(*s.run_count), stream, ret_run_count);
}
