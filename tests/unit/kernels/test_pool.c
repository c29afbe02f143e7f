/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that a pooled bag has the same bits with every instruction set: those of its rows added up
 * one after another. Only the rows' and bags' memory may be read or written. */
#include "tests/unit/kernels/kernels_fixture.h"

#include "kernels/cpu/pool/pool.h"

#define BAGS_MAX 64
#define ROWS_MAX 4096
#define GUARD    UINT32_C(0xdeadbeef)

static const uint32_t dims[] = { 1, 2, 3, 7, 8, 15, 16, 17, 31, 63, 64, 65, 100, 128, 200, 8192 };

/* Rows at any multiple of 2. The first ends right before an unmapped page. */
struct rows {
    uint32_t count;
    const void **pointers;
    struct fixture_guarded memory;
};

static struct rows make_rows(enum embtier_dtype dtype, uint32_t dim, uint32_t count,
                             uint64_t *random)
{
    const size_t row_bytes = (size_t)dim * dtype_bytes(dtype);
    const size_t stride = row_bytes + (dtype == EMBTIER_DTYPE_F32 ? 6 : 2);
    struct rows rows = { .count = count,
                         .pointers = fixture_alloc(count, sizeof(*rows.pointers)),
                         .memory = fixture_guarded(count * stride) };

    for (uint32_t i = 0; i < count; i++) {
        char *const row = rows.memory.end - row_bytes - i * stride;

        rows.pointers[i] = row;
        for (uint32_t c = 0; c < dim; c++)
            fixture_set(dtype, row, c, fixture_float(random));
    }
    return rows;
}

static void free_rows(struct rows *rows)
{
    fixture_guarded_free(&rows->memory);
    free(rows->pointers);
}

/* Bags over rows: random pointers, weights and offsets. */
struct bags {
    uint32_t bag_count;
    uint32_t row_count;
    const void **rows;
    float *weights;
    uint32_t *offsets;
};

static struct bags make_bags(const struct rows *rows, const uint32_t *lengths, uint32_t bag_count,
                             uint64_t *random)
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

static void free_bags(struct bags *bags)
{
    free(bags->rows);
    free(bags->weights);
    free(bags->offsets);
}

/* Pools as pool.h defines it, one number at a time. */
static void pool_plainly(const struct pool_batch *batch)
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

static struct result make_result(uint32_t bag_count, uint32_t dim)
{
    const size_t count = (size_t)bag_count * dim;
    struct result result = { fixture_alloc(count + 1, 4), fixture_alloc(count + 1, 4), count };

    for (size_t i = 0; i <= count; i++)
        result.winners[i] = GUARD;
    memcpy(result.bags, result.winners, (count + 1) * 4);
    return result;
}

static void free_result(struct result *result)
{
    assert_int_equal(f32_bits(result->bags[result->count]), GUARD);
    assert_int_equal(result->winners[result->count], GUARD);
    free(result->bags);
    free(result->winners);
}

