/* SPDX-License-Identifier: Apache-2.0 */
/* row_search.h: searches cuts of tables by hotness behind a cache.
 *
 * As homes_search.h does for whole tables: the model whose times of the rest are fixed
 * (placement/split/) is solved again and again, with the cache that the last evaluation predicted
 * and with a part of each tier's bytes for arrays. Its cuts are rounded to slabs (row_fit.h) and
 * evaluated exactly. Then single parts grow, shrink and move by slabs. The homes of whole tables
 * are a candidate too, so no answer is worse than they are. Thread: one. */
#ifndef EMBTIER_PLACEMENT_PLANNER_ROW_SEARCH_H
#define EMBTIER_PLACEMENT_PLANNER_ROW_SEARCH_H

#include "placement/planner/homes_search.h"
#include "placement/planner/row_planning.h"

struct row_homes {
    struct split_cut *cuts; /* table_count */
    struct evaluation evaluation;
    double bound_s;  /* no cuts have a shorter time_s */
    bool is_whole;   /* no cut helps: the homes of whole tables are the answer */
    uint32_t hulls;  /* tables whose curve has a cliff, so that the solver took its hull */
    bool has_stayed; /* the plan in force is the answer: others are not worth their moves */
};

/* @whole: the best homes of whole tables; NULL: there are none. The figures of @rows are those of
 * the answer afterwards. INVALID: no cuts obey the rules and have room, @msg says why. NO_SPACE:
 * none were found. The answer may exceed limits. */
MUST_CHECK enum embtier_err row_search(struct row_planning *rows, const struct homes *whole,
                                       const struct homes_search_opts *opts,
                                       struct row_homes **ret_homes, struct err_msg *msg);
void row_homes_free(struct row_homes *homes);
DEFINE_CLEANUP(struct row_homes, row_homes_free)

#endif
