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
