/* SPDX-License-Identifier: Apache-2.0 */
/* text_table.h: aligned columns, for people. */
#ifndef EMBTIER_TOOLS_CLI_TEXT_TABLE_H
#define EMBTIER_TOOLS_CLI_TEXT_TABLE_H

#include <stdbool.h>
#include <stdio.h>

#include "base/macros.h"

struct text_table;

/* Makes a table. @sides: 'l' or 'r' for each column, the side to which its cells are aligned. NULL:
 * out of memory. */
MUST_CHECK struct text_table *text_table_new(const char *sides);
void text_table_free(struct text_table *table);
DEFINE_CLEANUP(struct text_table, text_table_free)

/* Adds the next cell, row by row. The text is copied, and escaped (base/text/text_escape.h). False:
 * out of memory. */
bool text_table_add(struct text_table *table, const char *format, ...) PRINTF_LIKE(2, 3);
/* Prints the table; each line begins with @indent spaces. An unfinished last row is printed as far
 * as it goes. */
void text_table_print(const struct text_table *table, int indent, FILE *out);

#endif
