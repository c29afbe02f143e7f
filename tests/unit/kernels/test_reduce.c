/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that casting and reducing give the same bits as expanding and coalescing. The latter writes
 * down one gradient per pair, and adds up a row's gradients in the batch's order. */
#include "tests/unit/kernels/kernels_fixture.h"

#include "kernels/cpu/cast/cast.h"
#include "kernels/cpu/reduce/reduce.h"

#define GUARD UINT32_C(0xdeadbeef)

/* A batch for one table after its forward pass. */
struct batch {
    uint32_t dim;
    uint32_t bag_count;
    uint32_t pair_count;
    uint32_t *offsets; /* bag_count + 1 */
    uint64_t *ids;     /* by position */
    uint32_t *bag_of;  /* by position */
    float *scales;     /* by position */
    float *bags;       /* gradients */
    uint32_t *winners; /* by bag and column */
};

enum shape { RANDOM, HUGE_BAG, ALL_EQUAL, ALL_DISTINCT, SHAPES_COUNT };

static uint64_t make_id(enum shape shape, uint32_t position, uint64_t *random)
{
    switch (shape) {
    case ALL_EQUAL:
        return UINT64_MAX;
    case ALL_DISTINCT:
        return (uint64_t)position * UINT64_C(0x9e3779b97f4a7c15);
    case RANDOM:
    case HUGE_BAG:
    case SHAPES_COUNT:
        break;
    }
    /* Few rows that are in many bags, and many rows that are in few. */
    return fixture_below(random, 4) ? fixture_below(random, 300) : fixture_random(random);
}

static struct batch make_batch(enum shape shape, uint32_t dim, uint32_t bag_count, uint64_t *random)
{
    struct batch b = { .dim = dim,
                       .bag_count = bag_count,
                       .offsets = fixture_alloc(bag_count + 1, sizeof(uint32_t)),
                       .bags = fixture_alloc((size_t)bag_count * dim, sizeof(float)),
                       .winners = fixture_alloc((size_t)bag_count * dim, sizeof(uint32_t)) };

    for (uint32_t bag = 0; bag < bag_count; bag++)
        b.offsets[bag + 1] =
            b.offsets[bag] +
            (shape == HUGE_BAG ? (bag == 1 ? 2000 : 0) : MAX(fixture_below(random, 41), 10u) - 10);
    b.pair_count = b.offsets[bag_count];
    b.ids = fixture_alloc(b.pair_count, sizeof(*b.ids));
    b.bag_of = fixture_alloc(b.pair_count, sizeof(*b.bag_of));
    b.scales = fixture_alloc(b.pair_count, sizeof(*b.scales));
    for (uint32_t bag = 0; bag < bag_count; bag++) {
        const uint32_t length = b.offsets[bag + 1] - b.offsets[bag];

        for (uint32_t i = b.offsets[bag]; i < b.offsets[bag + 1]; i++) {
            b.ids[i] = make_id(shape, i, random);
            b.bag_of[i] = bag;
            b.scales[i] = fixture_float(random) / (float)length;
        }
        for (uint32_t c = 0; c < dim; c++) {
            b.bags[(size_t)bag * dim + c] = fixture_float(random);
            b.winners[(size_t)bag * dim + c] = length ? fixture_below(random, length) : UINT32_MAX;
        }
    }
    return b;
}

static void free_batch(struct batch *b)
{
    free(b->offsets);
    free(b->ids);
    free(b->bag_of);
    free(b->scales);
    free(b->bags);
    free(b->winners);
}

/* ---- Expand, then coalesce ---- */

static int compare_positions(const void *a, const void *b, void *context)
{
    const struct batch *const batch = context;
    const uint32_t x = *(const uint32_t *)a;
    const uint32_t y = *(const uint32_t *)b;

    if (batch->ids[x] != batch->ids[y])
        return batch->ids[x] < batch->ids[y] ? -1 : 1;
    return (x > y) - (x < y);
}

