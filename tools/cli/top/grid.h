/* SPDX-License-Identifier: Apache-2.0 */
/* grid.h: rows of figures and texts, which can be sorted by each column, shown, and made into JSON.
 *
 * Cells are added row by row. If memory is short, the grid notes it, and grid_is_whole() tells.
 * Thread: one. */
#ifndef EMBTIER_TOOLS_CLI_TOP_GRID_H
#define EMBTIER_TOOLS_CLI_TOP_GRID_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/macros.h"

struct json_t;

enum grid_kind {
    GRID_TEXT,
    GRID_NUMBER, /* names something, such as a session: sorted upwards, as texts are */
    GRID_COUNT,
    GRID_BYTES,
    GRID_SHARE,   /* 0 to 1 */
    GRID_SECONDS, /* an age: "1h02m" */
    GRID_TIME,    /* "1.25 ms" */
};

struct grid_column {
    const char *title;
    const char *key; /* in JSON */
    enum grid_kind kind;
};

struct grid_cell {
    char *text;    /* of GRID_TEXT */
    double number; /* of the others; NAN: not known */
};

struct grid {
    const struct grid_column *columns;
    size_t column_count;
    struct grid_cell *cells;
    size_t cell_count;
    size_t capacity;
    bool lacks_memory;
};

/* @columns are borrowed. */
void grid_begin(struct grid *grid, const struct grid_column *columns, size_t column_count);
void grid_clear(struct grid *grid);
/* Add the next cell. The text is copied. */
void grid_add_text(struct grid *grid, const char *text);
void grid_add(struct grid *grid, double number);
MUST_CHECK bool grid_is_whole(const struct grid *grid);
size_t grid_row_count(const struct grid *grid);

/* Sorts the rows: texts and names upwards, other figures with the largest first, or the other way
 * round. Figures that are not known come last either way. Equal rows keep their order. */
void grid_sort(struct grid *grid, size_t column, bool is_reversed);
/* Prints the titles and all rows, one line each, escaped. Texts have at most @text_columns
 * characters; 0: all. False: out of memory. */
MUST_CHECK bool grid_print(const struct grid *grid, size_t text_columns, FILE *out);
/* Makes [{KEY: value}]; figures that are not known are null. NULL: out of memory. */
struct json_t *grid_to_json(const struct grid *grid);

#endif
