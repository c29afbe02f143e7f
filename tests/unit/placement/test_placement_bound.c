/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that no weights and prices, however they were made, prove more than is true, and that those
 * of the search prove much. */
#include "tests/unit/placement/placement_fixture.h"

#include "placement/solve/bound.h"
#include "placement/solve/search.h"
#include "tests/forms.h"

#define CASES BY_BUILD(300, 80, 300)
#define SEED  7

static void draw_dual(struct random *random, const struct instance *x, struct bound *b)
{
    b->limit_s = 400 * random_share(random);
    b->limit_s *= random_share(random);
    for (uint32_t g = 0; g < x->gpu_count; g++)
        b->weights[g] = random_share(random);
    for (uint32_t r = 0; r < x->room_count; r++)
        b->prices_s_byte[r] = random_below(random, 2) ? random_share(random) : 0;
}

static void test_no_certificate_proves_too_much(void **state)
{
    double weights[CASE_GPUS], prices[3 * CASE_GPUS];
    struct bound bound = { .weights = weights, .prices_s_byte = prices };
    struct random random = { SEED };

    (void)state;
    for (uint32_t i = 0; i < CASES; i++) {
        _cleanup_(instance_freep) struct instance *x = NULL;
        struct placement_case c;
        double best_s;

        draw_case(&random, &c);
        best_s = brute_force(&c.model);
        if (instance_new(&c.model, &x, NULL) != EMBTIER_OK)
            continue;
        for (uint32_t j = 0; j < 50; j++) {
            draw_dual(&random, x, &bound);
            assert_true(bound_certify(x, &bound) <= best_s);
        }
    }
}

/* The best time known is a little longer than the best, by less than rounding leaves visible. */
static void test_no_search_proves_too_much(void **state)
{
    struct random random = { SEED };
    uint32_t proven = 0;

    (void)state;
    for (uint32_t i = 0; i < CASES; i++) {
        _cleanup_(instance_freep) struct instance *x = NULL;
        _cleanup_(placing_freep) struct placing *placing = NULL;
        _cleanup_(bound_freep) struct bound *bound = NULL;
        struct search_result result = { 0 };
        struct placement_case c;
        double best_s;

        draw_case(&random, &c);
        best_s = brute_force(&c.model);
        if (isinf(best_s) || best_s == 0)
            continue;
        assert_int_equal(instance_new(&c.model, &x, NULL), EMBTIER_OK);
        assert_int_equal(placing_new(x, &placing), EMBTIER_OK);
        assert_int_equal(bound_new(x, best_s, &bound), EMBTIER_OK);
        assert_int_equal(search_all(placing, bound, best_s * (1 + 4e-13), 1 << 25, &result),
                         EMBTIER_OK);
        assert_true(result.complete && result.bound_s <= best_s);
        assert_true(result.bound_s >= best_s * (1 - 1e-11));
        proven += !result.found;
    }
    assert_true(proven > CASES / 2);
}

static void test_a_search_that_ends_early_proves_nothing(void **state)
{
    struct random random = { SEED };
    _cleanup_(instance_freep) struct instance *x = NULL;
    _cleanup_(placing_freep) struct placing *placing = NULL;
    _cleanup_(bound_freep) struct bound *bound = NULL;
    struct search_result result = { 0 };
    struct placement_case c;

    (void)state;
    do
        draw_case(&random, &c);
    while (isinf(brute_force(&c.model)));
    assert_int_equal(instance_new(&c.model, &x, NULL), EMBTIER_OK);
    assert_int_equal(placing_new(x, &placing), EMBTIER_OK);
    assert_int_equal(bound_new(x, 1e9, &bound), EMBTIER_OK);
    assert_int_equal(search_all(placing, bound, INFINITY, 1, &result), EMBTIER_OK);
    assert_true(!result.complete && result.bound_s == 0);
}

static void test_duals_that_are_no_numbers_prove_nothing(void **state)
{
    const double wrong[] = { NAN, -1, -1e-9, INFINITY, 1e308, 1e101 };
    struct random random = { SEED };
    struct placement_case c;
    _cleanup_(instance_freep) struct instance *x = NULL;

    (void)state;
    do
        draw_case(&random, &c);
    while (c.model.gpu_count != CASE_GPUS || isinf(brute_force(&c.model)));
    assert_int_equal(instance_new(&c.model, &x, NULL), EMBTIER_OK);
    for (uint32_t i = 0; i < ARRAY_LEN(wrong); i++) {
        double weights[CASE_GPUS] = { 0.5, wrong[i] }, prices[3 * CASE_GPUS] = { 0 };
        struct bound bound = { .weights = weights, .prices_s_byte = prices, .limit_s = 1e9 };

        assert_true(bound_certify(x, &bound) == 0);
        weights[1] = 0.5;
        assert_true(bound_certify(x, &bound) > 0);
        prices[1] = wrong[i];
        assert_true(bound_certify(x, &bound) == 0);
    }
}

