/* SPDX-License-Identifier: Apache-2.0 */
/* pool_batch.h: the bags that pool.h pools. */
#ifndef EMBTIER_KERNELS_CPU_POOL_POOL_BATCH_H
#define EMBTIER_KERNELS_CPU_POOL_POOL_BATCH_H

#include <stdint.h>

#include "base/embtier_types.h"

/* Some bags of one table, or a piece of a long bag. The first bag may continue one that earlier
 * calls began, and the last may end in a later call. */
struct pool_batch {
    enum embtier_dtype dtype;
    uint32_t dim;
    enum embtier_pool mode;  /* MEAN adds up like SUM; pool_divide() follows */
    const void *const *rows; /* weights of the rows of all bags, one bag after another, each aligned
                                to 2 bytes; none is NULL */
    const float *weights;    /* one per row, or NULL: 1. Not with MAX */
    const uint32_t *offsets; /* bag_count + 1: bag b has the rows from offsets[b] up to, but not
                                including, offsets[b + 1] */
    uint32_t bag_count;
    uint32_t begun;    /* rows of the first bag that earlier calls took; 0: it begins here */
    float *bags;       /* bag_count x dim, written; read if the first bag continues */
    uint32_t *winners; /* MAX: bag_count x dim, or NULL. The winning row of each number, counted
                          from the bag's first row; UINT32_MAX in bags without rows */
};

#endif
