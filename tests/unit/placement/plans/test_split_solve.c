/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that tables are cut as well as a fine grid of cuts allows, within capacities and rules, and
 * the same each time. */
#include "tests/unit/placement/plans/split_fixture.h"

#include "placement/split/split_solve.h"
#include "tests/forms.h"

#define CASES     BY_BUILD(200, 25, 200)
#define SEED      20251128
#define TOLERANCE 1e-4 /* rows are whole, and a case has few of them */

static void test_answers_are_no_worse_than_those_of_a_grid(void **state)
{
    struct random random = { SEED };
    uint32_t placed = 0, split = 0;

    (void)state;
    printf("seed %d\n", SEED);
    for (uint32_t i = 0; i < CASES; i++) {
        _cleanup_(split_answer_freep) struct split_answer *answer = NULL;
        struct split_cut cuts[SPLIT_TABLES];
        struct split_case c;
        struct err_msg msg = { { 0 } };
        double grid_s, largest_s;
        enum embtier_err err;

        draw_split_case(&random, &c);
        grid_s = grid_best(&c.model, cuts);
        err = split_solve(&c.model, &(struct split_opts){ .gap = 1e-6 }, &answer, &msg);
        if (err != EMBTIER_OK) {
            assert_true(err == EMBTIER_INVALID || err == EMBTIER_NO_SPACE);
            assert_true(strlen(msg.text) > 0);
            if (!isinf(grid_s))
                fail_msg("case %u: %s, but the grid has %g s", i, msg.text, grid_s);
            continue;
        }
        assert_int_equal(split_check(&c.model, answer->cuts, &largest_s, NULL, NULL), EMBTIER_OK);
        assert_true(largest_s == answer->largest_s);
        assert_true(answer->bound_s <= fmin(grid_s, largest_s));
        if (answer->largest_s > grid_s * (1 + TOLERANCE))
            fail_msg("case %u: %.9g s, but the grid has %.9g s, and the bound is %.9g s", i,
                     answer->largest_s, grid_s, answer->bound_s);
        placed++;
        split += answer->cuts[0].rows[0] > 0 && answer->cuts[0].rows[1] > 0;
    }
    printf("%u placed, %u with a first table in two levels\n", placed, split);
    assert_true(placed > CASES / 2 && split > CASES / 10);
}

/* ---- one table ---- */

/* Half of the lookups go to the first fifth of 100 rows. A lookup takes 0.2 s in HBM, 1 s in DRAM,
 * and 10 s in the rest. */
struct small {
    struct access_cdf cdf;
    double rest_s[3];
    struct split_table table;
    struct model_memory levels[2];
    struct model_rule rule;
    struct split_model model;
};

static void make_small(struct small *s)
{
    *s = (struct small){ .cdf = { 2, { 20, 100 }, { 0.5, 1 } }, .rest_s = { 10, 10, 10 } };
    s->table = (struct split_table){ .name = "a",
                                     .rows = 100,
                                     .row_bytes = 10,
                                     .remap_bytes = 16,
                                     .lookup_bytes = 1,
                                     .bags_per_batch = 100,
                                     .pooling_factor = 1,
                                     .cdf = &s->cdf,
                                     .rest_lookup_s = s->rest_s };
    s->levels[0] = (struct model_memory){ "HBM", false, 0, 5, NULL };
    s->levels[1] = (struct model_memory){ "DRAM", true, 0, 1, NULL };
    s->model = (struct split_model){ &s->table, s->levels, &s->rule, 1, 2, 1, 0 };
}

static struct split_cut solve_small(const struct small *s, double *ret_largest_s)
{
    _cleanup_(split_answer_freep) struct split_answer *answer = NULL;
    struct err_msg msg = { { 0 } };

    if (split_solve(&s->model, &(struct split_opts){ 0 }, &answer, &msg) != EMBTIER_OK)
        fail_msg("%s", msg.text);
    *ret_largest_s = answer->largest_s;
    return answer->cuts[0];
}

