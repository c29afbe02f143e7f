/* SPDX-License-Identifier: Apache-2.0 */
/* homes_search.h: searches the homes of whole tables behind a cache.
 *
 * Hit rates depend on which tables are in the cache, and on how many bytes arrays leave it. So the
 * model of fixed times (placement/solve/) is solved again and again: with the times that the last
 * evaluation predicted, and with a part of each tier's bytes for arrays. Each answer is evaluated
 * exactly, and the best one stays. Then single tables are moved and pairs exchanged, each evaluated
 * in the same way. All of it is bounded by counts of steps. It proves nothing by itself: the bound
 * is that of a model in which each table has the whole cache alone and arrays have all bytes too.
 *
 * Thread: one. */
#ifndef EMBTIER_PLACEMENT_PLANNER_HOMES_SEARCH_H
#define EMBTIER_PLACEMENT_PLANNER_HOMES_SEARCH_H

#include "placement/planner/planning.h"
#include "placement/solve/milp.h"

struct homes_search_opts {
    uint64_t seed;
    const struct milp_solver *solver; /* for the last model; NULL: none */
    /* Called now and then with the number of evaluations so far, and the most that there may be;
     * may be NULL. */
    void (*progress)(void *ctx, uint64_t done, uint64_t total);
    void *ctx;
};

struct homes {
    uint32_t *places; /* table_count */
    struct evaluation evaluation;
    double bound_s;             /* no assignment has a shorter time_s */
    struct err_msg solver_says; /* as in struct solve_answer */
    bool has_stayed; /* the plan in force is the answer: others are not worth their moves */
};

/* The times of @planning are those of the answer afterwards. INVALID: no assignment obeys the rules
 * and has room, @msg says why. NO_SPACE: none was found. The answer may exceed limits. */
MUST_CHECK enum embtier_err homes_search(struct planning *planning,
                                         const struct homes_search_opts *opts,
                                         struct homes **ret_homes, struct err_msg *msg);
void homes_free(struct homes *homes);
DEFINE_CLEANUP(struct homes, homes_free)

#endif
