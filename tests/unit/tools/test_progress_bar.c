/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that the bar shows how far the work is and how long it will take, and no more than it
 * knows. */
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "tools/cli/progress_bar.h"

#define SECOND UINT64_C(1000000000)

static int terminal = -1, standard_error = -1;
static char shown[1024];
static uint64_t held_ns = 1000 * SECOND;

static uint64_t held_now_ns(void *context)
{
    (void)context;
    return held_ns;
}

/* Replaces base's clock: time moves only in update(). */
const struct clock clock_monotonic = { .now_ns = held_now_ns };

/* Makes standard error one end of a terminal during a test. */
static int setup(void **state)
{
    int other;

    (void)state;
    terminal = posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK);
    assert_true(terminal >= 0 && grantpt(terminal) == 0 && unlockpt(terminal) == 0);
    other = open(ptsname(terminal), O_RDWR | O_NOCTTY);
    standard_error = dup(STDERR_FILENO);
    assert_true(other >= 0 && standard_error >= 0);
    assert_int_equal(dup2(other, STDERR_FILENO), STDERR_FILENO);
    close(other);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    dup2(standard_error, STDERR_FILENO);
    close(standard_error);
    close(terminal);
    return 0;
}

/* Updates the bar after @seconds without news. */
static void update(struct progress_bar *bar, uint64_t seconds, uint64_t done, uint64_t total,
                   const char *unit)
{
    struct pollfd other = { .fd = terminal, .events = POLLIN };
    size_t length = 0;

    held_ns += seconds * SECOND;
    progress_bar_update(bar, done, total, unit);
    fputs("\a", stderr); /* marks the end, since the system delivers the output in its own time */
    while (length == 0 || shown[length - 1] != '\a') {
        ssize_t count;

        assert_true(poll(&other, 1, 60000) > 0);
        count = read(terminal, shown + length, sizeof(shown) - length);
        assert_true(count > 0);
        length += (size_t)count;
    }
    shown[length - 1] = '\0';
}

static void assert_shown(const char *text)
{
    if (!strstr(shown, text))
        fail_msg("no `%s` in `%s`", text, shown);
}

static void assert_not_shown(const char *text)
{
    if (strstr(shown, text))
        fail_msg("`%s` in `%s`", text, shown);
}

static void test_the_time_left_is_from_the_pace_so_far(void **state)
{
    struct progress_bar bar;

    (void)state;
    progress_bar_begin(&bar, "working", "it goes on");
    update(&bar, 900, 90, 100, "rows");
    assert_shown("working [###########################   ]  90%  90 rows, 1m40s left");
    update(&bar, 50, 95, 100, "rows");
    assert_shown(" 95%  95 rows, 50s left");
    update(&bar, 10, 100, 100, "rows");
    assert_shown("100%  100 rows");
    assert_not_shown("left");
    progress_bar_end(&bar);
}

static void test_a_stage_of_another_unit_has_its_own_pace(void **state)
{
    struct progress_bar bar;

    (void)state;
    progress_bar_begin(&bar, "working", "it goes on");
    update(&bar, 1000, 50, 100, "rows");
    update(&bar, 0, 50, 100, "bytes"); /* bytes that were there before */
    assert_shown(" 50%  50 bytes");
    assert_not_shown("left");
    update(&bar, 400, 90, 100, "bytes");
    assert_shown(" 90%  90 bytes, 1m40s left");
    progress_bar_end(&bar);
}

static void test_so_has_one_that_counts_from_the_begin_again(void **state)
{
    struct progress_bar bar;

    (void)state;
    progress_bar_begin(&bar, "working", "it goes on");
    update(&bar, 1000, 90, 100, "rows");
    update(&bar, 0, 10, 60, "rows");
    assert_not_shown("left");
    update(&bar, 400, 50, 60, "rows");
    assert_shown(" 83%  50 rows, 1m40s left");
    progress_bar_end(&bar);
}

static void test_without_a_total_there_is_a_count_only(void **state)
{
    struct progress_bar bar;

    (void)state;
    progress_bar_begin(&bar, "working", "it goes on");
    update(&bar, 10, 1234, 0, "rows");
    assert_shown("working 1,234 rows");
    assert_not_shown("%");
    assert_not_shown("#");
    assert_not_shown("left");
    progress_bar_end(&bar);
}

