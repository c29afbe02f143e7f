/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that slow requests are logged up to a number a second, and that all others are counted. */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#include <stdlib.h>
#include <string.h>

#include "daemon/engine/sessions/session.h"
#include "daemon/engine/sessions/slow_log.h"

#define SECOND UINT64_C(1000000000)

static bool add_at(struct slow_log *log, uint64_t now_ns)
{
    static struct session session;
    const struct request_time time = { .taken_ns = now_ns - 5, .op = OP_GET, .rows = 3 };

    return slow_log_add(log, &session, &time, &(struct slow_request){ .now_ns = now_ns });
}

static void test_a_limit_of_0_takes_nothing(void **state)
{
    struct slow_log log = { .limit_ns = 0 };

    (void)state;
    assert_false(slow_log_takes(&log, UINT64_MAX));
    log.limit_ns = 1000;
    assert_false(slow_log_takes(&log, 999));
    assert_true(slow_log_takes(&log, 1000));
}

static void test_others_of_a_second_are_counted(void **state)
{
    struct slow_log log = { .limit_ns = 1 };

    (void)state;
    for (uint32_t i = 0; i < SLOW_LINES; i++)
        assert_true(add_at(&log, 7 * SECOND + i));
    for (uint32_t i = 0; i < 100; i++)
        assert_false(add_at(&log, 8 * SECOND - 1));
    assert_int_equal(log.left_out, 100);
    assert_true(add_at(&log, 8 * SECOND));
    assert_int_equal(log.left_out, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_limit_of_0_takes_nothing),
        cmocka_unit_test(test_others_of_a_second_are_counted),
    };

    return cmocka_run_group_tests_name("slow_log", tests, NULL, NULL);
}
