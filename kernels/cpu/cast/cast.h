/* SPDX-License-Identifier: Apache-2.0 */
/* cast.h: the casting of a batch's gradients (Kwon, Lee and Rhu, "Tensor Casting: Co-Designing
 * Algorithm-Architecture for Personalized Recommendation Training", HPCA 2021, Algorithm 2).
 *
 * In the backward pass of embedding bags each row of a bag gets the bag's gradient, and what a row
 * gets from all its bags is added up. Done as written that expands the gradients, one per (row,
 * bag) pair, sorts them by row and coalesces them. Casting sorts the pairs instead, 16 bytes each,
 * which needs no gradient and so can be done before there is one; then a row's gradient is the sum
 * of the bags' gradients that its run of pairs names: a gather-reduce, as in the forward pass
 * (reduce.h).
 *
 * The sort is stable: within a row's run pairs keep the batch's order, which is the order in which
 * gradients are added. Thread: any. */
#ifndef EMBTIER_KERNELS_CPU_CAST_CAST_H
#define EMBTIER_KERNELS_CPU_CAST_CAST_H

#include <stdint.h>

struct cast_pair {
    uint64_t row;      /* id */
    uint32_t bag;      /* of the part of the batch the row is in */
    uint32_t position; /* of the id, in that part */
};

/* Sorts @count pairs by row, stable. @scratch has room for as many. Returns the one of @pairs and
 * @scratch that the result is in; the other one's content is lost. */
struct cast_pair *cast_sort(struct cast_pair *pairs, struct cast_pair *scratch, uint32_t count);

/* Runs of equal rows in sorted pairs: run r is pairs @ret_starts[r] up to @ret_starts[r + 1], the
 * last entry being @count. Room for count + 1. Returns how many runs there are. */
uint32_t cast_runs(const struct cast_pair *pairs, uint32_t count, uint32_t *ret_starts);

#endif
