/* SPDX-License-Identifier: Apache-2.0 */
/* The inner loops of optimizers, compiled once per instruction set (isa.h). There is one for each
 * optimizer and dtype, all from update_rows(), in which both are constants.
 *
 * Columns of f32 are updated in place, by plain C that the compiler vectorises. After weights of 2
 * bytes the state may lie at odd multiples of 2. So these columns are copied to aligned arrays, a
 * chunk at a time, updated there and copied back. The same goes for the last columns of f32, which
 * do not fill a group. */
#include "kernels/cpu/optimizer/optimizer_loops.h"

#include <assert.h>

#include "kernels/cpu/init/philox_vector.h"
#include "kernels/cpu/optimizer/optimizer_values.h"
#include "kernels/cpu/reduce/reduce_loops.h"
#include "kernels/cpu/vector.h"

#define CHUNK        64                                /* columns */
#define CHUNK_BLOCKS (CHUNK / OPTIMIZER_ROUND_COLUMNS) /* of random words */
/* Columns are updated in groups as long as the longest vector of any processor. A last group that
 * is not full is computed from old values, and the extra results are dropped. */
#define GROUP 16
/* The bytes of rows to prefetch, and the most rows. Fewer than vector_rows_ahead(), because
 * updating a row takes longer than adding it up. */
#define AHEAD_BYTES 3072
#define AHEAD_MAX   12u
/* Number of partial sums of squares (optimizer.h). */
#define PARTS 8

struct chunk {
    float weights[CHUNK];
    float gradients[CHUNK];
    float states[OPTIMIZER_STATES_MAX][CHUNK];
    uint16_t random[CHUNK];
    uint16_t halves[CHUNK];
} __attribute__((aligned(CACHE_LINE)));

/* A line of EMBTIER_OPTIMIZER_TABLE. */
struct kind {
    enum embtier_optimizer optimizer;
    uint32_t per_weight;
    uint32_t per_row;
};

#define X(name, number, word, per_weight, per_row, hyperparameters, eps, decay, text)              \
    static_assert((per_weight) <= OPTIMIZER_STATES_MAX && (per_row) <= 1, word);
EMBTIER_OPTIMIZER_TABLE(X)
#undef X

KERNEL_INLINE void add_squares(double parts[PARTS], const float *numbers)
{
    for (uint32_t p = 0; p < PARTS; p++)
        parts[p] += (double)numbers[p] * (double)numbers[p];
}

static double sum_of_squares(const float *numbers, uint32_t count)
{
    double parts[PARTS] = { 0 };
    float last[PARTS] = { 0 }; /* padded with zeros: adding 0 to a sum of squares changes no bit */
    uint32_t i = 0;

    for (; i + PARTS <= count; i += PARTS)
        add_squares(parts, numbers + i);
    if (i < count) {
        memcpy(last, numbers + i, (count - i) * sizeof(float));
        add_squares(parts, last);
    }
    return ((parts[0] + parts[4]) + (parts[2] + parts[6])) +
           ((parts[1] + parts[5]) + (parts[3] + parts[7]));
}

/* ---- Weights to a chunk and back ---- */

KERNEL_INLINE void load_weights(struct chunk *chunk, enum embtier_dtype dtype, const char *weights,
                                uint32_t count)
{
    if (dtype == EMBTIER_DTYPE_F32) {
        memcpy(chunk->weights, weights, count * sizeof(float));
        return;
    }
    memcpy(chunk->halves, weights, count * sizeof(uint16_t));
    for (uint32_t i = 0; i < CHUNK; i += VECTOR_LANES) {
        const vector_f32 vector = vector_load(dtype, chunk->halves + i);

        memcpy(chunk->weights + i, &vector, sizeof(vector));
    }
}

/* Makes optimizer_random() for a chunk's blocks, as many at a time as a vector has lanes for. */
KERNEL_INLINE void make_random(struct chunk *chunk, const struct optimizer_push *push,
                               uint64_t row_id, uint32_t column)
{
    static const uint64_t numbers[CHUNK_BLOCKS] = { 0, 1, 2, 3, 4, 5, 6, 7 };
    const struct philox_block first =
        optimizer_counter(row_id, column / OPTIMIZER_ROUND_COLUMNS, push->step);
    uint64_t low[CHUNK_BLOCKS], high[CHUNK_BLOCKS]; /* words 0 and 1, 2 and 3 of each block */
    uint64_t halves[2 * CHUNK_BLOCKS];

    for (uint32_t b = 0; b < CHUNK_BLOCKS; b += sizeof(vector_u64) / sizeof(uint64_t)) {
        struct philox_vector random = { { (vector_u64){ 0 } + first.word[0],
                                          (vector_u64){ 0 } + first.word[1],
                                          { 0 },
                                          (vector_u64){ 0 } + first.word[3] } };

        memcpy(&random.word[2], numbers + b, sizeof(random.word[2]));
        random.word[2] += first.word[2];
        random = philox_vector(random, push->key[0], push->key[1]);
        random.word[0] = (random.word[0] & 0xffffffff) | random.word[1] << 32;
        random.word[2] = (random.word[2] & 0xffffffff) | random.word[3] << 32;
        memcpy(low + b, &random.word[0], sizeof(random.word[0]));
        memcpy(high + b, &random.word[2], sizeof(random.word[2]));
    }
    for (uint32_t b = 0; b < CHUNK_BLOCKS; b++) {
        halves[2 * b + 0] = low[b];
        halves[2 * b + 1] = high[b];
    }
    memcpy(chunk->random, halves, sizeof(chunk->random));
}

