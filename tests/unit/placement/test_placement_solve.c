/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that placements are the best ones, stay within capacities and rules, and are the same each
 * time. */
#include "tests/unit/placement/placement_fixture.h"

#include <stdlib.h>

#include "placement/solve/milp.h"
#include "placement/solve/solve.h"
#include "tests/forms.h"

#define CASES BY_BUILD(1000, 120, 1000)
#define SEED  20251127

static void check_answer(const struct placement_case *c, const struct solve_answer *answer,
                         double best_s)
{
    double largest_s;

    assert_int_equal(assignment_check(&c->model, answer->places, &largest_s, NULL, NULL),
                     EMBTIER_OK);
    assert_true(largest_s == answer->largest_s);
    assert_true(answer->bound_s <= best_s * (1 + 1e-9));
    assert_true(fabs(largest_s - best_s) <= 1e-9 * best_s);
    assert_true(solve_gap(answer) <= 1e-9);
}

/* Times of each table in each memory, in no relation to bytes. */
static void draw_times(struct random *random, struct placement_case *c, double *times_s)
{
    for (uint32_t i = 0; i < c->model.table_count * c->model.memory_count; i++)
        times_s[i] = random_below(random, 4) == 0 ? 0 : 10 * random_share(random);
    c->model.times_s = times_s;
}

static void compare_with_brute_force(uint32_t cases, bool with_times)
{
    const struct solve_opts opts = { .steps = 2000, .searches = 2 };
    struct random random = { SEED };
    uint32_t placed = 0, refused = 0;

    printf("seed %d\n", SEED);
    for (uint32_t i = 0; i < cases; i++) {
        _cleanup_(solve_answer_freep) struct solve_answer *answer = NULL;
        double times_s[CASE_TABLES * 3];
        struct placement_case c;
        struct err_msg msg = { { 0 } };
        enum embtier_err err;
        double best_s;

        draw_case(&random, &c);
        if (with_times)
            draw_times(&random, &c, times_s);
        best_s = brute_force(&c.model);
        err = solve_model(&c.model, &opts, &answer, &msg);
        if (isinf(best_s)) {
            assert_int_equal(err, EMBTIER_INVALID);
            assert_true(strlen(msg.text) > 0);
            refused++;
            continue;
        }
        if (err != EMBTIER_OK)
            fail_msg("case %u: %s", i, msg.text);
        check_answer(&c, answer, best_s);
        placed++;
    }
    printf("%u placed, %u refused\n", placed, refused);
    assert_true(placed > cases / 2 && refused > cases / 50);
}

static void test_answers_equal_brute_force(void **state)
{
    (void)state;
    compare_with_brute_force(CASES, false);
}

static void test_answers_equal_brute_force_with_given_times(void **state)
{
    (void)state;
    compare_with_brute_force(CASES / 5, true);
}

/* ---- larger models ---- */

#define TABLES 120

struct large_case {
    struct model_table tables[TABLES];
    struct model_memory memories[3];
    struct model_rule rules[3];
    struct model model;
};

/* A few tables are far larger than the others. */
static void draw_large(struct random *random, struct large_case *c)
{
    for (uint32_t i = 0; i < TABLES; i++) {
        struct model_table *const table = &c->tables[i];

        *table = (struct model_table){ .name = "t", .bags_per_batch = 1024, .lookup_bytes = 512 };
        table->weight_bytes = (uint64_t)(1000000 * pow(random_share(random), -0.8));
        table->pooling_factor = -8.34 * log(random_share(random));
    }
    c->memories[0] = (struct model_memory){ "HBM", false, 20000000, 1600e9, NULL };
    c->memories[1] = (struct model_memory){ "DRAM", true, 100000000, 200e9, NULL };
    c->memories[2] = (struct model_memory){ "SSD", true, UINT64_C(1) << 40, 6e9, NULL };
    c->rules[0] = (struct model_rule){ .kind = MODEL_TOGETHER, .table = 3, .other = 70 };
    c->rules[1] =
        (struct model_rule){ .kind = MODEL_PIN, .table = 5, .memory = 1, .gpu = MODEL_ANY };
    c->rules[2] = (struct model_rule){ .kind = MODEL_RESERVE, .memory = 0, .gpu = 2, .bytes = 777 };
    c->model = (struct model){ c->tables, c->memories, c->rules, TABLES, 3, 4, 3, NULL };
}

