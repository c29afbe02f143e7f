/* SPDX-License-Identifier: Apache-2.0 */
/* The inner loops of pooling, compiled once per instruction set (isa.h).
 *
 * A bag's columns are cut into blocks that fit the registers, and each block walks the rows once. A
 * row's numbers are loaded, and nothing is stored before the end. Rows lie anywhere in memory, so
 * the time goes into waiting for them. The first walk prefetches whole rows some places ahead, in
 * the next bag if need be. The later walks find them in the second-level cache, because a long bag
 * is processed in pieces.
 *
 * The last columns, fewer than a vector holds, are computed with a vector that ends where the row
 * ends. Its first lanes repeat the block before, and are dropped. */
#include "kernels/cpu/pool/pool_loops.h"

#include "kernels/cpu/vector.h"

/* Prefetch distances of a search: rows into the second-level cache, and words ahead of these.
 * Measured: fewer, or the first level, is up to a fifth slower; more is no faster. */
#define SEARCH_BYTES    (12 * KIB)
#define SEARCH_ROWS_MAX 64u
#define SEARCH_WORDS    24u

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

/* How far a walk prefetches ahead of the current row. */
struct ahead {
    uint32_t rows;
    uint32_t words; /* in a search */
    uint32_t row_bytes;
    uint32_t count; /* rows of the batch */
};

KERNEL_INLINE struct ahead ahead_of(const struct pool_batch *batch, bool finds,
                                    enum embtier_dtype dtype)
{
    const uint32_t row_bytes = batch->dim * vector_dtype_bytes(dtype);
    const uint32_t rows = finds ? MIN(MAX((uint32_t)SEARCH_BYTES / row_bytes, 2u), SEARCH_ROWS_MAX)
                                : vector_rows_ahead(row_bytes);

    return (struct ahead){ .rows = rows,
                           .words = rows + SEARCH_WORDS,
                           .row_bytes = row_bytes,
                           .count = batch->offsets[batch->bag_count] };
}

/* Finds row @i of a search, whose word was prefetched, and prefetches the row. A row that is not
 * there is zeros. */
KERNEL_INLINE void find_row(struct pool_search *search, uint32_t i, uint32_t row_bytes)
{
    const void *row;

    if (search->where.row_stride != 0) {
        row = search->where.base + search->ids[i] * search->where.row_stride;
    } else {
        struct row_spot *const spot = &search->where.spots[search->ids[i]];
        const uint32_t slot = spot->slot_and_1 - 1;

        row = search->where.base + ((uint64_t)slot << search->where.slot_shift);
        if (UNLIKELY(slot >= search->where.slot_end)) {
            search->missed++;
            row = pool_no_row;
        } else if (UNLIKELY(spot->stamp != search->where.now)) {
            spot->stamp = search->where.now;
        }
    }
    search->rows[i] = row;
    vector_ask_for_in(VECTOR_L2, row, row_bytes);
}

KERNEL_INLINE void ask_for_word(const struct pool_search *search, uint32_t i)
{
    if (search->where.row_stride == 0)
        __builtin_prefetch(&search->where.spots[search->ids[i]]);
}

/* Called at row @i. @asks: prefetch rows that are known; @finds: find later rows. */
KERNEL_INLINE void look_ahead(struct ahead ahead, const void *const *rows,
                              struct pool_search *search, uint32_t i, bool asks, bool finds)
{
    if (finds) {
        if (LIKELY(i + ahead.words < ahead.count))
            ask_for_word(search, i + ahead.words);
        if (LIKELY(i + ahead.rows < ahead.count))
            find_row(search, i + ahead.rows, ahead.row_bytes);
    } else if (asks && LIKELY(i + ahead.rows < ahead.count)) {
        vector_ask_for(rows[i + ahead.rows], ahead.row_bytes);
    }
}

/* ---- Blocks: @vectors vectors of columns, from @column on ---- */

static const float one = 1.0f;

KERNEL_INLINE void sum_block(const struct pool_batch *batch, struct piece piece, uint32_t column,
                             uint32_t vectors, enum fit fit, bool finds, enum embtier_dtype dtype)
{
    const uint32_t dim = batch->dim;
    const uint32_t number_bytes = vector_dtype_bytes(dtype);
    float *const out = batch->bags + (size_t)piece.bag * dim + column;
    const float *const weights = batch->weights ? batch->weights : &one;
    const size_t weight_step = batch->weights != NULL;
    const void *const *const rows = batch->rows;
    const struct ahead ahead = ahead_of(batch, finds, dtype);
    struct pool_search search;
    vector_f32 sums[SUM_VECTORS] = { 0 };

    if (finds)
        search = *batch->search; /* a copy stays in registers, because no store can alias it */
    if (piece.begun > 0)
        for (uint32_t v = 0; v < vectors; v++)
            get(&sums[v], out + v * VECTOR_LANES, dim, fit);
    for (uint32_t i = piece.first; i < piece.end; i++) {
        const char *const numbers = (const char *)rows[i] + (size_t)column * number_bytes;
        const float weight = weights[i * weight_step];

        look_ahead(ahead, rows, &search, i, column == 0, finds);
#pragma GCC unroll 8
        for (uint32_t v = 0; v < vectors; v++)
            sums[v] += weight * load(dtype, numbers + v * VECTOR_LANES * number_bytes, dim, fit);
    }
    for (uint32_t v = 0; v < vectors; v++)
        keep(out + v * VECTOR_LANES, &sums[v], dim, fit);
    if (finds)
        batch->search->missed = search.missed;
}

