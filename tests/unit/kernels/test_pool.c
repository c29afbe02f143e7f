/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that a pooled bag has the same bits with every instruction set: those of its rows added up
 * one after another. Only the rows' and bags' memory may be read or written. */
#include "tests/unit/kernels/pool_fixture.h"

#define ROWS_MAX 4096

static const uint32_t dims[] = { 1, 2, 3, 7, 8, 15, 16, 17, 31, 63, 64, 65, 100, 128, 200, 8192 };

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

static void pool_given(enum kernels_isa isa, const struct pool_batch *batch, uint32_t first,
                       void *context)
{
    (void)first;
    (void)context;
    pool_rows_with(isa, batch);
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
                pool_in_pieces(isa, &batch, pieces[p], pool_given, NULL);
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
        cmocka_unit_test(test_the_best_instruction_set_is_there),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
