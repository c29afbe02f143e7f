/* SPDX-License-Identifier: Apache-2.0 */
/* pool_walk.h: the walk over the rows of bags that adds them up. A file NAME_loops.c (isa.h)
 * includes it, and says where the rows come from:
 *
 *   struct walk_rows   all that a look ahead must know; defined before the file is included
 *   walk_look()        called at each row, in order, while its first columns are added up
 *
 * pool_loops.c prefetches rows that are known. tiers/spots/spot_pool_loops.c finds them.
 *
 * A bag's columns are cut into blocks that fit the registers, and each block walks the rows once. A
 * row's numbers are loaded, and nothing is stored before the end. Rows lie anywhere in memory, so
 * the time goes into waiting for them. The first walk looks some places ahead, in the next bag if
 * need be. The later walks find the rows in the second-level cache, because a long bag is processed
 * in pieces.
 *
 * The last columns, fewer than a vector holds, are computed with a vector that ends where the row
 * ends. Its first lanes repeat the block before, and are dropped. */
#ifndef EMBTIER_KERNELS_CPU_POOL_POOL_WALK_H
#define EMBTIER_KERNELS_CPU_POOL_POOL_WALK_H

#include "kernels/cpu/pool/pool_batch.h"
#include "kernels/cpu/vector.h"

/* Called at row @i of the batch. */
KERNEL_INLINE void walk_look(const struct walk_rows *rows, uint32_t i);

/* Limits on the rows in a piece of a bag. */
#define PIECE_BYTES    (96 * KIB)
#define PIECE_ROWS_MIN 16

/* Vectors in a block: in registers, those of a sum, or those of a maximum and its winners. */
#define SUM_VECTORS 8
#define MAX_VECTORS 4

/* A bag's rows from @first to @end, after @begun earlier ones. */
struct piece {
    uint32_t bag;
    uint32_t first;
    uint32_t end;
    uint32_t begun;
};

/* The place of a block's vectors on the row. */
enum fit {
    WHOLE,
    LAST, /* one vector, at the row's end: keeps only lanes that no earlier block had */
    FEW,  /* one vector, longer than the row */
};

KERNEL_INLINE uint32_t kept_lanes(uint32_t dim, enum fit fit)
{
    return fit == WHOLE ? VECTOR_LANES : dim % VECTOR_LANES;
}

KERNEL_INLINE vector_f32 load(enum embtier_dtype dtype, const char *numbers, uint32_t dim,
                              enum fit fit)
{
    return fit == FEW ? vector_load_few(dtype, numbers, dim) : vector_load(dtype, numbers);
}

/* Copy between a vector and its place among numbers of 4 bytes, in both directions. */
KERNEL_INLINE void get(void *vector, const void *numbers, uint32_t dim, enum fit fit)
{
    memcpy(vector, numbers, fit == FEW ? dim * 4 : 4 * VECTOR_LANES);
}

KERNEL_INLINE void keep(void *numbers, const void *vector, uint32_t dim, enum fit fit)
{
    const uint32_t lanes = kept_lanes(dim, fit);
    const uint32_t skipped = fit == LAST ? VECTOR_LANES - lanes : 0;

    memcpy((char *)numbers + 4 * skipped, (const char *)vector + 4 * skipped, 4 * lanes);
}

/* ---- Blocks: @vectors vectors of columns, from @column on ---- */

static const float one = 1.0f;

KERNEL_INLINE void sum_block(const struct pool_batch *batch, struct piece piece, uint32_t column,
                             uint32_t vectors, enum fit fit, const struct walk_rows *looks,
                             enum embtier_dtype dtype)
{
    const uint32_t dim = batch->dim;
    const uint32_t number_bytes = vector_dtype_bytes(dtype);
    float *const out = batch->bags + (size_t)piece.bag * dim + column;
    const float *const weights = batch->weights ? batch->weights : &one;
    const size_t weight_step = batch->weights != NULL;
    const void *const *const rows = batch->rows;
    vector_f32 sums[SUM_VECTORS] = { 0 };

    if (piece.begun > 0)
        for (uint32_t v = 0; v < vectors; v++)
            get(&sums[v], out + v * VECTOR_LANES, dim, fit);
    for (uint32_t i = piece.first; i < piece.end; i++) {
        const char *const numbers = (const char *)rows[i] + (size_t)column * number_bytes;
        const float weight = weights[i * weight_step];

        if (looks)
            walk_look(looks, i);
#pragma GCC unroll 8
        for (uint32_t v = 0; v < vectors; v++)
            sums[v] += weight * load(dtype, numbers + v * VECTOR_LANES * number_bytes, dim, fit);
    }
    for (uint32_t v = 0; v < vectors; v++)
        keep(out + v * VECTOR_LANES, &sums[v], dim, fit);
}

KERNEL_INLINE void max_block(const struct pool_batch *batch, struct piece piece, uint32_t column,
                             uint32_t vectors, enum fit fit, const struct walk_rows *looks,
                             enum embtier_dtype dtype)
{
    const uint32_t dim = batch->dim;
    const uint32_t number_bytes = vector_dtype_bytes(dtype);
    float *const out = batch->bags + (size_t)piece.bag * dim + column;
    uint32_t *const out_winners =
        batch->winners ? batch->winners + (size_t)piece.bag * dim + column : NULL;
    const void *const *const rows = batch->rows;
    const char *const first = (const char *)rows[piece.first] + column * number_bytes;
    uint32_t number = piece.begun; /* number of the row in its bag */
    vector_f32 greatest[MAX_VECTORS] = { 0 };
    vector_u32 winners[MAX_VECTORS] = { 0 };

