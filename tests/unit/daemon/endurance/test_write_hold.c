/* SPDX-License-Identifier: Apache-2.0 */
/* Do a device's writes stay within the budget of a day, whatever rows cost and others write? */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */

#include "base/macros.h"
#include "daemon/endurance/write_hold.h"

#define SECOND UINT64_C(1000)
#define BEGIN  (UINT64_C(20000) * 86400 * SECOND)
#define RATE   UINT64_C(1000000) /* bytes a second */
#define BUDGET (RATE * 86400)

static uint64_t look(struct write_hold *hold, uint64_t second, uint64_t day_bytes,
                     uint64_t written_bytes)
{
    return write_hold_look(hold, &(struct device_look){ .now_ms = BEGIN + second * SECOND,
                                                        .budget_bytes = BUDGET,
                                                        .day_bytes = day_bytes,
                                                        .written_bytes = written_bytes });
}

static void test_it_begins_above_a_day_s_bytes_and_ends_well_below(void **state)
{
    struct write_hold hold = { .seen_ms = BEGIN };

    (void)state;
    assert_int_equal(look(&hold, 1, BUDGET, RATE), 0);
    assert_false(hold.is_held);
    assert_int_equal(look(&hold, 2, BUDGET + 1, RATE), RATE);
    assert_true(hold.is_held);
    (void)look(&hold, 3, BUDGET * 9 / 10, RATE); /* it would soon begin again */
    assert_true(hold.is_held);
    assert_int_equal(look(&hold, 4, BUDGET * 79 / 100, RATE), 0);
    assert_false(hold.is_held);
}

static void test_without_a_limit_nothing_is_held(void **state)
{
    struct write_hold hold = { .is_held = true, .seen_ms = BEGIN };

    (void)state;
    (void)write_hold_look(
        &hold, &(struct device_look){ .now_ms = BEGIN + SECOND, .day_bytes = UINT64_MAX });
    assert_false(hold.is_held);
}

/* Each row is written @cost times: when it is flushed, and later by compactions. */
static uint64_t write_for_an_hour(uint64_t cost, uint64_t others)
{
    struct write_hold hold = { .seen_ms = BEGIN };
    uint64_t rows = look(&hold, 1, BUDGET + 1, 0), waiting = 0, sum = 0;

    for (uint64_t second = 2; second <= 3600; second++) {
        const uint64_t flushed = second % 60 == 0 ? waiting * cost : 0; /* in bursts */

        waiting = flushed ? rows : waiting + rows;
        rows = look(&hold, second, BUDGET + 1, flushed + others);
        assert_true(hold.is_held && rows > 0);
        sum += flushed;
    }
    return sum;
}

static void test_the_device_takes_no_more_than_its_rate_whatever_rows_cost(void **state)
{
    (void)state;
    for (uint64_t cost = 2; cost <= 8; cost *= 2)
        assert_in_range(write_for_an_hour(cost, 0), RATE * 3600 / 2, RATE * 3600 * 5 / 4);
}

/* Rows wait, but for ever they do not. */
static void test_what_others_write_leaves_rows_a_tenth(void **state)
{
    (void)state;
    assert_in_range(write_for_an_hour(1, RATE / 2), RATE * 3600 / 3, RATE * 3600 * 2 / 3);
    assert_in_range(write_for_an_hour(1, 5 * RATE), RATE * 3600 / 12, RATE * 3600 / 9);
}

/* A small budget is a drive that is too small, and no reason to stop. */
static void test_rows_never_stop(void **state)
{
    struct write_hold hold = { .is_held = true, .seen_ms = BEGIN };
    const struct device_look small = {
        .now_ms = BEGIN + SECOND, .budget_bytes = 1, .day_bytes = 2, .written_bytes = 1 << 30
    };

    (void)state;
    assert_int_equal(write_hold_look(&hold, &small), WRITE_HOLD_LEAST_BYTES);
}

/* A machine that slept did not write; it may not catch up, either. */
static void test_a_pause_saves_nothing_up(void **state)
{
    struct write_hold hold = { .seen_ms = BEGIN };

    (void)state;
    (void)look(&hold, 1, BUDGET + 1, 0);
    assert_in_range(look(&hold, 100000, BUDGET + 1, 0), RATE, 10 * RATE);
    assert_in_range(look(&hold, 100001, BUDGET + 1, 3 * RATE), RATE / 10, RATE / 10 + 1);
    assert_int_equal(look(&hold, 5, BUDGET + 1, 0), 0); /* the clock was put back */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_it_begins_above_a_day_s_bytes_and_ends_well_below),
        cmocka_unit_test(test_without_a_limit_nothing_is_held),
        cmocka_unit_test(test_the_device_takes_no_more_than_its_rate_whatever_rows_cost),
        cmocka_unit_test(test_what_others_write_leaves_rows_a_tenth),
        cmocka_unit_test(test_rows_never_stop),
        cmocka_unit_test(test_a_pause_saves_nothing_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