static void expect_cut(const struct small *s, uint64_t hbm, uint64_t dram, double largest_s)
{
    double found_s = 0;
    const struct split_cut cut = solve_small(s, &found_s);

    if (cut.rows[0] != hbm || cut.rows[1] != dram || fabs(found_s - largest_s) > 1e-9 * largest_s)
        fail_msg("%u and %u rows, %g s; expected %u and %u rows, %g s", (unsigned)cut.rows[0],
                 (unsigned)cut.rows[1], found_s, (unsigned)hbm, (unsigned)dram, largest_s);
}

static void test_hot_rows_lie_in_the_fastest_level(void **state)
{
    struct small s;

    (void)state;
    make_small(&s);
    expect_cut(&s, 0, 0, 1000);
    s.levels[0].capacity_bytes = 520; /* 20 rows of 26 bytes */
    expect_cut(&s, 20, 0, 50 / 5. + 500);
    s.levels[1].capacity_bytes = 520;
    expect_cut(&s, 20, 20, 50 / 5. + 50 * 20 / 80. + 500 * 60 / 80.);
}

static void test_a_remap_takes_room(void **state)
{
    struct small s;

    (void)state;
    make_small(&s);
    s.levels[0].capacity_bytes = 519;
    expect_cut(&s, 19, 0, 47.5 / 5 + 525);
    s.table.remap_bytes = 0;
    expect_cut(&s, 51, 0, (50 + 50 * 31 / 80.) / 5 + 500 * 49 / 80.);
}

static void test_a_whole_table_needs_no_remap(void **state)
{
    struct small s;

    (void)state;
    make_small(&s);
    s.levels[0].capacity_bytes = 1000;
    expect_cut(&s, 100, 0, 100 / 5.);
    s.levels[0].capacity_bytes = 999; /* one byte too few: 38 rows */
    expect_cut(&s, 38, 0, (50 + 50 * 18 / 80.) / 5 + 500 * 62 / 80.);
}

static void test_an_unbounded_table_keeps_its_rest(void **state)
{
    struct small s;

    (void)state;
    make_small(&s);
    s.table.rows = EMBTIER_UNBOUNDED;
    s.levels[0].capacity_bytes = 1000;
    expect_cut(&s, 38, 0, (50 + 50 * 18 / 80.) / 5 + 500 * 62 / 80.);
    s.levels[0].capacity_bytes = 10000; /* all rows that were seen */
    expect_cut(&s, 100, 0, 100 / 5.);
}

static void test_an_unsplit_table_lies_whole(void **state)
{
    struct small s;

    (void)state;
    make_small(&s);
    s.table.unsplit = true;
    s.levels[0].capacity_bytes = 999;
    expect_cut(&s, 0, 0, 1000);
    s.levels[1].capacity_bytes = 1000;
    expect_cut(&s, 0, 100, 100);
}

static void test_rules_hold(void **state)
{
    struct small s;

    (void)state;
    make_small(&s);
    s.levels[0].capacity_bytes = s.levels[1].capacity_bytes = 1000;
    s.model.rule_count = 1;
    s.rule = (struct model_rule){ .kind = MODEL_PIN, .memory = 1, .gpu = MODEL_ANY };
    expect_cut(&s, 0, 100, 100);
    s.rule.memory = 2;
    expect_cut(&s, 0, 0, 1000);
    s.rule = (struct model_rule){ .kind = MODEL_FORBID, .memory = 0, .gpu = 0 };
    expect_cut(&s, 0, 100, 100);
    s.rule = (struct model_rule){ .kind = MODEL_RESERVE, .memory = 0, .gpu = 0, .bytes = 480 };
    s.levels[1].capacity_bytes = 0;
    expect_cut(&s, 20, 0, 50 / 5. + 500);
}

/* ---- cliffs ---- */

/* The cache misses as much until the 20 hottest rows are gone, but only 10 fit into HBM. On the
 * hull half of the gain would come with half of the rows. */