static void test_large_models_come_close_to_their_bound(void **state)
{
    const struct solve_opts opts = { .steps = 200000 };
    struct random random = { SEED };

    (void)state;
    for (uint32_t i = 0; i < 5; i++) {
        _cleanup_(solve_answer_freep) struct solve_answer *answer = NULL;
        struct large_case c;
        double largest_s;

        draw_large(&random, &c);
        assert_int_equal(solve_model(&c.model, &opts, &answer, NULL), EMBTIER_OK);
        assert_int_equal(assignment_check(&c.model, answer->places, &largest_s, NULL, NULL),
                         EMBTIER_OK);
        printf("gap %.2f %%\n", 100 * solve_gap(answer));
        assert_true(solve_gap(answer) >= 0 && solve_gap(answer) < 0.2);
    }
}

static void test_equal_input_gives_equal_placements(void **state)
{
    const struct solve_opts opts = { .steps = 100000, .searches = 4 };
    _cleanup_(solve_answer_freep) struct solve_answer *first = NULL;
    struct random random = { SEED };
    struct large_case c;

    (void)state;
    draw_large(&random, &c);
    assert_int_equal(solve_model(&c.model, &opts, &first, NULL), EMBTIER_OK);
    for (uint32_t i = 0; i < 3; i++) {
        _cleanup_(solve_answer_freep) struct solve_answer *again = NULL;

        assert_int_equal(solve_model(&c.model, &opts, &again, NULL), EMBTIER_OK);
        assert_memory_equal(first->places, again->places, TABLES * sizeof(*first->places));
        assert_true(first->bound_s == again->bound_s && first->largest_s == again->largest_s);
    }
}

static void test_tables_that_are_never_read_cost_nothing(void **state)
{
    const struct model_table tables[] = { { .name = "a", .weight_bytes = 5 },
                                          { .name = "b", .weight_bytes = 6 } };
    const struct model_memory memory = { "HBM", false, 6, 1e9, NULL };
    const struct model model = { tables, &memory, NULL, 2, 1, 2, 0, NULL };
    const struct solve_opts opts = { 0 };
    _cleanup_(solve_answer_freep) struct solve_answer *answer = NULL;

    (void)state;
    assert_int_equal(solve_model(&model, &opts, &answer, NULL), EMBTIER_OK);
    assert_true(answer->largest_s == 0 && answer->bound_s == 0 && solve_gap(answer) == 0);
}

/* ---- solvers in this process ---- */

#define EQUAL_TABLES 25

/* Tables that are read alike, of which one of two GPUs gets 13, while the bound splits one of them:
 * a gap that no search closes, so a solver is asked. */
static void make_equal(struct large_case *c)
{
    for (uint32_t i = 0; i < EQUAL_TABLES; i++)
        c->tables[i] = (struct model_table){ .name = "t",
                                             .weight_bytes = 1000,
                                             .bags_per_batch = 1,
                                             .pooling_factor = 1,
                                             .lookup_bytes = 64 };
    c->memories[0] = (struct model_memory){ "HBM", false, 13000, 64, NULL };
    c->model = (struct model){ c->tables, c->memories, NULL, EQUAL_TABLES, 1, 2, 0, NULL };
}

/* Answers with the start, and with the next of the bounds. */
struct bounds {
    const double *bounds;
    uint32_t asked;
};

static enum embtier_err give_bound(void *ctx, const struct milp *milp, double *ret_values,
                                   double *ret_bound, struct err_msg *msg)
{
    struct bounds *const bounds = ctx;

    (void)msg;
    memcpy(ret_values, milp->start, milp->column_count * sizeof(*ret_values));
    *ret_bound = bounds->bounds[bounds->asked++];
    return EMBTIER_OK;
}

static struct solve_answer *ask(const struct large_case *c, const struct milp_solver *solver)
{
    const struct solve_opts opts = { .steps = 20000, .searches = 2, .solver = solver };
    struct solve_answer *answer = NULL;
    struct err_msg msg = { { 0 } };

    if (solve_model(&c->model, &opts, &answer, &msg) != EMBTIER_OK)
        fail_msg("%s", msg.text);
    return answer;
}

