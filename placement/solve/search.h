/* SPDX-License-Identifier: Apache-2.0 */
/* search.h: looks at all placements of a small model (depth first, branch and bound).
 *
 * A branch ends when a load reaches the best known time, or when the costs of its places at the
 * bound's weights and prices (bound.h) prove that nothing better follows. GPUs that are alike and
 * still empty count as one. Thread: any. */
#ifndef EMBTIER_PLACEMENT_SOLVE_SEARCH_H
#define EMBTIER_PLACEMENT_SOLVE_SEARCH_H

#include "placement/solve/bound.h"
#include "placement/solve/placing.h"

struct search_result {
    bool complete; /* all nodes were looked at: nothing better exists */
    bool found;    /* @placing is now better than @best_s */
    /* No placement is faster. It lies by 2e-12 of itself below the best time that is known now,
     * since sums are rounded. INFINITY: there is no placement. 0: the search is not complete. */
    double bound_s;
};

/* Looks at no more than @nodes nodes for a placement better than @best_s, which may be INFINITY. If
 * it finds one, @placing is the best that it found. NO_MEMORY. */
MUST_CHECK enum embtier_err search_all(struct placing *placing, const struct bound *bound,
                                       double best_s, uint64_t nodes,
                                       struct search_result *ret_result);

#endif
