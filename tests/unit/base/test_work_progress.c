/* SPDX-License-Identifier: Apache-2.0 */
/* Tests how far work is that goes on side by side. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json/figures_json.h"
#include "base/work_progress.h"

static const struct work_progress none, begins = { 0, 40, false, 0 }, fast = { 30, 40, true, 500 },
                                        slow = { 5, 20, true, 4000 };

static struct work_progress sum_of(const struct work_progress *a, const struct work_progress *b)
{
    struct work_progress sum = { 0 };

    work_progress_add(&sum, a);
    work_progress_add(&sum, b);
    return sum;
}

static void assert_json(const struct work_progress *progress, const char *expected)
{
    json_t *const json = figures_json_progress(progress);
    char *const text = json_dumps(json, JSON_COMPACT);

    assert_string_equal(text, expected);
    free(text);
    json_decref(json);
}

static void test_the_slowest_part_tells_when_all_end(void **state)
{
    (void)state;
    for (int turned = 0; turned < 2; turned++) {
        const struct work_progress sum = turned ? sum_of(&slow, &fast) : sum_of(&fast, &slow);

        assert_int_equal(sum.done_bytes, 35);
        assert_int_equal(sum.total_bytes, 60);
        assert_float_equal(work_progress_remaining_s(&sum), 4, 1e-9);
        assert_float_equal(work_progress_share(&sum), 35.0 / 60, 1e-9);
        assert_json(&sum, "{\"done_bytes\":35,\"total_bytes\":60,\"remaining_s\":4}");
    }
}

static void test_the_end_is_unknown_while_that_of_a_part_is(void **state)
{
    (void)state;
    for (int turned = 0; turned < 2; turned++) {
        struct work_progress sum = turned ? sum_of(&begins, &fast) : sum_of(&fast, &begins);

        work_progress_add(&sum, &slow);
        assert_int_equal(sum.total_bytes, 100);
        assert_true(isnan(work_progress_remaining_s(&sum)));
        assert_json(&sum, "{\"done_bytes\":35,\"total_bytes\":100,\"remaining_s\":null}");
    }
}

static void test_what_does_not_run_counts_for_nothing(void **state)
{
    const struct work_progress idle = sum_of(&none, &none), one = sum_of(&none, &fast);

    (void)state;
    assert_true(isnan(work_progress_remaining_s(&idle)) && isnan(work_progress_share(&idle)));
    assert_json(&idle, "{\"done_bytes\":0,\"total_bytes\":0,\"remaining_s\":null}");
    assert_json(&one, "{\"done_bytes\":30,\"total_bytes\":40,\"remaining_s\":0.5}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_slowest_part_tells_when_all_end),
        cmocka_unit_test(test_the_end_is_unknown_while_that_of_a_part_is),
        cmocka_unit_test(test_what_does_not_run_counts_for_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
