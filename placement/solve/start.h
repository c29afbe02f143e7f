/* SPDX-License-Identifier: Apache-2.0 */
/* start.h: first placements. Each item gets a memory, then the items go to GPUs, longest first
 * (Graham, "Bounds on multiprocessing timing anomalies", 1969). Thread: any. */
#ifndef EMBTIER_PLACEMENT_SOLVE_START_H
#define EMBTIER_PLACEMENT_SOLVE_START_H

#include "placement/solve/bound.h"
#include "placement/solve/placing.h"

/* Fills the fastest memory with the items that read most for each byte, then the next. */
MUST_CHECK enum embtier_err start_by_density(struct placing *placing);
/* Gives each item the memory that is cheapest at the bound's weights and prices. */
MUST_CHECK enum embtier_err start_by_bound(struct placing *placing, const struct bound *bound);

/* After both, all items have a place that they are allowed, but rooms may be too full. Each item
 * has an allowed place. NO_MEMORY. */

#endif
