/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/text_table.h"

#include <assert.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/text/text_escape.h"

#define COLUMNS_MAX 16

struct text_table {
    const char *sides;
    size_t column_count;
    size_t cell_count;
    size_t capacity;
    char **cells;
};

struct text_table *text_table_new(const char *sides)
{
    struct text_table *table = calloc(1, sizeof(*table));

    if (!table)
        return NULL;
    table->sides = sides;
    table->column_count = strlen(sides);
    assert(table->column_count > 0 && table->column_count <= COLUMNS_MAX);
    return table;
}

void text_table_free(struct text_table *table)
{
    if (!table)
        return;
    for (size_t i = 0; i < table->cell_count; i++)
        free(table->cells[i]);
    free(table->cells);
    free(table);
}

bool text_table_add(struct text_table *table, const char *format, ...)
{
    _cleanup_(freep) char *text = NULL;
    char *cell;
    va_list args;
    int length;

    if (table->cell_count == table->capacity) {
        const size_t capacity = table->capacity * 2 + 64;
        char **cells = reallocarray(table->cells, capacity, sizeof(*cells));

        if (!cells)
            return false;
        table->cells = cells;
        table->capacity = capacity;
    }
    va_start(args, format);
    length = vasprintf(&text, format, args);
    va_end(args);
    if (length < 0) {
        text = NULL;
        return false;
    }
    cell = text_escape_new(TEXT_PLAIN, text);
    if (!cell)
        return false;
    table->cells[table->cell_count++] = cell;
    return true;
}

static size_t column_width(const struct text_table *table, size_t column)
{
    size_t width = 0;

    for (size_t i = column; i < table->cell_count; i += table->column_count)
        width = MAX(width, strlen(table->cells[i]));
    return width;
}

void text_table_print(const struct text_table *table, int indent, FILE *out)
{
    int widths[COLUMNS_MAX];

    assert(table->column_count > 0);
    for (size_t column = 0; column < table->column_count; column++)
        widths[column] = (int)column_width(table, column);
    for (size_t i = 0; i < table->cell_count; i++) {
        const size_t column = i % table->column_count;
        const bool is_last = column + 1 == table->column_count || i + 1 == table->cell_count;
        const int width = widths[column];

        fprintf(out, "%*s", column == 0 ? indent : 2, "");
        if (table->sides[column] == 'r')
            fprintf(out, "%*s", width, table->cells[i]);
        else
            fprintf(out, "%-*s", is_last ? 0 : width, table->cells[i]);
        if (is_last)
            fputc('\n', out);
    }
}
