/* SPDX-License-Identifier: Apache-2.0 */
/* How long do drives last, and is the range as wide as what is not known? */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#include <math.h>

#include "base/macros.h"
#include "tools/cli/endurance/life.h"

#define UNKNOWN ((double)NAN)
#define TB      1e12
#define YEAR    365.0

static struct life life_of(struct life_inputs inputs)
{
    struct life life;

    life_compute(&inputs, &life);
    return life;
}

static void assert_near(double value, double expected)
{
    if (!(fabs(value - expected) <= 1e-9 * fabs(expected)))
        fail_msg("%.12g is not %.12g", value, expected);
}

/* 700 TB of 1,000 are left, at 1 TB a day in the last week, and 2 and 0.5 TB in the shorter ones.
 */
static void test_the_rating_less_what_was_written_is_left(void **state)
{
    const struct life life = life_of((struct life_inputs){
        .rated_bytes = 1000 * TB,
        .written_bytes = 300 * TB,
        .used_percent = UNKNOWN,
        .history_bytes = 5 * TB,
        .daily_bytes = { 2 * TB, 0.5 * TB, 1 * TB },
    });

    (void)state;
    assert_true(life.is_counted);
    assert_near(life.written_bytes, 300 * TB);
    assert_near(life.left_bytes, 700 * TB);
    assert_near(life.years, 700 / YEAR);
    assert_near(life.least_years, 350 / YEAR);
    assert_near(life.most_years, 1400 / YEAR);
}

/* A drive that used 10 % for 100 TB takes 900 TB more; with 9.5 and 10.5 %, 953 and 852 TB. */
static void test_a_drive_s_own_percentage_widens_the_range(void **state)
{
    struct life_inputs inputs = { .rated_bytes = 700 * TB,
                                  .written_bytes = 100 * TB,
                                  .used_percent = 10,
                                  .daily_bytes = { TB, TB, TB } };
    struct life life = life_of(inputs);

    (void)state;
    assert_near(life.years, 600 / YEAR);
    assert_near(life.least_years, 600 / YEAR);
    assert_near(life.most_years, 100 * 90.5 / 9.5 / YEAR);
    inputs.rated_bytes = UNKNOWN; /* the drive alone */
    life = life_of(inputs);
    assert_near(life.left_bytes, 900 * TB);
    assert_near(life.years, 900 / YEAR);
    assert_near(life.least_years, 100 * 89.5 / 10.5 / YEAR);
    assert_near(life.most_years, 100 * 90.5 / 9.5 / YEAR);
}

static void test_a_used_up_life_is_zero_and_not_less(void **state)
{
    const struct life life = life_of((struct life_inputs){ .rated_bytes = 700 * TB,
                                                           .written_bytes = 2000 * TB,
                                                           .used_percent = 255,
                                                           .daily_bytes = { TB, TB, TB } });

    (void)state;
    assert_true(life.left_bytes == 0 && life.years == 0);
    assert_true(life.least_years == 0 && life.most_years == 0);
}

/* Below 1 % a percentage says nothing. */
static void test_a_new_drive_without_a_rating_is_not_known(void **state)
{
    const struct life life = life_of((struct life_inputs){ .rated_bytes = UNKNOWN,
                                                           .written_bytes = TB,
                                                           .used_percent = 0,
                                                           .daily_bytes = { TB, TB, TB } });

    (void)state;
    assert_true(isnan(life.left_bytes) && isnan(life.years));
    assert_near(life.written_bytes, TB);
}

static void test_without_the_drive_s_count_the_history_is_a_lower_bound(void **state)
{
    const struct life life = life_of((struct life_inputs){ .rated_bytes = 700 * TB,
                                                           .written_bytes = UNKNOWN,
                                                           .used_percent = 10,
                                                           .history_bytes = 50 * TB,
                                                           .daily_bytes = { 0, UNKNOWN, 2 * TB } });

    (void)state;
    assert_false(life.is_counted);
    assert_near(life.written_bytes, 50 * TB);
    assert_near(life.years, 325 / YEAR);
    assert_near(life.least_years, 325 / YEAR); /* idle windows do not count */
    assert_near(life.most_years, 325 / YEAR);
}

/* A young history has no rates. */
static void test_without_rates_nothing_ends(void **state)
{
    const struct life life =
        life_of((struct life_inputs){ .rated_bytes = 700 * TB,
                                      .written_bytes = 100 * TB,
                                      .used_percent = 50,
                                      .daily_bytes = { UNKNOWN, UNKNOWN, UNKNOWN } });

    (void)state;
    assert_near(life.left_bytes, 600 * TB);
    assert_true(isnan(life.years) && isnan(life.least_years) && isnan(life.most_years));
}

/* ---- Several drives ---- */

/* One drive takes nearly all the writes. Together they would last for 5 years. */
static void test_the_drive_that_wears_out_first_ends_it(void **state)
{
    static const double daily[] = { 0.1 * TB, 3.9 * TB, 0 };
    struct life lives[ARRAY_LEN(daily)];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(daily); i++)
        lives[i] = life_of((struct life_inputs){ .rated_bytes = 3650 * TB,
                                                 .written_bytes = 100 * TB,
                                                 .used_percent = UNKNOWN,
                                                 .daily_bytes = { daily[i], daily[i], daily[i] } });
    assert_int_equal(life_first(lives, ARRAY_LEN(lives)), 1);
    assert_near(lives[1].years, 3550 / 3.9 / YEAR);
    lives[1].years = UNKNOWN; /* as if its rating were not known */
    assert_int_equal(life_first(lives, ARRAY_LEN(lives)), 0);
    lives[0].years = UNKNOWN;
    assert_int_equal(life_first(lives, ARRAY_LEN(lives)), 0);
    lives[2].years = 7;
    assert_int_equal(life_first(lives, ARRAY_LEN(lives)), 2);
}

static void test_a_rating_is_shared_by_capacity(void **state)
{
    const double known[] = { 1 * TB, 3 * TB }, other[] = { 1 * TB, UNKNOWN };

    (void)state;
    assert_near(life_share(800 * TB, known, 2, 0), 200 * TB);
    assert_near(life_share(800 * TB, known, 2, 1), 600 * TB);
    assert_near(life_share(800 * TB, other, 2, 1), 400 * TB);
    assert_true(isnan(life_share(UNKNOWN, known, 2, 0)));
}

static void test_an_idle_server_has_no_life(void **state)
{
    const struct life life = life_of((struct life_inputs){ .rated_bytes = 700 * TB,
                                                           .written_bytes = UNKNOWN,
                                                           .used_percent = UNKNOWN,
                                                           .history_bytes = 0,
                                                           .daily_bytes = { 0, 0, 0 } });

    (void)state;
    assert_near(life.left_bytes, 700 * TB);
    assert_true(isnan(life.years) && isnan(life.least_years) && isnan(life.most_years));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_rating_less_what_was_written_is_left),
        cmocka_unit_test(test_a_drive_s_own_percentage_widens_the_range),
        cmocka_unit_test(test_a_used_up_life_is_zero_and_not_less),
        cmocka_unit_test(test_a_new_drive_without_a_rating_is_not_known),
        cmocka_unit_test(test_without_the_drive_s_count_the_history_is_a_lower_bound),
        cmocka_unit_test(test_without_rates_nothing_ends),
        cmocka_unit_test(test_the_drive_that_wears_out_first_ends_it),
        cmocka_unit_test(test_a_rating_is_shared_by_capacity),
        cmocka_unit_test(test_an_idle_server_has_no_life),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
