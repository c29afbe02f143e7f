/* SPDX-License-Identifier: Apache-2.0 */
/* finite.h: keeps the numbers of rows finite, whatever the size of the gradients.
 *
 * A row is finite if all its weights and all its state are. An update that would make a finite row
 * non-finite must be refused before any row has changed. For nearly all pushes a bound proves that
 * there is none. The greatest gradient, the number of gradients per row and the table's optimizer
 * limit how far a weight can move. A step that is short enough cannot carry the greatest finite
 * weight beyond the finite numbers. For other pushes each row is first tried on a copy. The row may
 * change between trial and update; such an update saturates.
 *
 * Tables that allow NaN and infinity do not use this. Thread: any. */
#ifndef EMBTIER_KERNELS_CPU_OPTIMIZER_FINITE_H
#define EMBTIER_KERNELS_CPU_OPTIMIZER_FINITE_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/cpu/optimizer/optimizer.h"

/* Returns a bound on the sum of @pair_count gradients, each at most @greatest in magnitude and
 * scaled by at most @scale. The bound also holds for all intermediate sums. */
double finite_sum_bound(float greatest, float scale, uint64_t pair_count);

/* True if an update provably keeps every finite row finite. The gradient's numbers are at most
 * @greatest in magnitude, clipped or not. */
bool finite_is_proven(const struct optimizer_push *push, double greatest);

/* True if the row stays as finite as it is when it is updated with @gradient, which is consumed.
 * @copy has room for the row. */
bool finite_try(const struct optimizer_push *push, uint64_t row_id, const void *row,
                float *gradient, void *copy);
/* Like optimizer_update() of one row, with the same bits, except where a finite row would become
 * non-finite. There, numbers that overflow become the greatest of their sign, and NaNs keep their
 * old value. @copy has room for the row. */
void finite_update(const struct optimizer_push *push, uint64_t row_id, void *row, float *gradient,
                   void *copy);

#endif