static void test_what_is_told_of_before_it_is_begun_has_the_pace_from_then_on(void **state)
{
    struct progress_bar bar;

    (void)state;
    progress_bar_begin(&bar, "working", "it goes on");
    update(&bar, 1000, 0, 100, "rows"); /* it has waited this long */
    assert_shown("  0%  0 rows");
    assert_not_shown("left");
    update(&bar, 100, 50, 100, "rows");
    assert_shown(" 50%  50 rows, 1m40s left");
    progress_bar_end(&bar);
}

static void test_in_the_first_seconds_no_time_is_shown(void **state)
{
    struct progress_bar bar;

    (void)state;
    progress_bar_begin(&bar, "working", "it goes on");
    update(&bar, 1, 10, 1000, "rows");
    assert_not_shown("left");
    update(&bar, 1, 500, 1000, "rows");
    assert_shown(" 50%  500 rows");
    assert_not_shown("left");
    update(&bar, 2, 500, 1000, "rows");
    assert_shown(" 50%  500 rows, 4s left");
    update(&bar, 1, 0, 1000, "bytes"); /* another stage, whose speed is not known either */
    update(&bar, 2, 500, 1000, "bytes");
    assert_not_shown("left");
    progress_bar_end(&bar);
}

static void test_the_time_left_is_steady_while_the_pace_is_about_the_same(void **state)
{
    struct progress_bar bar;
    uint64_t done = 100;

    (void)state;
    progress_bar_begin(&bar, "working", "it goes on");
    update(&bar, 10, done, 1000, "rows");
    assert_shown("100 rows, 1m30s left");
    for (unsigned turn = 1; turn <= 20; turn++) {
        char expected[64];

        done += turn % 2 ? 16 : 4; /* 10 a second, as before, in unequal reports */
        snprintf(expected, sizeof(expected), ", 1m%02us left", 30 - turn);
        update(&bar, 1, done, 1000, "rows");
        assert_shown(expected);
    }
    update(&bar, 30, done, 1000, "rows"); /* a stall: the pace is 5 a second now */
    assert_shown("300 rows, 2m20s left");
    progress_bar_end(&bar);
}

static void test_a_terminal_that_cannot_draw_shows_nothing(void **state)
{
    struct progress_bar bar;

    (void)state;
    setenv("TERM", "dumb", 1);
    progress_bar_begin(&bar, "working", "it goes on");
    update(&bar, 10, 50, 100, "rows");
    assert_string_equal(shown, "");
    progress_bar_end(&bar);
    setenv("TERM", "xterm", 1);
}

static void on_interrupt(int signal_number)
{
    (void)signal_number;
}

static void test_interrupts_that_are_ignored_are_so_meanwhile_and_later(void **state)
{
    struct progress_bar bar;

    (void)state;
    signal(SIGINT, SIG_IGN);
    progress_bar_begin(&bar, "working", "it goes on");
    assert_int_equal(raise(SIGINT), 0); /* if not ignored, this ends the test */
    progress_bar_end(&bar);
    assert_int_equal(raise(SIGINT), 0);
    assert_ptr_equal(signal(SIGINT, SIG_DFL), SIG_IGN);
}

static void test_at_the_end_interrupts_do_what_they_did(void **state)
{
    struct progress_bar bar;

    (void)state;
    signal(SIGINT, on_interrupt);
    progress_bar_begin(&bar, "working", "it goes on");
    progress_bar_end(&bar);
    assert_ptr_equal(signal(SIGINT, SIG_DFL), on_interrupt);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_the_time_left_is_from_the_pace_so_far, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_a_stage_of_another_unit_has_its_own_pace, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_so_has_one_that_counts_from_the_begin_again, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_without_a_total_there_is_a_count_only, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(
            test_what_is_told_of_before_it_is_begun_has_the_pace_from_then_on, setup, teardown),
        cmocka_unit_test_setup_teardown(test_in_the_first_seconds_no_time_is_shown, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(
            test_the_time_left_is_steady_while_the_pace_is_about_the_same, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_terminal_that_cannot_draw_shows_nothing, setup,
                                        teardown),
        cmocka_unit_test(test_interrupts_that_are_ignored_are_so_meanwhile_and_later),
        cmocka_unit_test(test_at_the_end_interrupts_do_what_they_did),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
