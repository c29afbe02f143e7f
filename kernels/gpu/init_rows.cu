/* SPDX-License-Identifier: Apache-2.0 */
/* init_rows.h on a GPU. Each thread handles one counter: four columns of one row. */
#include <assert.h>

#include "kernels/cpu/init/init_params.h"
#include "kernels/cpu/init/init_rows.h"
#include "kernels/cpu/init/init_values.h"
#include "kernels/cpu/init/philox.h"
#include "kernels/gpu/gpu.h"
#include "kernels/gpu/launch.cuh"
#include "kernels/gpu/numbers.cuh"

struct init_work {
    struct init_params params;
    enum embtier_init init;
    enum embtier_dtype dtype;
    uint32_t dim;
    uint32_t weight_bytes;
    uint32_t state_count; /* f32 numbers after the weights */
    const uint64_t *row_ids;
    void *const *rows;
    uint32_t count;
};

static __device__ __forceinline__ float value_of(const struct init_work &w, uint32_t word)
{
    const struct init_params &p = w.params;

    switch (w.init) {
    case EMBTIER_INIT_UNIFORM:
        return init_uniform_v1(word, p.a, p.b, p.highest);
    case EMBTIER_INIT_NORMAL:
        return init_normal_in_v1(word, p.a, p.b, p.lowest, p.highest);
    case EMBTIER_INIT_CONSTANT:
        return p.a;
    case EMBTIER_INIT_ZEROS:
        break;
    }
    return 0.0f;
}

static __global__ void __launch_bounds__(GPU_BLOCK_THREADS) init_weights(const struct init_work w)
{
    const uint32_t block_count = (w.dim + INIT_BLOCK_DIMS - 1) / INIT_BLOCK_DIMS;
    const uint64_t count = (uint64_t)w.count * block_count;

    for (uint64_t i = gpu_thread(); i < count; i += gpu_threads()) {
        const uint32_t row = (uint32_t)(i / block_count);
        const uint32_t block = (uint32_t)(i % block_count);
        const uint64_t id = w.row_ids[row];
        const struct philox_block counter = { { (uint32_t)id, (uint32_t)(id >> 32), block,
                                                INIT_VERSION_1 } };
        const struct philox_block random = philox4x32_10(counter, w.params.key[0], w.params.key[1]);

#pragma unroll
        for (uint32_t j = 0; j < INIT_BLOCK_DIMS; j++) {
            const uint32_t column = block * INIT_BLOCK_DIMS + j;

            if (column < w.dim)
                gpu_store(w.dtype, w.rows[row], column, value_of(w, random.word[j]));
        }
    }
}

static __global__ void __launch_bounds__(GPU_BLOCK_THREADS) init_state(const struct init_work w)
{
    const uint64_t count = (uint64_t)w.count * w.state_count;

    for (uint64_t i = gpu_thread(); i < count; i += gpu_threads()) {
        char *const state = (char *)w.rows[i / w.state_count] + w.weight_bytes;

        gpu_store_f32((float *)state + i % w.state_count, 0.0f);
    }
}

enum embtier_err gpu_init_rows(const struct table_spec *spec, const uint64_t *row_ids,
                               uint32_t count, void *const *ret_rows, struct gpu_stream *stream)
{
    const cudaStream_t cuda_stream = gpu_cuda_stream(stream);
    struct init_work w = {};

    assert(spec->init_version <= INIT_ROWS_VERSION);
    if (count == 0)
        return EMBTIER_OK;
    w.params = init_params_of(spec);
    w.init = spec->init;
    w.dtype = spec->dtype;
    w.dim = spec->dim;
    w.weight_bytes = table_spec_weight_bytes(spec);
    w.state_count = table_spec_state_bytes(spec) / (uint32_t)sizeof(float);
    w.row_ids = row_ids;
    w.rows = ret_rows;
    w.count = count;
    init_weights<<<gpu_blocks((uint64_t)count * div_round_up(w.dim, INIT_BLOCK_DIMS)),
                   GPU_BLOCK_THREADS, 0, cuda_stream>>>(w);
    TRY(gpu_launched());
    if (w.state_count == 0)
        return EMBTIER_OK;
    init_state<<<gpu_blocks((uint64_t)count * w.state_count), GPU_BLOCK_THREADS, 0, cuda_stream>>>(
        w);
    return gpu_launched();
}
