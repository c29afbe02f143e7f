/* SPDX-License-Identifier: Apache-2.0 */
/* Tests which tables have series of their own, and that counters of the others never go down. */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/control/snapshot.h"
#include "daemon/engine/tables/table.h"
#include "daemon/engine/tables/tables.h"
#include "daemon/http/exposition.h"
#include "daemon/http/page.h"
#include "daemon/http/table_top.h"

#define MANY 1000

static struct table_info table(uint32_t id, const char *name, uint64_t rows)
{
    struct table_info info = { .table_id = id, .state = TABLE_LIVE, .lookups = { .rows = rows } };

    snprintf(info.spec.name, sizeof(info.spec.name), "%s", name);
    return info;
}

static struct table_top *make_top(uint32_t most)
{
    struct table_top *top = NULL;

    assert_int_equal(table_top_new(most, &top), EMBTIER_OK);
    return top;
}

static void read_all(struct table_top *top, const struct table_info *tables, uint32_t count)
{
    table_top_begin(top);
    for (uint32_t i = 0; i < count; i++) /* a page of one table each */
        assert_int_equal(table_top_add(top, &tables[i], 1), EMBTIER_OK);
    table_top_end(top);
}

static double other_rows(const struct table_top *top)
{
    return table_top_other(top)[TABLE_FIGURE_table_lookup_rows];
}

/* Returns the rows of a table at the top, or -1. */
static double rows_of(const struct table_top *top, const char *name)
{
    uint32_t count;
    const struct table_top_row *const rows = table_top_rows(top, &count);

    for (uint32_t i = 0; i < count; i++)
        if (strcmp(rows[i].name, name) == 0)
            return rows[i].figures[TABLE_FIGURE_table_lookup_rows];
    return -1;
}

static void test_tables_of_most_traffic_are_at_the_top(void **state)
{
    _cleanup_(table_top_freep) struct table_top *top = make_top(2);
    struct table_info tables[] = { table(1, "a", 10), table(2, "b", 5), table(4, "c", 7),
                                   table(9, "d", 1) };

    (void)state;
    tables[3].updated_rows = 8; /* updates are traffic too */
    read_all(top, tables, ARRAY_LEN(tables));
    assert_true(rows_of(top, "a") == 10);
    assert_true(rows_of(top, "d") == 1);
    assert_true(rows_of(top, "b") == -1 && rows_of(top, "c") == -1);
    assert_true(other_rows(top) == 5 + 7);
}

static void test_all_tables_have_series_if_there_are_few(void **state)
{
    _cleanup_(table_top_freep) struct table_top *top = make_top(20);
    const struct table_info tables[] = { table(1, "a", 0), table(2, "b", 3) };

    (void)state;
    read_all(top, tables, ARRAY_LEN(tables));
    assert_true(rows_of(top, "a") == 0);
    assert_true(rows_of(top, "b") == 3);
    assert_true(other_rows(top) == 0);
}

static void test_other_never_goes_down(void **state)
{
    _cleanup_(table_top_freep) struct table_top *top = make_top(1);
    const struct table_info before[] = { table(1, "a", 10), table(2, "b", 5) };
    const struct table_info after[] = { table(1, "a", 12), table(2, "b", 50) };
    const struct table_info last[] = { table(1, "a", 13), table(2, "b", 60) };

    (void)state;
    read_all(top, before, ARRAY_LEN(before));
    assert_true(rows_of(top, "a") == 10);
    assert_true(other_rows(top) == 5);
    read_all(top, after, ARRAY_LEN(after));
    assert_true(rows_of(top, "b") == 50);
    assert_true(other_rows(top) == 5 + 2); /* those of `a` since then */
    read_all(top, last, ARRAY_LEN(last));
    assert_true(other_rows(top) == 5 + 2 + 1);
    read_all(top, last, ARRAY_LEN(last));
    assert_true(other_rows(top) == 5 + 2 + 1);
}

