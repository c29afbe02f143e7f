/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that f16 and bf16 weights are rounded correctly after an update: to nearest as f32's would
 * be, or at random. The random bits must be reproducible and without bias. */
#include "tests/unit/kernels/optimizer_fixture.h"

static const enum embtier_dtype halves[] = { EMBTIER_DTYPE_F16, EMBTIER_DTYPE_BF16 };

static float value_of(enum embtier_dtype dtype, uint32_t half)
{
    return dtype == EMBTIER_DTYPE_F16 ? f16_to_f32((uint16_t)half) : bf16_to_f32((uint16_t)half);
}

static uint16_t round_up_or_down(enum embtier_dtype dtype, float value, uint32_t random)
{
    return dtype == EMBTIER_DTYPE_F16 ? optimizer_round_f16(value, random)
                                      : optimizer_round_bf16(value, random);
}

/* Returns the bits of the largest finite number. */
static uint32_t last_finite(enum embtier_dtype dtype)
{
    return dtype == EMBTIER_DTYPE_F16 ? 0x7bff : 0x7f7f;
}

/* Makes an f32 table with the same weights and state. */
static struct table f32_twin(const struct table *table)
{
    struct table_spec spec = table->spec;
    struct table twin;

    spec.dtype = EMBTIER_DTYPE_F32;
    twin = empty_table(&spec, table->count);
    memcpy(twin.ids, table->ids, table->count * sizeof(*twin.ids));
    for (uint32_t i = 0; i < table->count; i++) {
        for (uint32_t c = 0; c < spec.dim; c++)
            fixture_set(EMBTIER_DTYPE_F32, twin.rows[i], c, weight_of(table, i, c));
        memcpy((char *)twin.rows[i] + table_spec_weight_bytes(&spec),
               (char *)table->rows[i] + table_spec_weight_bytes(&table->spec),
               table_spec_state_bytes(&spec));
    }
    return twin;
}

/* Returns the bits that optimizer_values.h gives a column. */
static uint32_t random_of(const struct table *table, uint32_t row, uint32_t column, uint64_t step)
{
    struct optimizer_push push;
    struct philox_block block;

    optimizer_prepare(&table->spec, 1, step, &push);
    block = optimizer_random(push.key, table->ids[row], column / 8, step);
    return block.word[column % 8 / 2] >> (column % 2 ? 16 : 0) & 0xffff;
}

static uint16_t expected_half(const struct table *table, uint32_t row, uint32_t column,
                              uint64_t step, float value)
{
    if (!table->spec.rounds_to_nearest)
        return round_up_or_down(table->spec.dtype, value, random_of(table, row, column, step));
    return table->spec.dtype == EMBTIER_DTYPE_F16 ? f32_to_f16(value) : f32_to_bf16(value);
}

/* Makes one step, and the same step on the f32 twin, whose results are then rounded. */
static void check_step(const struct table *table, uint64_t step, uint64_t *random)
{
    struct table twin = f32_twin(table);
    const uint32_t dim = table->spec.dim, chosen[] = { 2, 0, 1 };
    const uint32_t state_count = table_spec_state_bytes(&table->spec) / 4;
    float *const gradients = fixture_alloc(3 * (size_t)dim, sizeof(float));
    float *const copy = fixture_alloc(3 * (size_t)dim, sizeof(float));

    for (uint32_t i = 0; i < 3 * dim; i++)
        copy[i] = gradients[i] = fixture_float(random) * 0.01f;
    update_chosen(kernels_isa_best(), table, 0.1, step, chosen, 3, gradients);
    update_chosen(kernels_isa_best(), &twin, 0.1, step, chosen, 3, copy);
    for (uint32_t i = 0; i < table->count; i++) {
        for (uint32_t c = 0; c < dim; c++) {
            const float value = weight_of(&twin, i, c);
            const uint16_t expected = expected_half(table, i, c, step, value);

            if (half_of(table, i, c) != expected)
                fail_msg("%s, %s, dim %u, nearest %d, row %u, column %u: %#x, expected %#x of %a",
                         optimizer_word((int)table->spec.optimizer),
                         dtype_word((int)table->spec.dtype), dim, table->spec.rounds_to_nearest, i,
                         c, half_of(table, i, c), expected, (double)value);
        }
        for (uint32_t s = 0; s < state_count; s++)
            assert_int_equal(f32_bits(state_of(table, i, s)), f32_bits(state_of(&twin, i, s)));
    }
    free_table(&twin);
    free(gradients);
    free(copy);
}