/* Returns the number of distinct rows, with their gradients in the order of their ids. */
static uint32_t coalesce(const struct batch *b, bool scaled, bool won, uint64_t *ret_ids,
                         float *ret_rows)
{
    uint32_t *const order = fixture_alloc(b->pair_count, sizeof(*order));
    float *const expanded = fixture_alloc((size_t)b->pair_count * b->dim, sizeof(*expanded));
    uint32_t count = 0;

    for (uint32_t i = 0; i < b->pair_count; i++) {
        const size_t place = (size_t)b->bag_of[i] * b->dim;

        order[i] = i;
        for (uint32_t c = 0; c < b->dim; c++)
            if (!won || b->winners[place + c] == i - b->offsets[b->bag_of[i]])
                expanded[(size_t)i * b->dim + c] =
                    scaled ? b->scales[i] * b->bags[place + c] : b->bags[place + c];
    }
    qsort_r(order, b->pair_count, sizeof(*order), compare_positions, (void *)b);
    for (uint32_t n = 0; n < b->pair_count; n++) {
        const uint32_t i = order[n];

        if (n == 0 || b->ids[i] != ret_ids[count - 1]) {
            ret_ids[count] = b->ids[i];
            for (uint32_t c = 0; c < b->dim; c++)
                ret_rows[(size_t)count * b->dim + c] = 0.0f;
            count++;
        }
        for (uint32_t c = 0; c < b->dim; c++)
            ret_rows[(size_t)(count - 1) * b->dim + c] += expanded[(size_t)i * b->dim + c];
    }
    free(order);
    free(expanded);
    return count;
}

/* ---- Cast, then reduce ---- */

struct casted {
    struct cast_pair *pairs;
    struct cast_pair *scratch;
    struct cast_pair *sorted; /* one of these two */
    uint32_t *starts;
    uint32_t run_count;
};

static struct casted cast(const struct batch *b)
{
    struct casted casted = { .pairs = fixture_alloc(b->pair_count, sizeof(struct cast_pair)),
                             .scratch = fixture_alloc(b->pair_count, sizeof(struct cast_pair)),
                             .starts = fixture_alloc(b->pair_count + 1, sizeof(uint32_t)) };

    for (uint32_t i = 0; i < b->pair_count; i++)
        casted.pairs[i] =
            (struct cast_pair){ .row = b->ids[i], .bag = b->bag_of[i], .position = i };
    casted.sorted = cast_sort(casted.pairs, casted.scratch, b->pair_count);
    casted.run_count = cast_runs(casted.sorted, b->pair_count, casted.starts);
    return casted;
}

static void free_casted(struct casted *casted)
{
    free(casted->pairs);
    free(casted->scratch);
    free(casted->starts);
}

static void check_reduced(const struct batch *b, const struct casted *casted, bool scaled, bool won,
                          const uint64_t *expected_ids, const float *expected, const char *what)
{
    const size_t count = (size_t)casted->run_count * b->dim;
    /* Few bags are not prefetched; any prefetch must lie inside the bags. */
    const struct reduce_batch batch = { .dim = b->dim,
                                        .bags = b->bags,
                                        .bag_count = scaled ? b->bag_count : UINT32_MAX,
                                        .pairs = casted->sorted,
                                        .scales = scaled ? b->scales : NULL,
                                        .winners = won ? b->winners : NULL,
                                        .offsets = won ? b->offsets : NULL,
                                        .starts = casted->starts,
                                        .run_count = casted->run_count };

    FOR_EACH_ISA(isa)
    {
        struct reduce_batch reduced = batch;

        reduced.rows = fixture_alloc(count + 1, sizeof(float));
        for (size_t i = 0; i <= count; i++)
            reduced.rows[i] = f32_from_bits(GUARD);
        reduce_runs_with(isa, &reduced);
        for (size_t i = 0; i < count; i++)
            if (f32_bits(reduced.rows[i]) != f32_bits(expected[i]) ||
                casted->sorted[casted->starts[i / b->dim]].row != expected_ids[i / b->dim])
                fail_msg("%s, %s: dim %u, scales %d, winners %d, run %zu column %zu: %a, "
                         "expected %a",
                         what, kernels_isa_name(isa), b->dim, scaled, won, i / b->dim, i % b->dim,
                         (double)reduced.rows[i], (double)expected[i]);
        assert_int_equal(f32_bits(reduced.rows[count]), GUARD);
        free(reduced.rows);
    }
}

