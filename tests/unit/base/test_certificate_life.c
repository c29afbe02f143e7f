/* SPDX-License-Identifier: Apache-2.0 */
/* test_certificate_life.c: does a certificate expire soon in the last 30 days, or the last third of
 * a shorter life? */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/tls/certificate_life.h"

#define DAY INT64_C(86400)

static void test_a_long_life_ends_soon_in_the_last_thirty_days(void **state)
{
    (void)state;
    assert_false(certificate_expires_soon(365 * DAY, 30 * DAY));
    assert_true(certificate_expires_soon(365 * DAY, 30 * DAY - 1));
    assert_true(certificate_expires_soon(90 * DAY, 30 * DAY - 1));
}

static void test_a_short_life_ends_soon_in_its_last_third(void **state)
{
    (void)state;
    assert_false(certificate_expires_soon(9 * DAY, 9 * DAY));
    assert_false(certificate_expires_soon(9 * DAY, 3 * DAY));
    assert_true(certificate_expires_soon(9 * DAY, 3 * DAY - 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_long_life_ends_soon_in_the_last_thirty_days),
        cmocka_unit_test(test_a_short_life_ends_soon_in_its_last_third),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
