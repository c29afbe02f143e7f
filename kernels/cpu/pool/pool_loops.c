/* SPDX-License-Identifier: Apache-2.0 */
/* The inner loops of pooling, compiled once per instruction set (isa.h). The walk (pool_walk.h)
 * prefetches whole rows some places ahead. */
#include "kernels/cpu/pool/pool_loops.h"

#include "kernels/cpu/vector.h"

struct walk_rows {
    const void *const *rows;
    uint32_t count;
    uint32_t ahead; /* rows from the current one to the one that is prefetched */
    uint32_t row_bytes;
};

#include "kernels/cpu/pool/pool_walk.h"

KERNEL_INLINE void walk_look(const struct walk_rows *rows, uint32_t i)
{
    if (LIKELY(i + rows->ahead < rows->count))
        vector_ask_for(rows->rows[i + rows->ahead], rows->row_bytes);
}

static void pool(const struct pool_batch *batch)
{
    const uint32_t row_bytes = batch->dim * vector_dtype_bytes(batch->dtype);
    const struct walk_rows rows = { .rows = batch->rows,
                                    .count = batch->offsets[batch->bag_count],
                                    .ahead = vector_rows_ahead(row_bytes),
                                    .row_bytes = row_bytes };

    walk(batch, &rows);
}

static void divide(float *restrict bags, uint32_t dim, const uint32_t *restrict counts,
                   uint32_t bag_count)
{
    for (uint32_t bag = 0; bag < bag_count; bag++, bags += dim) {
        const float count = (float)counts[bag];

        if (counts[bag] > 1)
            for (uint32_t c = 0; c < dim; c++)
                bags[c] /= count;
    }
}

const struct pool_loops KERNELS_ISA_SYMBOL(pool_loops) = {
    .pool = pool,
    .divide = divide,
};
