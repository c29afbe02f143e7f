/* SPDX-License-Identifier: Apache-2.0 */
/* reference_plans.h: simpler ways of placing whole tables, to compare plans with.
 *
 * Each way exists for arrays with 0, 1/8, ... 8/8 of the first tier, and the cache has the rest.
 * The part with which the way is fastest counts, as planning_evaluate() says, which judges all
 * plans. GPUs get tables one after the other, each the one with the least load so far that has
 * room. Thread: one. */
#ifndef EMBTIER_TESTS_BENCH_LIB_PLANS_REFERENCE_PLANS_H
#define EMBTIER_TESTS_BENCH_LIB_PLANS_REFERENCE_PLANS_H

#include "placement/planner/planning.h"

/* X(name, key in a figure, what it does)
 *
 * TORCHREC is GreedyPerfPartitioner of TorchRec (torchrec/distributed/planner/partitioners.py):
 * tables in the order of their time, the longest first, each to the GPU with the least total time
 * that has room. Which memory a table has comes from proposals as GreedyProposer makes them: all in
 * HBM, then without the largest, and so on. The best proposal is the one whose slowest GPU is
 * fastest. TorchRec has two memories for a table; here the largest tables that leave HBM go behind
 * the cache, and the others to arrays. Times are those of planning_evaluate(), first with all
 * tables behind the cache, then with the answer's own. */
#define REFERENCE_PLAN_TABLE(X)                                                                    \
    X(CACHED, "all_cached", "all tables on SSD behind the cache")                                  \
    X(BANDWIDTH, "by_bandwidth", "most bytes read into the fastest memory, equal bytes for GPUs")  \
    X(SIZES, "by_size", "smallest tables into the fastest memory, equal sizes for GPUs")           \
    X(TORCHREC, "torchrec", "TorchRec's greedy partitioner")

enum reference_plan {
#define X(name, key, text) REFERENCE_##name,
    REFERENCE_PLAN_TABLE(X)
#undef X
        REFERENCE_PLANS
};

const char *reference_plan_key(enum reference_plan plan);
const char *reference_plan_text(enum reference_plan plan);

/* Makes the plan. The machine has one tier, and there are no rules. The times of @planning change.
 * @ret_places: table_count. NO_SPACE: nothing fits. */
MUST_CHECK enum embtier_err reference_plan_make(struct planning *planning, enum reference_plan plan,
                                                uint32_t *ret_places,
                                                struct evaluation *ret_evaluation,
                                                struct err_msg *msg);

#endif
