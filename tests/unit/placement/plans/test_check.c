/* SPDX-License-Identifier: Apache-2.0 */
/* test_check.c: are a plan's predictions compared with counts at the pace of the clients, with the
 * bars that were given, and only if enough was counted? Are tables in the wrong place told? */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "placement/check/check.h"

#define ROWS    100000
#define DIM     64
#define LOOKUPS 1000.0 /* of each table in a batch */
#define BATCHES 600.0  /* in the window, of a minute */
#define MISSES  0.2    /* of the cached table */

/* An array and a cached table, and a server that does what the plan predicts at half its pace. */
struct world {
    struct plan *plan;
    struct check_counts counts[3];
    struct check_window window;
    struct check_bars bars;
    struct check *check;
};

static void name_it(char *name, size_t bytes, const char *text)
{
    snprintf(name, bytes, "%s", text);
}

static void fill_plan(struct plan *plan)
{
    static const char *const names[] = { "array", "cached" };

    plan->samples_per_s = 20 * 256;
    plan->samples_per_batch = 256; /* so 20 batches a second */
    plan->tier_count = 1;
    name_it(plan->memories[0].name, sizeof(plan->memories[0].name), "dram");
    name_it(plan->memories[1].name, sizeof(plan->memories[1].name), PLAN_SSD);
    plan->memories[0].gpu = plan->memories[1].gpu = PLAN_NO_GPU;
    plan->memories[0].time_s = 0.0018;
    plan->memories[1].time_s = 0.0020;
    plan->memories[1].read_bytes = LOOKUPS * MISSES * 4096;
    for (uint32_t i = 0; i < 2; i++) {
        struct plan_table *const table = &plan->tables[i];

        name_it(table->name, sizeof(table->name), names[i]);
        table->rows = ROWS;
        table->dim = DIM;
        table->dtype = EMBTIER_DTYPE_F32;
        table->optimizer = EMBTIER_OPTIMIZER_ADAGRAD;
        table->gpu = PLAN_NO_GPU;
        table->read_bytes = LOOKUPS * DIM * 4;
        table->part_count = 1;
        table->parts[0].lookup_share = 1;
        table->parts[0].rows = ROWS;
    }
    plan->tables[0].parts[0].home = PLAN_ARRAY;
    name_it(plan->tables[0].parts[0].tier, sizeof(plan->tables[0].parts[0].tier), "dram");
    plan->tables[0].parts[0].time_s = 0.001;
    plan->tables[1].parts[0].home = PLAN_CACHE;
    plan->tables[1].parts[0].hit_rates[0] = 1 - MISSES;
    plan->tables[1].parts[0].time_s = 0.0008 + 0.0020;
    plan->tables[1].parts[0].reads_per_s = LOOKUPS * MISSES * 20;
    plan->tables[1].parts[0].writes_bytes_per_day = 20.0 * 86400 * 51200;
}

static int setup(void **state)
{
    static struct world world;
    struct check_counts *const array = &world.counts[0], *const cached = &world.counts[1];

    world = (struct world){ .bars = { { CHECK_HIT_POINTS, CHECK_TIME_PERCENT, CHECK_IOPS_PERCENT,
                                        CHECK_WRITTEN_PERCENT } } };
    assert_int_equal(plan_new(2, 2, &world.plan), EMBTIER_OK);
    fill_plan(world.plan);
    for (uint32_t i = 0; i < 2; i++) {
        struct check_counts *const counts = &world.counts[i];

        name_it(counts->name, sizeof(counts->name), world.plan->tables[i].name);
        counts->rows = ROWS;
        counts->dim = DIM;
        counts->dtype = EMBTIER_DTYPE_F32;
        counts->optimizer = EMBTIER_OPTIMIZER_ADAGRAD;
        counts->lookups = LOOKUPS * BATCHES;
    }
    array->home = EMBTIER_HOME_ARRAY;
    name_it(array->tier, sizeof(array->tier), "dram");
    array->lane_s = 2 * 0.001 * BATCHES;
    cached->home = EMBTIER_HOME_CACHE;
    cached->missed = cached->read = LOOKUPS * BATCHES * MISSES;
    cached->lane_s = 2 * 0.0008 * BATCHES;
    cached->written_bytes = BATCHES * 51200;
    world.window = (struct check_window){ .seconds = 60,
                                          .lane_count = 2,
                                          .table_count = 2,
                                          .tables = world.counts,
                                          .cache_hits = { LOOKUPS * BATCHES * (1 - MISSES) },
                                          .tier_count = 1,
                                          .reading_s = 0.0020 * BATCHES,
                                          .written_bytes = BATCHES * 51200 };
    name_it(world.window.tiers[0], sizeof(world.window.tiers[0]), "dram");
    *state = &world;
    return 0;
}