static void check_bound(double bound, double kept_s, const char *says)
{
    struct bounds bounds = { .bounds = &bound };
    const struct milp_solver solver = { &bounds, give_bound };
    struct large_case c;
    _cleanup_(solve_answer_freep) struct solve_answer *answer = NULL;

    make_equal(&c);
    answer = ask(&c, &solver);
    assert_int_equal(bounds.asked, 1);
    assert_true(answer->largest_s == 13);
    assert_true(answer->solver_bound_s == kept_s);
    if (!strstr(answer->solver_says.text, says))
        fail_msg("%g: `%s` does not hold `%s`", bound, answer->solver_says.text, says);
}

static void test_bounds_of_a_solver(void **state)
{
    (void)state;
    check_bound(0.5, 6.5, "no better");
    check_bound(1 + 1e-9, 13, "no better"); /* rounding */
    check_bound(1.01, -INFINITY, "its bound of 13.13 s contradicts a placement of 13 s");
    check_bound(NAN, -INFINITY, "no better");
    check_bound(INFINITY, -INFINITY, "no better");
    check_bound(-INFINITY, -INFINITY, "no better");
}

/* ---- a solver that cheats, and one that knows the best ---- */

/* Gives each item its first column: all lie in HBM of GPU 0. */
static enum embtier_err cheat(void *ctx, const struct milp *milp, double *ret_values,
                              double *ret_bound, struct err_msg *msg)
{
    uint32_t *const asked = ctx;

    (void)msg;
    (*asked)++;
    memset(ret_values, 0, milp->column_count * sizeof(*ret_values));
    for (uint32_t i = 1; i < milp->column_count; i++)
        ret_values[i] = i == 1 || milp->items[i] != milp->items[i - 1];
    *ret_bound = 0;
    return EMBTIER_OK;
}

static void test_a_placement_that_exceeds_a_memory_is_refused(void **state)
{
    uint32_t asked = 0;
    const struct milp_solver solver = { &asked, cheat };
    _cleanup_(solve_answer_freep) struct solve_answer *answer = NULL, *own = NULL;
    struct large_case c;

    (void)state;
    make_equal(&c);
    c.memories[0].capacity_bytes = 3000;
    c.memories[1] = (struct model_memory){ "SSD", true, 99000, 12.8, NULL };
    c.model.memory_count = 2;
    answer = ask(&c, &solver);
    own = ask(&c, NULL);
    assert_int_equal(asked, 1);
    /* Six tables take 1 s each, and the others 10 s. In HBM, all would take 25 s. */
    assert_true(answer->largest_s > 100);
    assert_false(answer->solver_won);
    assert_memory_equal(answer->places, own->places, EQUAL_TABLES * sizeof(*own->places));
    assert_string_equal(answer->solver_says.text,
                        "its answer exceeds a memory or breaks a rule: memory 'HBM': the tables "
                        "take 25000 bytes of 3000, 22000 too many");
}

static enum embtier_err tell_best(void *ctx, const struct milp *milp, double *ret_values,
                                  double *ret_bound, struct err_msg *msg)
{
    const struct brute *const brute = ctx;
    struct instance *x = NULL;

    TRY(instance_new(brute->model, &x, msg));
    for (uint32_t i = 1; i < milp->column_count; i++)
        ret_values[i] = brute->best_places[instance_table(x, milp->items[i])] == milp->places[i];
    *ret_bound = 0;
    instance_free(x);
    return EMBTIER_OK;
}

static void test_a_better_placement_of_a_solver_is_taken(void **state)
{
    struct random random = { SEED };
    uint32_t won = 0;

    (void)state;
    for (uint32_t i = 0; i < CASES; i++) {
        struct placement_case c;
        struct brute brute;
        const struct milp_solver solver = { &brute, tell_best };
        /* So little work that the own placement is often poor. */
        const struct solve_opts opts = { .steps = 1, .searches = 1, .nodes = 1, .solver = &solver };
        _cleanup_(solve_answer_freep) struct solve_answer *answer = NULL;

        draw_case(&random, &c);
        brute = brute_force_all(&c.model);
        if (solve_model(&c.model, &opts, &answer, NULL) != EMBTIER_OK)
            continue;
        assert_true(answer->largest_s <= brute.best_s * (1 + 1e-4));
        if (answer->solver_won) {
            assert_true(answer->largest_s == brute.best_s);
            assert_string_equal(answer->solver_says.text, "");
            won++;
        }
    }
    printf("the solver won %u of %u\n", won, CASES);
    assert_true(won > CASES / 50);
}

