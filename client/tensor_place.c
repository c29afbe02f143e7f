/* SPDX-License-Identifier: Apache-2.0 */
#include "client/tensor_place.h"

#include <string.h>

const char *show_text(struct shown_text *shown, const char *text, size_t bytes)
{
    const size_t room = sizeof(shown->text) - sizeof("...");
    const size_t count = MIN(bytes, room);

    for (size_t i = 0; i < count; i++)
        shown->text[i] = text[i] >= 0x20 && text[i] < 0x7f ? text[i] : '?';
    strcpy(shown->text + count, bytes > room ? "..." : "");
    return shown->text;
}

bool tensor_name_has_controls(const char *name)
{
    for (const unsigned char *at = (const unsigned char *)name; *at; at++)
        if (*at < 0x20 || *at == 0x7f || (at[0] == 0xc2 && at[1] >= 0x80 && at[1] < 0xa0))
            return true;
    return false;
}

bool tensor_info_count(struct tensor_info *info)
{
    uint64_t bytes = tensor_dtype_bytes(info->dtype);

    info->rows = info->rank > 0 ? info->shape[0] : 1;
    /* The first dimension first: no rows of any length are no bytes. */
    for (uint32_t i = 0; i < info->rank; i++)
        if (__builtin_mul_overflow(bytes, info->shape[i], &bytes))
            return false;
    info->bytes = bytes;
    info->row_bytes = info->rows > 0 ? bytes / info->rows : 0;
    return true;
}
