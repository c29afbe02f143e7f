/* SPDX-License-Identifier: Apache-2.0 */
/* The inner loops of reduce.h, compiled once per instruction set (isa.h). */
#include "kernels/cpu/reduce/reduce_loops.h"

#include "kernels/cpu/vector.h"

/* ---- A run's gradient ---- */

/* Not done as in pool_loops.c, although pooling adds up rows in the same way. There a bag has
 * dozens of rows that lie anywhere; here most runs have few pairs, and bags are mostly in a cache.
 * Pooling's setup before its first addition takes longer than such a run. */

/* Bytes of bags in a piece of a long run. The first-level cache keeps them until the last block of
 * columns has been added up. */
#define PIECE_BYTES (16 * 1024)
/* Columns that are added up in registers at a time. */
#define SUM_VECTORS 4
#define SUM_COLUMNS (SUM_VECTORS * VECTOR_LANES)
/* Bags of more bytes than this are prefetched. Fewer are in the second-level cache, because
 * reduce_greatest() has just read all of them. */
#define BAGS_AT_HAND (1024 * 1024)

KERNEL_INLINE const float *bag_of(const struct reduce_batch *batch, const struct cast_pair *pair)
{
    return batch->bag_places ? batch->bag_places[pair->bag]
                             : batch->bags + (size_t)pair->bag * batch->dim;
}

KERNEL_INLINE float scale_of(const struct reduce_batch *batch, const struct cast_pair *pair)
{
    return batch->scales ? batch->scales[pair->position] : 1.0f;
}

/* Adds up @vectors vectors of columns, from @column on, of @count pairs. @goes_on: adds them to the
 * gradient so far. */
KERNEL_INLINE void add_up_vectors(const struct reduce_batch *batch, const struct cast_pair *pair,
                                  uint32_t count, uint32_t column, const uint32_t vectors,
                                  const bool goes_on, float *gradient)
{
    const struct cast_pair *const end = pair + count;
    vector_f32 sums[SUM_VECTORS] = { 0 };

    if (goes_on)
        memcpy(sums, gradient + column, vectors * sizeof(sums[0]));
    for (; pair < end; pair++) {
        const float *const bag = bag_of(batch, pair) + column;
        const float scale = scale_of(batch, pair);

#pragma GCC unroll 8
        for (uint32_t v = 0; v < vectors; v++)
            sums[v] += scale * vector_load(EMBTIER_DTYPE_F32, bag + v * VECTOR_LANES);
    }
    memcpy(gradient + column, sums, vectors * sizeof(sums[0]));
}

/* Adds up the last columns, from @column on, which are fewer than a vector has. */
static void add_up_few(const struct reduce_batch *batch, const struct cast_pair *pair,
                       uint32_t count, uint32_t column, bool goes_on, float *gradient)
{
    const struct cast_pair *const end = pair + count;
    const uint32_t left = batch->dim - column;
    vector_f32 sums = { 0 };

    if (goes_on)
        memcpy(&sums, gradient + column, left * sizeof(float));
    for (; pair < end; pair++)
        sums += scale_of(batch, pair) *
                vector_load_few(EMBTIER_DTYPE_F32, bag_of(batch, pair) + column, left);
    memcpy(gradient + column, &sums, left * sizeof(float));
}

KERNEL_INLINE void add_up_pairs(const struct reduce_batch *batch, const struct cast_pair *pair,
                                uint32_t count, const bool goes_on, float *gradient)
{
    const uint32_t dim = batch->dim;
    uint32_t column = 0;

    for (; column + SUM_COLUMNS <= dim; column += SUM_COLUMNS)
        add_up_vectors(batch, pair, count, column, SUM_VECTORS, goes_on, gradient);
    for (; column + VECTOR_LANES <= dim; column += VECTOR_LANES)
        add_up_vectors(batch, pair, count, column, 1, goes_on, gradient);
    if (column < dim)
        add_up_few(batch, pair, count, column, goes_on, gradient);
}

