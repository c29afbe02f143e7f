/* SPDX-License-Identifier: Apache-2.0 */
/* split_deal.h: deals items to GPUs so that their lookup times and their bytes in the private level
 * are even.
 *
 * At the bound's prices, each table has a cheapest use. If all GPUs' sums of these are equal, they
 * are also the best cuts. Items are dealt the largest first, each to the GPU where it evens out
 * most. Then random moves and exchanges that even out further are kept. Thread: any. */
#ifndef EMBTIER_PLACEMENT_SPLIT_SPLIT_DEAL_H
#define EMBTIER_PLACEMENT_SPLIT_SPLIT_DEAL_H

#include "placement/split/split_bound.h"
#include "placement/split/split_draft.h"

/* Sets the draft's GPUs and uses, without regard to rooms. NO_MEMORY. */
MUST_CHECK enum embtier_err split_deal(struct split_draft *d, const struct split_bound *bound,
                                       uint64_t seed);

#endif
