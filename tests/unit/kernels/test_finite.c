/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that no gradient, however large, ruins a finite row unnoticed. A proof by the bound must
 * hold for every row, and a trial must find the rest. */
#include "tests/unit/kernels/optimizer_fixture.h"

#include "kernels/cpu/optimizer/finite.h"
#include "kernels/cpu/reduce/reduce.h"

#define DIM 19 /* at most, and odd, so that f16's state is not aligned */

/* Returns any finite number, often an extreme one. */
static float extreme(uint64_t *random)
{
    static const float extremes[] = { 0,     -0.0f, FLT_MAX, -FLT_MAX, 1e38f,  -3e38f,
                                      1e20f, 1e19f, 1e-45f,  1e-30f,   65504,  -65504,
                                      1,     -15,   0x1p64f, 0x1p102f, 0x1p63f };
    uint32_t bits;

    if (fixture_below(random, 2))
        return extremes[fixture_below(random, ARRAY_LEN(extremes))];
    do
        bits = (uint32_t)fixture_random(random);
    while (!isfinite(f32_from_bits(bits)));
    return f32_from_bits(bits);
}

static void fill_row(const struct table *table, uint64_t *random)
{
    const uint32_t states = table_spec_state_bytes(&table->spec) / sizeof(float);
    char *const state = (char *)table->rows[0] + table_spec_weight_bytes(&table->spec);

    for (uint32_t c = 0; c < table->spec.dim; c++) {
        float weight = extreme(random);

        fixture_set(table->spec.dtype, table->rows[0], c, weight);
        weight = fixture_get(table->spec.dtype, table->rows[0], c);
        if (!isfinite(weight))
            fixture_set(table->spec.dtype, table->rows[0], c, weight > 0 ? 65504 : -65504);
    }
    for (uint32_t s = 0; s < states; s++)
        fixture_set(EMBTIER_DTYPE_F32, state, s, extreme(random));
}

static bool is_finite(const struct table *table)
{
    const uint32_t states = table_spec_state_bytes(&table->spec) / sizeof(float);

    for (uint32_t c = 0; c < table->spec.dim; c++)
        if (!isfinite(weight_of(table, 0, c)))
            return false;
    for (uint32_t s = 0; s < states; s++)
        if (!isfinite(state_of(table, 0, s)))
            return false;
    return true;
}

static struct table_spec random_spec(uint32_t n, uint64_t *random)
{
    static const double decays[] = { 0, 0, 1e-4, 0.5, 3, 1e30 };
    static const double clips[] = { 0, 0, 0, 1e-30, 1, 1e30 };
    static const double eps[] = { 0, 1e-50, 1e-45, 1e-30, 1e-10, 1e-8, 1 };
    struct table_spec spec =
        spec_of(1 + n % OPTIMIZER_COUNT, 1 + n / OPTIMIZER_COUNT % 3,
                DIM - n / (3 * OPTIMIZER_COUNT) % 2, clips[fixture_below(random, ARRAY_LEN(clips))],
                decays[fixture_below(random, ARRAY_LEN(decays))]);

    if (spec.optimizer != EMBTIER_OPTIMIZER_SGD)
        spec.eps = eps[fixture_below(random, ARRAY_LEN(eps))];
    if (fixture_below(random, 4) == 0)
        spec.alpha = fixture_below(random, 2);
    spec.rounds_to_nearest = fixture_below(random, 2);
    return spec;
}

static double random_rate(uint64_t *random)
{
    static const double rates[] = { 0, 1e-3, 0.1, -0.1, 1, 3, 100, -1e10, 1e38, 1e-30, 1e300 };

    return rates[fixture_below(random, ARRAY_LEN(rates))];
}

/* Updates a random row once with each instruction set. Counts proven updates, and unproven ones
 * that fail. */
static void check_one(uint32_t n, uint64_t *random, uint32_t *proven, uint32_t *failed)
{
    const struct table_spec spec = random_spec(n, random);
    struct table table = make_table(&spec, 1, random);
    const uint32_t largest = fixture_below(random, 4);
    float gradient[DIM], again[DIM];
    char copy[4096];
    struct optimizer_push push;
    bool is_proven, stays;

    fill_row(&table, random);
    optimizer_prepare(&spec, random_rate(random), 1 + fixture_below(random, 100), &push);
    for (uint32_t c = 0; c < spec.dim; c++)
        gradient[c] = largest == 0   ? extreme(random)
                      : largest == 1 ? 0
                                     : fixture_float(random) * 0x1p-4f;
    is_proven = finite_is_proven(&push, (double)reduce_greatest(gradient, spec.dim));
    memcpy(again, gradient, sizeof(again));
    stays = finite_try(&push, table.ids[0], table.rows[0], again, copy);
    *proven += is_proven;
    *failed += !stays;
    assert_true(is_finite(&table)); /* a trial changes nothing */
    FOR_EACH_ISA(isa)
    {
        struct table got = copy_table(&table);

        memcpy(again, gradient, sizeof(again));
        optimizer_update_with(isa, &push, got.ids, got.rows, again, 1);
        if (is_proven && !is_finite(&got))
            fail_msg("%s %s, eps %g, clip %g, decay %g, rate %g: proven, and not so",
                     optimizer_word((int)spec.optimizer), dtype_word((int)spec.dtype), spec.eps,
                     spec.clip_norm, spec.weight_decay, (double)push.numbers.learning_rate);
        assert_int_equal(is_finite(&got), stays);
        free_table(&got);
    }
    {
        struct table got = copy_table(&table), expected = copy_table(&table);

        memcpy(again, gradient, sizeof(again));
        finite_update(&push, got.ids[0], got.rows[0], again, copy);
        assert_true(is_finite(&got));
        memcpy(again, gradient, sizeof(again));
        optimizer_update(&push, expected.ids, expected.rows, again, 1);
        for (uint32_t c = 0; c < spec.dim; c++)
            if (isfinite(weight_of(&expected, 0, c)))
                assert_true(f32_bits(weight_of(&got, 0, c)) ==
                            f32_bits(weight_of(&expected, 0, c)));
        free_table(&got);
        free_table(&expected);
    }
    free_table(&table);
}