static void assert_same(const struct pool_batch *batch, const struct result *got,
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

/* Pools with @isa in one call, or in pieces of at most @piece rows if @piece is not 0. */
static void pool_in_pieces(enum kernels_isa isa, const struct pool_batch *whole, uint32_t piece)
{
    const uint32_t row_count = whole->offsets[whole->bag_count];
    uint32_t offsets[BAGS_MAX + 1];
    uint32_t bag = 0;

    if (piece == 0) {
        pool_rows_with(isa, whole);
        return;
    }
    for (uint32_t first = 0;; first += piece) {
        const uint32_t end = MIN(row_count, first + piece);
        const bool last = end == row_count;
        const size_t place = (size_t)bag * whole->dim;
        struct pool_batch part = *whole;
        struct pool_search search;
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
        if (whole->search) {
            search = (struct pool_search){ .where = whole->search->where,
                                           .ids = whole->search->ids + first,
                                           .rows = whole->search->rows + first };
            part.search = &search;
        }
        pool_rows_with(isa, &part);
        if (whole->search)
            whole->search->missed += search.missed;
        if (last)
            return;
        bag = whole->offsets[b] > end ? b - 1 : b;
    }
}

/* Checks all modes, with and without weights, whole and in pieces, with every instruction set. */
static void check_bags(enum embtier_dtype dtype, uint32_t dim, const struct bags *bags)
{
    static const uint32_t pieces[] = { 0, 1, 7, 50 };

    for (uint32_t n = 0; n < 8; n++) {
        const bool max = n >= 4;
        struct result expected = make_result(bags->bag_count, dim);
        struct pool_batch batch = { .dtype = dtype,
                                    .dim = dim,
                                    .mode = max      ? EMBTIER_POOL_MAX
                                            : n >= 2 ? EMBTIER_POOL_MEAN
                                                     : EMBTIER_POOL_SUM,
                                    .rows = bags->rows,
                                    .weights = !max && n % 2 ? bags->weights : NULL,
                                    .offsets = bags->offsets,
                                    .bag_count = bags->bag_count,
                                    .bags = expected.bags,
                                    .winners = max && n % 2 ? expected.winners : NULL };

        pool_plainly(&batch);
        FOR_EACH_ISA(isa)
        {
            for (uint32_t p = 0; p < ARRAY_LEN(pieces); p++) {
                struct result got = make_result(bags->bag_count, dim);

                batch.bags = got.bags;
                batch.winners = batch.winners ? got.winners : NULL;
                pool_in_pieces(isa, &batch, pieces[p]);
                assert_same(&batch, &got, &expected, kernels_isa_name(isa));
                free_result(&got);
            }
        }
        free_result(&expected);
    }
}

static void test_bags_are_their_rows_added_up_in_order(void **state)
{
    uint64_t random = seed_of_test(__func__, SEED_USUAL);

    (void)state;
    for (uint32_t n = 0; n < ARRAY_LEN(dims) * 3; n++) {
        const enum embtier_dtype dtype = EMBTIER_DTYPE_F32 + n % 3;
        const uint32_t dim = dims[n / 3];
        uint32_t lengths[12] = { 0, 1, 2, 0, 0, 40 };
        struct rows rows = make_rows(dtype, dim, 33, &random);
        struct bags bags;

        for (uint32_t b = 6; b < ARRAY_LEN(lengths) - 1; b++)
            lengths[b] = fixture_below(&random, 30);
        bags = make_bags(&rows, lengths, ARRAY_LEN(lengths), &random);
        check_bags(dtype, dim, &bags);
        free_bags(&bags);
        free_rows(&rows);
    }
}

static void test_one_huge_bag(void **state)
{
    static const uint32_t some_dims[] = { 1, 64, 200 };
    uint64_t random = seed_of_test(__func__, SEED_USUAL);

    (void)state;
    for (uint32_t n = 0; n < ARRAY_LEN(some_dims) * 3; n++) {
        const enum embtier_dtype dtype = EMBTIER_DTYPE_F32 + n % 3;
        const uint32_t lengths[] = { ROWS_MAX };
        struct rows rows = make_rows(dtype, some_dims[n / 3], 100, &random);
        struct bags bags = make_bags(&rows, lengths, 1, &random);

        check_bags(dtype, some_dims[n / 3], &bags);
        free_bags(&bags);
        free_rows(&rows);
    }
}

static void test_bags_without_rows_are_zeros(void **state)
{
    const uint32_t offsets[4] = { 0 };

    (void)state;
    FOR_EACH_ISA(isa)
    {
        for (uint32_t mode = EMBTIER_POOL_SUM; mode <= EMBTIER_POOL_MAX; mode++) {
            struct result got = make_result(3, 65);

            pool_rows_with(isa, &(struct pool_batch){ .dtype = EMBTIER_DTYPE_F32,
                                                      .dim = 65,
                                                      .mode = mode,
                                                      .offsets = offsets,
                                                      .bag_count = 3,
                                                      .bags = got.bags,
                                                      .winners = got.winners });
            for (size_t i = 0; i < got.count; i++) {
                assert_int_equal(f32_bits(got.bags[i]), 0);
                assert_int_equal(got.winners[i], UINT32_MAX);
            }
            free_result(&got);
        }
    }
}

static void test_a_bag_that_goes_on_without_rows_stays(void **state)
{
    const uint32_t offsets[2] = { 0 };

    (void)state;
    FOR_EACH_ISA(isa)
    {
        struct result got = make_result(1, 65);

        pool_rows_with(isa, &(struct pool_batch){ .dtype = EMBTIER_DTYPE_F32,
                                                  .dim = 65,
                                                  .mode = EMBTIER_POOL_MAX,
                                                  .offsets = offsets,
                                                  .bag_count = 1,
                                                  .begun = 5,
                                                  .bags = got.bags,
                                                  .winners = got.winners });
        for (size_t i = 0; i < got.count; i++) {
            assert_int_equal(f32_bits(got.bags[i]), GUARD);
            assert_int_equal(got.winners[i], GUARD);
        }
        free_result(&got);
    }
}

/* Pools a column whose rows have the numbers @values. */
static void pool_values(enum kernels_isa isa, enum embtier_dtype dtype, enum embtier_pool mode,
                        const float *values, uint32_t count, float *ret_value, uint32_t *ret_winner)
{
    const uint32_t offsets[2] = { 0, count };
    const void *rows[8];
    uint32_t memory[8];

    assert_true(count <= ARRAY_LEN(rows));
    for (uint32_t i = 0; i < count; i++) {
        fixture_set(dtype, &memory[i], 0, values[i]);
        rows[i] = &memory[i];
    }
    pool_rows_with(isa, &(struct pool_batch){ .dtype = dtype,
                                              .dim = 1,
                                              .mode = mode,
                                              .rows = rows,
                                              .offsets = offsets,
                                              .bag_count = 1,
                                              .bags = ret_value,
                                              .winners = ret_winner });
}

static void test_of_equals_the_first_wins_and_a_nan_only_if_it_is_first(void **state)
{
    (void)state;
    FOR_EACH_ISA(isa)
    {
        for (int dtype = 1; dtype <= 3; dtype++) {
            float value;
            uint32_t winner;

            pool_values(isa, dtype, EMBTIER_POOL_MAX, (float[]){ 1, 3, 2, 3 }, 4, &value, &winner);
            assert_true(value == 3 && winner == 1);
            pool_values(isa, dtype, EMBTIER_POOL_MAX, (float[]){ -0.0f, 0.0f }, 2, &value, &winner);
            assert_true(f32_bits(value) == 0x80000000 && winner == 0);
            pool_values(isa, dtype, EMBTIER_POOL_MAX, (float[]){ 1, NAN, 2 }, 3, &value, &winner);
            assert_true(value == 2 && winner == 2);
            pool_values(isa, dtype, EMBTIER_POOL_MAX, (float[]){ NAN, 1 }, 2, &value, &winner);
            assert_true(isnan(value) && winner == 0);
            pool_values(isa, dtype, EMBTIER_POOL_MAX, (float[]){ -INFINITY, -5, INFINITY }, 3,
                        &value, &winner);
            assert_true(isinf(value) && value > 0 && winner == 2);
            pool_values(isa, dtype, EMBTIER_POOL_MAX, (float[]){ -7 }, 1, &value, &winner);
            assert_true(value == -7 && winner == 0);
        }
    }
}

static void test_sums_begin_with_zero(void **state)
{
    (void)state;
    FOR_EACH_ISA(isa)
    {
        float value;

        pool_values(isa, EMBTIER_DTYPE_F32, EMBTIER_POOL_SUM, (float[]){ -0.0f }, 1, &value, NULL);
        assert_int_equal(f32_bits(value), 0);
    }
}

/* Kernels use the processor's conversion if it has one; dtype.h defines the result. */
static void test_every_half_is_the_number_that_dtype_h_says(void **state)
{
    enum { DIM = 8192 };
    const uint32_t offsets[2] = { 0, 1 };
    uint16_t *const halves = fixture_alloc(DIM, sizeof(*halves));
    float *const values = fixture_alloc(DIM, sizeof(*values));

    (void)state;
    for (uint32_t n = 0; n < 2 * (65536 / DIM); n++) {
        const enum embtier_dtype dtype = n % 2 ? EMBTIER_DTYPE_F16 : EMBTIER_DTYPE_BF16;

        for (uint32_t c = 0; c < DIM; c++)
            halves[c] = (uint16_t)(n / 2 * DIM + c);
        FOR_EACH_ISA(isa)
        {
            pool_rows_with(isa, &(struct pool_batch){ .dtype = dtype,
                                                      .dim = DIM,
                                                      .mode = EMBTIER_POOL_MAX,
                                                      .rows = (const void *[]){ halves },
                                                      .offsets = offsets,
                                                      .bag_count = 1,
                                                      .bags = values });
            for (uint32_t c = 0; c < DIM; c++)
                if (f32_bits(values[c]) != f32_bits(fixture_get(dtype, halves, c)))
                    fail_msg("%s: %s %#x gives %#x", kernels_isa_name(isa), dtype_word((int)dtype),
                             halves[c], f32_bits(values[c]));
        }
    }
    free(halves);
    free(values);
}

static void test_a_mean_is_the_sum_divided_by_the_count(void **state)
{
    enum { DIM = 37, BAGS = 5 };
    const uint32_t counts[BAGS] = { 3, 0, 1, 7, 16777217 };
    uint64_t random = seed_of_test(__func__, SEED_USUAL);
    float bags[BAGS * DIM], expected[BAGS * DIM];

    (void)state;
    for (uint32_t i = 0; i < BAGS * DIM; i++) {
        const uint32_t count = counts[i / DIM];

        bags[i] = fixture_float(&random);
        expected[i] = count ? bags[i] / (float)count : bags[i];
    }
    FOR_EACH_ISA(isa)
    {
        float got[BAGS * DIM];

        memcpy(got, bags, sizeof(got));
        pool_divide_with(isa, got, DIM, counts, BAGS);
        assert_memory_equal(got, expected, sizeof(got));
    }
    pool_divide(bags, DIM, counts, BAGS);
    assert_memory_equal(bags, expected, sizeof(bags));
}

/* ---- Rows found while they are added up ---- */

#define NOW 777

/* A table's rows, and the words with their places. Both memories end with their last byte before an
 * unmapped page. */
struct table {
    enum embtier_dtype dtype;
    uint32_t dim;
    uint32_t id_count;
    struct row_spots where;
    struct row_spot *before; /* the words before any search */
    struct fixture_guarded memory;
    struct fixture_guarded words;
};

/* Returns a word's value that says that the row is absent or elsewhere. */
static uint32_t slot_and_1_of_none(uint32_t slot_end, uint64_t *random)
{
    const uint32_t none[] = { 0, slot_end + 1, slot_end + 2, UINT32_MAX };

    return none[fixture_below(random, ARRAY_LEN(none))];
}

/* Rows lie in any order, with gaps. One id in @of has no row; 0: all have one. */
static struct table make_table(enum embtier_dtype dtype, uint32_t dim, uint32_t id_count,
                               uint32_t of, uint64_t *random)
{
    const uint32_t row_bytes = dim * dtype_bytes(dtype);
    const uint8_t shift = (uint8_t)(2 + fixture_below(random, 8));
    const uint32_t slots = (uint32_t)(align_up(row_bytes, UINT32_C(1) << shift) >> shift);
    struct table table = { .dtype = dtype,
                           .dim = dim,
                           .id_count = id_count,
                           .before = fixture_alloc(id_count, sizeof(*table.before)),
                           .words = fixture_guarded(id_count * sizeof(*table.before)) };
    uint32_t slot = fixture_below(random, 2);
    size_t bytes;

    for (uint32_t i = 0; i < id_count; i++) {
        const uint32_t other = fixture_below(random, i + 1);

        table.before[i] = table.before[other];
        table.before[other] = (struct row_spot){
            .slot_and_1 = slot + 1,
            .stamp = (uint16_t)(NOW - fixture_below(random, 3)),
            .dirty = (uint16_t)fixture_below(random, 2),
        };
        table.where.slot_end = slot + 1;
        slot += slots + fixture_below(random, 3);
    }
    table.where.slot_shift = shift;
    table.where.now = NOW;
    bytes = ((size_t)(table.where.slot_end - 1) << shift) + row_bytes;
    table.memory = fixture_guarded(bytes);
    table.where.base = (uint8_t *)table.memory.end - bytes;
    table.where.spots = (struct row_spot *)table.words.end - id_count;
    for (uint32_t i = 0; i < id_count; i++) {
        uint8_t *const row = table.where.base + ((size_t)(table.before[i].slot_and_1 - 1) << shift);

        for (uint32_t c = 0; c < dim; c++)
            fixture_set(dtype, row, c, fixture_float(random));
        if (of != 0 && fixture_below(random, of) == 0)
            table.before[i].slot_and_1 = slot_and_1_of_none(table.where.slot_end, random);
    }
    return table;
}

static void free_table(struct table *table)
{
    fixture_guarded_free(&table->memory);
    fixture_guarded_free(&table->words);
    free(table->before);
}

/* Returns the place of row @id, or NULL. */
static const void *row_of(const struct table *table, uint64_t id)
{
    const uint32_t slot_and_1 = table->before[id].slot_and_1;

    if (slot_and_1 == 0 || slot_and_1 > table->where.slot_end)
        return NULL;
    return table->where.base + ((size_t)(slot_and_1 - 1) << table->where.slot_shift);
}

/* Checks the words and places after a search for rows @ids. */
static void assert_found(const struct table *table, const struct pool_search *search,
                         const uint64_t *ids, const struct bags *bags)
{
    const size_t bytes = table->id_count * sizeof(*table->before);
    struct row_spot *const expected = fixture_alloc(table->id_count, sizeof(*expected));
    uint32_t missed = 0;

    memcpy(expected, table->before, bytes);
    for (uint32_t i = 0; i < bags->row_count; i++) {
        const void *const row = row_of(table, ids[i]);

        if (!row) {
            missed++;
            continue;
        }
        expected[ids[i]].stamp = NOW;
        assert_ptr_equal(search->rows[i], row);
    }
    assert_int_equal(search->missed, missed);
    assert_memory_equal(table->where.spots, expected, bytes);
    free(expected);
}

/* Checks bags of random rows of the table, in all modes, whole or in pieces, with every instruction
 * set. The result is as with given rows, with zeros for absent ones. */
static void check_search(const struct table *table, const uint32_t *lengths, uint32_t bag_count,
                         uint64_t *random)
{
    static const struct {
        enum embtier_pool mode;
        bool weights;
        bool winners;
    } kinds[] = {
        { EMBTIER_POOL_SUM, false, false }, { EMBTIER_POOL_SUM, true, false },
        { EMBTIER_POOL_MEAN, true, false }, { EMBTIER_POOL_MAX, false, false },
        { EMBTIER_POOL_MAX, false, true },
    };
    static const uint32_t pieces[] = { 0, 1, 7, 50 };
    static const float nothing[EMBTIER_DIM_MAX];
    const struct rows one = { .count = 1, .pointers = (const void *[]){ table->where.base } };
    struct bags bags = make_bags(&one, lengths, bag_count, random);
    struct fixture_guarded ids_memory = fixture_guarded(bags.row_count * sizeof(uint64_t));
    struct fixture_guarded rows_memory = fixture_guarded(bags.row_count * sizeof(void *));
    uint64_t *const ids = (uint64_t *)ids_memory.end - bags.row_count;
    const void **const rows = (const void **)rows_memory.end - bags.row_count;

    for (uint32_t i = 0; i < bags.row_count; i++) {
        const void *row;

        ids[i] = fixture_below(random, table->id_count);
        row = row_of(table, ids[i]);
        bags.rows[i] = row ? row : nothing;
    }
    for (uint32_t k = 0; k < ARRAY_LEN(kinds); k++) {
        struct result expected = make_result(bag_count, table->dim);
        struct pool_batch batch = { .dtype = table->dtype,
                                    .dim = table->dim,
                                    .mode = kinds[k].mode,
                                    .rows = bags.rows,
                                    .weights = kinds[k].weights ? bags.weights : NULL,
                                    .offsets = bags.offsets,
                                    .bag_count = bag_count,
                                    .bags = expected.bags,
                                    .winners = kinds[k].winners ? expected.winners : NULL };

        pool_plainly(&batch);
        batch.rows = rows;
        FOR_EACH_ISA(isa)
        {
            for (uint32_t p = 0; p < ARRAY_LEN(pieces); p++) {
                struct pool_search search = { .where = table->where, .ids = ids, .rows = rows };
                struct result got = make_result(bag_count, table->dim);

                memcpy(table->where.spots, table->before, table->id_count * sizeof(*table->before));
                memset(rows, 0, bags.row_count * sizeof(*rows));
                batch.search = &search;
                batch.bags = got.bags;
                batch.winners = kinds[k].winners ? got.winners : NULL;
                pool_in_pieces(isa, &batch, pieces[p]);
                assert_found(table, &search, ids, &bags);
                assert_same(&batch, &got, &expected, kernels_isa_name(isa));
                free_result(&got);
            }
        }
        free_result(&expected);
    }
    fixture_guarded_free(&ids_memory);
    fixture_guarded_free(&rows_memory);
    free_bags(&bags);
}

/* All rows are there, each at its own place; no words say where. */
static void check_places(enum embtier_dtype dtype, uint32_t dim, uint64_t *random)
{
    enum { IDS = 50, BAGS = 9, ROWS_MOST = BAGS * 30 };
    const uint32_t row_bytes = dim * dtype_bytes(dtype);
    const uint64_t stride = row_bytes + 2 * fixture_below(random, 40);
    struct fixture_guarded memory = fixture_guarded((IDS - 1) * stride + row_bytes);
    uint8_t *const base = (uint8_t *)memory.end - ((IDS - 1) * stride + row_bytes);
    uint64_t ids[ROWS_MOST];
    const void *rows[ROWS_MOST], *found[ROWS_MOST];
    uint32_t offsets[BAGS + 1] = { 0 };

    for (uint32_t id = 0; id < IDS; id++)
        for (uint32_t c = 0; c < dim; c++)
            fixture_set(dtype, base + id * stride, c, fixture_float(random));
    for (uint32_t b = 0; b < BAGS; b++)
        offsets[b + 1] = offsets[b] + fixture_below(random, 30);
    for (uint32_t i = 0; i < offsets[BAGS]; i++)
        rows[i] = base + (ids[i] = fixture_below(random, IDS)) * stride;
    FOR_EACH_ISA(isa)
    {
        struct pool_search search = { .where = { .base = base, .row_stride = stride },
                                      .ids = ids,
                                      .rows = found };
        struct result expected = make_result(BAGS, dim), got = make_result(BAGS, dim);
        struct pool_batch batch = { .dtype = dtype,
                                    .dim = dim,
                                    .mode = EMBTIER_POOL_SUM,
                                    .rows = rows,
                                    .offsets = offsets,
                                    .bag_count = BAGS,
                                    .bags = expected.bags };

        pool_rows_with(isa, &batch);
        batch.rows = found;
        batch.search = &search;
        batch.bags = got.bags;
        pool_rows_with(isa, &batch);
        assert_same(&batch, &got, &expected, kernels_isa_name(isa));
        assert_memory_equal(found, rows, offsets[BAGS] * sizeof(*rows));
        assert_int_equal(search.missed, 0);
        free_result(&got);
        free_result(&expected);
    }
    fixture_guarded_free(&memory);
}

static const uint32_t searched_dims[] = { 1, 3, 16, 17, 64, 100, 128, 1000 };

/* Checks tables of all dtypes, with batches shorter and longer than the look-ahead. */
static void check_searches(uint32_t id_count, uint32_t of, uint64_t *random)
{
    /* Kernels look ahead up to 64 rows, and 24 more words. */
    static const uint32_t only_bags[] = { 0, 1, 2, 3, 5, 23, 26, 63, 64, 65, 87, 88, 89, 500 };

    for (uint32_t n = 0; n < ARRAY_LEN(searched_dims) * 3; n++) {
        struct table table =
            make_table(EMBTIER_DTYPE_F32 + n % 3, searched_dims[n / 3], id_count, of, random);
        uint32_t lengths[14] = { 0, 1, 2, 0, 0, 40, 1, 1, 1, 150 };

        for (uint32_t i = 0; i < ARRAY_LEN(only_bags); i++)
            check_search(&table, &only_bags[i], 1, random);
        for (uint32_t b = 10; b < ARRAY_LEN(lengths) - 1; b++)
            lengths[b] = fixture_below(random, 30);
        check_search(&table, lengths, ARRAY_LEN(lengths), random);
        check_search(&table, lengths, 4, random);
        check_search(&table, lengths + 3, 2, random);
        check_search(&table, NULL, 0, random);
        free_table(&table);
    }
}

static void test_rows_that_are_searched_for_are_added_up_like_given_ones(void **state)
{
    uint64_t random = seed_of_test(__func__, SEED_USUAL);

    (void)state;
    check_searches(1, 0, &random);
    check_searches(60, 0, &random);
}

static void test_rows_at_their_own_places_are_found_without_words(void **state)
{
    uint64_t random = seed_of_test(__func__, SEED_USUAL);

    (void)state;
    for (uint32_t n = 0; n < ARRAY_LEN(searched_dims) * 3; n++)
        check_places(EMBTIER_DTYPE_F32 + n % 3, searched_dims[n / 3], &random);
}

static void test_rows_that_are_not_there_are_counted(void **state)
{
    uint64_t random = seed_of_test(__func__, SEED_USUAL);

    (void)state;
    check_searches(1, 1, &random); /* the row is absent */
    check_searches(60, 4, &random);
}

static void test_of_a_table_without_slots_all_rows_are_missed(void **state)
{
    uint64_t random = seed_of_test(__func__, SEED_USUAL);

    (void)state;
    for (uint32_t n = 0; n < ARRAY_LEN(searched_dims) * 3; n++) {
        struct table table =
            make_table(EMBTIER_DTYPE_F32 + n % 3, searched_dims[n / 3], 1, 0, &random);
        const uint32_t lengths[] = { 3, 0, 100 };

        table.where.slot_end = 0;
        check_search(&table, lengths, ARRAY_LEN(lengths), &random);
        free_table(&table);
    }
}

/* Only the first and the last page of the slots exist. */
static void test_slots_may_lie_beyond_four_gigabytes(void **state)
{
    enum { SHIFT = 6 };
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t bytes = (UINT64_C(1) << 32) + page;
    const uint32_t slot = UINT32_C(1) << (32 - SHIFT);
    const uint32_t offsets[2] = { 0, 1 };
    char *const base = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    (void)state;
    assert_true(base != MAP_FAILED);
    assert_int_equal(mprotect(base, page, PROT_READ | PROT_WRITE), 0);
    assert_int_equal(mprotect(base + bytes - page, page, PROT_READ | PROT_WRITE), 0);
    fixture_set(EMBTIER_DTYPE_F32, base, 0, 1);
    fixture_set(EMBTIER_DTYPE_F32, base + ((uint64_t)slot << SHIFT), 0, 2);
    FOR_EACH_ISA(isa)
    {
        struct row_spot spot = { .slot_and_1 = slot + 1 };
        const void *row = NULL;
        float value = 0;
        struct pool_search search = { .where = { .spots = &spot,
                                                 .base = (uint8_t *)base,
                                                 .slot_end = slot + 1,
                                                 .slot_shift = SHIFT,
                                                 .now = NOW },
                                      .ids = &(uint64_t){ 0 },
                                      .rows = &row };

        pool_rows_with(isa, &(struct pool_batch){ .dtype = EMBTIER_DTYPE_F32,
                                                  .dim = 1,
                                                  .mode = EMBTIER_POOL_SUM,
                                                  .rows = &row,
                                                  .offsets = offsets,
                                                  .bag_count = 1,
                                                  .search = &search,
                                                  .bags = &value });
        assert_int_equal(search.missed, 0);
        assert_true(value == 2);
    }
    assert_int_equal(munmap(base, bytes), 0);
}

static void test_the_best_instruction_set_is_there(void **state)
{
    (void)state;
    assert_true(kernels_isa_is_there(kernels_isa_best()));
    assert_true(kernels_isa_is_there(KERNELS_ISA_baseline));
    FOR_EACH_ISA(isa)
    assert_true(isa >= kernels_isa_best());
    assert_string_equal(kernels_isa_name(KERNELS_ISA_baseline), "baseline");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bags_are_their_rows_added_up_in_order),
        cmocka_unit_test(test_one_huge_bag),
        cmocka_unit_test(test_bags_without_rows_are_zeros),
        cmocka_unit_test(test_a_bag_that_goes_on_without_rows_stays),
        cmocka_unit_test(test_of_equals_the_first_wins_and_a_nan_only_if_it_is_first),
        cmocka_unit_test(test_sums_begin_with_zero),
        cmocka_unit_test(test_every_half_is_the_number_that_dtype_h_says),
        cmocka_unit_test(test_a_mean_is_the_sum_divided_by_the_count),
        cmocka_unit_test(test_rows_that_are_searched_for_are_added_up_like_given_ones),
        cmocka_unit_test(test_rows_at_their_own_places_are_found_without_words),
        cmocka_unit_test(test_rows_that_are_not_there_are_counted),
        cmocka_unit_test(test_of_a_table_without_slots_all_rows_are_missed),
        cmocka_unit_test(test_slots_may_lie_beyond_four_gigabytes),
        cmocka_unit_test(test_the_best_instruction_set_is_there),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