/* Not inlined, because it is large and the same for all optimizers. */
static __attribute__((noinline)) void round_chunk(struct chunk *chunk,
                                                  const struct optimizer_push *push,
                                                  uint64_t row_id, uint32_t column)
{
    const bool is_f16 = push->dtype == EMBTIER_DTYPE_F16;

    if (!push->stochastic) {
        for (uint32_t i = 0; i < CHUNK; i++)
            chunk->halves[i] =
                is_f16 ? f32_to_f16(chunk->weights[i]) : f32_to_bf16(chunk->weights[i]);
        return;
    }
    make_random(chunk, push, row_id, column);
    for (uint32_t i = 0; i < CHUNK; i++)
        chunk->halves[i] = is_f16 ? optimizer_round_f16(chunk->weights[i], chunk->random[i])
                                  : optimizer_round_bf16(chunk->weights[i], chunk->random[i]);
}

KERNEL_INLINE void store_weights(struct chunk *chunk, enum embtier_dtype dtype,
                                 const struct optimizer_push *push, uint64_t row_id,
                                 uint32_t column, char *weights, uint32_t count)
{
    if (dtype == EMBTIER_DTYPE_F32) {
        memcpy(weights, chunk->weights, count * sizeof(float));
        return;
    }
    round_chunk(chunk, push, row_id, column);
    memcpy(weights, chunk->halves, count * sizeof(uint16_t));
}

/* ---- A row ---- */

static void clip(const struct optimizer_numbers *numbers, float *gradient, uint32_t dim)
{
    const float scale = optimizer_clip_scale(numbers, sum_of_squares(gradient, dim));

    for (uint32_t c = 0; c < dim; c++)
        gradient[c] *= scale;
}

static __attribute__((noinline)) void decay(const struct optimizer_push *push, struct chunk *chunk,
                                            const char *weights, float *gradient)
{
    const uint32_t number_bytes = vector_dtype_bytes(push->dtype);

    for (uint32_t column = 0; column < push->dim; column += CHUNK) {
        const uint32_t count = MIN(push->dim - column, (uint32_t)CHUNK);

        load_weights(chunk, push->dtype, weights + column * number_bytes, count);
        for (uint32_t i = 0; i < count; i++)
            gradient[column + i] =
                optimizer_decay(&push->numbers, chunk->weights[i], gradient[column + i]);
    }
}

/* Adds to the row's state number, and returns the new one. */
KERNEL_INLINE float update_row_state(const struct optimizer_numbers *numbers, char *place,
                                     const float *gradient, uint32_t dim)
{
    float row_state;

    memcpy(&row_state, place, sizeof(row_state));
    row_state = optimizer_row_state(numbers, row_state, sum_of_squares(gradient, dim), dim);
    memcpy(place, &row_state, sizeof(row_state));
    return row_state;
}

/* @count is a multiple of GROUP. A weight's states are @stride numbers apart. */
KERNEL_INLINE void update_numbers(const struct optimizer_numbers *push_numbers, struct kind kind,
                                  float *restrict weights, float *restrict states, size_t stride,
                                  const float *restrict gradients, float row_state, uint32_t count)
{
    const struct optimizer_numbers numbers = *push_numbers;

    for (uint32_t first = 0; first < count; first += GROUP) {
#pragma GCC ivdep /* the state arrays do not overlap */
        for (uint32_t i = first; i < first + GROUP; i++) {
            float state[OPTIMIZER_STATES_MAX] = { 0 };

            for (uint32_t s = 0; s < kind.per_weight; s++)
                state[s] = states[s * stride + i];
            weights[i] = optimizer_value(kind.optimizer, &numbers, weights[i], gradients[i], state,
                                         row_state);
            for (uint32_t s = 0; s < kind.per_weight; s++)
                states[s * stride + i] = state[s];
        }
    }
}

