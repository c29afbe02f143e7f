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
 * Rows are used where they lie, in one cache or in many. Thread: any. */
#ifndef EMBTIER_KERNELS_CPU_POOL_POOL_H
#define EMBTIER_KERNELS_CPU_POOL_POOL_H

#include <stdint.h>

#include "kernels/cpu/isa.h"
#include "kernels/cpu/pool/pool_batch.h"

void pool_rows(const struct pool_batch *batch);
void pool_rows_with(enum kernels_isa isa, const struct pool_batch *batch);

/* Turns the sums of @bag_count bags into means: divides bag b by @counts[b], unless that is 0. */
void pool_divide(float *bags, uint32_t dim, const uint32_t *counts, uint32_t bag_count);
void pool_divide_with(enum kernels_isa isa, float *bags, uint32_t dim, const uint32_t *counts,
                      uint32_t bag_count);

#endif
