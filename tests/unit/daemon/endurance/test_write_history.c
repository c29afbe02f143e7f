/* SPDX-License-Identifier: Apache-2.0 */
/* Does a history know what was written in the last hour, day and week, whatever the clock does? */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/endurance/write_history.h"
#include "tests/seed.h"

#define MINUTE UINT64_C(60000)
#define HOUR   (60 * MINUTE)
#define DAY    (24 * HOUR)
/* In the middle of a minute and of an hour. */
#define BEGIN (UINT64_C(20000) * DAY + 30 * MINUTE + 30000)

static struct write_rate rate(const struct write_history *history, enum write_window window,
                              uint64_t now_ms)
{
    return write_history_rate(history, window, now_ms);
}

static void test_a_new_history_begins_with_itself(void **state)
{
    struct write_history history;
    struct write_rate hour;

    (void)state;
    write_history_begin(&history, BEGIN);
    hour = rate(&history, WRITE_HOUR, BEGIN);
    assert_int_equal(hour.ms, 0);
    assert_true(write_rate_daily(&hour) == 0);
    write_history_add(&history, BEGIN + 10000, 500);
    for (uint32_t w = 0; w < WRITE_WINDOWS; w++) {
        const struct write_rate all = rate(&history, (enum write_window)w, BEGIN + 10000);

        assert_int_equal(all.ms, 10000);
        assert_int_equal(all.bytes, 500);
        assert_true(write_rate_daily(&all) == 500.0 * 8640);
    }
    assert_int_equal(history.past.total_bytes, 500);
}

static void test_bytes_leave_the_windows_in_turn(void **state)
{
    struct write_history history;
    static const uint64_t after[] = { 30 * MINUTE, 61 * MINUTE, 25 * HOUR, 169 * HOUR };

    (void)state;
    write_history_begin(&history, BEGIN);
    write_history_add(&history, BEGIN, 700);
    for (uint32_t gone = 0; gone < ARRAY_LEN(after); gone++) {
        const uint64_t now_ms = BEGIN + after[gone];

        write_history_add(&history, now_ms, 0);
        for (uint32_t w = 0; w <= WRITE_WEEK; w++)
            assert_int_equal(rate(&history, (enum write_window)w, now_ms).bytes,
                             w < gone ? 0 : 700);
        assert_int_equal(rate(&history, WRITE_NOW, now_ms).bytes, 0);
    }
    assert_int_equal(history.past.total_bytes, 700);
    assert_int_equal(rate(&history, WRITE_HOUR, BEGIN + 169 * HOUR).ms, 59 * MINUTE + 30000);
    assert_int_equal(rate(&history, WRITE_DAY, BEGIN + 169 * HOUR).ms,
                     23 * HOUR + 30 * MINUTE + 30000);
}

/* A steady writer has the same rate in all windows, at any moment. */
static void test_a_steady_rate_is_found_in_all_windows(void **state)
{
    struct write_history history;

    (void)state;
    write_history_begin(&history, BEGIN);
    for (uint64_t ms = 10000; ms <= 9 * DAY; ms += 10000) {
        write_history_add(&history, BEGIN + ms, 10000);
        if (ms % (7 * HOUR + 10000) != 0 && ms != 9 * DAY)
            continue;
        for (uint32_t w = 0; w < WRITE_WINDOWS; w++) {
            const struct write_rate now = rate(&history, (enum write_window)w, BEGIN + ms);
            const double daily = write_rate_daily(&now);
            const double error = w == WRITE_NOW ? 0.03 : 0.01; /* it begins between two writes */

            assert_true(daily > (1 - error) * (double)DAY && daily < (1 + error) * (double)DAY);
        }
    }
}