static int teardown(void **state)
{
    struct world *const world = *state;

    check_free(world->check);
    plan_free(world->plan);
    return 0;
}

static const struct check *make(struct world *world)
{
    check_free(TAKE(world->check));
    assert_int_equal(check_new(world->plan, &world->window, &world->bars, &world->check),
                     EMBTIER_OK);
    return world->check;
}

static void test_a_server_as_predicted_is_within_whatever_its_pace(void **state)
{
    struct world *const world = *state;
    const struct check *check = make(world);

    assert_true(check_is_within(check));
    assert_true(fabs(check->batches_per_s - 10) < 1e-9);
    /* Array: hits, time. Cached: all four. DRAM: hits, time. SSD: all four. */
    assert_int_equal(check->compared_count, 12);
    for (uint32_t k = 0; k < CHECK_KINDS; k++)
        assert_true(fabs(check->tables[1].figures[k].difference) < 1e-6);
    assert_int_equal(check->tables[0].figures[CHECK_IOPS].state, CHECK_IDLE);
    assert_true(fabs(check->tables[1].figures[CHECK_IOPS].predicted - LOOKUPS * MISSES * 10) <
                1e-6);
    assert_true(fabs(check->memories[0].figures[CHECK_HIT_RATE].predicted - 0.9) < 1e-9);
    assert_true(fabs(check->memories[1].figures[CHECK_HIT_RATE].measured - 0.1) < 1e-9);
}

static void test_each_figure_is_marked_beyond_its_own_bar_only(void **state)
{
    struct world *const world = *state;
    struct check_counts *const cached = &world->counts[1];
    const struct check_counts as_predicted = *cached;
    const struct check *check;

    cached->missed *= 1.15; /* 3 points; reads stay */
    check = make(world);
    assert_true(check->tables[1].figures[CHECK_HIT_RATE].is_beyond);
    assert_true(fabs(check->tables[1].figures[CHECK_HIT_RATE].difference + 3) < 1e-6);
    assert_false(check->tables[1].figures[CHECK_IOPS].is_beyond);
    assert_false(check_is_within(check));
    world->bars.most[CHECK_HIT_RATE] = 3.5;
    assert_true(check_is_within(make(world)));
    *cached = as_predicted;
    cached->read *= 0.8;
    check = make(world);
    assert_true(check->tables[1].figures[CHECK_IOPS].is_beyond);
    assert_false(check->tables[1].figures[CHECK_HIT_RATE].is_beyond);
    *cached = as_predicted;
    cached->written_bytes *= 1.11;
    check = make(world);
    assert_int_equal(check->beyond_count, 1);
    assert_true(check->tables[1].figures[CHECK_WRITTEN].is_beyond);
    *cached = as_predicted;
    cached->lane_s *= 2;
    check = make(world);
    assert_true(check->tables[1].figures[CHECK_TIME].is_beyond);
    assert_false(check->tables[0].figures[CHECK_TIME].is_beyond);
}

static void test_bytes_that_no_plan_predicts_are_beyond(void **state)
{
    struct world *const world = *state;
    const struct check *check;

    world->counts[0].written_bytes = 64.0 * MIB;
    check = make(world);
    assert_true(isinf(check->tables[0].figures[CHECK_WRITTEN].difference));
    assert_int_equal(check->beyond_count, 1);
}

static void test_too_little_traffic_is_not_compared(void **state)
{
    struct world *const world = *state;
    const struct check *check;

    for (uint32_t i = 0; i < 2; i++) {
        world->counts[i].lookups = 500; /* the sum is too little as well, and so are its reads */
        world->counts[i].missed = world->counts[i].read = world->counts[i].written_bytes = 0;
    }
    world->window.cache_hits[0] = 500;
    world->window.reading_s = world->window.written_bytes = 0;
    check = make(world);
    assert_int_equal(check->tables[0].figures[CHECK_HIT_RATE].state, CHECK_TOO_FEW);
    assert_int_equal(check->tables[1].figures[CHECK_WRITTEN].state, CHECK_TOO_FEW);
    assert_int_equal(check->tables[1].figures[CHECK_HIT_RATE].state, CHECK_TOO_FEW);
    assert_false(check_is_within(check));
    assert_int_equal(check->compared_count, 0);
    assert_int_equal(check->beyond_count, 0);
}

