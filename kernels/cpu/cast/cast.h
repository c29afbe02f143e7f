/* SPDX-License-Identifier: Apache-2.0 */
/* cast.h: casts a batch's gradients (Kwon, Lee and Rhu, "Tensor Casting: Co-Designing
 * Algorithm-Architecture for Personalized Recommendation Training", HPCA 2021, Algorithm 2).
 *
 * In the backward pass of embedding bags, each row of a bag gets the bag's gradient. A row's
 * gradients from all its bags are added up. The direct way expands the gradients, one per (row,
 * bag) pair, sorts them by row and coalesces them. Casting sorts the pairs instead, 16 bytes each.
 * That needs no gradient, so it can run before there is one. A row's gradient is then the sum of
 * the bags' gradients that its run of pairs names: a gather-reduce, as in the forward pass
 * (reduce.h).
 *
 * The sort is stable: within a row's run the pairs keep the batch's order, in which gradients are
 * added. Thread: any. */
#ifndef EMBTIER_KERNELS_CPU_CAST_CAST_H
#define EMBTIER_KERNELS_CPU_CAST_CAST_H

#include <stdint.h>

struct cast_pair {
    uint64_t row;      /* id */
    uint32_t bag;      /* in the part of the batch that the row is in */
    uint32_t position; /* of the id, in that part */
};

/* Sorts @count pairs by row; the sort is stable. @scratch has room for as many pairs. Returns
 * @pairs or @scratch, whichever holds the result; the content of the other is lost. */
struct cast_pair *cast_sort(struct cast_pair *pairs, struct cast_pair *scratch, uint32_t count);

/* Finds the runs of equal rows in sorted pairs. Run r is pairs @ret_starts[r] up to @ret_starts[r +
 * 1]; the last entry is @count. @ret_starts has room for count + 1. Returns the number of runs. */
uint32_t cast_runs(const struct cast_pair *pairs, uint32_t count, uint32_t *ret_starts);

#endif
