/* SPDX-License-Identifier: Apache-2.0 */
/* test_row_cache_lru.c: tests how close the cache's hit rate comes to exact LRU's.
 *
 * The same draws from Zipf distributions go to a row cache and to an exact LRU list. The list has
 * as many rows as the full cache. The design allows a loss of 1 %. */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#include <stdio.h>

#include "base/macros.h"
#include "tests/bench/lib/trace.h"
#include "tests/forms.h"
#include "tiers/arena/arena.h"

#define IDS       (1u << 19)
#define DRAWS     (3u << 20)
#define ROW_BYTES 64
#define RATIO     0.985

static const double exponents[] = { 0.8, 1.05, 1.2 };

static void compare(uint32_t tier_count, uint32_t slabs)
{
    for (size_t i = 0; i < ARRAY_LEN(exponents); i += BY_BUILD(1, 2, 2)) {
        struct trace trace = trace_zipf(IDS, DRAWS, exponents[i]);
        uint32_t rows;
        const double ours = trace_row_cache(&trace, tier_count, (uint64_t)slabs * ARENA_SLAB_BYTES,
                                            ROW_BYTES, &rows);
        const double exact = trace_simulate(&trace, &policy_lru, rows);

        printf("Zipf %.2f, %u tiers, %u rows: %.4f of exact LRU's hits (%.4f)\n", exponents[i],
               tier_count, rows, ours / exact, exact);
        assert_true(ours / exact >= RATIO);
        trace_free(&trace);
    }
}

static void test_one_tier_hits_as_exact_lru_does(void **state)
{
    (void)state;
    compare(1, 6);
}

static void test_two_tiers_hit_as_exact_lru_does(void **state)
{
    (void)state;
    compare(2, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_tier_hits_as_exact_lru_does),
        cmocka_unit_test(test_two_tiers_hit_as_exact_lru_does),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
