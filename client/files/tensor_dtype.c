/* SPDX-License-Identifier: Apache-2.0 */
#include "client/files/tensor_dtype.h"

#include <string.h>

static const struct {
    uint32_t bytes;
    const char *word;
    const char *numpy;
} dtypes[] = { [TENSOR_DTYPE_NONE] = { 0, "", "" },
#define X(name, bytes, numpy) [TENSOR_##name] = { bytes, #name, numpy },
               TENSOR_DTYPE_TABLE(X)
#undef X
};

uint32_t tensor_dtype_bytes(enum tensor_dtype dtype)
{
    return (size_t)dtype < ARRAY_LEN(dtypes) ? dtypes[dtype].bytes : 0;
}

const char *tensor_dtype_word(enum tensor_dtype dtype)
{
    return (size_t)dtype < ARRAY_LEN(dtypes) ? dtypes[dtype].word : "";
}

const char *tensor_dtype_numpy(enum tensor_dtype dtype)
{
    return (size_t)dtype < ARRAY_LEN(dtypes) ? dtypes[dtype].numpy : "";
}

enum tensor_dtype tensor_dtype_from_word(const char *word)
{
    for (size_t i = 1; i < ARRAY_LEN(dtypes); i++)
        if (strcmp(dtypes[i].word, word) == 0)
            return (enum tensor_dtype)i;
    return TENSOR_DTYPE_NONE;
}

enum tensor_dtype tensor_dtype_from_numpy(const char *word)
{
    for (size_t i = 1; i < ARRAY_LEN(dtypes); i++)
        if (strcmp(dtypes[i].numpy, word) == 0)
            return (enum tensor_dtype)i;
    return TENSOR_DTYPE_NONE;
}
