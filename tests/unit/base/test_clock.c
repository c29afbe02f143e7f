/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that limits of waits are moments of the monotonic clock, and that condition variables take
 * them. */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#include <errno.h>

#include "base/clock.h"

#define NS_PER_SECOND UINT64_C(1000000000)

static uint64_t ns_of(const struct timespec *moment)
{
    return (uint64_t)moment->tv_sec * NS_PER_SECOND + (uint64_t)moment->tv_nsec;
}

static void test_a_moment_has_less_than_a_second_of_nanoseconds(void **state)
{
    static const uint64_t moments[] = { 0, 1, NS_PER_SECOND - 1, NS_PER_SECOND,
                                        5 * NS_PER_SECOND + 999999999 };

    (void)state;
    for (uint32_t i = 0; i < sizeof(moments) / sizeof(moments[0]); i++) {
        const struct timespec moment = clock_moment(moments[i]);

        assert_in_range(moment.tv_nsec, 0, NS_PER_SECOND - 1);
        assert_int_equal(ns_of(&moment), moments[i]);
    }
}

static void test_a_limit_is_that_long_from_now(void **state)
{
    static const uint64_t waits[] = { 0, 999999999, NS_PER_SECOND, 3 * NS_PER_SECOND + 1 };

    (void)state;
    for (uint32_t i = 0; i < sizeof(waits) / sizeof(waits[0]); i++) {
        const uint64_t before_ns = clock_now_ns(&clock_monotonic);
        const struct timespec until = clock_until(waits[i]);
        const uint64_t after_ns = clock_now_ns(&clock_monotonic);

        assert_in_range(ns_of(&until), before_ns + waits[i], after_ns + waits[i]);
    }
}

/* By the system's clock, which counts from 1970, the limit would be long over. */
static void test_a_condition_variable_waits_for_the_monotonic_clock(void **state)
{
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    const struct timespec until = clock_until(NS_PER_SECOND / 100);
    pthread_cond_t cond;
    int rc;

    (void)state;
    clock_init_cond(&cond);
    pthread_mutex_lock(&lock);
    do
        rc = pthread_cond_timedwait(&cond, &lock, &until);
    while (rc == 0);
    pthread_mutex_unlock(&lock);
    assert_int_equal(rc, ETIMEDOUT);
    assert_true(clock_now_ns(&clock_monotonic) >= ns_of(&until));
    pthread_cond_destroy(&cond);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_moment_has_less_than_a_second_of_nanoseconds),
        cmocka_unit_test(test_a_limit_is_that_long_from_now),
        cmocka_unit_test(test_a_condition_variable_waits_for_the_monotonic_clock),
    };

    return cmocka_run_group_tests_name("clock", tests, NULL, NULL);
}