/* Makes all bytes large, so that one byte is a share like a solver's tolerance. */
static void enlarge(struct placement_case *c)
{
    for (uint32_t i = 0; i < c->model.table_count; i++) {
        c->tables[i].weight_bytes *= 10000;
        c->tables[i].state_bytes *= 10000;
    }
    for (uint32_t i = 0; i < c->model.memory_count; i++)
        c->memories[i].capacity_bytes *= 10000;
    for (uint32_t i = 0; i < c->model.rule_count; i++)
        c->rules[i].bytes *= 10000;
}

/* The solver knows the best placement, had each memory a byte more. */
static void test_a_search_mends_a_placement_that_nearly_fits(void **state)
{
    struct random random = { SEED };
    uint32_t misses = 0, mended = 0;

    (void)state;
    for (uint32_t i = 0; i < CASES; i++) {
        struct placement_case c;
        struct brute brute;
        const struct milp_solver solver = { &brute, tell_best };
        const struct solve_opts opts = { .steps = 1, .searches = 1, .nodes = 1, .solver = &solver };
        _cleanup_(solve_answer_freep) struct solve_answer *answer = NULL;
        double largest_s;

        draw_case(&random, &c);
        enlarge(&c);
        brute = brute_force_all(&c.model);
        for (uint32_t m = 0; m < c.model.memory_count; m++)
            c.memories[m].capacity_bytes--;
        if (isinf(brute.best_s) ||
            assignment_check(&c.model, brute.best_places, &largest_s, NULL, NULL) == EMBTIER_OK ||
            solve_model(&c.model, &opts, &answer, NULL) != EMBTIER_OK)
            continue;
        assert_int_equal(assignment_check(&c.model, answer->places, &largest_s, NULL, NULL),
                         EMBTIER_OK);
        misses++;
        mended += answer->solver_won;
    }
    printf("%u near misses, %u mended\n", misses, mended);
    assert_true(mended > 0);
}

/* Four GPUs have little more room than the tables need, and few searches find a placement. */
static void draw_tight(struct random *random, struct large_case *c, uint32_t tables)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < tables; i++) {
        const uint32_t weight_bytes = 1000000 + random_below(random, 1000000);

        c->tables[i] = (struct model_table){ .name = "t", .weight_bytes = weight_bytes };
        bytes += weight_bytes;
    }
    c->memories[0] = (struct model_memory){ "HBM", false, bytes / 4 * 1001 / 1000, 1600e9, NULL };
    c->model = (struct model){ c->tables, c->memories, NULL, tables, 1, 4, 0, NULL };
}

static void test_a_first_placement_is_searched_again_and_again(void **state)
{
    const struct solve_opts few = { .steps = 1, .searches = 1, .gap = 0.01 };
    const struct solve_opts many = { .steps = 1, .searches = 200, .gap = 0.01 };
    struct random random = { SEED };
    uint32_t refused = 0;

    (void)state;
    for (uint32_t i = 0; i < 20; i++) {
        _cleanup_(solve_answer_freep) struct solve_answer *first = NULL, *second = NULL;
        struct large_case c;
        enum embtier_err err;

        draw_tight(&random, &c, 40);
        err = solve_model(&c.model, &few, &first, NULL);
        assert_true(err == EMBTIER_OK || err == EMBTIER_NO_SPACE);
        refused += err == EMBTIER_NO_SPACE;
        assert_int_equal(solve_model(&c.model, &many, &second, NULL), EMBTIER_OK);
    }
    printf("%u of 20 need more searches\n", refused);
    assert_true(refused > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers_equal_brute_force),
        cmocka_unit_test(test_answers_equal_brute_force_with_given_times),
        cmocka_unit_test(test_large_models_come_close_to_their_bound),
        cmocka_unit_test(test_equal_input_gives_equal_placements),
        cmocka_unit_test(test_tables_that_are_never_read_cost_nothing),
        cmocka_unit_test(test_a_first_placement_is_searched_again_and_again),
        cmocka_unit_test(test_bounds_of_a_solver),
        cmocka_unit_test(test_a_placement_that_exceeds_a_memory_is_refused),
        cmocka_unit_test(test_a_better_placement_of_a_solver_is_taken),
        cmocka_unit_test(test_a_search_mends_a_placement_that_nearly_fits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