static void test_a_time_of_few_pieces_is_not_compared(void **state)
{
    struct world *const world = *state;
    const struct check *check = make(world);
    const uint32_t compared = check->compared_count;

    assert_int_equal(check->tables[1].figures[CHECK_TIME].state, CHECK_COMPARED);
    world->counts[1].lane_s = -1e-3; /* a new estimate of the time before was lower */
    check = make(world);
    assert_int_equal(check->tables[1].figures[CHECK_TIME].state, CHECK_TOO_FEW);
    assert_false(check->tables[1].figures[CHECK_TIME].is_beyond);
    assert_int_equal(check->compared_count, compared - 1);
}

/* The server counts reads and hits of all tables together. */
static void test_lookups_of_a_table_that_the_plan_lacks_are_not_taken_for_planned_ones(void **state)
{
    struct world *const world = *state;
    const struct check *check;

    world->counts[2] = world->counts[1];
    name_it(world->counts[2].name, sizeof(world->counts[2].name), "other");
    world->window.table_count = 3;
    check = make(world);
    assert_int_equal(check->tables[2].place, CHECK_UNPLANNED);
    for (uint32_t m = 0; m < check->memory_count; m++)
        for (uint32_t kind = 0; kind < CHECK_KINDS; kind++)
            assert_int_equal(check->memories[m].figures[kind].state, CHECK_UNKNOWN);
    assert_int_equal(check->tables[1].figures[CHECK_TIME].state, CHECK_UNKNOWN);
    assert_int_equal(check->tables[1].figures[CHECK_HIT_RATE].state, CHECK_COMPARED);
}

static void test_a_split_table_is_not_where_a_plan_of_whole_tables_says(void **state)
{
    struct world *const world = *state;
    const struct check *check;

    world->counts[1].home = EMBTIER_HOME_SPLIT;
    name_it(world->counts[1].tier, sizeof(world->counts[1].tier), "dram");
    check = make(world);
    assert_int_equal(check->tables[1].place, CHECK_ELSEWHERE);
    assert_string_equal(check->tables[1].actual.word, "split");
    assert_int_equal(check->memories[0].figures[CHECK_HIT_RATE].state, CHECK_UNKNOWN);
}

/* Fewer hot rows than planned are as planned, since a trace may have fewer. */
static void test_a_split_has_the_planned_tier_and_no_more_hot_rows(void **state)
{
    static const struct {
        const char *tier;
        uint64_t hot_rows;
        enum check_place place;
    } cases[] = { { "dram", 100, CHECK_AS_PLANNED },
                  { "dram", 90, CHECK_AS_PLANNED },
                  { "dram", 89, CHECK_ELSEWHERE },
                  { "dram", 101, CHECK_ELSEWHERE },
                  { "pmem", 100, CHECK_ELSEWHERE } };
    struct world *const world = *state;
    struct plan_table *const table = &world->plan->tables[1];

    table->part_count = 2;
    table->parts[1] = table->parts[0];
    table->parts[0] = (struct plan_part){ .home = PLAN_ARRAY, .rows = 100, .lookup_share = 0.5 };
    name_it(table->parts[0].tier, sizeof(table->parts[0].tier), "dram");
    table->parts[1].lookup_share = 0.5;
    for (uint32_t i = 0; i < ARRAY_LEN(cases); i++) {
        world->counts[1].home = EMBTIER_HOME_SPLIT;
        world->counts[1].hot_rows = cases[i].hot_rows;
        name_it(world->counts[1].tier, sizeof(world->counts[1].tier), cases[i].tier);
        check_free(world->check);
        world->check = NULL;
        make(world);
        assert_int_equal(world->check->tables[1].place, cases[i].place);
        assert_string_equal(world->check->tables[1].planned.tier, "dram");
        assert_int_equal(world->check->tables[1].actual.hot_rows, cases[i].hot_rows);
    }
}

