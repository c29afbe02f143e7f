/* SPDX-License-Identifier: Apache-2.0 */
/* pool_fixture.h: bags of random rows, and pooling as pool.h defines it, one number at a time. For
 * rows that are given and for rows that are searched for. */
#ifndef EMBTIER_TESTS_UNIT_KERNELS_POOL_FIXTURE_H
#define EMBTIER_TESTS_UNIT_KERNELS_POOL_FIXTURE_H

#include "tests/unit/kernels/kernels_fixture.h"

#include "kernels/cpu/pool/pool.h"

#define BAGS_MAX 64
#define GUARD    UINT32_C(0xdeadbeef)

/* Rows at any multiple of 2. The first ends right before an unmapped page. */
struct rows {
    uint32_t count;
    const void **pointers;
    struct fixture_guarded memory;
};

/* Bags over rows: random pointers, weights and offsets. */
struct bags {
    uint32_t bag_count;
    uint32_t row_count;
    const void **rows;
    float *weights;
    uint32_t *offsets;
};

static inline struct bags make_bags(const struct rows *rows, const uint32_t *lengths,
                                    uint32_t bag_count, uint64_t *random)
{
    struct bags bags = { .bag_count = bag_count,
                         .offsets = fixture_alloc(bag_count + 1, sizeof(uint32_t)) };

    for (uint32_t b = 0; b < bag_count; b++)
        bags.offsets[b + 1] = bags.offsets[b] + lengths[b];
    bags.row_count = bags.offsets[bag_count];
    bags.rows = fixture_alloc(bags.row_count, sizeof(*bags.rows));
    bags.weights = fixture_alloc(bags.row_count, sizeof(*bags.weights));
    for (uint32_t i = 0; i < bags.row_count; i++) {
        bags.rows[i] = rows->pointers[fixture_below(random, rows->count)];
        bags.weights[i] = fixture_float(random);
    }
    return bags;
}

static inline void free_bags(struct bags *bags)
{
    free(bags->rows);
    free(bags->weights);
    free(bags->offsets);
}

/* Pools as pool.h defines it, one number at a time. */
static inline void pool_plainly(const struct pool_batch *batch)
{
    for (uint32_t b = 0; b < batch->bag_count; b++) {
        for (uint32_t c = 0; c < batch->dim; c++) {
            float result = 0;
            uint32_t winner = UINT32_MAX;

            for (uint32_t i = batch->offsets[b]; i < batch->offsets[b + 1]; i++) {
                const float x = fixture_get(batch->dtype, batch->rows[i], c);
                const float product = batch->weights ? batch->weights[i] * x : x;

                if (batch->mode != EMBTIER_POOL_MAX) {
                    result = result + product;
                } else if (i == batch->offsets[b] || x > result) {
                    result = x;
                    winner = i - batch->offsets[b];
                }
            }
            batch->bags[(size_t)b * batch->dim + c] = result;
            if (batch->winners)
                batch->winners[(size_t)b * batch->dim + c] = winner;
        }
    }
}

/* Results of a batch, with guards behind them. */
struct result {
    float *bags;
    uint32_t *winners;
    size_t count;
};

static inline struct result make_result(uint32_t bag_count, uint32_t dim)
{
    const size_t count = (size_t)bag_count * dim;
    struct result result = { fixture_alloc(count + 1, 4), fixture_alloc(count + 1, 4), count };

    for (size_t i = 0; i <= count; i++)
        result.winners[i] = GUARD;
    memcpy(result.bags, result.winners, (count + 1) * 4);
    return result;
}

static inline void free_result(struct result *result)
{
    assert_int_equal(f32_bits(result->bags[result->count]), GUARD);
    assert_int_equal(result->winners[result->count], GUARD);
    free(result->bags);
    free(result->winners);
}

static inline void assert_same(const struct pool_batch *batch, const struct result *got,
                               const struct result *expected, const char *what)
{
    for (size_t i = 0; i < got->count; i++)
        if (f32_bits(got->bags[i]) != f32_bits(expected->bags[i]) ||
            (batch->winners && got->winners[i] != expected->winners[i]))
            fail_msg("%s: dim %u, %s, mode %d, weights %d, bag %zu column %zu: %a of row %u, "
                     "expected %a of row %u",
                     what, batch->dim, dtype_word((int)batch->dtype), (int)batch->mode,
                     batch->weights != NULL, i / batch->dim, i % batch->dim, (double)got->bags[i],
                     got->winners[i], (double)expected->bags[i], expected->winners[i]);
}

/* Pools a batch, or a piece of one whose rows begin with row @first of the whole. */
typedef void pool_piece(enum kernels_isa isa, const struct pool_batch *batch, uint32_t first,
                        void *context);

/* Calls @pool once, or for pieces of at most @piece rows if @piece is not 0. */
static inline void pool_in_pieces(enum kernels_isa isa, const struct pool_batch *whole,
                                  uint32_t piece, pool_piece *pool, void *context)
{
    const uint32_t row_count = whole->offsets[whole->bag_count];
    uint32_t offsets[BAGS_MAX + 1];
    uint32_t bag = 0;

    if (piece == 0) {
        pool(isa, whole, 0, context);
        return;
    }
    for (uint32_t first = 0;; first += piece) {
        const uint32_t end = MIN(row_count, first + piece);
        const bool last = end == row_count;
        const size_t place = (size_t)bag * whole->dim;
        struct pool_batch part = *whole;
        uint32_t b = bag;

        for (offsets[0] = 0; b < whole->bag_count && (last || whole->offsets[b] < end); b++)
            offsets[b - bag + 1] = MIN(whole->offsets[b + 1], end) - first;
        part.rows = whole->rows + first;
        part.weights = whole->weights ? whole->weights + first : NULL;
        part.offsets = offsets;
        part.bag_count = b - bag;
        part.begun = first - MIN(whole->offsets[bag], first);
        part.bags = whole->bags + place;
        part.winners = whole->winners ? whole->winners + place : NULL;
        pool(isa, &part, first, context);
        if (last)
            return;
        bag = whole->offsets[b] > end ? b - 1 : b;
    }
}

#endif
