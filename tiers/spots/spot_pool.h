/* SPDX-License-Identifier: Apache-2.0 */
/* spot_pool.h: finds rows by their ids while they are pooled (kernels/cpu/pool/pool.h). So the
 * thread waits once for each spot, and once for each row. Both are on their way while other rows
 * are added up.
 *
 * Thread: the owner of the spots, because the rows that are found are stamped. */
#ifndef EMBTIER_TIERS_SPOTS_SPOT_POOL_H
#define EMBTIER_TIERS_SPOTS_SPOT_POOL_H

#include <stdint.h>

#include "kernels/cpu/isa.h"
#include "kernels/cpu/pool/pool_batch.h"
#include "tiers/spots/row_spot.h"

struct spot_search {
    struct row_spots where;
    const uint64_t *ids; /* one per row, all valid ids of the table: there is no check here */
    const void **rows;   /* room for as many places, to write; also the batch's @rows */
    uint32_t missed;     /* set to 0 by the caller; counts the rows that are not there; if there are
                            any, the result is useless */
};

/* Pools the rows that @search finds, as pool_rows() does. The batch's first offset is 0. */
void spot_pool(const struct pool_batch *batch, struct spot_search *search);
void spot_pool_with(enum kernels_isa isa, const struct pool_batch *batch,
                    struct spot_search *search);

#endif