/* Prefetches the bags some pairs ahead, of this run or of later ones. A few of those may not be
 * wanted. */
static __attribute__((noinline)) void ask_for_bags(const struct reduce_batch *batch,
                                                   const struct cast_pair *pair, uint32_t count)
{
    const uint32_t last = batch->runs ? batch->runs[batch->run_count - 1] : batch->run_count - 1;
    const struct cast_pair *const end = batch->pairs + batch->starts[last + 1];
    const uint32_t bag_bytes = batch->dim * (uint32_t)sizeof(float);
    const uint32_t ahead = vector_rows_ahead(bag_bytes);

    for (uint32_t i = 0; i < count && ahead < end - pair; i++, pair++)
        vector_ask_for_in(VECTOR_L2, bag_of(batch, pair + ahead), bag_bytes);
}

/* Adds up a run of more pairs than a piece has, piece by piece. */
static __attribute__((noinline)) void add_up_long(const struct reduce_batch *batch,
                                                  const struct cast_pair *pair, uint32_t count,
                                                  uint32_t piece, bool asks, float *gradient)
{
    for (bool goes_on = false; count > 0; goes_on = true) {
        const uint32_t some = MIN(count, piece);

        if (asks)
            ask_for_bags(batch, pair, some);
        if (goes_on)
            add_up_pairs(batch, pair, some, true, gradient);
        else
            add_up_pairs(batch, pair, some, false, gradient);
        pair += some;
        count -= some;
    }
}

static void add_up(const struct reduce_batch *batch, uint32_t run, float *gradient)
{
    const struct cast_pair *const pair = batch->pairs + batch->starts[run];
    const uint32_t count = batch->starts[run + 1] - batch->starts[run];
    const uint64_t bag_bytes = batch->dim * sizeof(float);
    const bool asks = batch->bag_count * bag_bytes > BAGS_AT_HAND;

    if (UNLIKELY(count * bag_bytes > PIECE_BYTES)) {
        add_up_long(batch, pair, count, (uint32_t)MAX(PIECE_BYTES / bag_bytes, UINT64_C(1)), asks,
                    gradient);
        return;
    }
    if (asks)
        ask_for_bags(batch, pair, count);
    add_up_pairs(batch, pair, count, false, gradient);
}

/* Adds to @gradient those of a bag's numbers that its row @number has won, times @scale. Plain C
 * that the compiler vectorises. */
static void add_won(float *restrict gradient, const float *restrict bag,
                    const uint32_t *restrict winners, uint32_t number, float scale, uint32_t dim)
{
    /* Adding 0 where nothing is won changes no bit: a sum that starts at 0 is never -0. */
    for (uint32_t c = 0; c < dim; c++)
        gradient[c] += winners[c] == number ? scale * bag[c] : 0.0f;
}

static void add_up_won(const struct reduce_batch *batch, uint32_t run, float *gradient)
{
    const struct cast_pair *const end = batch->pairs + batch->starts[run + 1];

    memset(gradient, 0, batch->dim * sizeof(*gradient));
    for (const struct cast_pair *pair = batch->pairs + batch->starts[run]; pair < end; pair++)
        add_won(gradient, bag_of(batch, pair), batch->winners + (size_t)pair->bag * batch->dim,
                pair->position - batch->offsets[pair->bag], scale_of(batch, pair), batch->dim);
}

void KERNELS_ISA_SYMBOL(reduce_run)(const struct reduce_batch *batch, uint32_t run, float *gradient)
{
    if (batch->winners)
        add_up_won(batch, run, gradient);
    else
        add_up(batch, run, gradient);
}

static void add_up_runs(const struct reduce_batch *batch)
{
    for (uint32_t r = 0; r < batch->run_count; r++)
        KERNELS_ISA_SYMBOL(reduce_run)
    (batch, batch->runs ? batch->runs[r] : r, batch->rows + (size_t)r * batch->dim);
}