/* Reduces every third run, with a list of the bags' places. */
static void check_some_reduced(const struct batch *b, const struct casted *casted,
                               const float *expected)
{
    const float **const places = fixture_alloc(b->bag_count + 1, sizeof(*places));
    uint32_t *const runs = fixture_alloc(casted->run_count + 1, sizeof(*runs));
    struct reduce_batch some = { .dim = b->dim,
                                 .bag_places = places,
                                 .bag_count = UINT32_MAX,
                                 .pairs = casted->sorted,
                                 .scales = b->scales,
                                 .winners = b->winners,
                                 .offsets = b->offsets,
                                 .starts = casted->starts,
                                 .runs = runs };

    for (uint32_t i = 0; i < b->bag_count; i++)
        places[i] = b->bags + (size_t)i * b->dim;
    for (uint32_t r = casted->run_count % 3; r < casted->run_count; r += 3)
        runs[some.run_count++] = r;
    some.rows = fixture_alloc((size_t)some.run_count * b->dim + 1, sizeof(float));
    FOR_EACH_ISA(isa)
    {
        reduce_runs_with(isa, &some);
        for (uint32_t r = 0; r < some.run_count; r++)
            for (uint32_t c = 0; c < b->dim; c++)
                assert_int_equal(f32_bits(some.rows[(size_t)r * b->dim + c]),
                                 f32_bits(expected[(size_t)runs[r] * b->dim + c]));
    }
    free(some.rows);
    free(places);
    free(runs);
}

static void check_batch(const struct batch *b, const char *what)
{
    float *const expected = fixture_alloc((size_t)b->pair_count * b->dim, sizeof(float));
    uint64_t *const ids = fixture_alloc(b->pair_count, sizeof(*ids));
    struct casted casted = cast(b);

    for (uint32_t n = 0; n < 4; n++) {
        const bool scaled = n % 2, won = n / 2;

        assert_int_equal(coalesce(b, scaled, won, ids, expected), casted.run_count);
        check_reduced(b, &casted, scaled, won, ids, expected, what);
    }
    check_some_reduced(b, &casted, expected); /* of the last round, which has scales and winners */
    free_casted(&casted);
    free(expected);
    free(ids);
}

static void test_casting_and_reducing_is_expanding_and_coalescing(void **state)
{
    static const char *const names[] = { "random", "one huge bag", "one row", "distinct rows" };
    static const uint32_t dims[] = { 1, 3, 16, 63, 64, 65, 200 };
    uint64_t random = seed_of_test(__func__, SEED_USUAL);

    (void)state;
    for (uint32_t n = 0; n < ARRAY_LEN(dims) * 5; n++) {
        for (enum shape shape = 0; shape < SHAPES_COUNT; shape++) {
            struct batch batch =
                make_batch(shape, dims[n / 5], 2 + fixture_below(&random, 150), &random);

            check_batch(&batch, names[shape]);
            free_batch(&batch);
        }
    }
}

static void test_a_batch_without_rows_has_no_gradients(void **state)
{
    const uint32_t starts[1] = { 0 };
    float row = 7;

    (void)state;
    FOR_EACH_ISA(isa)
    reduce_runs_with(isa, &(struct reduce_batch){ .dim = 1, .starts = starts, .rows = &row });
    assert_true(row == 7);
}

static void check_finite(enum kernels_isa isa, uint64_t count, uint64_t *random)
{
    static const uint32_t bad[] = { 0x7f800000, 0xff800000, 0x7fc00000, 0x7f800001, 0xffffffff };
    struct fixture_guarded memory = fixture_guarded(count * sizeof(float));
    float *const numbers = (float *)memory.end - count;

    for (uint64_t i = 0; i < count; i++)
        numbers[i] = i % 3 ? f32_from_bits(0xff7fffff) : fixture_float(random);
    assert_true(reduce_all_finite_with(isa, numbers, count));
    for (uint64_t i = 0; i < count; i += 1 + count / 150) {
        const float good = numbers[i];

        numbers[i] = f32_from_bits(bad[i % ARRAY_LEN(bad)]);
        assert_false(reduce_all_finite_with(isa, numbers, count));
        numbers[i] = good;
    }
    numbers[count - 1] = INFINITY;
    assert_false(reduce_all_finite_with(isa, numbers, count));
    fixture_guarded_free(&memory);
}

