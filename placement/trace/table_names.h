/* SPDX-License-Identifier: Apache-2.0 */
/* table_names.h: no two tables of a trace or a profile have the same name. Pure values. */
#ifndef EMBTIER_PLACEMENT_TRACE_TABLE_NAMES_H
#define EMBTIER_PLACEMENT_TRACE_TABLE_NAMES_H

#include "base/err.h"
#include "placement/trace/trace_format.h"

/* Finds a name that one before it is too. The names lie @stride bytes apart, the first one at
 * @first.
 * *@ret_repeated: its number, or @count if there is none. NO_MEMORY. */
MUST_CHECK enum embtier_err names_find_repeated(const char *first, size_t stride, uint32_t count,
                                                uint32_t *ret_repeated);
/* Finds a table whose name one before it has. The tables lie @stride bytes apart, the first one at
 * @tables. *@ret_repeated: its number, or @count if there is none. NO_MEMORY. */
MUST_CHECK enum embtier_err table_names_find_repeated(const struct trace_table *tables,
                                                      size_t stride, uint32_t count,
                                                      uint32_t *ret_repeated);

#endif