KERNEL_INLINE void update_chunk(struct chunk *chunk, const struct optimizer_push *push,
                                struct kind kind, enum embtier_dtype dtype, uint64_t row_id,
                                char *row, const float *gradient, float row_state, uint32_t column,
                                uint32_t count)
{
    char *const weights = row + column * vector_dtype_bytes(dtype);
    char *const states = row + push->weight_bytes + column * sizeof(float);
    const size_t state_bytes = push->dim * sizeof(float);

    load_weights(chunk, dtype, weights, count);
    memcpy(chunk->gradients, gradient + column, count * sizeof(float));
    for (uint32_t s = 0; s < kind.per_weight; s++)
        memcpy(chunk->states[s], states + s * state_bytes, count * sizeof(float));
    update_numbers(&push->numbers, kind, chunk->weights, (float *)chunk->states, CHUNK,
                   chunk->gradients, row_state, (count + GROUP - 1) / GROUP * GROUP);
    for (uint32_t s = 0; s < kind.per_weight; s++)
        memcpy(states + s * state_bytes, chunk->states[s], count * sizeof(float));
    store_weights(chunk, dtype, push, row_id, column, weights, count);
}

KERNEL_INLINE void update_row(struct chunk *chunk, const struct optimizer_push *push,
                              struct kind kind, enum embtier_dtype dtype, uint64_t row_id,
                              char *row, float *gradient)
{
    const uint32_t dim = push->dim;
    float row_state = 0.0f;
    uint32_t column = 0;

    if (push->numbers.clip_norm > 0.0f)
        clip(&push->numbers, gradient, dim);
    if (push->numbers.weight_decay > 0.0f)
        decay(push, chunk, row, gradient);
    if (kind.per_row > 0)
        row_state = update_row_state(&push->numbers,
                                     row + push->weight_bytes +
                                         (size_t)kind.per_weight * dim * sizeof(float),
                                     gradient, dim);
    if (dtype == EMBTIER_DTYPE_F32) {
        column = dim / GROUP * GROUP;
        update_numbers(&push->numbers, kind, (float *)row, (float *)(row + push->weight_bytes), dim,
                       gradient, row_state, column);
    }
    for (; column + CHUNK <= dim; column += CHUNK)
        update_chunk(chunk, push, kind, dtype, row_id, row, gradient, row_state, column, CHUNK);
    if (column < dim)
        update_chunk(chunk, push, kind, dtype, row_id, row, gradient, row_state, column,
                     dim - column);
}

KERNEL_INLINE float *gradient_of(struct optimizer_gradients gradients, uint32_t i, uint32_t dim)
{
    const struct reduce_batch *const batch = gradients.runs;

    if (!batch)
        return gradients.numbers + (size_t)i * dim;
    KERNELS_ISA_SYMBOL(reduce_run)(batch, batch->runs ? batch->runs[i] : i, gradients.numbers);
    return gradients.numbers;
}

KERNEL_INLINE void update_rows(const struct optimizer_push *push, struct kind kind,
                               enum embtier_dtype dtype, const uint64_t *row_ids, void *const *rows,
                               uint32_t count, struct optimizer_gradients gradients)
{
    const uint32_t row_bytes =
        push->weight_bytes + (uint32_t)sizeof(float) * (kind.per_weight * push->dim + kind.per_row);
    const uint32_t ahead = MIN(MAX((uint32_t)AHEAD_BYTES / row_bytes, 2u), AHEAD_MAX);
    struct chunk chunk = { 0 };

    for (uint32_t i = 0; i < count; i++) {
        if (i + ahead < count)
            vector_ask_for_in(VECTOR_L2, rows[i + ahead], row_bytes);
        update_row(&chunk, push, kind, dtype, row_ids[i], rows[i],
                   gradient_of(gradients, i, push->dim));
    }
}

#define X(name, number, word, per_weight_, per_row_, hyperparameters, eps, decay, text)            \
    static void update_##name(const struct optimizer_push *push, const uint64_t *row_ids,          \
                              void *const *rows, uint32_t count,                                   \
                              struct optimizer_gradients gradients)                                \
    {                                                                                              \
        const struct kind kind = { EMBTIER_OPTIMIZER_##name, per_weight_, per_row_ };              \
                                                                                                   \
        switch (push->dtype) {                                                                     \
            EMBTIER_DTYPE_TABLE(Y)                                                                 \
        }                                                                                          \
    }
#define Y(name, number, word, bytes)                                                               \
    case EMBTIER_DTYPE_##name:                                                                     \
        update_rows(push, kind, EMBTIER_DTYPE_##name, row_ids, rows, count, gradients);            \
        return;
EMBTIER_OPTIMIZER_TABLE(X)
#undef Y
#undef X

static void update(const struct optimizer_push *push, const uint64_t *row_ids, void *const *rows,
                   uint32_t count, struct optimizer_gradients gradients)
{
    switch (push->optimizer) {
#define X(name, number, word, per_weight, per_row, hyperparameters, eps, decay, text)              \
    case EMBTIER_OPTIMIZER_##name:                                                                 \
        update_##name(push, row_ids, rows, count, gradients);                                      \
        return;
        EMBTIER_OPTIMIZER_TABLE(X)
#undef X
    }
}

const struct optimizer_loops KERNELS_ISA_SYMBOL(optimizer_loops) = {
    .update = update,
};