static void test_each_step_is_f32s_rounded(void **state)
{
    static const uint32_t dims[] = { 1, 3, 8, 63, 64, 65, 200, 8192 };
    uint64_t random = seed_of_test(__func__, SEED_USUAL);

    (void)state;
    for (uint32_t n = 0; n < ARRAY_LEN(dims) * OPTIMIZER_COUNT * 4; n++) {
        const uint32_t rest = n / OPTIMIZER_COUNT;
        struct table_spec spec =
            spec_of(1 + n % OPTIMIZER_COUNT, halves[rest % 2], dims[rest / 4], 0, 0.001);
        struct table table = make_table(&spec, 3, &random);

        table.spec.rounds_to_nearest = rest / 2 % 2;
        for (uint64_t step = 1; step < 5; step++)
            check_step(&table, step + (step == 4 ? UINT64_C(1) << 45 : 0), &random);
        free_table(&table);
    }
}

/* ---- One number ---- */

/* Takes the number @part / 65536 of the way from one half to the next. Exactly @part of the 65,536
 * random numbers must round it up. */
static void count_round_ups(enum embtier_dtype dtype, uint32_t half, uint32_t part)
{
    const double low = value_of(dtype, half), high = value_of(dtype, half + 1);
    const float value = (float)(low + (high - low) * part * 0x1p-16);
    uint32_t ups = 0;

    for (uint32_t random = 0; random < 65536; random++) {
        const uint16_t got = round_up_or_down(dtype, value, random);

        assert_true(got == half || got == half + 1);
        assert_int_equal(round_up_or_down(dtype, -value, random), got | 0x8000);
        ups += got == half + 1;
    }
    if (ups != part)
        fail_msg("%s: %a, %u/65536 above %#x: %u are rounded up", dtype_word((int)dtype),
                 (double)value, part, half, ups);
}

static void test_the_part_cut_off_is_the_probability_of_rounding_up(void **state)
{
    /* Both dtypes have denormals, the step from them to normal numbers, and powers of two here. */
    static const uint32_t bits[] = { 0,     1,     2,      0xff,   0x100,  0x3fe,  0x3ff,  0x400,
                                     0x401, 0x7ff, 0x1234, 0x3bff, 0x3c00, 0x5555, 0x7bfd, 0x7bfe };
    /* f32 has 13 more bits than f16, and 16 more than bf16. */
    static const uint32_t parts[] = { 0, 8, 16, 0x3ff8, 0x8000, 0x8008, 0xc350, 0xfff8 };
    static const uint32_t bf16_parts[] = { 1, 2, 3, 0x1235, 0x7fff, 0x8001, 0xfffe, 0xffff };

    (void)state;
    for (uint32_t n = 0; n < ARRAY_LEN(bits) * ARRAY_LEN(parts); n++) {
        const uint32_t half = bits[n / ARRAY_LEN(parts)], p = n % ARRAY_LEN(parts);

        count_round_ups(EMBTIER_DTYPE_F16, half, parts[p]);
        count_round_ups(EMBTIER_DTYPE_BF16, half, parts[p]);
        count_round_ups(EMBTIER_DTYPE_BF16, half, bf16_parts[p]);
    }
    for (uint32_t p = 0; p < ARRAY_LEN(bf16_parts); p++)
        count_round_ups(EMBTIER_DTYPE_BF16, 0x7f7e, bf16_parts[p]);
}

static void test_numbers_of_the_dtype_stay_whatever_the_random_bits(void **state)
{
    static const uint32_t randoms[] = { 0, 1, 0x1fff, 0x2000, 0x7fff, 0x8000, 0xfffe, 0xffff };

    (void)state;
    for (uint32_t n = 0; n < 2 * 65536; n++) {
        const enum embtier_dtype dtype = halves[n / 65536];
        const uint32_t half = n % 65536;

        if (isnan(value_of(dtype, half)))
            continue;
        for (uint32_t r = 0; r < ARRAY_LEN(randoms); r++)
            if (round_up_or_down(dtype, value_of(dtype, half), randoms[r]) != half)
                fail_msg("%s: %#x becomes %#x with %#x", dtype_word((int)dtype), half,
                         round_up_or_down(dtype, value_of(dtype, half), randoms[r]), randoms[r]);
    }
}

