/* SPDX-License-Identifier: Apache-2.0 */
/* pool.h: pools the rows of embedding bags into one vector per bag (the forward pass of an
 * embedding bag; "gather-reduce" in Kwon et al., "Tensor Casting", section II).
 *
 * A bag's rows are taken in the order given, each number in f32. A sum is
 *
 *     (((0 + w0 x0) + w1 x1) + w2 x2) …
 *
 * where every product and every addition is rounded on its own, whatever the instruction set. So
 * the same ids give the same bits, except for the payload of a NaN where two NaNs meet. A mean is
 * that sum divided by the number of rows. A maximum starts with the first row, and a later number
 * wins if it is greater. So the first of equals wins, and a NaN wins only if it comes first. A bag
 * without rows is zeros.
 *
 * Rows are used where they lie, in one cache or in many. Thread: any, unless the batch searches for
 * rows. */
#ifndef EMBTIER_KERNELS_CPU_POOL_POOL_H
#define EMBTIER_KERNELS_CPU_POOL_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/embtier_types.h"
#include "base/row_spot.h"
#include "kernels/cpu/isa.h"

/* Finds rows by their ids while they are added up. So the thread waits once for each word that
 * gives a row's place, and once for each row. Thread: the owner of @where, because rows are
 * stamped. */
struct pool_search {
    struct row_spots where;
    const uint64_t *ids; /* one per row, all valid ids of the table: there is no check here */
    const void **rows;   /* room for as many places, to write; also the batch's @rows */
    uint32_t missed;     /* set to 0 by the caller; counts the rows that are not there; if there are
                            any, the result is useless */
};

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
                                including, offsets[b + 1]; in a search the first is 0 */
    uint32_t bag_count;
    uint32_t begun; /* rows of the first bag that earlier calls took; 0: it begins here */
    struct pool_search *search; /* or NULL; otherwise @rows are its rows. Not on GPUs */
    float *bags;                /* bag_count x dim, written; read if the first bag continues */
    uint32_t *winners; /* MAX: bag_count x dim, or NULL. The winning row of each number, counted
                          from the bag's first row; UINT32_MAX in bags without rows */
};
void pool_rows(const struct pool_batch *batch);
void pool_rows_with(enum kernels_isa isa, const struct pool_batch *batch);

/* Turns the sums of @bag_count bags into means: divides bag b by @counts[b], unless that is 0. */
void pool_divide(float *bags, uint32_t dim, const uint32_t *counts, uint32_t bag_count);
void pool_divide_with(enum kernels_isa isa, float *bags, uint32_t dim, const uint32_t *counts,
                      uint32_t bag_count);

#endif