static float greatest(const float *numbers, uint64_t count)
{
    enum { STRETCH = 4096 }; /* numbers between two tests for one that is not finite */
    /* Without the sign, the bits of numbers are ordered like their magnitudes. Signed integers,
     * because every instruction set can compare those. */
    int32_t most = 0;

    for (uint64_t done = 0; done < count && most < 0x7f800000; done += STRETCH) {
        const uint32_t n = (uint32_t)MIN(count - done, (uint64_t)STRETCH);

        for (uint32_t i = 0; i < n; i++) {
            const int32_t bits = (int32_t)(f32_bits(numbers[done + i]) & 0x7fffffff);

            most = bits > most ? bits : most;
        }
    }
    return f32_from_bits((uint32_t)most);
}

/* ---- Scalar products ---- */

/* The partial sums that reduce.h defines. */
#define PARTS   16
#define VECTORS (PARTS / VECTOR_LANES)

/* Adds the products of columns from @column on: as many as there are partial sums, or the last
 * ones. An incomplete vector is padded with zeros, and adding 0 changes no bit. */
KERNEL_INLINE void add_products(vector_f32 parts[VECTORS], enum embtier_dtype dtype,
                                const char *row, const float *bag, uint32_t column, uint32_t dim)
{
    const uint32_t number_bytes = vector_dtype_bytes(dtype);

#pragma GCC unroll 4
    for (uint32_t v = 0; v < VECTORS; v++, column += VECTOR_LANES) {
        const char *const weights = row + (size_t)column * number_bytes;

        if (column + VECTOR_LANES <= dim)
            parts[v] += vector_load(dtype, weights) * vector_load(EMBTIER_DTYPE_F32, bag + column);
        else if (column < dim)
            parts[v] += vector_load_few(dtype, weights, dim - column) *
                        vector_load_few(EMBTIER_DTYPE_F32, bag + column, dim - column);
    }
}

KERNEL_INLINE float scalar_product(enum embtier_dtype dtype, const char *row, const float *bag,
                                   uint32_t dim)
{
    vector_f32 parts[VECTORS] = { 0 };
    float sums[PARTS];
    uint32_t column = 0;

    for (; column + PARTS <= dim; column += PARTS)
        add_products(parts, dtype, row, bag, column, column + PARTS);
    if (column < dim)
        add_products(parts, dtype, row, bag, column, dim);
    memcpy(sums, parts, sizeof(sums));
    for (uint32_t width = PARTS / 2; width > 0; width /= 2)
        for (uint32_t i = 0; i < width; i++)
            sums[i] += sums[i + width];
    return sums[0];
}

KERNEL_INLINE void gradients_of(enum embtier_dtype dtype, uint32_t dim, const void *const *rows,
                                const float *const *bags, const float *divisors, uint32_t count,
                                float *ret_gradients)
{
    const uint32_t row_bytes = dim * vector_dtype_bytes(dtype);
    const uint32_t ahead = vector_rows_ahead(row_bytes);

    for (uint32_t i = 0; i < count; i++) {
        float gradient;

        if (LIKELY(i + ahead < count))
            vector_ask_for(rows[i + ahead], row_bytes);
        gradient = scalar_product(dtype, rows[i], bags[i], dim);
        ret_gradients[i] = divisors ? gradient / divisors[i] : gradient;
    }
}

static void weight_gradients(enum embtier_dtype dtype, uint32_t dim, const void *const *rows,
                             const float *const *bags, const float *divisors, uint32_t count,
                             float *ret_gradients)
{
    switch (dtype) {
#define X(name, number, word, bytes)                                                               \
    case EMBTIER_DTYPE_##name:                                                                     \
        gradients_of(EMBTIER_DTYPE_##name, dim, rows, bags, divisors, count, ret_gradients);       \
        return;
        EMBTIER_DTYPE_TABLE(X)
#undef X
    }
}

const struct reduce_loops KERNELS_ISA_SYMBOL(reduce_loops) = {
    .runs = add_up_runs,
    .greatest = greatest,
    .weight_gradients = weight_gradients,
};
