/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the order of rows, and their text. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "tools/cli/top/grid.h"

enum { NAME, SESSION, RATE, BYTES, COLUMNS };

static const struct grid_column columns[COLUMNS] = {
    [NAME] = { "NAME", "name", GRID_TEXT },
    [SESSION] = { "SESSION", "number", GRID_NUMBER },
    [RATE] = { "ROWS/S", "rows_per_s", GRID_COUNT },
    [BYTES] = { "BYTES", "bytes", GRID_BYTES },
};

static void fill(struct grid *grid)
{
    static const struct {
        const char *name;
        double session;
        double rate;
    } rows[] = { { "bob", 7, 5 }, { "eve", 2, NAN }, { "ann", 9, 1234 }, { "dan", 4, 5 } };

    grid_begin(grid, columns, COLUMNS);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        grid_add_text(grid, rows[i].name);
        grid_add(grid, rows[i].session);
        grid_add(grid, rows[i].rate);
        grid_add(grid, 2048);
    }
    assert_true(grid_is_whole(grid));
    assert_int_equal(grid_row_count(grid), ARRAY_LEN(rows));
}

/* Expects the first letters of the names, in order. */
static void expect_order(const struct grid *grid, const char *letters)
{
    for (size_t i = 0; i < grid_row_count(grid); i++)
        assert_int_equal(grid->cells[i * COLUMNS + NAME].text[0], letters[i]);
}

static void test_texts_and_names_go_up_and_figures_down(void **state)
{
    struct grid grid;

    (void)state;
    fill(&grid);
    expect_order(&grid, "bead");
    grid_sort(&grid, NAME, false);
    expect_order(&grid, "abde");
    grid_sort(&grid, NAME, true);
    expect_order(&grid, "edba");
    grid_sort(&grid, SESSION, false);
    expect_order(&grid, "edba");
    grid_sort(&grid, RATE, false);
    expect_order(&grid, "adbe");
    grid_clear(&grid);
}

static void test_unknown_figures_come_last_either_way_and_equal_rows_keep_their_order(void **state)
{
    struct grid grid;

    (void)state;
    fill(&grid);
    grid_sort(&grid, RATE, true);
    expect_order(&grid, "bdae");
    grid_sort(&grid, BYTES, false); /* all are equal */
    expect_order(&grid, "bdae");
    grid_sort(&grid, BYTES, true);
    expect_order(&grid, "bdae");
    grid_clear(&grid);
}

static void test_text_is_aligned_escaped_and_cut_between_characters(void **state)
{
    static const char *const wanted = "NAME         SESSION  ROWS/S    BYTES\n"
                                      "a\\u001b[2J         1       -  2.0 KiB\n"
                                      "ééééé...           2       0  2.0 KiB\n";
    struct grid grid;
    char text[512] = "";
    FILE *const out = fmemopen(text, sizeof(text), "w");

    (void)state;
    assert_non_null(out);
    grid_begin(&grid, columns, COLUMNS);
    grid_add_text(&grid, "a\033[2J");
    grid_add(&grid, 1);
    grid_add(&grid, NAN);
    grid_add(&grid, 2048);
    grid_add_text(&grid, "ééééééééé");
    grid_add(&grid, 2);
    grid_add(&grid, 0.2);
    grid_add(&grid, 2048);
    assert_true(grid_print(&grid, 8, out));
    fclose(out);
    grid_clear(&grid);
    /* Columns are aligned by bytes, so the line with é is narrower on a screen. */
    for (const char *line = wanted, *other = text; *line; line++) {
        if (*line == ' ')
            continue;
        other += strspn(other, " ");
        assert_int_equal(*line, *other);
        other++;
    }
}

static void test_json_has_null_for_unknown_figures(void **state)
{
    struct grid grid;
    json_t *rows;

    (void)state;
    fill(&grid);
    rows = grid_to_json(&grid);
    assert_int_equal(json_array_size(rows), 4);
    assert_true(json_is_null(json_object_get(json_array_get(rows, 1), "rows_per_s")));
    assert_int_equal(json_integer_value(json_object_get(json_array_get(rows, 2), "rows_per_s")),
                     1234);
    assert_string_equal(json_string_value(json_object_get(json_array_get(rows, 0), "name")), "bob");
    json_decref(rows);
    grid_clear(&grid);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts_and_names_go_up_and_figures_down),
        cmocka_unit_test(test_unknown_figures_come_last_either_way_and_equal_rows_keep_their_order),
        cmocka_unit_test(test_text_is_aligned_escaped_and_cut_between_characters),
        cmocka_unit_test(test_json_has_null_for_unknown_figures),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
