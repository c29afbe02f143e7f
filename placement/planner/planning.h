/* SPDX-License-Identifier: Apache-2.0 */
/* planning.h: the model of whole tables behind a cache, and the exact evaluation of an assignment.
 *
 * An assignment gives each table a place, as in placement/model/model.h. The memories are those of
 * machine.h, the cache among them. The cache has all bytes of each tier that arrays and reserved
 * bytes leave. So an assignment alone determines hit rates, times and limits, and evaluation
 * predicts all of them again. Nothing of a search enters it.
 *
 * Thread: one. */
#ifndef EMBTIER_PLACEMENT_PLANNER_PLANNING_H
#define EMBTIER_PLACEMENT_PLANNER_PLANNING_H

#include "placement/machine/rules.h"
#include "placement/plan/plan.h"
#include "placement/planner/workload.h"
#include "placement/split/split_model.h"

/* For a table behind the cache, in a batch. */
struct cache_cost {
    struct table_prediction prediction;
    double time_s;        /* on one GPU */
    double read_blocks;   /* of SSD */
    double written_bytes; /* to SSD */
};

struct planning {
    const struct workload *workload; /* borrowed, as the next three */
    const struct machine *machine;
    const struct rules *rules;
    const struct plan *previous_plan; /* NULL: none */
    struct model model; /* capacities are those of arrays; times are the last evaluation's */
    struct model_table *tables;
    struct model_memory memories[MODEL_MEMORIES_MAX];
    struct model_rule *model_rules; /* the user's, then tables that cannot be arrays */
    double *times_s;
    uint64_t tier_bytes[TIERS_MAX]; /* without reserved ones */
    uint32_t *previous_places;      /* table_count, if there is a previous plan: of whole tables */
    struct split_cut *previous;     /* table_count, the same: of rows */
    bool has_exact_rows, has_exact_places; /* these are the previous plan, on this machine too */
    struct cache_cost *costs; /* table_count: of the last evaluation, or as if it were cached */
    double *row_bytes;        /* table_count; scratch, as the next one */
    struct table_prediction *predictions;
};

struct evaluation {
    double time_s;  /* lookups of the slowest GPU in a batch (MTrainS, equation 6) */
    double batch_s; /* the same, or the time that SSD takes for its reads and writes */
    double sum_s;   /* of all GPUs */
    double samples_per_s;
    double reads;         /* blocks of SSD in a batch */
    double written_bytes; /* to SSD in a batch */
    double needed[RULES_LIMITS];
    double allowed[RULES_LIMITS]; /* INFINITY: no limit */
    uint64_t moved_bytes;         /* from the previous plan */
    uint64_t array_bytes[TIERS_MAX];
    uint64_t cache_bytes[TIERS_MAX];
    double excess; /* sum of the shares by which limits are exceeded that are errors; 0: feasible */
};

/* @previous may be NULL. INVALID: bytes are missing, or a rule cannot be met. */
MUST_CHECK enum embtier_err planning_new(const struct workload *workload,
                                         const struct machine *machine, const struct rules *rules,
                                         const struct plan *previous,
                                         struct planning **ret_planning, struct err_msg *msg);
void planning_free(struct planning *planning);
DEFINE_CLEANUP(struct planning, planning_free)

/* INVALID: the assignment breaks a rule, or exceeds a memory; @msg says so. Limits that are
 * exceeded are no error here. */
MUST_CHECK enum embtier_err planning_evaluate(struct planning *planning, const uint32_t *places,
                                              struct evaluation *ret_evaluation,
                                              struct err_msg *msg);
/* Sets times as if each cached table had the whole cache alone, with all bytes of all tiers. No
 * assignment has a shorter time for any table. */
MUST_CHECK enum embtier_err planning_set_least_times(struct planning *planning,
                                                     struct err_msg *msg);
/* ---- Parts of an evaluation, for tables that are cut too (row_planning.h) ---- */

/* The part of a table behind the cache, in a batch. */
struct cached_lookups {
    double lookups;
    double updated_rows;
};

/* Returns what a table costs in the cache if it hits as predicted. */
struct cache_cost planning_cache_cost(const struct planning *planning, uint32_t table,
                                      const struct cached_lookups *cached,
                                      const struct table_prediction *prediction);
/* Returns the bytes of blocks that SSD reads in a second: its bandwidth, or the bytes of as many
 * blocks as `read_iops` allows, if these are fewer. If that limit is only a warning, it is ignored.
 */
double planning_ssd_bandwidth(const struct planning *planning);
/* Returns the time for which SSD's limits are used up by these reads and writes of a batch. */
double planning_ssd_s(const struct planning *planning, const struct cache_cost *cost);
/* The least time of a lookup, on one GPU: a tier may be slower than SSD, or than the next one.
 * False: tiers are sorted and faster than SSD, so that hit rates tell the least time. */
bool planning_has_odd_tiers(const struct planning *planning, uint32_t table, double *ret_least_s);
/* Returns the bytes of rows of the table that lie elsewhere than in the plan in force. */
uint64_t planning_moved_bytes(const struct planning *planning, uint32_t table,
                              const struct split_cut *cut);
/* Completes an evaluation from times, reads, writes and moved bytes: pace, limits, excess. */
void planning_judge(const struct planning *planning, struct evaluation *e);
/* The rows of a whole table at a place, by memory. */
struct split_cut planning_cut_of(const struct planning *planning, uint32_t table, uint32_t place);

/* False: the plan in force should stay, as @found is not faster by the least gain of the rules. */
bool planning_is_worth(const struct planning *planning, const struct evaluation *found,
                       const struct evaluation *in_force);

/* True: @a is to be preferred. */
bool evaluation_is_better(const struct evaluation *a, const struct evaluation *b);

static inline bool planning_is_cached(const struct planning *planning, uint32_t place)
{
    return place / planning->model.gpu_count == machine_cache(planning->machine);
}

/* The GPU of a place; PLAN_NO_GPU: the machine has none. */
static inline uint32_t planning_gpu(const struct planning *planning, uint32_t place)
{
    return planning->machine->gpu_count > 0 ? place % planning->model.gpu_count : PLAN_NO_GPU;
}

#endif
