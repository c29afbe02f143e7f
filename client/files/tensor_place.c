/* SPDX-License-Identifier: Apache-2.0 */
#include "client/files/tensor_place.h"

#include <string.h>

#include "base/text/text_escape.h"

bool tensor_info_count(struct tensor_info *info)
{
    uint64_t bytes = tensor_dtype_bytes(info->dtype);

    info->rows = info->rank > 0 ? info->shape[0] : 1;
    /* The first dimension comes first: without rows there are no bytes, however long a row is. */
    for (uint32_t i = 0; i < info->rank; i++)
        if (__builtin_mul_overflow(bytes, info->shape[i], &bytes))
            return false;
    info->bytes = bytes;
    info->row_bytes = info->rows > 0 ? bytes / info->rows : 0;
    return true;
}

bool tensor_file_name_is_plain(const char *name)
{
    return name && name[0] != '\0' && name[0] != '.' && !strchr(name, '/') &&
           strlen(name) <= TENSOR_FILE_NAME_MAX && text_is_plain(name, strlen(name));
}