static void test_a_cliff_is_told_and_its_true_time_counts(void **state)
{
    const double rest_s[] = { 10, 16, 2, 2 };
    _cleanup_(split_answer_freep) struct split_answer *answer = NULL;
    struct small s;

    (void)state;
    make_small(&s);
    s.cdf = (struct access_cdf){ 3, { 10, 20, 100 }, { 0.4, 0.5, 1 } };
    s.table.rest_lookup_s = rest_s;
    s.levels[0].capacity_bytes = 260;
    expect_cut(&s, 10, 0, 40 / 5. + 60 * 16);
    assert_int_equal(split_solve(&s.model, &(struct split_opts){ 0 }, &answer, NULL), EMBTIER_OK);
    assert_true(answer->hulls[0]);
    assert_true(answer->bound_s < 40 / 5. + (1000 + 100) / 2.);
}

static void test_a_convex_curve_is_no_cliff(void **state)
{
    _cleanup_(split_answer_freep) struct split_answer *answer = NULL;
    struct small s;

    (void)state;
    make_small(&s);
    assert_int_equal(split_solve(&s.model, &(struct split_opts){ 0 }, &answer, NULL), EMBTIER_OK);
    assert_false(answer->hulls[0]);
}

/* ---- larger models ---- */

#define LARGE      40
#define LARGE_GPUS 4

struct large {
    struct split_table tables[LARGE];
    struct access_cdf cdfs[LARGE];
    double rests_s[LARGE][SPLIT_POINTS + 1];
    struct model_memory levels[3];
    struct model_rule rules[2];
    struct split_model model;
};

static void make_large(struct large *l)
{
    struct random random = { SEED };

    for (uint32_t i = 0; i < LARGE; i++) {
        const double rows = floor(exp(8 + 4 * random_unit(&random)));

        draw_cdf(&random, rows, &l->cdfs[i]);
        for (uint32_t k = 0; k <= SPLIT_POINTS; k++)
            l->rests_s[i][k] = 1;
        l->tables[i] = (struct split_table){ .name = "t",
                                             .rows = (uint64_t)rows,
                                             .row_bytes = 64,
                                             .remap_bytes = 16,
                                             .lookup_bytes = 64,
                                             .bags_per_batch = 10,
                                             .pooling_factor = 10 * random_share(&random),
                                             .cdf = &l->cdfs[i],
                                             .rest_lookup_s = l->rests_s[i] };
    }
    l->levels[0] = (struct model_memory){ "HBM", false, 4000000, 16000, NULL };
    l->levels[1] = (struct model_memory){ "DRAM", true, 8000000, 4000, NULL };
    l->levels[2] = (struct model_memory){ "PMEM", true, 16000000, 1000, NULL };
    l->model = (struct split_model){ l->tables, l->levels, l->rules, LARGE, 2, LARGE_GPUS, 0 };
}

static void test_a_larger_answer_is_close_to_its_bound(void **state)
{
    _cleanup_(split_answer_freep) struct split_answer *answer = NULL;
    static struct large l;

    (void)state;
    make_large(&l);
    assert_int_equal(split_solve(&l.model, &(struct split_opts){ 0 }, &answer, NULL), EMBTIER_OK);
    printf("gap %.4f\n", split_gap(answer));
    assert_true(split_gap(answer) < 0.01);
}

static void test_two_shared_levels_are_filled(void **state)
{
    _cleanup_(split_answer_freep) struct split_answer *answer = NULL;
    static struct large l;

    (void)state;
    make_large(&l);
    l.model.level_count = 3;
    assert_int_equal(split_solve(&l.model, &(struct split_opts){ .work = 8000 }, &answer, NULL),
                     EMBTIER_OK);
    printf("gap %.4f\n", split_gap(answer));
    assert_true(split_gap(answer) < 0.03);
}

