/* SPDX-License-Identifier: Apache-2.0 */
/* optimizer.h on a GPU. Eight threads share a row, one for each partial sum of the contract, so
 * each adds up its columns in order. Then they take the row's columns eight at a time. Random bits
 * for rounding come in blocks of eight columns. Each thread makes one block in shared memory, and
 * all eight threads use the eight blocks. */
#include "kernels/cpu/optimizer/optimizer_values.h"
#include "kernels/gpu/gpu.h"
#include "kernels/gpu/launch.cuh"
#include "kernels/gpu/numbers.cuh"

#define LANES         8
#define ROWS_IN_BLOCK (GPU_BLOCK_THREADS / LANES)
/* Columns that the random blocks of a row's threads serve. */
#define CHUNK_COLUMNS (LANES * OPTIMIZER_ROUND_COLUMNS)

struct update {
    struct optimizer_push push;
    const uint64_t *row_ids;
    void *const *rows;
    float *gradients;
    uint32_t count;
};

/* 16 bits for each column of a chunk; 16 extra bytes keep the rows of a warp off each other's
 * banks. */
struct random_bits {
    uint16_t column[CHUNK_COLUMNS + OPTIMIZER_ROUND_COLUMNS];
};

/* One thread's view of a row. */
struct lane_row {
    uint64_t id;
    char *weights;
    float *gradients;
    uint32_t lane;
    uint32_t mask;
};

/* Number of state numbers that an optimizer keeps. */
template <enum embtier_optimizer optimizer> struct states;
#define X(name, number, word, per_weight, per_row, hyperparameters, eps, decay, text)              \
    template <> struct states<EMBTIER_OPTIMIZER_##name> {                                          \
        static constexpr int of_weight = per_weight;                                               \
        static constexpr int of_row = per_row;                                                     \
    };
EMBTIER_OPTIMIZER_TABLE(X)
#undef X

/* Adds 4 to 0 … 7 to 3, 2 to 0, 3 to 1, 1 to 0; all threads get the result. */
static __device__ __forceinline__ double add_up(const struct lane_row &r, double sum)
{
    for (uint32_t lanes = LANES / 2; lanes > 0; lanes /= 2)
        sum = sum + __shfl_down_sync(r.mask, sum, lanes, LANES);
    return __shfl_sync(r.mask, sum, 0, LANES);
}

static __device__ __forceinline__ double squares_of(const struct lane_row &r, uint32_t dim)
{
    double sum = 0.0;

    for (uint32_t c = r.lane; c < dim; c += LANES) {
        const double gradient = r.gradients[c];

        sum = sum + gradient * gradient;
    }
    return add_up(r, sum);
}

/* Clips, and adds the weight decay. Each thread reads and writes only its own columns. */
static __device__ __forceinline__ void prepare_gradients(const struct optimizer_push &push,
                                                         const struct lane_row &r)
{
    const struct optimizer_numbers *const n = &push.numbers;

    if (n->clip_norm > 0.0f) {
        const float scale = optimizer_clip_scale(n, squares_of(r, push.dim));

        for (uint32_t c = r.lane; c < push.dim; c += LANES)
            r.gradients[c] = r.gradients[c] * scale;
    }
    if (n->weight_decay > 0.0f)
        for (uint32_t c = r.lane; c < push.dim; c += LANES)
            r.gradients[c] = optimizer_decay(n, gpu_load(push.dtype, r.weights, c), r.gradients[c]);
}

/* Adds the mean of squares to the row's state; all threads get the new one. */
static __device__ __forceinline__ float update_row_state(const struct optimizer_push &push,
                                                         const struct lane_row &r, void *state)
{
    const double squares = squares_of(r, push.dim);
    float value = 0.0f;

    if (r.lane == 0) {
        value = optimizer_row_state(&push.numbers, gpu_load_f32(state), squares, push.dim);
        gpu_store_f32(state, value);
    }
    return __shfl_sync(r.mask, value, 0, LANES);
}

static __device__ __forceinline__ void make_random(const struct optimizer_push &push,
                                                   const struct lane_row &r, uint32_t chunk,
                                                   struct random_bits *ret_bits)
{
    const uint32_t block = chunk / OPTIMIZER_ROUND_COLUMNS + r.lane;
    const struct philox_block random = optimizer_random(push.key, r.id, block, push.step);

