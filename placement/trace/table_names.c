/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/trace/table_names.h"

#include <stdlib.h>
#include <string.h>

#include "base/macros.h"

struct numbered_name {
    const char *name;
    uint32_t number;
};

static int compare(const void *a, const void *b)
{
    const struct numbered_name *const left = a, *const right = b;
    const int order = strcmp(left->name, right->name);

    return order != 0 ? order : (left->number > right->number) - (left->number < right->number);
}

enum embtier_err names_find_repeated(const char *first, size_t stride, uint32_t count,
                                     uint32_t *ret_repeated)
{
    _cleanup_(freep) struct numbered_name *names = calloc(count + 1, sizeof(*names));
    uint32_t repeated = count;

    if (!names)
        return EMBTIER_NO_MEMORY;
    for (uint32_t i = 0; i < count; i++)
        names[i] = (struct numbered_name){ first + stride * i, i };
    qsort(names, count, sizeof(*names), compare);
    for (uint32_t i = 1; i < count; i++)
        if (strcmp(names[i - 1].name, names[i].name) == 0)
            repeated = MIN(repeated, names[i].number);
    *ret_repeated = repeated;
    return EMBTIER_OK;
}

enum embtier_err table_names_find_repeated(const struct trace_table *tables, size_t stride,
                                           uint32_t count, uint32_t *ret_repeated)
{
    return names_find_repeated(tables->name, stride, count, ret_repeated);
}