static void test_the_clock_may_be_put_back(void **state)
{
    struct write_history history;

    (void)state;
    write_history_begin(&history, BEGIN);
    write_history_add(&history, BEGIN + 2 * HOUR, 100);
    write_history_add(&history, BEGIN + HOUR, 10); /* into the newest bucket */
    assert_int_equal(rate(&history, WRITE_HOUR, BEGIN + 2 * HOUR).bytes, 110);
    assert_int_equal(rate(&history, WRITE_HOUR, BEGIN).ms, 0);
    write_history_add(&history, BEGIN - 2 * DAY, 7); /* anew */
    assert_int_equal(history.past.since_ms, BEGIN - 2 * DAY);
    assert_int_equal(rate(&history, WRITE_WEEK, BEGIN - 2 * DAY + MINUTE).bytes, 7);
    assert_int_equal(history.past.total_bytes, 117);
    write_history_add(&history, 5, 1); /* 1970 */
    assert_int_equal(rate(&history, WRITE_WEEK, 5).bytes, 1);
    write_history_add(&history, BEGIN + 1000 * DAY, 2); /* and far ahead */
    assert_int_equal(rate(&history, WRITE_WEEK, BEGIN + 1000 * DAY).bytes, 2);
    assert_int_equal(history.past.total_bytes, 120);
}

/* Nobody saw when: a day of bytes in one look is not a day's bytes in the last minute. */
static void test_bytes_of_a_long_time_are_spread_over_it(void **state)
{
    struct write_history history;
    const uint64_t now_ms = BEGIN + 10 * DAY;
    uint64_t sum = 0;

    (void)state;
    write_history_begin(&history, BEGIN - HOUR);
    write_history_add(&history, BEGIN, 0);
    write_history_spread(&history, BEGIN, now_ms, 10 * DAY + 7); /* a byte a millisecond */
    for (uint32_t w = 0; w < WRITE_WINDOWS; w++) {
        const struct write_rate now = rate(&history, (enum write_window)w, now_ms);
        const double daily = write_rate_daily(&now);

        assert_true(daily > 0.999 * (double)DAY && daily < 1.001 * (double)DAY);
    }
    assert_int_equal(history.past.total_bytes, 10 * DAY + 7);
    assert_int_equal(history.past.seen_ms, now_ms);

    write_history_begin(&history, BEGIN);
    write_history_spread(&history, BEGIN, BEGIN + 3 * HOUR, 1001); /* no byte is lost */
    for (uint32_t i = 0; i < HISTORY_HOURS; i++)
        sum += history.buckets[HISTORY_MINUTES + i];
    assert_int_equal(sum, 1001);
    write_history_spread(&history, BEGIN + 9 * HOUR, BEGIN + 4 * HOUR, 50); /* a clock put back */
    assert_int_equal(rate(&history, WRITE_HOUR, BEGIN + 4 * HOUR).bytes, 50);
}

/* A moment on the edge of a bucket belongs to the one that begins. */
static void test_bytes_of_a_moment_are_in_its_bucket(void **state)
{
    struct write_history history;
    const uint64_t edge_ms = BEGIN + 30 * MINUTE - 30000;

    (void)state;
    write_history_begin(&history, BEGIN);
    write_history_add(&history, edge_ms, 9);
    assert_int_equal(history.buckets[edge_ms / MINUTE % HISTORY_MINUTES], 9);
    assert_int_equal(history.buckets[HISTORY_MINUTES + edge_ms / HOUR % HISTORY_HOURS], 9);
}

static void test_rates_are_known_after_an_hour(void **state)
{
    struct write_history history;

    (void)state;
    write_history_begin(&history, BEGIN);
    assert_false(write_history_is_judged(&history, BEGIN));
    assert_false(write_history_is_judged(&history, BEGIN + HOUR - 1));
    assert_true(write_history_is_judged(&history, BEGIN + HOUR));
    assert_false(write_history_is_judged(&history, BEGIN - HOUR)); /* a clock put back */
}