    for (uint32_t v = 0; v < vectors; v++) {
        if (piece.begun == 0)
            greatest[v] = load(dtype, first + v * VECTOR_LANES * number_bytes, dim, fit);
        else
            get(&greatest[v], out + v * VECTOR_LANES, dim, fit);
        if (piece.begun > 0 && out_winners)
            get(&winners[v], out_winners + v * VECTOR_LANES, dim, fit);
    }
    for (uint32_t i = piece.first; i < piece.end; i++, number++) {
        const char *const numbers = (const char *)rows[i] + column * number_bytes;

        if (looks)
            walk_look(looks, i);
#pragma GCC unroll 4
        for (uint32_t v = 0; v < vectors; v++) {
            const vector_f32 x = load(dtype, numbers + v * VECTOR_LANES * number_bytes, dim, fit);
            const vector_mask wins = vector_greater(x, greatest[v]);

            greatest[v] = (vector_f32)vector_select(wins, (vector_u32)x, (vector_u32)greatest[v]);
            winners[v] = vector_select(wins, (vector_u32){ 0 } + number, winners[v]);
        }
    }
    for (uint32_t v = 0; v < vectors; v++) {
        keep(out + v * VECTOR_LANES, &greatest[v], dim, fit);
        if (out_winners)
            keep(out_winners + v * VECTOR_LANES, &winners[v], dim, fit);
    }
}

KERNEL_INLINE void walk_block(const struct pool_batch *batch, const struct walk_rows *rows,
                              struct piece piece, uint32_t column, uint32_t vectors, enum fit fit,
                              enum embtier_dtype dtype, bool max)
{
    /* In each branch it is known whether the block looks ahead. */
    if (column == 0 && max)
        max_block(batch, piece, 0, vectors, fit, rows, dtype);
    else if (column == 0)
        sum_block(batch, piece, 0, vectors, fit, rows, dtype);
    else if (max)
        max_block(batch, piece, column, vectors, fit, NULL, dtype);
    else
        sum_block(batch, piece, column, vectors, fit, NULL, dtype);
}

KERNEL_INLINE void walk_piece(const struct pool_batch *batch, const struct walk_rows *rows,
                              struct piece piece, enum embtier_dtype dtype, bool max)
{
    const uint32_t dim = batch->dim;
    const uint32_t most = max ? MAX_VECTORS : SUM_VECTORS;
    uint32_t column = 0;

    for (; dim - column >= most * VECTOR_LANES; column += most * VECTOR_LANES)
        walk_block(batch, rows, piece, column, most, WHOLE, dtype, max);
    if (!max && dim - column >= 4 * VECTOR_LANES) {
        walk_block(batch, rows, piece, column, 4, WHOLE, dtype, max);
        column += 4 * VECTOR_LANES;
    }
    if (dim - column >= 2 * VECTOR_LANES) {
        walk_block(batch, rows, piece, column, 2, WHOLE, dtype, max);
        column += 2 * VECTOR_LANES;
    }
    if (dim - column >= VECTOR_LANES) {
        walk_block(batch, rows, piece, column, 1, WHOLE, dtype, max);
        column += VECTOR_LANES;
    }
    if (dim < VECTOR_LANES)
        walk_block(batch, rows, piece, 0, 1, FEW, dtype, max);
    else if (column < dim)
        walk_block(batch, rows, piece, dim - VECTOR_LANES, 1, LAST, dtype, max);
}

/* ---- Bags ---- */

static void clear_bag(const struct pool_batch *batch, uint32_t bag)
{
    const size_t place = (size_t)bag * batch->dim;

    memset(batch->bags + place, 0, batch->dim * sizeof(float));
    if (batch->winners)
        memset(batch->winners + place, 0xff, batch->dim * sizeof(uint32_t));
}

KERNEL_INLINE void walk_bags(const struct pool_batch *batch, const struct walk_rows *rows,
                             enum embtier_dtype dtype, bool max)
{
    const uint32_t row_bytes = batch->dim * vector_dtype_bytes(dtype);
    const uint32_t piece_rows = MAX((uint32_t)PIECE_BYTES / row_bytes, (uint32_t)PIECE_ROWS_MIN);

    for (uint32_t bag = 0; bag < batch->bag_count; bag++) {
        const uint32_t end = batch->offsets[bag + 1];
        struct piece piece = { .bag = bag,
                               .end = batch->offsets[bag],
                               .begun = bag == 0 ? batch->begun : 0 };

        if (piece.end == end && piece.begun == 0)
            clear_bag(batch, bag);
        while (piece.end < end) {
            piece.first = piece.end;
            piece.end += MIN(end - piece.end, piece_rows);
            walk_piece(batch, rows, piece, dtype, max);
            piece.begun += piece.end - piece.first;
        }
    }
}

/* Adds up the batch. @rows: a local variable of the caller's, so that it stays in registers: no
 * store can alias it. */
KERNEL_INLINE void walk(const struct pool_batch *batch, const struct walk_rows *rows)
{
    switch (batch->dtype) {
#define X(name, number, word, bytes)                                                               \
    case EMBTIER_DTYPE_##name:                                                                     \
        if (batch->mode == EMBTIER_POOL_MAX)                                                       \
            walk_bags(batch, rows, EMBTIER_DTYPE_##name, true);                                    \
        else                                                                                       \
            walk_bags(batch, rows, EMBTIER_DTYPE_##name, false);                                   \
        return;
        EMBTIER_DTYPE_TABLE(X)
#undef X
    }
}

#endif
