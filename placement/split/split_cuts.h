/* SPDX-License-Identifier: Apache-2.0 */
/* split_cuts.h: the best cuts when each table's GPU and mode are fixed.
 *
 * That is a linear program. Its shared levels are one resource, at prices for their bytes. For a
 * GPU, a weight of its seconds against these prices gives the cheapest cuts, and bisection of its
 * private level's price makes them fit. The weights trace a convex curve of time against shared
 * bytes. The least time T at which all GPUs' curves fit the shared levels is searched, and each
 * curve gets the corner that lies next to T until no new one helps (column generation; Eisner and
 * Severance, "Mathematical Techniques for Efficient Record Segmentation in Large Shared Databases",
 * 1976, for the corners). Between corners, cuts are mixed, which is exact, as each piece's cost is
 * linear.
 *
 * With several shared levels, the prices of all but the first are bisected: dearer where a level is
 * too full. The last two cuts on both sides are mixed, so that the level is just full. Thread: any.
 */
#ifndef EMBTIER_PLACEMENT_SPLIT_SPLIT_CUTS_H
#define EMBTIER_PLACEMENT_SPLIT_SPLIT_CUTS_H

#include "placement/split/split_bound.h"
#include "placement/split/split_draft.h"

/* Makes cuts for the GPUs and modes that @d has. Sets its weights, prices and largest_s, which is
 * INFINITY if nothing fits. NO_MEMORY. */
MUST_CHECK enum embtier_err split_cuts_find(struct split_draft *d, const struct split_bound *bound);

/* About how many times as long this takes as with one shared level. */
uint32_t split_cuts_effort(const struct split_instance *x);

#endif
