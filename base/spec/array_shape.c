/* SPDX-License-Identifier: Apache-2.0 */
#include "base/spec/array_shape.h"

#include "base/macros.h"

/* Granules are large enough for a spot's 32 bits to reach each. */
#define GRANULE_SHIFT_LEAST 4
#define GRANULE_SHIFT_MOST  12

struct array_shape array_shape_of(uint64_t rows, uint32_t row_bytes)
{
    struct array_shape shape = { .shift = GRANULE_SHIFT_LEAST };

    for (;; shape.shift++) {
        shape.stride = align_up(row_bytes, UINT64_C(1) << shape.shift);
        if (rows <= (UINT32_MAX - 1) / (shape.stride >> shape.shift))
            break;
        if (shape.shift == GRANULE_SHIFT_MOST)
            return shape;
    }
    shape.rows_at =
        ARRAY_HEAD_BYTES + align_up(rows * ARRAY_SPOT_BYTES, (uint64_t)ARRAY_HEAD_BYTES);
    shape.bytes = align_up(shape.rows_at + rows * shape.stride, ARRAY_SLAB_BYTES);
    return shape;
}

uint64_t remap_ids_at(uint64_t rows)
{
    return REMAP_HEAD_BYTES + align_up((rows + 1) * sizeof(uint32_t), UINT64_C(0) + CACHE_LINE);
}

uint64_t remap_bytes_of(uint64_t rows)
{
    return rows == 0 || rows > REMAP_ROWS_MAX ? 0 : remap_ids_at(rows) + rows * sizeof(uint64_t);
}

struct split_shape split_shape_of(uint64_t hot_rows, uint32_t row_bytes)
{
    const uint64_t remap_bytes = remap_bytes_of(hot_rows);
    struct split_shape split = { 0 };
    struct array_shape rows;

    if (remap_bytes == 0)
        return split;
    rows = array_shape_of(hot_rows, row_bytes);
    if (rows.bytes == 0)
        return split;
    split.remap_at = align_up(rows.rows_at + hot_rows * rows.stride, UINT64_C(0) + CACHE_LINE);
    split.bytes = align_up(split.remap_at + remap_bytes, ARRAY_SLAB_BYTES);
    return split;
}
