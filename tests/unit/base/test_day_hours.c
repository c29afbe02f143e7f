/* SPDX-License-Identifier: Apache-2.0 */
/* Tests hours of the day: what is taken, what is refused, and which minutes are in them. */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#include <string.h>

#include "base/macros.h"
#include "base/spec/day_hours.h"

static struct day_hours parsed(const char *text)
{
    struct err_msg msg = { { 0 } };
    struct day_hours hours;

    if (day_hours_parse(text, &hours, &msg) != EMBTIER_OK)
        fail_msg("%s: %s", text, msg.text);
    return hours;
}

static uint32_t minute(uint32_t hour, uint32_t more)
{
    return hour * 60 + more;
}

static void test_a_range_begins_with_its_first_minute_and_ends_before_its_last(void **state)
{
    const struct day_hours hours = parsed("12:00-13:30");

    (void)state;
    assert_false(day_hours_has(&hours, minute(11, 59)));
    assert_true(day_hours_has(&hours, minute(12, 0)));
    assert_true(day_hours_has(&hours, minute(13, 29)));
    assert_false(day_hours_has(&hours, minute(13, 30)));
}

static void test_a_range_may_go_past_midnight(void **state)
{
    const struct day_hours hours = parsed("22:00-06:00");

    (void)state;
    assert_true(day_hours_has(&hours, minute(22, 0)));
    assert_true(day_hours_has(&hours, minute(0, 0)));
    assert_true(day_hours_has(&hours, minute(5, 59)));
    assert_false(day_hours_has(&hours, minute(6, 0)));
    assert_false(day_hours_has(&hours, minute(21, 59)));
}

static void test_the_whole_day(void **state)
{
    const struct day_hours all = parsed(""), whole = parsed("00:00-24:00");

    (void)state;
    for (uint32_t i = 0; i < DAY_HOURS_MINUTES; i++) {
        assert_true(day_hours_has(&all, i));
        assert_true(day_hours_has(&whole, i));
        assert_int_equal(day_hours_wait(&whole, i), 0);
    }
}

/* Compares with the minutes that pass until there is one in the hours. */
static void test_the_wait_is_until_the_next_range(void **state)
{
    const struct day_hours hours = parsed("03:00-04:00,12:30-12:31,23:00-24:00");

    (void)state;
    for (uint32_t i = 0; i < DAY_HOURS_MINUTES; i++) {
        uint32_t wait = 0;

        while (!day_hours_has(&hours, (i + wait) % DAY_HOURS_MINUTES))
            wait++;
        assert_int_equal(day_hours_wait(&hours, i), wait);
    }
}

static void test_other_texts_are_refused(void **state)
{
    static const char *const texts[] = { "22",           "22:00",        "22:00-",
                                         "22:00-6:00",   "24:00-06:00",  "22:00-24:01",
                                         "22:60-23:00",  "25:00-26:00",  "10:00-10:00",
                                         "10:00-11:00,", ",10:00-11:00", "10:00-11:00 12:00-13:00",
                                         "10:00-11:00;", "-1:00-02:00",  "all day" };
    struct day_hours hours;
    struct err_msg msg;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        if (day_hours_parse(texts[i], &hours, &msg) != EMBTIER_INVALID)
            fail_msg("%s is taken", texts[i]);
        assert_non_null(strstr(msg.text, "22:00-06:00"));
    }
}

static void test_hours_are_printed_as_they_are_written(void **state)
{
    static const char *const texts[] = { "", "22:00-06:00", "00:00-24:00",
                                         "01:02-03:04,05:06-07:08,23:59-00:00" };
    char text[DAY_HOURS_TEXT_BYTES];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        const struct day_hours hours = parsed(texts[i]);

        day_hours_print(&hours, text);
        assert_string_equal(text, texts[i]);
    }
}

static void test_ranges_are_few(void **state)
{
    struct err_msg msg;
    struct day_hours hours = parsed("00:00-00:01,01:00-01:01,02:00-02:01,03:00-03:01,04:00-04:01,"
                                    "05:00-05:01,06:00-06:01,07:00-07:01");

    (void)state;
    assert_int_equal(hours.count, DAY_HOURS_MAX);
    assert_int_equal(day_hours_parse("00:00-00:01,01:00-01:01,02:00-02:01,03:00-03:01,04:00-04:01,"
                                     "05:00-05:01,06:00-06:01,07:00-07:01,08:00-08:01",
                                     &hours, &msg),
                     EMBTIER_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_range_begins_with_its_first_minute_and_ends_before_its_last),
        cmocka_unit_test(test_a_range_may_go_past_midnight),
        cmocka_unit_test(test_the_whole_day),
        cmocka_unit_test(test_the_wait_is_until_the_next_range),
        cmocka_unit_test(test_other_texts_are_refused),
        cmocka_unit_test(test_hours_are_printed_as_they_are_written),
        cmocka_unit_test(test_ranges_are_few),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
