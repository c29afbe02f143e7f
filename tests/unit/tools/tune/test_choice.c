/* SPDX-License-Identifier: Apache-2.0 */
/* Is the recommended layout the best by what the user prefers, and better by more than noise? */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#include <string.h>

#include "tools/cli/tune/choice.h"

static void put(struct tune_figures *figures, enum config_layout layout, double amplification,
                double reads_per_s, double space)
{
    figures[layout] = (struct tune_figures){ .is_tried = true,
                                             .turns = 1,
                                             .amplification.value = amplification,
                                             .reads_per_s.value = reads_per_s,
                                             .space.value = space };
}

static enum config_layout choose(const struct tune_figures *figures,
                                 enum tune_preference preference)
{
    struct err_msg reason = { { 0 } };
    const enum config_layout best = tune_choose(figures, preference, &reason);

    assert_true(strlen(reason.text) > 0);
    return best;
}

static void test_each_preference_has_its_own_figure(void **state)
{
    struct tune_figures figures[LAYOUT_COUNT] = { { 0 } };

    (void)state;
    put(figures, LAYOUT_LEVELED, 20, 1000, 1.1);
    put(figures, LAYOUT_UNIVERSAL, 10, 950, 1.9);
    put(figures, LAYOUT_BLOB, 3, 600, 1.5);
    assert_int_equal(choose(figures, TUNE_WRITES), LAYOUT_BLOB);
    assert_int_equal(choose(figures, TUNE_READS), LAYOUT_LEVELED);
    assert_int_equal(choose(figures, TUNE_SPACE), LAYOUT_LEVELED);
    /* The least writer reads far less than the best. */
    assert_int_equal(choose(figures, TUNE_BALANCE), LAYOUT_UNIVERSAL);
}

static void test_noise_changes_no_layout(void **state)
{
    struct tune_figures figures[LAYOUT_COUNT] = { { 0 } };

    (void)state;
    put(figures, LAYOUT_LEVELED, 10, 1000, 1);
    put(figures, LAYOUT_UNIVERSAL, 9.6, 1040, 0.96);
    for (uint32_t i = 0; i < TUNE_PREFERENCE_COUNT; i++)
        assert_int_equal(choose(figures, (enum tune_preference)i), LAYOUT_LEVELED);
    put(figures, LAYOUT_UNIVERSAL, 9.4, 1060, 0.94);
    for (uint32_t i = 0; i < TUNE_PREFERENCE_COUNT; i++)
        assert_int_equal(choose(figures, (enum tune_preference)i), LAYOUT_UNIVERSAL);
}

static void test_only_tried_layouts_are_recommended(void **state)
{
    struct tune_figures figures[LAYOUT_COUNT] = { { 0 } };

    (void)state;
    put(figures, LAYOUT_BLOB, 30, 1, 9);
    for (uint32_t i = 0; i < TUNE_PREFERENCE_COUNT; i++)
        assert_int_equal(choose(figures, (enum tune_preference)i), LAYOUT_BLOB);
}

static void put_turns(struct tune_figures *figures, enum config_layout layout, double value,
                      double least, double most)
{
    put(figures, layout, value, 1000, 1);
    figures[layout].amplification.least = least;
    figures[layout].amplification.most = most;
}

/* A turn that writes next to nothing has its rows still in write buffers. */
static void test_turns_that_wrote_nothing_are_told(void **state)
{
    struct tune_figures figures[LAYOUT_COUNT] = { { 0 } };
    struct err_msg why = { { 0 } };

    (void)state;
    put_turns(figures, LAYOUT_LEVELED, 1.4, 1.0, 2.2);
    assert_false(tune_uneven(figures, &why));
    put_turns(figures, LAYOUT_BLOB, 0.8, 0, 1.7);
    assert_true(tune_uneven(figures, &why));
    assert_non_null(strstr(why.text, "turns of blob wrote 0.0 to 1.7 bytes"));
    assert_true(tune_uneven(figures, NULL));
    /* Updates that meet in write buffers need no drive at all. */
    put_turns(figures, LAYOUT_LEVELED, 0.2, 0, 0.4);
    put_turns(figures, LAYOUT_BLOB, 0.1, 0, 0.3);
    assert_true(tune_is_idle(figures));
    assert_false(tune_uneven(figures, &why));
}

static void check_reason(const struct tune_figures *figures, const char *part)
{
    struct err_msg reason = { { 0 } };

    (void)tune_choose(figures, TUNE_BALANCE, &reason);
    if (!strstr(reason.text, part))
        fail_msg("%s", reason.text);
}

static void test_the_reason_fits_the_figures(void **state)
{
    struct tune_figures figures[LAYOUT_COUNT] = { { 0 } };

    (void)state;
    put(figures, LAYOUT_LEVELED, 10, 1000, 1);
    put(figures, LAYOUT_UNIVERSAL, 9.6, 1000, 1);
    check_reason(figures, "it writes 10.0 bytes for each byte of rows, and no other is better");
    put(figures, LAYOUT_BLOB, 1, 100, 1);
    check_reason(figures, "and no other that reads at least 0.9 of the best is better by 5 %");
    put(figures, LAYOUT_UNIVERSAL, 9, 1000, 1);
    check_reason(figures, "it writes the least: 9.0 bytes for each byte of rows, of those");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_preference_has_its_own_figure),
        cmocka_unit_test(test_noise_changes_no_layout),
        cmocka_unit_test(test_the_reason_fits_the_figures),
        cmocka_unit_test(test_turns_that_wrote_nothing_are_told),
        cmocka_unit_test(test_only_tried_layouts_are_recommended),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