static void test_what_is_proven_is_so_and_a_trial_finds_the_rest(void **state)
{
    uint64_t random = seed_of_test(__func__, SEED_USUAL);
    uint32_t proven = 0, failed = 0;

    (void)state;
    for (uint32_t n = 0; n < 60000; n++)
        check_one(n, &random, &proven, &failed);
    print_message("%u proven, %u fail\n", proven, failed);
    assert_true(proven > 10000 && failed > 1000);
}

/* Otherwise pushes would be twice as slow for nothing. */
static void test_usual_pushes_are_proven(void **state)
{
    (void)state;
    for (uint32_t n = 0; n < OPTIMIZER_COUNT * 3; n++) {
        const struct table_spec spec =
            spec_of(1 + n % OPTIMIZER_COUNT, 1 + n / OPTIMIZER_COUNT, 128, n % 2, n % 3 * 1e-4);
        struct optimizer_push push;
        const double sum = finite_sum_bound(1.0f, 1.0f, 100);

        optimizer_prepare(&spec, 0.05, 1, &push);
        /* Moments and velocities may be anything, and f16 has little room. */
        assert_int_equal(finite_is_proven(&push, sum), spec.optimizer < EMBTIER_OPTIMIZER_ADAM ||
                                                           spec.dtype != EMBTIER_DTYPE_F16);
    }
}

static void test_a_bound_on_a_sum_holds_and_goes_on_rising(void **state)
{
    float sum = 0;

    (void)state;
    for (uint32_t i = 0; i < 20000000; i++)
        sum += 1.0000001f;
    assert_true((double)sum <= finite_sum_bound(1.0000001f, 1, 20000000));
    assert_true(finite_sum_bound(3e38f, 1, 2) > (double)FLT_MAX);
    assert_true(finite_sum_bound(1, 3e38f, 2) > (double)FLT_MAX);
    assert_true(finite_sum_bound(0, 1, UINT32_MAX) == 0);
}

/* ---- State ---- */

static void update_by(const struct table *table, double rate, float gradient)
{
    float gradients[DIM];

    for (uint32_t c = 0; c < DIM; c++)
        gradients[c] = gradient;
    update_chosen(kernels_isa_best(), table, rate, 1, (uint32_t[]){ 0 }, 1, gradients);
}

static void test_a_row_learns_on_after_a_gradient_whose_square_overflows(void **state)
{
    uint64_t random = seed_of_test(__func__, SEED_USUAL);

    (void)state;
    for (uint32_t optimizer = 2; optimizer <= LAST_OPTIMIZER; optimizer++) {
        const struct table_spec spec = spec_of(optimizer, EMBTIER_DTYPE_F32, DIM, 0, 0);
        struct table table = make_table(&spec, 1, &random);
        float before;

        update_by(&table, 0.01, 1e20f);
        assert_true(is_finite(&table));
        before = weight_of(&table, 0, 0);
        update_by(&table, 0.01, 1e20f);
        assert_true(is_finite(&table));
        assert_true(before > weight_of(&table, 0, 0));
        free_table(&table);
    }
}

static void test_no_gradient_makes_no_step_though_eps_is_0(void **state)
{
    uint64_t random = seed_of_test(__func__, SEED_USUAL);

    (void)state;
    for (uint32_t n = 0; n < 2 * (OPTIMIZER_COUNT - 1); n++) {
        struct table_spec spec =
            spec_of(2 + n % (OPTIMIZER_COUNT - 1), EMBTIER_DTYPE_F32, DIM, 0, 0);
        struct table table;
        float before;

        spec.eps = n / (OPTIMIZER_COUNT - 1) ? 1e-50 : 0;
        table = make_table(&spec, 1, &random);
        before = weight_of(&table, 0, 3);
        update_by(&table, 0.01, 0);
        assert_true(f32_bits(weight_of(&table, 0, 3)) == f32_bits(before));
        free_table(&table);
    }
}

static void test_where_nan_and_infinity_are_allowed_they_are_computed_with(void **state)
{
    uint64_t random = seed_of_test(__func__, SEED_USUAL);
    struct table_spec spec = spec_of(EMBTIER_OPTIMIZER_ADAGRAD, EMBTIER_DTYPE_F32, DIM, 0, 0);
    struct table table;

    (void)state;
    spec.allows_nonfinite = true;
    table = make_table(&spec, 1, &random);
    update_by(&table, 0.01, 1e20f);
    assert_true(isinf(state_of(&table, 0, 0)));
    update_by(&table, 0.01, INFINITY);
    assert_true(isnan(weight_of(&table, 0, 0)));
    free_table(&table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_proven_is_so_and_a_trial_finds_the_rest),
        cmocka_unit_test(test_usual_pushes_are_proven),
        cmocka_unit_test(test_a_bound_on_a_sum_holds_and_goes_on_rising),
        cmocka_unit_test(test_a_row_learns_on_after_a_gradient_whose_square_overflows),
        cmocka_unit_test(test_no_gradient_makes_no_step_though_eps_is_0),
        cmocka_unit_test(test_where_nan_and_infinity_are_allowed_they_are_computed_with),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
