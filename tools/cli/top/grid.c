/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/top/grid.h"

#include <assert.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cli/json_values.h"
#include "tools/cli/number.h"
#include "tools/cli/status/shown.h"
#include "tools/cli/text_table.h"

#define COLUMNS_MAX 16

void grid_begin(struct grid *grid, const struct grid_column *columns, size_t column_count)
{
    assert(column_count > 0 && column_count <= COLUMNS_MAX);
    *grid = (struct grid){ .columns = columns, .column_count = column_count };
}

void grid_clear(struct grid *grid)
{
    for (size_t i = 0; i < grid->cell_count; i++)
        free(grid->cells[i].text);
    free(grid->cells);
    *grid = (struct grid){ 0 };
}

static void add(struct grid *grid, struct grid_cell cell)
{
    if (grid->cell_count == grid->capacity) {
        const size_t capacity = grid->capacity * 2 + 64;
        struct grid_cell *const cells = reallocarray(grid->cells, capacity, sizeof(*cells));

        if (!cells) {
            free(cell.text);
            grid->lacks_memory = true;
            return;
        }
        grid->cells = cells;
        grid->capacity = capacity;
    }
    grid->cells[grid->cell_count++] = cell;
}

static enum grid_kind next_kind(const struct grid *grid)
{
    return grid->columns[grid->cell_count % grid->column_count].kind;
}

void grid_add_text(struct grid *grid, const char *text)
{
    char *const copy = grid->lacks_memory ? NULL : strdup(text);

    if (!copy) {
        grid->lacks_memory = true;
        return;
    }
    assert(next_kind(grid) == GRID_TEXT);
    add(grid, (struct grid_cell){ copy, (double)NAN });
}

void grid_add(struct grid *grid, double number)
{
    if (grid->lacks_memory)
        return;
    assert(next_kind(grid) != GRID_TEXT);
    add(grid, (struct grid_cell){ NULL, number });
}

bool grid_is_whole(const struct grid *grid)
{
    return !grid->lacks_memory;
}

size_t grid_row_count(const struct grid *grid)
{
    return grid->column_count > 0 ? grid->cell_count / grid->column_count : 0;
}

/* ---- Order ---- */

struct order {
    const struct grid *grid;
    size_t column;
    bool is_reversed;
};

/* A row's place before the sort. */
struct place {
    size_t row;
};

static int compare_cells(const struct order *order, const struct grid_cell *x,
                         const struct grid_cell *y)
{
    const enum grid_kind kind = order->grid->columns[order->column].kind;
    const bool is_upwards = (kind == GRID_TEXT || kind == GRID_NUMBER) != order->is_reversed;
    int upwards;

    if (kind == GRID_TEXT)
        upwards = strcmp(x->text, y->text);
    else if (isnan(x->number) || isnan(y->number))
        return !!isnan(x->number) - !!isnan(y->number);
    else
        upwards = (x->number > y->number) - (x->number < y->number);
    return is_upwards ? upwards : -upwards;
}

static int compare_rows(const void *a, const void *b, void *context)
{
    const struct place *const x = a;
    const struct place *const y = b;
    const struct order *const order = context;
    const struct grid *const grid = order->grid;
    const int by_cells =
        compare_cells(order, &grid->cells[x->row * grid->column_count + order->column],
                      &grid->cells[y->row * grid->column_count + order->column]);

    return by_cells != 0 ? by_cells : (x->row > y->row) - (x->row < y->row);
}

void grid_sort(struct grid *grid, size_t column, bool is_reversed)
{
    const size_t rows = grid_row_count(grid);
    struct order order = { grid, column, is_reversed };
    _cleanup_(freep) struct place *places = calloc(rows + 1, sizeof(*places));
    struct grid_cell *sorted = calloc(grid->cell_count + 1, sizeof(*sorted));

    assert(column < grid->column_count);
    if (!places || !sorted) {
        free(sorted);
        return; /* unsorted rows are better than none */
    }
    for (size_t i = 0; i < rows; i++)
        places[i].row = i;
    qsort_r(places, rows, sizeof(*places), compare_rows, &order);
    for (size_t i = 0; i < rows; i++)
        memcpy(&sorted[i * grid->column_count], &grid->cells[places[i].row * grid->column_count],
               grid->column_count * sizeof(*sorted));
    free(grid->cells);
    grid->cells = sorted;
    grid->capacity = grid->cell_count + 1;
}

/* ---- Text ---- */

/* Returns the bytes of the first @characters of UTF-8 in @text. */
static size_t bytes_of(const char *text, size_t characters)
{
    size_t i = 0;

    for (; text[i]; i++)
        if (((unsigned char)text[i] & 0xc0) != 0x80 && characters-- == 0)
            break;
    return i;
}

static bool add_text(struct text_table *text, const char *cell, size_t text_columns)
{
    if (text_columns == 0 || bytes_of(cell, text_columns) == strlen(cell))
        return text_table_add(text, "%s", cell);
    return text_table_add(text, "%.*s...", (int)bytes_of(cell, text_columns - 3), cell);
}

static bool add_cell(struct text_table *text, enum grid_kind kind, const struct grid_cell *cell,
                     size_t text_columns)
{
    struct number_text number;

    switch (kind) {
    case GRID_TEXT:
        return add_text(text, cell->text, text_columns);
    case GRID_NUMBER:
        return text_table_add(text, "%.0f", cell->number);
    case GRID_COUNT:
        return text_table_add(text, "%s", shown_count(&number, round(cell->number)));
    case GRID_BYTES:
        return text_table_add(text, "%s", shown_bytes(&number, cell->number));
    case GRID_SHARE:
        return text_table_add(text, "%s", shown_share(&number, cell->number));
    case GRID_SECONDS:
        return text_table_add(
            text, "%s", isfinite(cell->number) ? number_duration(&number, cell->number) : "-");
    case GRID_TIME:
        return text_table_add(text, "%s",
                              isfinite(cell->number) ? number_time(&number, cell->number) : "-");
    }
    return false;
}

bool grid_print(const struct grid *grid, size_t text_columns, FILE *out)
{
    char sides[COLUMNS_MAX + 1] = "";
    _cleanup_(text_table_freep) struct text_table *text = NULL;
    bool ok;

    assert(grid->column_count > 0);
    for (size_t c = 0; c < grid->column_count; c++)
        sides[c] = grid->columns[c].kind == GRID_TEXT ? 'l' : 'r';
    text = text_table_new(sides);
    ok = text != NULL;
    for (size_t c = 0; ok && c < grid->column_count; c++)
        ok = text_table_add(text, "%s", grid->columns[c].title);
    for (size_t i = 0; ok && i < grid->cell_count; i++)
        ok = add_cell(text, grid->columns[i % grid->column_count].kind, &grid->cells[i],
                      text_columns);
    if (ok)
        text_table_print(text, 0, out);
    return ok;
}

/* ---- JSON ---- */

json_t *grid_to_json(const struct grid *grid)
{
    json_t *const rows = json_array();

    assert(grid->column_count > 0);
    for (size_t i = 0; rows && i < grid->cell_count; i++) {
        const struct grid_column *const column = &grid->columns[i % grid->column_count];
        const struct grid_cell *const cell = &grid->cells[i];

        if ((i % grid->column_count == 0 && json_array_append_new(rows, json_object()) != 0) ||
            json_object_set_new(json_array_get(rows, i / grid->column_count), column->key,
                                column->kind == GRID_TEXT ? cli_json_text(cell->text)
                                                          : cli_json_number(cell->number)) != 0) {
            json_decref(rows);
            return NULL;
        }
    }
    return rows;
}