/* A number that rounding to nearest keeps finite must stay finite; bf16 keeps all of f32's. */
static void test_no_finite_number_becomes_infinite(void **state)
{
    uint64_t random = seed_of_test(__func__, SEED_USUAL);

    (void)state;
    for (uint32_t n = 0; n < 1000000; n++) {
        const enum embtier_dtype dtype = halves[n % 2];
        const uint32_t sign = n & 2 ? 0x80000000 : 0;
        const uint32_t highest =
            dtype == EMBTIER_DTYPE_F16 ? f32_bits(65520.0f) - 1 : f32_bits(FLT_MAX);
        const float value =
            f32_from_bits(sign | (highest - fixture_below(&random, 1u << (n % 31))));
        const uint16_t got = round_up_or_down(dtype, value, n % 3 ? 0xffff : n % 65536);

        if (fabsf(value) < FLT_MIN * 2)
            continue;
        if ((got & 0x7fffu) > last_finite(dtype) || got >> 15 != sign >> 31)
            fail_msg("%s: %a becomes %#x", dtype_word((int)dtype), (double)value, got);
    }
    assert_int_equal(optimizer_round_bf16(INFINITY, 0xffff), 0x7f80);
    assert_int_equal(optimizer_round_bf16(-INFINITY, 0), 0xff80);
    assert_int_equal(optimizer_round_f16(INFINITY, 0xffff), 0x7c00);
    assert_int_equal(optimizer_round_f16(-INFINITY, 0), 0xfc00);
    assert_int_equal(optimizer_round_f16(65520.0f, 0), 0x7c00);
    assert_int_equal(optimizer_round_f16(NAN, 5) & 0x7fff, 0x7e00);
    assert_int_equal(optimizer_round_bf16(f32_from_bits(0x7f800001), 5), 0x7fc0);
}

/* ---- Many rows ---- */

/* Makes a step of SGD with learning rate 1 on all rows; all gradients are @gradient. */
static void step_of_sgd(const struct table *table, uint64_t step, float gradient)
{
    const size_t count = (size_t)table->count * table->spec.dim;
    float *const gradients = fixture_alloc(count, sizeof(float));
    uint32_t chosen[64];

    for (size_t i = 0; i < count; i++)
        gradients[i] = gradient;
    for (uint32_t i = 0; i < table->count; i++)
        chosen[i] = i;
    update_chosen(kernels_isa_best(), table, 1, step, chosen, table->count, gradients);
    free(gradients);
}

static struct table constant_table(enum embtier_dtype dtype, bool nearest, float weight,
                                   uint64_t *random)
{
    struct table_spec spec = spec_of(EMBTIER_OPTIMIZER_SGD, dtype, 2048, 0, 0);
    struct table table = make_table(&spec, 32, random);

    table.spec.rounds_to_nearest = nearest;
    for (uint32_t i = 0; i < table.count * spec.dim; i++)
        fixture_set(dtype, table.rows[i / spec.dim], i % spec.dim, weight);
    return table;
}

static double mean_weight(const struct table *table)
{
    double sum = 0;

    for (uint32_t i = 0; i < table->count * table->spec.dim; i++)
        sum += weight_of(table, i / table->spec.dim, i % table->spec.dim);
    return sum / table->count / table->spec.dim;
}

/* The gradient is a 20th of the last digit. Rounding to nearest then never changes anything. */
static void test_many_small_steps_add_up_without_bias(void **state)
{
    uint64_t random = seed_of_test(__func__, SEED_USUAL);

    (void)state;
    for (uint32_t d = 0; d < 2; d++) {
        const double unit = halves[d] == EMBTIER_DTYPE_F16 ? 0x1p-10 : 0x1p-7; /* above 1 */
        struct table nearest = constant_table(halves[d], true, 1.5f, &random);
        struct table table = constant_table(halves[d], false, 1.5f, &random);
        const double numbers = (double)table.count * table.spec.dim;
        double off;

        for (uint64_t step = 1; step <= 100; step++) {
            step_of_sgd(&nearest, step, (float)(unit / 20));
            step_of_sgd(&table, step, (float)(unit / 20));
        }
        assert_true(mean_weight(&nearest) == 1.5);
        /* Each step of each number has a variance of p (1 - p) units. */
        off = (mean_weight(&table) - (1.5 - 100 * unit / 20)) /
              (unit * sqrt(100 * 0.05 * 0.95 / numbers));
        print_message("%s: %+.2f standard deviations off\n", dtype_word((int)halves[d]), off);
        assert_true(fabs(off) < 4.5);
        free_table(&nearest);
        free_table(&table);
    }
}

static uint32_t differing(const struct table *a, const struct table *b)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < a->count * a->spec.dim; i++)
        count += half_of(a, i / a->spec.dim, i % a->spec.dim) !=
                 half_of(b, i / a->spec.dim, i % a->spec.dim);
    return count;
}

