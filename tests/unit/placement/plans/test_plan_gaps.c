/* SPDX-License-Identifier: Apache-2.0 */
/* test_plan_gaps.c: is a figure of plans met only if no seed is beyond its limits? */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#include <stdbool.h>

#include "base/macros.h"
#include "tests/bench/lib/plans/plan_gaps.h"

static const struct plan_gaps limits = { .worst_gap_allowed = 0.15, .allowed_s = 60 };

/* A figure of three seeds, of which the last has this gap and time. */
static json_t *figure_of(const struct plan_gaps *allowed, json_t *met, double gap, double seconds)
{
    json_t *const figure = json_object();
    struct plan_gaps gaps;

    plan_gaps_new(3, allowed, &gaps);
    for (uint32_t i = 0; i < 3; i++) {
        gaps.times_s[i] = 1;
        gaps.bounds_s[i] = i < 2 ? 0.99 : 1 - gap;
        gaps.processor_s[i] = i < 2 ? 1 : seconds;
    }
    if (met)
        json_object_set_new(figure, "met", met);
    plan_gaps_add(&gaps, figure);
    plan_gaps_free(&gaps);
    return figure;
}

static void expect_verdict(json_t *met, double gap, double seconds, bool expected)
{
    json_t *const figure = figure_of(&limits, met, gap, seconds);

    assert_int_equal(json_is_true(json_object_get(figure, "met")), expected);
    json_decref(figure);
}

static void test_all_seeds_are_within_the_limits(void **state)
{
    (void)state;
    expect_verdict(json_true(), 0.149, 59, true);
    expect_verdict(json_true(), 0.151, 59, false);
    expect_verdict(json_true(), 0.149, 61, false);
    /* The median's verdict stays. */
    expect_verdict(json_false(), 0.149, 59, false);
}

static void test_a_figure_without_a_bar_has_no_verdict(void **state)
{
    json_t *const figure = figure_of(&limits, NULL, 0.9, 100);

    (void)state;
    assert_null(json_object_get(figure, "met"));
    assert_true(json_real_value(json_object_get(figure, "gap_worst")) > 0.89);
    assert_true(json_real_value(json_object_get(figure, "gap_median")) < 0.011);
    json_decref(figure);
}

static void test_any_gap_may_be_allowed(void **state)
{
    json_t *const figure = figure_of(&(struct plan_gaps){ .allowed_s = 60 }, json_true(), 0.9, 1);

    (void)state;
    assert_true(json_is_true(json_object_get(figure, "met")));
    assert_null(json_object_get(figure, "gap_worst_allowed"));
    json_decref(figure);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_seeds_are_within_the_limits),
        cmocka_unit_test(test_a_figure_without_a_bar_has_no_verdict),
        cmocka_unit_test(test_any_gap_may_be_allowed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