static void test_weights_that_are_all_0_prove_nothing(void **state)
{
    const struct model_table table = { .name = "a", .weight_bytes = 1, .lookup_bytes = 1 };
    const struct model_memory memory = { "HBM", false, 1, 1, NULL };
    const struct model model = { &table, &memory, NULL, 1, 1, 2, 0, NULL };
    double weights[] = { 0, 0 }, prices[] = { 0, 0 };
    struct bound bound = { .weights = weights, .prices_s_byte = prices, .limit_s = 9 };
    _cleanup_(instance_freep) struct instance *x = NULL;

    (void)state;
    assert_int_equal(instance_new(&model, &x, NULL), EMBTIER_OK);
    assert_true(bound_certify(x, &bound) == 0);
    weights[0] = 5e-324;
    assert_true(bound_certify(x, &bound) == 0);
}

static void test_the_search_finds_the_bound_of_the_linear_program(void **state)
{
    /* Half of each table fits into HBM, so the program splits both: 4 GPU seconds in HBM, and as
     * much again of 10 in DRAM, on two GPUs. */
    const struct model_table tables[] = {
        { .name = "a",
          .weight_bytes = 100,
          .bags_per_batch = 4,
          .pooling_factor = 1,
          .lookup_bytes = 1 },
        { .name = "b",
          .weight_bytes = 100,
          .bags_per_batch = 4,
          .pooling_factor = 1,
          .lookup_bytes = 1 },
    };
    const struct model_memory memories[] = { { "HBM", true, 100, 2, NULL },
                                             { "DRAM", true, 200, 1, NULL } };
    const struct model model = { tables, memories, NULL, 2, 2, 2, 0, NULL };
    _cleanup_(instance_freep) struct instance *x = NULL;
    _cleanup_(bound_freep) struct bound *bound = NULL;

    (void)state;
    assert_int_equal(instance_new(&model, &x, NULL), EMBTIER_OK);
    assert_int_equal(bound_new(x, 100, &bound), EMBTIER_OK);
    /* At a limit below 8, DRAM is forbidden, and HBM is too small. */
    assert_true(bound->bound_s > 8 * (1 - 1e-5) && bound->bound_s <= 8);
}

static void test_unlike_gpus_are_weighed_apart(void **state)
{
    /* GPU 1 may take nothing, so GPU 0 does all the work: 3 seconds. Equal weights prove 1.5. */
    const struct model_table tables[] = {
        { .name = "a",
          .weight_bytes = 1,
          .bags_per_batch = 1,
          .pooling_factor = 1,
          .lookup_bytes = 1 },
        { .name = "b",
          .weight_bytes = 1,
          .bags_per_batch = 1,
          .pooling_factor = 1,
          .lookup_bytes = 1 },
        { .name = "c",
          .weight_bytes = 1,
          .bags_per_batch = 1,
          .pooling_factor = 1,
          .lookup_bytes = 1 },
    };
    const struct model_memory memory = { "HBM", false, 100, 1, NULL };
    const struct model_rule rules[] = {
        { .kind = MODEL_PIN, .table = 0, .memory = MODEL_ANY, .gpu = 0 },
        { .kind = MODEL_PIN, .table = 1, .memory = MODEL_ANY, .gpu = 0 },
        { .kind = MODEL_PIN, .table = 2, .memory = MODEL_ANY, .gpu = 0 },
    };
    const struct model model = { tables, &memory, rules, 3, 1, 2, 3, NULL };
    _cleanup_(instance_freep) struct instance *x = NULL;
    _cleanup_(bound_freep) struct bound *bound = NULL;

    (void)state;
    assert_int_equal(instance_new(&model, &x, NULL), EMBTIER_OK);
    assert_int_equal(bound_new(x, 10, &bound), EMBTIER_OK);
    assert_true(bound->bound_s > 3 * (1 - 1e-3) && bound->bound_s <= 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_certificate_proves_too_much),
        cmocka_unit_test(test_no_search_proves_too_much),
        cmocka_unit_test(test_a_search_that_ends_early_proves_nothing),
        cmocka_unit_test(test_duals_that_are_no_numbers_prove_nothing),
        cmocka_unit_test(test_weights_that_are_all_0_prove_nothing),
        cmocka_unit_test(test_the_search_finds_the_bound_of_the_linear_program),
        cmocka_unit_test(test_unlike_gpus_are_weighed_apart),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