/* All may lie in the rest, so there is an answer, however small and odd the levels are. */
static void test_tiny_levels_are_no_obstacle(void **state)
{
    struct random random = { SEED };
    static struct large l;

    (void)state;
    for (uint32_t i = 0; i < 30; i++) {
        _cleanup_(split_answer_freep) struct split_answer *answer = NULL;
        struct err_msg msg = { { 0 } };

        make_large(&l);
        l.model.level_count = 3;
        l.model.table_count = 1 + random_below(&random, 10);
        for (uint32_t t = 0; t < l.model.table_count; t++)
            for (uint32_t k = 0; k <= SPLIT_POINTS; k++)
                l.rests_s[t][k] = exp(-25 + 4.0 * (double)(t % 5));
        for (uint32_t m = 0; m < 3; m++) {
            l.levels[m].shared = m > 0 || i % 2;
            l.levels[m].capacity_bytes = (uint64_t)exp(20 * random_unit(&random)) - 1;
            l.levels[m].bandwidth_bytes_per_s = exp(30 - 9.0 * m);
        }
        if (split_solve(&l.model, &(struct split_opts){ .work = 1000 }, &answer, &msg) !=
            EMBTIER_OK)
            fail_msg("case %u: %s", i, msg.text);
    }
}

static void test_tables_are_kept_together(void **state)
{
    _cleanup_(split_answer_freep) struct split_answer *answer = NULL, *apart = NULL;
    static struct large l;

    (void)state;
    make_large(&l);
    assert_int_equal(split_solve(&l.model, &(struct split_opts){ .work = LARGE }, &apart, NULL),
                     EMBTIER_OK);
    l.rules[0] = (struct model_rule){ .kind = MODEL_TOGETHER };
    while (apart->cuts[l.rules[0].other].gpu == apart->cuts[0].gpu)
        l.rules[0].other++;
    l.rules[1] = (struct model_rule){ .kind = MODEL_PIN, .memory = MODEL_ANY, .gpu = 3 };
    l.model.rule_count = 2;
    assert_int_equal(split_solve(&l.model, &(struct split_opts){ .work = LARGE }, &answer, NULL),
                     EMBTIER_OK);
    assert_int_equal(answer->cuts[0].gpu, 3);
    assert_int_equal(answer->cuts[l.rules[0].other].gpu, 3);
}

static void test_equal_input_gives_equal_output(void **state)
{
    _cleanup_(split_answer_freep) struct split_answer *first = NULL, *second = NULL;
    const struct split_opts opts = { .seed = 3, .work = 20 * LARGE };
    static struct large l;

    (void)state;
    make_large(&l);
    assert_int_equal(split_solve(&l.model, &opts, &first, NULL), EMBTIER_OK);
    assert_int_equal(split_solve(&l.model, &opts, &second, NULL), EMBTIER_OK);
    assert_memory_equal(first->cuts, second->cuts, LARGE * sizeof(*first->cuts));
    assert_true(first->largest_s == second->largest_s && first->bound_s == second->bound_s);
}

static void test_a_good_answer_ends_the_work(void **state)
{
    _cleanup_(split_answer_freep) struct split_answer *best = NULL, *good = NULL;
    static struct large l;

    (void)state;
    make_large(&l);
    assert_int_equal(split_solve(&l.model, &(struct split_opts){ 0 }, &best, NULL), EMBTIER_OK);
    assert_int_equal(split_solve(&l.model, &(struct split_opts){ .gap = 0.5 }, &good, NULL),
                     EMBTIER_OK);
    assert_true(good->largest_s > best->largest_s && split_gap(good) <= 0.5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers_are_no_worse_than_those_of_a_grid),
        cmocka_unit_test(test_hot_rows_lie_in_the_fastest_level),
        cmocka_unit_test(test_a_remap_takes_room),
        cmocka_unit_test(test_a_whole_table_needs_no_remap),
        cmocka_unit_test(test_an_unbounded_table_keeps_its_rest),
        cmocka_unit_test(test_an_unsplit_table_lies_whole),
        cmocka_unit_test(test_rules_hold),
        cmocka_unit_test(test_a_cliff_is_told_and_its_true_time_counts),
        cmocka_unit_test(test_a_convex_curve_is_no_cliff),
        cmocka_unit_test(test_a_larger_answer_is_close_to_its_bound),
        cmocka_unit_test(test_two_shared_levels_are_filled),
        cmocka_unit_test(test_tiny_levels_are_no_obstacle),
        cmocka_unit_test(test_tables_are_kept_together),
        cmocka_unit_test(test_equal_input_gives_equal_output),
        cmocka_unit_test(test_a_good_answer_ends_the_work),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