static void test_one_number_that_is_not_finite_is_found_anywhere(void **state)
{
    static const uint64_t counts[] = { 1, 2, 15, 16, 17, 100, 4095, 4096, 4097, 10000 };
    uint64_t random = seed_of_test(__func__, SEED_USUAL);

    (void)state;
    assert_true(reduce_all_finite(NULL, 0));
    assert_false(reduce_all_finite((float[]){ NAN }, 1));
    FOR_EACH_ISA(isa)
    for (uint32_t n = 0; n < ARRAY_LEN(counts); n++)
        check_finite(isa, counts[n], &random);
}

/* ---- Gradients of weights ---- */

/* Computes the product as reduce.h defines it. */
static float scalar_product(enum embtier_dtype dtype, const void *row, const float *bag,
                            uint32_t dim)
{
    float parts[16] = { 0 };

    for (uint32_t c = 0; c < dim; c++)
        parts[c % 16] = parts[c % 16] + fixture_get(dtype, row, c) * bag[c];
    for (uint32_t i = 0; i < 8; i++)
        parts[i] += parts[8 + i];
    for (uint32_t i = 0; i < 4; i++)
        parts[i] += parts[4 + i];
    parts[0] += parts[2];
    parts[1] += parts[3];
    return parts[0] + parts[1];
}

static void check_weight_gradients(enum embtier_dtype dtype, uint32_t dim, uint64_t *random)
{
    enum { ROWS = 40, BAGS = 5 };
    const size_t row_bytes = (size_t)dim * dtype_bytes(dtype), stride = row_bytes + 2;
    struct fixture_guarded row_memory = fixture_guarded(ROWS * stride);
    struct fixture_guarded bag_memory = fixture_guarded((size_t)BAGS * dim * sizeof(float));
    float *const bags = (float *)bag_memory.end - (size_t)BAGS * dim;
    const void *rows[ROWS];
    const float *row_bags[ROWS];
    float divisors[ROWS], got[ROWS];

    for (uint32_t i = 0; i < BAGS * dim; i++)
        bags[i] = fixture_float(random);
    for (uint32_t i = 0; i < ROWS; i++) {
        char *const row = row_memory.end - row_bytes - i * stride;

        rows[i] = row;
        row_bags[i] = bags + (size_t)fixture_below(random, BAGS) * dim;
        divisors[i] = (float)(1 + fixture_below(random, 100));
        for (uint32_t c = 0; c < dim; c++)
            fixture_set(dtype, row, c, fixture_float(random));
    }
    for (uint32_t divided = 0; divided < 2; divided++) {
        FOR_EACH_ISA(isa)
        {
            reduce_weight_gradients_with(isa, dtype, dim, rows, row_bags, divided ? divisors : NULL,
                                         ROWS, got);
            for (uint32_t i = 0; i < ROWS; i++) {
                const float product = scalar_product(dtype, rows[i], row_bags[i], dim);
                const float expected = divided ? product / divisors[i] : product;

                if (f32_bits(got[i]) != f32_bits(expected))
                    fail_msg("%s: %s, dim %u, row %u: %a, expected %a", kernels_isa_name(isa),
                             dtype_word((int)dtype), dim, i, (double)got[i], (double)expected);
            }
        }
    }
    fixture_guarded_free(&row_memory);
    fixture_guarded_free(&bag_memory);
}

static void test_a_weights_gradient_is_the_scalar_product_in_its_order(void **state)
{
    static const uint32_t dims[] = { 1, 3, 4, 15, 16, 17, 23, 40, 63, 64, 65, 200, 8192 };
    uint64_t random = seed_of_test(__func__, SEED_USUAL);

    (void)state;
    for (uint32_t n = 0; n < ARRAY_LEN(dims) * 3; n++)
        check_weight_gradients(EMBTIER_DTYPE_F32 + n % 3, dims[n / 3], &random);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_casting_and_reducing_is_expanding_and_coalescing),
        cmocka_unit_test(test_a_batch_without_rows_has_no_gradients),
        cmocka_unit_test(test_one_number_that_is_not_finite_is_found_anywhere),
        cmocka_unit_test(test_a_weights_gradient_is_the_scalar_product_in_its_order),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
