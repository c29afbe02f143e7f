/* SPDX-License-Identifier: Apache-2.0 */
/* view.h: the part of the figures that is on the screen of `embtier top`, and how keys change it.
 * It knows no terminal. Thread: one. */
#ifndef EMBTIER_TOOLS_CLI_TOP_VIEW_H
#define EMBTIER_TOOLS_CLI_TOP_VIEW_H

#include <stdbool.h>
#include <stddef.h>

#include "tools/cli/top/grid.h"
#include "tools/cli/top/panels.h"

/* Keys without a character; the others are their character. */
enum view_key {
    VIEW_KEY_UP = 256,
    VIEW_KEY_DOWN,
    VIEW_KEY_PAGE_UP,
    VIEW_KEY_PAGE_DOWN,
    VIEW_KEY_HOME,
    VIEW_KEY_END,
    VIEW_KEY_BACK_TAB,
};

struct view {
    size_t panel;
    struct {
        size_t sorted_by; /* a column, or NOT_SORTED */
        bool is_reversed;
        size_t first_row; /* on the screen */
    } of[PANEL_COUNT];
    bool is_paused;
    bool shows_help;
};

/* Lines of text for the help. */
extern const char view_help[];

void view_init(struct view *view, size_t panel);
/* Changes the view. @page_rows: rows that the screen has. False: the user wants to quit. */
MUST_CHECK bool view_press(struct view *view, int key, size_t page_rows);
/* Sorts the grid of the panel, and limits the first row to those that there are. */
void view_apply(struct view *view, struct grid *grid, size_t page_rows);

#endif
