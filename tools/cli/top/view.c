/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/top/view.h"

#include "base/macros.h"

const char view_help[] = "1 to 6, Tab, Shift-Tab     another panel\n"
                         "< >                        sort by the column to the left, to the right\n"
                         "r                          reverse the order\n"
                         "arrows, PgUp, PgDn,\n"
                         "Home, End                  scroll\n"
                         "p                          pause, or go on\n"
                         "q                          quit\n"
                         "h ?                        this help; any key leaves it\n"
                         "\n"
                         "Rates are of the time between two answers of the server, so the first\n"
                         "frame has none. A dash is a figure that is not known.\n";

_Static_assert(PANEL_COUNT == 6, "the help names the keys of the panels");

void view_init(struct view *view, size_t panel)
{
    *view = (struct view){ .panel = panel };
    for (size_t i = 0; i < PANEL_COUNT; i++)
        view->of[i].sorted_by = panels[i].sorted_by;
}

/* A panel that is not sorted yet begins with its first column, from either side. */
static void sort_by_next(struct view *view, bool to_right)
{
    size_t *const column = &view->of[view->panel].sorted_by;

    if (*column == NOT_SORTED)
        *column = 0;
    else if (to_right && *column + 1 < panels[view->panel].column_count)
        (*column)++;
    else if (!to_right && *column > 0)
        (*column)--;
    view->of[view->panel].first_row = 0;
}

static void scroll_up(struct view *view, size_t rows)
{
    view->of[view->panel].first_row -= MIN(view->of[view->panel].first_row, rows);
}

bool view_press(struct view *view, int key, size_t page_rows)
{
    size_t *const first = &view->of[view->panel].first_row;

    if (view->shows_help) {
        view->shows_help = false;
        return key != 'q';
    }
    if (key >= '1' && key < '1' + PANEL_COUNT) {
        view->panel = (size_t)(key - '1');
        return true;
    }
    switch (key) {
    case 'q':
        return false;
    case '\t':
        view->panel = (view->panel + 1) % PANEL_COUNT;
        break;
    case VIEW_KEY_BACK_TAB:
        view->panel = (view->panel + PANEL_COUNT - 1) % PANEL_COUNT;
        break;
    case '<':
    case '>':
        sort_by_next(view, key == '>');
        break;
    case 'r':
        view->of[view->panel].is_reversed = !view->of[view->panel].is_reversed;
        *first = 0;
        break;
    case 'p':
        view->is_paused = !view->is_paused;
        break;
    case 'h':
    case '?':
        view->shows_help = true;
        break;
    case VIEW_KEY_UP:
        scroll_up(view, 1);
        break;
    case VIEW_KEY_DOWN:
        *first += 1;
        break;
    case VIEW_KEY_PAGE_UP:
        scroll_up(view, page_rows);
        break;
    case VIEW_KEY_PAGE_DOWN:
        *first += page_rows;
        break;
    case VIEW_KEY_HOME:
        *first = 0;
        break;
    case VIEW_KEY_END:
        *first = SIZE_MAX / 2; /* view_apply() limits it */
        break;
    default:
        break;
    }
    return true;
}

void view_apply(struct view *view, struct grid *grid, size_t page_rows)
{
    const size_t rows = grid_row_count(grid);
    const size_t last = rows > page_rows ? rows - page_rows : 0;
    const size_t column = view->of[view->panel].sorted_by;

    view->of[view->panel].first_row = MIN(view->of[view->panel].first_row, last);
    if (column != NOT_SORTED)
        grid_sort(grid, column, view->of[view->panel].is_reversed);
}