KERNEL_INLINE void max_block(const struct pool_batch *batch, struct piece piece, uint32_t column,
                             uint32_t vectors, enum fit fit, bool finds, enum embtier_dtype dtype)
{
    const uint32_t dim = batch->dim;
    const uint32_t number_bytes = vector_dtype_bytes(dtype);
    float *const out = batch->bags + (size_t)piece.bag * dim + column;
    uint32_t *const out_winners =
        batch->winners ? batch->winners + (size_t)piece.bag * dim + column : NULL;
    const void *const *const rows = batch->rows;
    const char *const first = (const char *)rows[piece.first] + column * number_bytes;
    const struct ahead ahead = ahead_of(batch, finds, dtype);
    struct pool_search search;
    uint32_t number = piece.begun; /* number of the row in its bag */
    vector_f32 greatest[MAX_VECTORS] = { 0 };
    vector_u32 winners[MAX_VECTORS] = { 0 };

    if (finds)
        search = *batch->search;
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

        look_ahead(ahead, rows, &search, i, column == 0, finds);
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
    if (finds)
        batch->search->missed = search.missed;
}

KERNEL_INLINE void pool_block(const struct pool_batch *batch, struct piece piece, uint32_t column,
                              uint32_t vectors, enum fit fit, enum embtier_dtype dtype, bool max)
{
    if (column == 0 && batch->search) {
        if (max)
            max_block(batch, piece, 0, vectors, fit, true, dtype);
        else
            sum_block(batch, piece, 0, vectors, fit, true, dtype);
    } else if (max) {
        max_block(batch, piece, column, vectors, fit, false, dtype);
    } else {
        sum_block(batch, piece, column, vectors, fit, false, dtype);
    }
}

KERNEL_INLINE void pool_piece(const struct pool_batch *batch, struct piece piece,
                              enum embtier_dtype dtype, bool max)
{
    const uint32_t dim = batch->dim;
    const uint32_t most = max ? MAX_VECTORS : SUM_VECTORS;
    uint32_t column = 0;

    for (; dim - column >= most * VECTOR_LANES; column += most * VECTOR_LANES)
        pool_block(batch, piece, column, most, WHOLE, dtype, max);
    if (!max && dim - column >= 4 * VECTOR_LANES) {
        pool_block(batch, piece, column, 4, WHOLE, dtype, max);
        column += 4 * VECTOR_LANES;
    }
    if (dim - column >= 2 * VECTOR_LANES) {
        pool_block(batch, piece, column, 2, WHOLE, dtype, max);
        column += 2 * VECTOR_LANES;
    }
    if (dim - column >= VECTOR_LANES) {
        pool_block(batch, piece, column, 1, WHOLE, dtype, max);
        column += VECTOR_LANES;
    }
    if (dim < VECTOR_LANES)
        pool_block(batch, piece, 0, 1, FEW, dtype, max);
    else if (column < dim)
        pool_block(batch, piece, dim - VECTOR_LANES, 1, LAST, dtype, max);
}

/* ---- Bags ---- */

static void clear_bag(const struct pool_batch *batch, uint32_t bag)
{
    const size_t place = (size_t)bag * batch->dim;

    memset(batch->bags + place, 0, batch->dim * sizeof(float));
    if (batch->winners)
        memset(batch->winners + place, 0xff, batch->dim * sizeof(uint32_t));
}

/* Finds the first rows of a search, for which nothing was prefetched. */
static void find_first_rows(const struct pool_batch *batch, enum embtier_dtype dtype)
{
    const struct ahead ahead = ahead_of(batch, true, dtype);

    for (uint32_t i = 0; i < MIN(ahead.count, ahead.words); i++)
        ask_for_word(batch->search, i);
    for (uint32_t i = 0; i < MIN(ahead.count, ahead.rows); i++)
        find_row(batch->search, i, ahead.row_bytes);
}

KERNEL_INLINE void pool_bags(const struct pool_batch *batch, enum embtier_dtype dtype, bool max)
{
    const uint32_t row_bytes = batch->dim * vector_dtype_bytes(dtype);
    const uint32_t piece_rows = MAX((uint32_t)PIECE_BYTES / row_bytes, (uint32_t)PIECE_ROWS_MIN);

    if (batch->search)
        find_first_rows(batch, dtype);
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
            pool_piece(batch, piece, dtype, max);
            piece.begun += piece.end - piece.first;
        }
    }
}

static void pool(const struct pool_batch *batch)
{
    switch (batch->dtype) {
#define X(name, number, word, bytes)                                                               \
    case EMBTIER_DTYPE_##name:                                                                     \
        if (batch->mode == EMBTIER_POOL_MAX)                                                       \
            pool_bags(batch, EMBTIER_DTYPE_##name, true);                                          \
        else                                                                                       \
            pool_bags(batch, EMBTIER_DTYPE_##name, false);                                         \
        return;
        EMBTIER_DTYPE_TABLE(X)
#undef X
    }
}

static void divide(float *restrict bags, uint32_t dim, const uint32_t *restrict counts,
                   uint32_t bag_count)
{
    for (uint32_t bag = 0; bag < bag_count; bag++, bags += dim) {
        const float count = (float)counts[bag];

        if (counts[bag] > 1)
            for (uint32_t c = 0; c < dim; c++)
                bags[c] /= count;
    }
}

const struct pool_loops KERNELS_ISA_SYMBOL(pool_loops) = {
    .pool = pool,
    .divide = divide,
};