/* Against a list of all that was ever written. */
static void test_windows_hold_what_a_list_says(void **state)
{
    enum { ADDS = 3000 };
    static struct {
        uint64_t ms, bytes;
    } adds[ADDS];
    struct write_history history;
    uint64_t now_ms = BEGIN;

    (void)state;
    srandom((unsigned)seed_of_test("test_write_history", seed_random()));
    write_history_begin(&history, now_ms);
    for (uint32_t i = 0; i < ADDS; i++) {
        uint64_t hour = 0, day = 0;

        now_ms += (uint64_t)random() % (i % 100 == 0 ? 2 * DAY : 5 * MINUTE);
        adds[i].ms = now_ms;
        adds[i].bytes = (uint64_t)random() % 100000;
        write_history_add(&history, now_ms, adds[i].bytes);
        for (uint32_t j = 0; j <= i; j++) {
            hour += adds[j].ms / MINUTE + 60 > now_ms / MINUTE ? adds[j].bytes : 0;
            day += adds[j].ms / HOUR + 24 > now_ms / HOUR ? adds[j].bytes : 0;
        }
        assert_int_equal(rate(&history, WRITE_HOUR, now_ms).bytes, hour);
        assert_int_equal(rate(&history, WRITE_DAY, now_ms).bytes, day);
    }
}

static void test_json_holds_all_of_it(void **state)
{
    struct write_history history, read = { 0 };
    json_t *json;

    (void)state;
    write_history_begin(&history, BEGIN);
    for (uint64_t i = 0; i < 500; i++)
        write_history_add(&history, BEGIN + i * 17 * MINUTE, i * 1000003);
    json = write_history_to_json(&history);
    assert_true(write_history_from_json(json, &read));
    assert_memory_equal(&read, &history, sizeof(read));
    json_decref(json);
}

/* So many bytes are never written, but a file may say so. */
static void test_numbers_stay_such_that_a_file_holds_them(void **state)
{
    struct write_history history, read = { 0 };
    json_t *json;

    (void)state;
    write_history_begin(&history, BEGIN);
    history.past.total_bytes = WRITE_TOTAL_MAX;
    for (uint32_t i = 0; i < ARRAY_LEN(history.buckets); i++)
        history.buckets[i] = WRITE_BUCKET_MAX;
    write_history_add(&history, BEGIN, 1000);
    assert_int_equal(history.past.total_bytes, WRITE_TOTAL_MAX);
    assert_int_equal(rate(&history, WRITE_WEEK, BEGIN).bytes, HISTORY_HOURS * WRITE_BUCKET_MAX);
    json = write_history_to_json(&history);
    assert_true(write_history_from_json(json, &read));
    assert_memory_equal(&read, &history, sizeof(read));
    json_decref(json);
}

static void test_other_json_is_no_history(void **state)
{
    static const struct {
        const char *key, *value;
    } changes[] = {
        { "since_ms", "-1" },     { "since_ms", "\"1\"" },
        { "total_bytes", "1.5" }, { "seen_ms", "9223372036854775807" },
        { "seen_ms", "null" },    { "minutes", "[]" },
        { "hours", "[1, 2, 3]" }, { "hours", "{}" },
    };
    struct write_history history, read = { .past = { .seen_ms = 77 } };

    (void)state;
    write_history_begin(&history, BEGIN);
    for (size_t i = 0; i < ARRAY_LEN(changes); i++) {
        json_t *const json = write_history_to_json(&history);

        json_object_set_new(json, changes[i].key,
                            json_loads(changes[i].value, JSON_DECODE_ANY, NULL));
        assert_false(write_history_from_json(json, &read));
        json_decref(json);
    }
    assert_int_equal(read.past.seen_ms, 77);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_new_history_begins_with_itself),
        cmocka_unit_test(test_bytes_leave_the_windows_in_turn),
        cmocka_unit_test(test_a_steady_rate_is_found_in_all_windows),
        cmocka_unit_test(test_the_clock_may_be_put_back),
        cmocka_unit_test(test_bytes_of_a_long_time_are_spread_over_it),
        cmocka_unit_test(test_bytes_of_a_moment_are_in_its_bucket),
        cmocka_unit_test(test_rates_are_known_after_an_hour),
        cmocka_unit_test(test_windows_hold_what_a_list_says),
        cmocka_unit_test(test_json_holds_all_of_it),
        cmocka_unit_test(test_numbers_stay_such_that_a_file_holds_them),
        cmocka_unit_test(test_other_json_is_no_history),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
