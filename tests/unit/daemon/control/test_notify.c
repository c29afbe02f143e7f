/* SPDX-License-Identifier: Apache-2.0 */
/* Does the server know whether a service manager watches it, and how long it may be silent? */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/macros.h"
#include "daemon/control/process/notify.h"

static void set(const char *name, const char *value)
{
    assert_int_equal(value ? setenv(name, value, 1) : unsetenv(name), 0);
}

static void test_only_the_process_that_is_watched_gives_signs_of_life(void **state)
{
    char own[32], other[32];

    (void)state;
    snprintf(own, sizeof(own), "%d", (int)getpid());
    snprintf(other, sizeof(other), "%d", (int)getppid());
    set("WATCHDOG_USEC", "60000000");
    set("WATCHDOG_PID", own);
    assert_int_equal(notify_watchdog_ns(), UINT64_C(60000000000));
    set("WATCHDOG_PID", NULL);
    assert_int_equal(notify_watchdog_ns(), UINT64_C(60000000000));
    set("WATCHDOG_PID", other);
    assert_int_equal(notify_watchdog_ns(), 0);
}

static void test_without_a_time_there_is_no_watchdog(void **state)
{
    static const char *const times[] = { NULL, "", "x", "-1", "0", "1s", " 5" };

    (void)state;
    set("WATCHDOG_PID", NULL);
    for (size_t i = 0; i < ARRAY_LEN(times); i++) {
        set("WATCHDOG_USEC", times[i]);
        assert_int_equal(notify_watchdog_ns(), 0);
    }
    set("WATCHDOG_USEC", "99999999999999999999999");
    assert_true(notify_watchdog_ns() > UINT64_MAX / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_only_the_process_that_is_watched_gives_signs_of_life),
        cmocka_unit_test(test_without_a_time_there_is_no_watchdog),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
