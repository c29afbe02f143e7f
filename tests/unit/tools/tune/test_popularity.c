/* SPDX-License-Identifier: Apache-2.0 */
/* Is the exponent of a curve by Zipf's law found again? */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#include <math.h>

#include "base/macros.h"
#include "tools/cli/tune/popularity.h"

#define ROWS 100000

/* The exact curve, at rows 1, 2, 4 and so on. */
static void make_curve(double exponent, struct access_cdf *ret_cdf)
{
    double all = 0, sum = 0;

    *ret_cdf = (struct access_cdf){ 0 };
    for (uint32_t k = 1; k <= ROWS; k++)
        all += pow(k, -exponent);
    for (uint32_t k = 1; k <= ROWS; k++) {
        sum += pow(k, -exponent);
        if ((k & (k - 1)) != 0 && k < ROWS)
            continue;
        ret_cdf->rows[ret_cdf->point_count] = k;
        ret_cdf->shares[ret_cdf->point_count++] = sum / all;
    }
}

static void test_the_exponent_of_a_curve_is_found(void **state)
{
    static const double exponents[] = { 0, 0.5, 0.8, 1, 1.05, 1.5, 2 };

    (void)state;
    for (uint32_t i = 0; i < ARRAY_LEN(exponents); i++) {
        struct access_cdf cdf;
        double found;

        make_curve(exponents[i], &cdf);
        found = popularity_exponent(&cdf, ROWS);
        if (fabs(found - exponents[i]) > 0.05)
            fail_msg("%.2f instead of %.2f", found, exponents[i]);
    }
}

static void test_no_lookups_are_all_alike(void **state)
{
    const struct access_cdf none = { 0 };

    (void)state;
    assert_true(popularity_exponent(&none, 1) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_exponent_of_a_curve_is_found),
        cmocka_unit_test(test_no_lookups_are_all_alike),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
