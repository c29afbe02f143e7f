/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that a signal ends a stop only when nothing is being written and the log has said so. */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#include "daemon/control/process/stop_patience.h"

#define BEGAN UINT64_C(5000000000)

static struct stop_patience begun(void)
{
    struct stop_patience patience;

    stop_patience_begin(&patience, 100, BEGAN);
    return patience;
}

static void test_rows_that_are_written_are_never_given_up(void **state)
{
    struct stop_patience patience = begun();
    uint64_t now_ns = BEGAN;

    (void)state;
    assert_false(stop_patience_ends(&patience, 100, false, now_ns));
    for (uint64_t left = 99; left > 0; left--) {
        now_ns += STOP_STUCK_NS - 1; /* slow, but fewer rows are left */
        assert_true(stop_patience_is_due(&patience, now_ns));
        assert_int_equal(stop_patience_tell(&patience, left, false, now_ns), STOP_GOES_ON);
        assert_false(stop_patience_is_due(&patience, now_ns));
        assert_false(stop_patience_ends(&patience, left, false, now_ns));
    }
}

static void test_a_disk_that_refuses_is_given_up_once_that_is_told(void **state)
{
    struct stop_patience patience = begun();

    (void)state;
    assert_false(stop_patience_ends(&patience, 100, true, BEGAN + 1));
    assert_false(stop_patience_is_due(&patience, BEGAN + STOP_TELL_NS - 1));
    assert_int_equal(stop_patience_tell(&patience, 100, true, BEGAN + STOP_TELL_NS), STOP_FAILS);
    assert_true(stop_patience_ends(&patience, 100, true, BEGAN + STOP_TELL_NS + 1));
    /* The disk takes rows again, and the log has not said so yet. */
    assert_false(stop_patience_ends(&patience, 99, false, BEGAN + STOP_TELL_NS + 2));
    assert_int_equal(stop_patience_tell(&patience, 98, false, BEGAN + 2 * STOP_TELL_NS),
                     STOP_GOES_ON);
    assert_false(stop_patience_ends(&patience, 98, true, BEGAN + 2 * STOP_TELL_NS + 1));
}

static void test_a_disk_that_hangs_is_given_up_once_that_is_told(void **state)
{
    struct stop_patience patience = begun();

    (void)state;
    assert_int_equal(stop_patience_tell(&patience, 100, false, BEGAN + STOP_STUCK_NS - 1),
                     STOP_GOES_ON);
    assert_false(stop_patience_ends(&patience, 100, false, BEGAN + STOP_STUCK_NS));
    assert_int_equal(stop_patience_tell(&patience, 100, false, BEGAN + STOP_STUCK_NS), STOP_STUCK);
    assert_true(stop_patience_ends(&patience, 100, false, BEGAN + STOP_STUCK_NS));
    assert_false(stop_patience_ends(&patience, 99, false, BEGAN + STOP_STUCK_NS + 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_that_are_written_are_never_given_up),
        cmocka_unit_test(test_a_disk_that_refuses_is_given_up_once_that_is_told),
        cmocka_unit_test(test_a_disk_that_hangs_is_given_up_once_that_is_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
