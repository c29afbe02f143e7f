/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that times are counted in the range that has them, and that quantiles lie there. */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#include <math.h>
#include <stdlib.h>

#include "base/latency.h"
#include "base/macros.h"

static void test_an_end_belongs_to_its_range(void **state)
{
    (void)state;
    assert_int_equal(latency_range(0), 0);
    for (uint32_t r = 0; r < LATENCY_BOUNDS; r++) {
        assert_int_equal(latency_range(latency_bound_ns(r)), r);
        assert_int_equal(latency_range(latency_bound_ns(r) + 1), r + 1);
    }
    assert_int_equal(latency_bound_ns(0), 1024);
    assert_int_equal(latency_bound_ns(1), 1536);
    assert_int_equal(latency_bound_ns(LATENCY_BOUNDS - 1), UINT64_C(12884901888));
    assert_int_equal(latency_range(UINT64_MAX), LATENCY_RANGES - 1);
}

static void test_sums_are_those_of_all_lanes(void **state)
{
    struct latency one = { .ns = 0 }, other = { .ns = 0 }, sum = { .ns = 0 };

    (void)state;
    latency_add(&one, 1000);
    latency_add(&one, 3000);
    latency_add(&other, 3000);
    latency_sum(&sum, &one);
    latency_sum(&sum, &other);
    assert_int_equal(sum.ns, 7000);
    assert_int_equal(latency_count(sum.counts, LATENCY_RANGES), 3);
    assert_int_equal(sum.counts[latency_range(3000)], 2);
}

static int compare(const void *a, const void *b)
{
    const uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;

    return (left > right) - (left < right);
}

#define TIMES 10000

static void test_quantiles_are_near_the_true_ones(void **state)
{
    static const double quantiles[] = { 0.01, 0.5, 0.9, 0.99 };
    static uint64_t times[TIMES];
    double bounds[LATENCY_BOUNDS];
    struct latency latency = { .ns = 0 };
    uint64_t random = 42;

    (void)state;
    for (uint32_t r = 0; r < LATENCY_BOUNDS; r++)
        bounds[r] = (double)latency_bound_ns(r);
    for (size_t i = 0; i < TIMES; i++) {
        random = random * UINT64_C(6364136223846793005) + 1442695040888963407;
        times[i] = UINT64_C(1000) << (random >> 60); /* 1 us to 33 ms … */
        times[i] += times[i] * ((random >> 40) % 1000) / 1000;
        latency_add(&latency, times[i]);
    }
    qsort(times, TIMES, sizeof(times[0]), compare);
    for (size_t i = 0; i < ARRAY_LEN(quantiles); i++) {
        const double is = latency_quantile(latency.counts, bounds, LATENCY_BOUNDS, quantiles[i]);
        const double was = (double)times[(size_t)(quantiles[i] * TIMES)];

        assert_true(fabs(is - was) <= was / 3);
    }
}

static void test_quantiles_without_an_end(void **state)
{
    const double bounds[] = { 1, 2 };
    const uint64_t none[] = { 0, 0, 0 }, late[] = { 0, 0, 5 }, mixed[] = { 0, 4, 0 };

    (void)state;
    assert_true(isnan(latency_quantile(none, bounds, 2, 0.5)));
    assert_true(latency_quantile(late, bounds, 2, 0.5) == 2);
    assert_true(latency_quantile(mixed, bounds, 2, 0.5) == 1.5);
    assert_true(latency_quantile(mixed, bounds, 2, 1) == 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_end_belongs_to_its_range),
        cmocka_unit_test(test_sums_are_those_of_all_lanes),
        cmocka_unit_test(test_quantiles_are_near_the_true_ones),
        cmocka_unit_test(test_quantiles_without_an_end),
    };

    return cmocka_run_group_tests_name("latency", tests, NULL, NULL);
}
