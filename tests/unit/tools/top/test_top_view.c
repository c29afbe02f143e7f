/* SPDX-License-Identifier: Apache-2.0 */
/* Tests what keys do to the view. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tools/cli/top/view.h"

#define PAGE 10

static struct view new_view(size_t panel)
{
    struct view view;

    view_init(&view, panel);
    return view;
}

/* Presses the keys of @keys, none of which quits. */
static void press(struct view *view, const char *keys)
{
    for (; *keys; keys++)
        assert_true(view_press(view, *keys, PAGE));
}

static void test_panels_are_chosen_by_number_and_in_turn(void **state)
{
    struct view view = new_view(0);

    (void)state;
    press(&view, "4");
    assert_int_equal(view.panel, PANEL_SHARDS);
    press(&view, "7890x");
    assert_int_equal(view.panel, PANEL_SHARDS);
    press(&view, "\t\t\t");
    assert_int_equal(view.panel, PANEL_REQUESTS);
    assert_true(view_press(&view, VIEW_KEY_BACK_TAB, PAGE));
    assert_int_equal(view.panel, PANEL_TABLES);
}

static void test_each_panel_has_its_own_order(void **state)
{
    struct view view = new_view(PANEL_TABLES);

    (void)state;
    assert_int_equal(view.of[PANEL_TABLES].sorted_by, panels[PANEL_TABLES].sorted_by);
    press(&view, "<<<");
    assert_int_equal(view.of[PANEL_TABLES].sorted_by, 0);
    press(&view, ">>>>>>>>>>>>>>>>>>>>r");
    assert_int_equal(view.of[PANEL_TABLES].sorted_by, panels[PANEL_TABLES].column_count - 1);
    assert_true(view.of[PANEL_TABLES].is_reversed);
    press(&view, "1");
    assert_true(view.of[PANEL_REQUESTS].sorted_by == NOT_SORTED);
    press(&view, "<");
    assert_int_equal(view.of[PANEL_REQUESTS].sorted_by, 0);
    assert_false(view.of[PANEL_REQUESTS].is_reversed);
}

static void test_scrolling_ends_at_both_ends(void **state)
{
    struct view view = new_view(PANEL_SSD);
    struct grid grid;

    (void)state;
    grid_begin(&grid, panels[PANEL_SSD].columns, panels[PANEL_SSD].column_count);
    for (int i = 0; i < 25; i++) {
        grid_add_text(&grid, "cause");
        for (size_t c = 1; c < panels[PANEL_SSD].column_count; c++)
            grid_add(&grid, i);
    }
    assert_true(view_press(&view, VIEW_KEY_DOWN, PAGE));
    view_apply(&view, &grid, PAGE);
    assert_int_equal(view.of[PANEL_SSD].first_row, 1);
    assert_true(view_press(&view, VIEW_KEY_PAGE_DOWN, PAGE));
    assert_true(view_press(&view, VIEW_KEY_PAGE_DOWN, PAGE));
    view_apply(&view, &grid, PAGE);
    assert_int_equal(view.of[PANEL_SSD].first_row, 15);
    view_apply(&view, &grid, 24); /* the terminal grew */
    assert_int_equal(view.of[PANEL_SSD].first_row, 1);
    assert_true(view_press(&view, VIEW_KEY_PAGE_UP, PAGE));
    assert_int_equal(view.of[PANEL_SSD].first_row, 0);
    assert_true(view_press(&view, VIEW_KEY_UP, PAGE));
    assert_int_equal(view.of[PANEL_SSD].first_row, 0);
    assert_true(view_press(&view, VIEW_KEY_END, PAGE));
    view_apply(&view, &grid, 40); /* all rows fit */
    assert_int_equal(view.of[PANEL_SSD].first_row, 0);
    grid_clear(&grid);
}

static void test_a_new_order_begins_at_the_first_row(void **state)
{
    static const char keys[] = { '<', '>', 'r' };
    struct view view = new_view(PANEL_TABLES);

    (void)state;
    for (size_t i = 0; i < sizeof(keys); i++) {
        view.of[PANEL_TABLES].first_row = 5;
        assert_true(view_press(&view, keys[i], PAGE));
        assert_int_equal(view.of[PANEL_TABLES].first_row, 0);
    }
}

static void test_help_is_left_by_any_key_and_q_quits_from_it(void **state)
{
    struct view view = new_view(0);

    (void)state;
    press(&view, "h");
    assert_true(view.shows_help);
    press(&view, "3");
    assert_false(view.shows_help);
    assert_int_equal(view.panel, 0); /* the key only left the help */
    press(&view, "p?");
    assert_true(view.shows_help && view.is_paused);
    assert_false(view_press(&view, 'q', PAGE));
    view.shows_help = false;
    assert_false(view_press(&view, 'q', PAGE));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_panels_are_chosen_by_number_and_in_turn),
        cmocka_unit_test(test_each_panel_has_its_own_order),
        cmocka_unit_test(test_scrolling_ends_at_both_ends),
        cmocka_unit_test(test_a_new_order_begins_at_the_first_row),
        cmocka_unit_test(test_help_is_left_by_any_key_and_q_quits_from_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
