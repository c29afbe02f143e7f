/* SPDX-License-Identifier: Apache-2.0 */
#include "tiers/spots/spot_pool.h"

#include <assert.h>

#include "tiers/spots/spot_pool_loops.h"

const float spot_pool_no_row[EMBTIER_DIM_MAX];

static const struct spot_pool_loops *const loops_by_isa[] = {
#define X(isa) [KERNELS_ISA_##isa] = &spot_pool_loops_##isa,
    KERNELS_ISA_TABLE(X)
#undef X
};

void spot_pool_with(enum kernels_isa isa, const struct pool_batch *batch,
                    struct spot_search *search)
{
    assert(batch->rows == search->rows && batch->offsets[0] == 0);
    if (search->where.row_stride != 0)
        loops_by_isa[isa]->pool_by_stride(batch, search);
    else
        loops_by_isa[isa]->pool_by_spots(batch, search);
}

void spot_pool(const struct pool_batch *batch, struct spot_search *search)
{
    spot_pool_with(kernels_isa_best(), batch, search);
}
