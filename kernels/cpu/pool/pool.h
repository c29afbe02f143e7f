/* SPDX-License-Identifier: Apache-2.0 */
/* pool.h: rows of embedding bags made into one vector per bag (the forward pass of an embedding
 * bag; "gather-reduce" in Kwon et al., "Tensor Casting", section II).
 *
 * A bag's rows are taken in the order given, each number in f32: a sum is
 *
 *   (((0 + w0 x0) + w1 x1) + w2 x2) …        every product and every addition rounded on its own
 *
 * whatever the instruction set, so the same ids give the same bits (but for the payload of a NaN,
 * where two meet). A mean is that sum divided by
 * the number of rows. A maximum starts with the first row, and a later number wins if it is
 * greater: the first of equals wins, and a NaN wins only if it comes first. A bag without rows is
 * zeros.
 *
 * Rows are used where they lie; they may be of one cache or of many. Thread: any, unless rows are
 * searched for. */
#ifndef EMBTIER_KERNELS_CPU_POOL_POOL_H
#define EMBTIER_KERNELS_CPU_POOL_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/embtier_types.h"
#include "base/row_spot.h"
#include "kernels/cpu/isa.h"

/* Rows that are found by their ids while they are added up: what is waited for then, the word that
 * says where a row lies, or the row, is waited for once. Thread: the one that @where belongs to,
 * since rows are stamped. */
struct pool_search {
    struct row_spots where;
    const uint64_t *ids; /* one per row, all of them the table's: nobody checks that here */
    const void **rows;   /* room for as many places, which are written; also the batch's @rows */
    uint32_t missed; /* the caller's 0, and one for each row that is not there: what was added up
                        is of no use then */
};

/* Some bags of one table; or a piece of a long one: a first bag may go on that earlier calls have
 * begun, and the last one may end in a later call. */
struct pool_batch {
    enum embtier_dtype dtype;
    uint32_t dim;
    enum embtier_pool mode;  /* MEAN adds up as SUM does; see pool_divide() */
    const void *const *rows; /* weights of the rows of all bags, one bag after another, each aligned
                                to 2 bytes; NULL for a row is not allowed */
    const float *weights;    /* one per row, or NULL: 1. Not with MAX */
    const uint32_t *offsets; /* bag_count + 1: bag b has the rows from offsets[b] up to, and
                                without, offsets[b + 1]; of a search the first is 0 */
    uint32_t bag_count;
    uint32_t begun; /* rows of the first bag that earlier calls have had; 0: it begins here */
    struct pool_search *search; /* or NULL; else @rows are its rows. Not on GPUs */
    float *bags;                /* bag_count x dim, written; read if the first bag had begun */
    uint32_t *winners; /* MAX, or NULL: bag_count x dim, which row of its bag each number is of,
                          counted from the bag's first row; bags without rows have UINT32_MAX */
};
void pool_rows(const struct pool_batch *batch);
void pool_rows_with(enum kernels_isa isa, const struct pool_batch *batch);

/* Makes sums of @bag_count bags means: bag b is divided by @counts[b], unless that is 0. */
void pool_divide(float *bags, uint32_t dim, const uint32_t *counts, uint32_t bag_count);
void pool_divide_with(enum kernels_isa isa, float *bags, uint32_t dim, const uint32_t *counts,
                      uint32_t bag_count);

#endif
