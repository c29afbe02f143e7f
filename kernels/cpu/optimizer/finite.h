/* SPDX-License-Identifier: Apache-2.0 */
/* finite.h: what keeps the numbers of rows finite when gradients of any size come.
 *
 * A row is finite if all of its weights and its state are. An update that would make a finite row
 * anything else is to be refused, before any row has changed. For nearly all pushes a bound says
 * that there is none: the greatest gradient, how many of them a row gets, and the table's optimizer
 * tell how far a weight can move at most, and a step that is short enough cannot carry the greatest
 * finite weight beyond the finite numbers. For the others each row is tried first, on a copy.
 * Between a trial and its update the row may change: such an update saturates.
 *
 * Nothing here is asked of tables that allow NaN and infinity. Thread: any. */
#ifndef EMBTIER_KERNELS_CPU_OPTIMIZER_FINITE_H
#define EMBTIER_KERNELS_CPU_OPTIMIZER_FINITE_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/cpu/optimizer/optimizer.h"

/* A bound on the sum of @pair_count gradients, each at most @greatest in magnitude and times a
 * scale of at most @scale; of all that is added up on the way, too. */
double finite_sum_bound(float greatest, float scale, uint64_t pair_count);

/* Whether it is proven that no finite row becomes anything else by an update with a gradient whose
 * numbers are at most @greatest in magnitude, be it clipped or not. */
bool finite_is_proven(const struct optimizer_push *push, double greatest);

/* Whether the row stays as finite as it is if it is updated with @gradient, which is used up.
 * @copy: room for the row. */
bool finite_try(const struct optimizer_push *push, uint64_t row_id, const void *row,
                float *gradient, void *copy);
/* As optimizer_update() of one row, the same bits, but where a finite row would not stay finite:
 * numbers that overflow become the greatest of their sign, those that are none stay as they were.
 * @copy: room for the row. */
void finite_update(const struct optimizer_push *push, uint64_t row_id, void *row, float *gradient,
                   void *copy);

#endif
