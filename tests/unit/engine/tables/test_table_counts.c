/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that the estimate of a table's time of lookups only grows, whatever the pieces took. */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */

#include "daemon/engine/tables/table_counts.h"

/* Counts @pieces pieces of @rows lookups, of which the last is timed. */
static void count(struct table_counts *counts, uint32_t pieces, uint64_t rows, uint64_t ns)
{
    counter_add(&counts->lookups, pieces * rows);
    table_counts_timed(counts, ns, rows);
}

static void test_all_lookups_count_as_the_timed_ones(void **state)
{
    struct table_counts counts = { .lookups = 0 };

    (void)state;
    count(&counts, 64, 10, 100);
    assert_int_equal(counts.ns, 64 * 100);
    count(&counts, 64, 10, 50);
    assert_int_equal(counts.ns, 64 * 150);
}

/* One slow piece, then many quick ones: a mean over all would fall. */
static void test_quick_pieces_take_nothing_away(void **state)
{
    struct table_counts counts = { .lookups = 0 };
    uint64_t before = 0;

    (void)state;
    count(&counts, 64, 512, 10 * 1000 * 1000);
    for (uint32_t i = 0; i < 1000; i++) {
        count(&counts, 64, 512, i % 7);
        assert_true(counts.ns >= before);
        before = counts.ns;
    }
}

static void test_a_piece_without_rows_has_no_time(void **state)
{
    struct table_counts counts = { .lookups = 0 };

    (void)state;
    table_counts_timed(&counts, 100, 0);
    assert_int_equal(counts.ns, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_lookups_count_as_the_timed_ones),
        cmocka_unit_test(test_quick_pieces_take_nothing_away),
        cmocka_unit_test(test_a_piece_without_rows_has_no_time),
    };

    return cmocka_run_group_tests_name("table_counts", tests, NULL, NULL);
}