/* Otherwise the whole figure would count once more. */
static void test_a_figure_that_goes_down_adds_nothing(void **state)
{
    _cleanup_(table_top_freep) struct table_top *top = make_top(1);
    const struct table_info before[] = { table(1, "a", 100), table(2, "b", 50) };
    const struct table_info after[] = { table(1, "a", 100), table(2, "b", 49) };

    (void)state;
    read_all(top, before, ARRAY_LEN(before));
    read_all(top, after, ARRAY_LEN(after));
    assert_true(other_rows(top) == 50);
}

static void test_dropped_tables_stay_counted(void **state)
{
    _cleanup_(table_top_freep) struct table_top *top = make_top(1);
    const struct table_info before[] = { table(1, "a", 10), table(2, "b", 5) };
    const struct table_info after[] = { table(1, "a", 10), table(3, "b", 2) };

    (void)state;
    read_all(top, before, ARRAY_LEN(before));
    read_all(top, after, ARRAY_LEN(after));
    assert_true(other_rows(top) == 5 + 2);
    read_all(top, after, 0);
    assert_true(other_rows(top) == 5 + 2);
}

/* Two series of one name are no valid text. */
static void test_no_name_comes_twice(void **state)
{
    _cleanup_(table_top_freep) struct table_top *top = make_top(4);
    struct table_info tables[] = { table(1, "a", 10), table(2, "other", 20), table(3, "a", 1) };

    (void)state;
    tables[0].state = TABLE_DROPPING;
    read_all(top, tables, ARRAY_LEN(tables));
    assert_true(rows_of(top, "a") == 1);
    assert_true(rows_of(top, "other") == -1);
    assert_true(other_rows(top) == 10 + 20);
}

static void test_no_table_may_have_series(void **state)
{
    _cleanup_(table_top_freep) struct table_top *top = make_top(0);
    const struct table_info tables[] = { table(1, "a", 10), table(2, "b", 5) };

    (void)state;
    read_all(top, tables, ARRAY_LEN(tables));
    assert_true(other_rows(top) == 15);
}

/* Long names, large figures, and every metric with a figure for each tier. */
static void test_an_answer_about_many_tables_is_short(void **state)
{
    _cleanup_(table_top_freep) struct table_top *top = make_top(120);
    static struct snapshot_figure figures[METRICS_MOST];
    struct table_info *const tables = calloc(MANY, sizeof(*tables));
    static struct latencies latencies;
    struct page page = { 0 };
    size_t count = 0;

    (void)state;
    assert_non_null(tables);
    for (uint32_t i = 0; i < MANY; i++) {
        char name[EMBTIER_TABLE_NAME_MAX + 1];

        snprintf(name, sizeof(name), "%0127u", i);
        tables[i] = table(i + 1, name, UINT64_MAX / 2);
    }
    read_all(top, tables, MANY);
    for (uint32_t id = 0; id < METRIC_COUNT; id++)
        for (uint32_t t = 0; t < TIERS_MAX && strcmp(metric_descriptions[id].label, "table") != 0;
             t++) {
            figures[count] = (struct snapshot_figure){ .id = id, .value = 1e18 / 3 };
            snprintf(figures[count].label_value, sizeof(figures[0].label_value), "%032u", t);
            count++;
        }
    for (uint32_t s = 0; s < LATENCY_SERIES; s++)
        latencies.of[s / TRANSPORT_KINDS][s % TRANSPORT_KINDS].counts[0] = UINT64_MAX / 2;
    exposition_write(&page, EXPOSITION_TEXT, figures, count, &latencies, top);
    assert_false(page.is_cut);
    print_message("%zu bytes\n", page.bytes);
    assert_true(page.bytes <= 256 * KIB);
    page_free(&page);
    free(tables);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tables_of_most_traffic_are_at_the_top),
        cmocka_unit_test(test_all_tables_have_series_if_there_are_few),
        cmocka_unit_test(test_other_never_goes_down),
        cmocka_unit_test(test_a_figure_that_goes_down_adds_nothing),
        cmocka_unit_test(test_dropped_tables_stay_counted),
        cmocka_unit_test(test_no_name_comes_twice),
        cmocka_unit_test(test_no_table_may_have_series),
        cmocka_unit_test(test_an_answer_about_many_tables_is_short),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
