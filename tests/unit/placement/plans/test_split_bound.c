/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that no weights and prices, however they were made, prove more than is true, and that those
 * of the search prove much. */
#include "tests/unit/placement/plans/split_fixture.h"

#include "placement/split/split_bound.h"
#include "placement/split/split_solve.h"

#define CASES 100
#define DUALS 40
#define SEED  7

/* The best dual found, with each number changed by up to its @change-th part. */
static struct split_bound draw_near(struct random *random, const struct split_instance *x,
                                    const struct split_bound *best, double change)
{
    struct split_bound b = *best;

    for (uint32_t g = 0; g < x->gpu_count; g++)
        b.weights[g] *= 1 + change * (2 * random_unit(random) - 1);
    for (uint32_t r = 0; r < x->room_count; r++)
        b.prices_s_byte[r] *= 1 + change * (2 * random_unit(random) - 1);
    for (uint32_t i = 0; i < b.heavy_count; i++)
        b.heavy[i].weight *= 1 + change * (2 * random_unit(random) - 1);
    return b;
}

static struct split_bound draw_any(struct random *random, const struct split_instance *x)
{
    struct split_bound b = { .heavy_count = x->item_count };

    for (uint32_t g = 0; g < x->gpu_count; g++)
        b.weights[g] = random_share(random);
    for (uint32_t r = 0; r < x->room_count; r++)
        b.prices_s_byte[r] = random_below(random, 2) ? 1e-3 * random_unit(random) : 0;
    for (uint32_t i = 0; i < x->item_count; i++) {
        b.heavy[i].item = i;
        b.heavy[i].weight = random_share(random);
        b.heavy[i].price_s_byte = random_below(random, 2) ? 1e-4 * random_unit(random) : 0;
    }
    return b;
}

static void test_no_certificate_proves_too_much(void **state)
{
    struct random random = { SEED };
    uint32_t close = 0;

    (void)state;
    for (uint32_t i = 0; i < CASES; i++) {
        _cleanup_(split_answer_freep) struct split_answer *answer = NULL;
        _cleanup_(split_instance_freep) struct split_instance *x = NULL;
        struct split_bound best;
        struct split_case c;

        draw_split_case(&random, &c);
        if (split_solve(&c.model, &(struct split_opts){ 0 }, &answer, NULL) != EMBTIER_OK)
            continue;
        assert_int_equal(split_instance_new(&c.model, &x, NULL), EMBTIER_OK);
        assert_int_equal(split_bound_find(x, &best), EMBTIER_OK);
        assert_true(best.bound_s == split_bound_certify(x, &best));
        close += best.bound_s >= answer->largest_s * 0.98;
        for (uint32_t j = 0; j < DUALS; j++) {
            const struct split_bound near = draw_near(&random, x, &best, 1e-4 * j * j);
            const struct split_bound any = draw_any(&random, x);

            assert_true(split_bound_certify(x, &near) <= answer->largest_s);
            assert_true(split_bound_certify(x, &any) <= answer->largest_s);
        }
    }
    printf("%u of %u bounds are within 2 %%\n", close, CASES);
    assert_true(close > CASES / 2);
}

/* ---- one table on two GPUs ---- */

/* 30 of 100 rows fit into the HBM of each GPU. */
struct pair {
    struct access_cdf cdf;
    double rest_s[2];
    struct split_table table;
    struct model_memory level;
    struct split_model model;
    struct split_instance *x;
};

static void make_pair(struct pair *p)
{
    *p = (struct pair){ .cdf = { 1, { 100 }, { 1 } }, .rest_s = { 10, 10 } };
    p->table = (struct split_table){ .name = "a",
                                     .rows = 100,
                                     .row_bytes = 10,
                                     .lookup_bytes = 1,
                                     .bags_per_batch = 100,
                                     .pooling_factor = 1,
                                     .cdf = &p->cdf,
                                     .rest_lookup_s = p->rest_s };
    p->level = (struct model_memory){ "HBM", false, 300, 1, NULL };
    p->model = (struct split_model){ &p->table, &p->level, NULL, 1, 1, 2, 0 };
    assert_int_equal(split_instance_new(&p->model, &p->x, NULL), EMBTIER_OK);
}

static void free_pair(struct pair *p)
{
    split_instance_free(p->x);
}

/* Spread over both GPUs, the table would take less than half as long. */
static void test_a_heavy_table_bounds_the_time_alone(void **state)
{
    _cleanup_(free_pair) struct pair p = { 0 };
    struct split_bound bound;

    (void)state;
    make_pair(&p);
    assert_int_equal(split_bound_find(p.x, &bound), EMBTIER_OK);
    assert_true(bound.bound_s <= 30 + 700 && bound.bound_s > 730 * (1 - 1e-4));
}

static void test_duals_that_are_no_numbers_prove_nothing(void **state)
{
    const double wrong[] = { NAN, -1, -1e-9, INFINITY, 1e308, 1e101 };
    _cleanup_(free_pair) struct pair p = { 0 };
    struct split_bound bound;

    (void)state;
    make_pair(&p);
    assert_int_equal(split_bound_find(p.x, &bound), EMBTIER_OK);
    assert_int_equal(bound.heavy_count, 1);
    for (uint32_t i = 0; i < ARRAY_LEN(wrong); i++) {
        struct split_bound b[] = { bound, bound, bound, bound };

        b[0].weights[1] = wrong[i];
        b[1].prices_s_byte[0] = wrong[i];
        b[2].heavy[0].weight = wrong[i];
        b[3].heavy[0].price_s_byte = wrong[i];
        for (uint32_t j = 0; j < ARRAY_LEN(b); j++)
            assert_true(split_bound_certify(p.x, &b[j]) == 0);
    }
}

static void test_weights_that_are_all_0_prove_nothing(void **state)
{
    _cleanup_(free_pair) struct pair p = { 0 };
    struct split_bound bound = { 0 };

    (void)state;
    make_pair(&p);
    assert_true(split_bound_certify(p.x, &bound) == 0);
    bound.weights[0] = 5e-324;
    assert_true(split_bound_certify(p.x, &bound) == 0);
}

/* An item's own weight counts once only, or its time would be counted twice. */
static void test_an_item_is_heavy_once(void **state)
{
    _cleanup_(free_pair) struct pair p = { 0 };
    struct split_bound bound;

    (void)state;
    make_pair(&p);
    assert_int_equal(split_bound_find(p.x, &bound), EMBTIER_OK);
    bound.heavy[bound.heavy_count++] = bound.heavy[0];
    assert_true(split_bound_certify(p.x, &bound) == 0);
    bound.heavy_count = SPLIT_HEAVY_MAX + 1;
    assert_true(split_bound_certify(p.x, &bound) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_certificate_proves_too_much),
        cmocka_unit_test(test_a_heavy_table_bounds_the_time_alone),
        cmocka_unit_test(test_duals_that_are_no_numbers_prove_nothing),
        cmocka_unit_test(test_weights_that_are_all_0_prove_nothing),
        cmocka_unit_test(test_an_item_is_heavy_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