/* Each number is half way between two halves, so half of all differ if the random bits do. */
static void test_random_bits_are_of_seed_row_column_and_step_alone(void **state)
{
    static const uint64_t steps[] = { 7, 8, 7 + (UINT64_C(1) << 32), 7 + (UINT64_C(1) << 52) };
    static const uint64_t seeds[] = { 1, 2, UINT64_C(1) << 32, 0 };
    uint64_t random = seed_of_test(__func__, SEED_USUAL);

    (void)state;
    for (uint32_t d = 0; d < 2; d++) {
        const float gradient = halves[d] == EMBTIER_DTYPE_F16 ? 0x1p-11f : 0x1p-8f;
        struct table start = constant_table(halves[d], false, 1.5f, &random);
        struct table first = copy_table(&start);

        step_of_sgd(&first, steps[0], gradient);
        for (uint32_t n = 0; n < 9; n++) {
            struct table table = copy_table(&start);
            double share;

            if (n == 8)
                table.ids[0] ^= UINT64_C(1) << 63;
            table.spec.seed ^= n >= 4 && n < 8 ? seeds[n - 4] : 0;
            step_of_sgd(&table, n < 4 ? steps[n] : steps[0], gradient);
            share = differing(&first, &table) / ((double)start.count * start.spec.dim);
            if (n == 0 || n == 7) /* no difference */
                assert_true(share == 0);
            else if (n == 8) /* one row of 32 differs */
                assert_true(fabs(share * 32 - 0.5) < 0.05);
            else
                assert_true(fabs(share - 0.5) < 0.01);
            free_table(&table);
        }
        free_table(&first);
        free_table(&start);
    }
}

/* Neighbouring columns, rows and steps are independent. */
static void test_random_bits_of_columns_and_rows_are_independent(void **state)
{
    uint64_t random = seed_of_test(__func__, SEED_USUAL);
    struct table table = constant_table(EMBTIER_DTYPE_BF16, false, 1.5f, &random);
    uint32_t columns = 0, far_columns = 0, rows = 0;

    (void)state;
    for (uint32_t i = 0; i < table.count; i++)
        table.ids[i] = i;
    step_of_sgd(&table, 1, 0x1p-8f);
    for (uint32_t i = 1; i < table.count; i++) {
        for (uint32_t c = 8; c < table.spec.dim; c++) {
            columns += half_of(&table, i, c) == half_of(&table, i, c - 1);
            far_columns += half_of(&table, i, c) == half_of(&table, i, c - 8);
            rows += half_of(&table, i, c) == half_of(&table, i - 1, c);
        }
    }
    {
        const double n = (double)(table.count - 1) * (table.spec.dim - 8);

        assert_true(fabs(columns / n - 0.5) < 5 * 0.5 / sqrt(n));
        assert_true(fabs(far_columns / n - 0.5) < 5 * 0.5 / sqrt(n));
        assert_true(fabs(rows / n - 0.5) < 5 * 0.5 / sqrt(n));
    }
    free_table(&table);
}

static void test_the_key_is_not_that_of_initial_values(void **state)
{
    struct table_spec spec = spec_of(EMBTIER_OPTIMIZER_SGD, EMBTIER_DTYPE_BF16, 8, 0, 0);
    struct optimizer_push push;

    (void)state;
    optimizer_prepare(&spec, 1, 1, &push);
    assert_true(push.stochastic);
    assert_true(push.key[0] != (uint32_t)spec.seed && push.key[1] != (uint32_t)(spec.seed >> 32));
    spec.rounds_to_nearest = true;
    optimizer_prepare(&spec, 1, 1, &push);
    assert_false(push.stochastic);
    spec.rounds_to_nearest = false;
    spec.dtype = EMBTIER_DTYPE_F32;
    optimizer_prepare(&spec, 1, 1, &push);
    assert_false(push.stochastic);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_step_is_f32s_rounded),
        cmocka_unit_test(test_the_part_cut_off_is_the_probability_of_rounding_up),
        cmocka_unit_test(test_numbers_of_the_dtype_stay_whatever_the_random_bits),
        cmocka_unit_test(test_no_finite_number_becomes_infinite),
        cmocka_unit_test(test_many_small_steps_add_up_without_bias),
        cmocka_unit_test(test_random_bits_are_of_seed_row_column_and_step_alone),
        cmocka_unit_test(test_random_bits_of_columns_and_rows_are_independent),
        cmocka_unit_test(test_the_key_is_not_that_of_initial_values),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
