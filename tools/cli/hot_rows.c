/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/hot_rows.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/files/tensor_file.h"

#define READ_ROWS (UINT32_C(1) << 20)
/* Beside the ids in the arena. */
#define ARENA_SPARE_BYTES (64 * KIB)

uint64_t hot_rows_arena_bytes(uint64_t count)
{
    return count > 0 ? count * sizeof(uint64_t) + ARENA_SPARE_BYTES : 0;
}

/* Returns the index of the tensor with the ids, or the number of tensors. The one tensor of an .npy
 * file has no name. */
static uint32_t find_ids(const struct tensor_reader *reader)
{
    uint32_t index = 0;

    if (tensor_reader_count(reader) == 1 && tensor_reader_at(reader, 0)->name[0] == '\0')
        return 0;
    while (index < tensor_reader_count(reader) &&
           strcmp(tensor_reader_at(reader, index)->name, "ids") != 0)
        index++;
    return index;
}

static enum embtier_err check(const char *path, const struct tensor_info *info, struct err_msg *msg)
{
    if (!info)
        return err_set(msg, EMBTIER_INVALID, "%s has no tensor 'ids'", path);
    if ((info->dtype != TENSOR_U64 && info->dtype != TENSOR_I64) || info->rank != 1 ||
        info->rows == 0)
        return err_set(msg, EMBTIER_INVALID,
                       "%s: hot rows are a list of 64-bit integers, with at least one", path);
    return EMBTIER_OK;
}

/* As unsigned numbers, negative ids would be large ids, which an unbounded table accepts. */
static enum embtier_err check_ids(const char *path, const struct tensor_info *info,
                                  const uint64_t *ids, struct err_msg *msg)
{
    for (uint64_t i = 0; info->dtype == TENSOR_I64 && i < info->rows; i++)
        if (ids[i] > INT64_MAX)
            return err_set(msg, EMBTIER_ID_RANGE, "%s: id %" PRId64 " at %" PRIu64 " is negative",
                           path, (int64_t)ids[i], i);
    return EMBTIER_OK;
}

enum embtier_err hot_rows_read_file(const char *path, uint64_t **ret_ids, uint64_t *ret_count,
                                    struct err_msg *msg)
{
    _cleanup_(tensor_reader_freep) struct tensor_reader *reader = NULL;
    _cleanup_(freep) uint64_t *ids = NULL;
    const struct tensor_info *info;
    uint32_t index;

    TRY(tensor_reader_open(path, &reader, msg));
    index = find_ids(reader);
    info = index < tensor_reader_count(reader) ? tensor_reader_at(reader, index) : NULL;
    TRY(check(path, info, msg));
    ids = malloc(info->bytes);
    if (!ids)
        return err_set(msg, EMBTIER_NO_MEMORY, "%s: out of memory", path);
    for (uint64_t at = 0; at < info->rows; at += READ_ROWS)
        TRY(tensor_reader_read(reader, index, at,
                               (uint32_t)MIN(info->rows - at, (uint64_t)READ_ROWS), ids + at,
                               sizeof(*ids), msg));
    TRY(check_ids(path, info, ids, msg));
    *ret_count = info->rows;
    *ret_ids = TAKE(ids);
    return EMBTIER_OK;
}