/* `apply --without-gpu` puts the hot rows of HBM and of an array into one array. */
static void test_a_split_of_a_gpu_may_lie_in_a_tier(void **state)
{
    struct world *const world = *state;
    struct plan_table *const table = &world->plan->tables[1];

    table->part_count = 3;
    table->parts[2] = table->parts[0];
    table->parts[0] = (struct plan_part){ .home = PLAN_HBM, .rows = 100, .lookup_share = 0.5 };
    table->parts[1] = (struct plan_part){ .home = PLAN_ARRAY, .rows = 50, .lookup_share = 0.25 };
    name_it(table->parts[1].tier, sizeof(table->parts[1].tier), "dram");
    table->parts[2].lookup_share = 0.25;
    world->counts[1].home = EMBTIER_HOME_SPLIT;
    world->counts[1].hot_rows = 150;
    name_it(world->counts[1].tier, sizeof(world->counts[1].tier), "dram");
    assert_int_equal(make(world)->tables[1].place, CHECK_AS_PLANNED);
    world->counts[1].hot_rows = 151;
    check_free(world->check);
    world->check = NULL;
    assert_int_equal(make(world)->tables[1].place, CHECK_ELSEWHERE);
}

static void test_a_tier_that_the_server_lacks_is_unknown(void **state)
{
    struct world *const world = *state;
    const struct check *check;

    name_it(world->window.tiers[0], sizeof(world->window.tiers[0]), "hot");
    check = make(world);
    assert_int_equal(check->memory_count, 2);
    assert_string_equal(check->memories[0].name, "dram");
    assert_int_equal(check->memories[0].figures[CHECK_HIT_RATE].state, CHECK_UNKNOWN);
}

static void test_time_of_a_tier_is_unknown_if_there_are_several(void **state)
{
    struct world *const world = *state;
    const struct check *check;

    world->window.tier_count = 2;
    name_it(world->window.tiers[1], sizeof(world->window.tiers[1]), "pmem");
    check = make(world);
    assert_int_equal(check->memories[0].figures[CHECK_TIME].state, CHECK_UNKNOWN);
    assert_int_equal(check->memories[0].figures[CHECK_HIT_RATE].state, CHECK_COMPARED);
}

static void test_tables_in_the_wrong_place_have_no_figures(void **state)
{
    struct world *const world = *state;
    const struct check *check;

    world->counts[0].home = EMBTIER_HOME_CACHE;
    world->counts[0].tier[0] = '\0';
    check = make(world);
    assert_int_equal(check->tables[0].place, CHECK_ELSEWHERE);
    assert_string_equal(check->tables[0].planned.word, "dram");
    assert_string_equal(check->tables[0].actual.word, "cache");
    assert_int_equal(check->tables[0].figures[CHECK_HIT_RATE].state, CHECK_IDLE);
    assert_int_equal(check->misplaced_count, 1);
    assert_false(check_is_within(check));
    world->counts[1].dim++;
    assert_int_equal(make(world)->tables[1].place, CHECK_ALTERED);
    world->counts[1].dim--;
    world->counts[1].has_changed = true;
    assert_int_equal(make(world)->tables[1].place, CHECK_CHANGED);
}

static void test_tables_that_one_side_lacks_are_named(void **state)
{
    struct world *const world = *state;
    const struct check *check;

    name_it(world->counts[0].name, sizeof(world->counts[0].name), "other");
    check = make(world);
    assert_int_equal(check->table_count, 3);
    assert_int_equal(check->tables[0].place, CHECK_MISSING);
    assert_int_equal(check->tables[2].place, CHECK_UNPLANNED);
    assert_string_equal(check->tables[2].name, "other");
    assert_int_equal(check->misplaced_count, 1);         /* the plan says nothing about the other */
    assert_true(fabs(check->batches_per_s - 10) < 1e-9); /* of the table that both have */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        TEST(test_a_server_as_predicted_is_within_whatever_its_pace),
        TEST(test_each_figure_is_marked_beyond_its_own_bar_only),
        TEST(test_bytes_that_no_plan_predicts_are_beyond),
        TEST(test_too_little_traffic_is_not_compared),
        TEST(test_a_time_of_few_pieces_is_not_compared),
        TEST(test_lookups_of_a_table_that_the_plan_lacks_are_not_taken_for_planned_ones),
        TEST(test_a_split_table_is_not_where_a_plan_of_whole_tables_says),
        TEST(test_a_split_has_the_planned_tier_and_no_more_hot_rows),
        TEST(test_a_split_of_a_gpu_may_lie_in_a_tier),
        TEST(test_a_tier_that_the_server_lacks_is_unknown),
        TEST(test_time_of_a_tier_is_unknown_if_there_are_several),
        TEST(test_tables_in_the_wrong_place_have_no_figures),
        TEST(test_tables_that_one_side_lacks_are_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
