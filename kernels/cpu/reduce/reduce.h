/* SPDX-License-Identifier: Apache-2.0 */
/* reduce.h: makes one gradient per row out of one gradient per bag (Kwon et al., "Tensor Casting",
 * Algorithm 3: gather-reduce over casted indices).
 *
 * The gradient of a row is
 *
 *     (((0 + s0 g[b0]) + s1 g[b1]) + s2 g[b2]) …
 *
 * over the pairs of its run, in their order. It is computed in f32, with every product and every
 * addition rounded on its own. s is the sample's weight, divided by the bag's row count for a mean,
 * or 1. For a maximum, a pair adds only the columns that its row has won. Thread: any. */
#ifndef EMBTIER_KERNELS_CPU_REDUCE_REDUCE_H
#define EMBTIER_KERNELS_CPU_REDUCE_REDUCE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/embtier_types.h"
#include "kernels/cpu/cast/cast.h"
#include "kernels/cpu/isa.h"

struct reduce_batch {
    uint32_t dim;
    const float *bags;              /* gradients; bag b at bags + b * dim, without bag_places */
    const float *const *bag_places; /* bag b at bag_places[b]; or NULL */
    uint32_t bag_count;             /* number of all bags; if large, they are prefetched */
    const struct cast_pair *pairs;  /* sorted */
    const float *scales;            /* by pair->position, or NULL: 1 */
    const uint32_t *winners; /* for a maximum: by bag and column, the winner's position from the
                                bag's first row; else NULL */
    const uint32_t *offsets; /* with winners: position of each bag's first row */
    const uint32_t *starts;  /* into pairs: run r is from starts[r] up to starts[r + 1] */
    const uint32_t *runs;    /* chosen runs, ascending, run_count of them; NULL: the first ones */
    uint32_t run_count;
    float *rows; /* run_count x dim, written */
};
void reduce_runs(const struct reduce_batch *batch);
void reduce_runs_with(enum kernels_isa isa, const struct reduce_batch *batch);

/* Adds @count numbers to the sums at @sums. */
void reduce_add(float *sums, const float *more, uint32_t count);

/* Returns the greatest magnitude of @count numbers; 0 if there are none. If one is not finite,
 * returns infinity or NaN. */
float reduce_greatest(const float *numbers, uint64_t count);
float reduce_greatest_with(enum kernels_isa isa, const float *numbers, uint64_t count);
/* True if all @count numbers are finite. */
bool reduce_all_finite(const float *numbers, uint64_t count);
bool reduce_all_finite_with(enum kernels_isa isa, const float *numbers, uint64_t count);

/* Computes gradients of per-sample weights. For each of @count rows, this is the scalar product of
 * the row's weights with its bag's gradient at @bags[i]. If @divisors is not NULL, it is divided by
 * @divisors[i] (a mean's row count). Column c is added to partial sum c % 16, which begins with 0,
 * in order. Then the partial sums are added: 8 to 0 … 15 to 7, 4 to 0 … 7 to 3, 2 to 0, 3 to 1, and
 * 1 to 0. */
void reduce_weight_gradients(enum embtier_dtype dtype, uint32_t dim, const void *const *rows,
                             const float *const *bags, const float *divisors, uint32_t count,
                             float *ret_gradients);
void reduce_weight_gradients_with(enum kernels_isa isa, enum embtier_dtype dtype, uint32_t dim,
                                  const void *const *rows, const float *const *bags,
                                  const float *divisors, uint32_t count, float *ret_gradients);

#endif