    __syncwarp(r.mask); /* the previous chunk's bits have been used */
#pragma unroll
    for (uint32_t i = 0; i < OPTIMIZER_ROUND_COLUMNS; i++)
        ret_bits->column[r.lane * OPTIMIZER_ROUND_COLUMNS + i] =
            (uint16_t)(random.word[i / 2] >> (i % 2 * 16));
    __syncwarp(r.mask);
}

static __device__ __forceinline__ void store_rounded(enum embtier_dtype dtype, void *row,
                                                     uint32_t column, float value, uint32_t random)
{
    if (dtype == EMBTIER_DTYPE_F16)
        ((uint16_t *)row)[column] = optimizer_round_f16(value, random);
    else
        ((uint16_t *)row)[column] = optimizer_round_bf16(value, random);
}

template <enum embtier_optimizer optimizer>
static __device__ __forceinline__ void
update_row(const struct optimizer_push &push, const struct lane_row &r, struct random_bits *bits)
{
    constexpr int state_count = states<optimizer>::of_weight;
    const bool is_stochastic = push.stochastic && push.dtype != EMBTIER_DTYPE_F32;
    float *const all_states = (float *)(r.weights + push.weight_bytes);
    float row_state = 0.0f;

    prepare_gradients(push, r);
    if (states<optimizer>::of_row > 0)
        row_state = update_row_state(push, r, all_states + (uint64_t)state_count * push.dim);
    for (uint32_t chunk = 0; chunk < push.dim; chunk += CHUNK_COLUMNS) {
        const uint32_t end = push.dim - chunk < CHUNK_COLUMNS ? push.dim : chunk + CHUNK_COLUMNS;

        if (is_stochastic)
            make_random(push, r, chunk, bits);
        for (uint32_t c = chunk + r.lane; c < end; c += LANES) {
            float state[OPTIMIZER_STATES_MAX] = {};
            float weight = gpu_load(push.dtype, r.weights, c);

#pragma unroll
            for (int s = 0; s < state_count; s++)
                state[s] = gpu_load_f32(all_states + (uint64_t)s * push.dim + c);
            weight =
                optimizer_value(optimizer, &push.numbers, weight, r.gradients[c], state, row_state);
#pragma unroll
            for (int s = 0; s < state_count; s++)
                gpu_store_f32(all_states + (uint64_t)s * push.dim + c, state[s]);
            if (is_stochastic)
                store_rounded(push.dtype, r.weights, c, weight, bits->column[c - chunk]);
            else
                gpu_store(push.dtype, r.weights, c, weight);
        }
    }
}

template <enum embtier_optimizer optimizer>
static __global__ void __launch_bounds__(GPU_BLOCK_THREADS) update_rows(const struct update u)
{
    __shared__ struct random_bits bits[ROWS_IN_BLOCK];

    for (uint64_t i = gpu_thread() / LANES; i < u.count; i += gpu_threads() / LANES) {
        struct lane_row r;

        r.id = u.row_ids[i];
        r.weights = (char *)u.rows[i];
        r.gradients = u.gradients + i * u.push.dim;
        r.lane = threadIdx.x % LANES;
        r.mask = gpu_lanes_mask(LANES);
        update_row<optimizer>(u.push, r, &bits[threadIdx.x / LANES]);
    }
}

enum embtier_err gpu_optimizer_update(const struct optimizer_push *push, const uint64_t *row_ids,
                                      void *const *rows, float *gradients, uint32_t count,
                                      struct gpu_stream *stream)
{
    const struct update u = { *push, row_ids, rows, gradients, count };
    const unsigned blocks = gpu_blocks((uint64_t)count * LANES);
    const cudaStream_t cuda_stream = gpu_cuda_stream(stream);

    if (push->optimizer == EMBTIER_OPTIMIZER_NONE)
        return EMBTIER_INVALID;
    if (count == 0)
        return EMBTIER_OK;
    switch (push->optimizer) {
#define X(name, number, word, per_weight, per_row, hyperparameters, eps, decay, text)              \
    case EMBTIER_OPTIMIZER_##name:                                                                 \
        update_rows<EMBTIER_OPTIMIZER_##name><<<blocks, GPU_BLOCK_THREADS, 0, cuda_stream>>>(u);   \
        return gpu_launched();
        EMBTIER_OPTIMIZER_TABLE(X)
#undef X
    }
    return EMBTIER_INVALID;
}
