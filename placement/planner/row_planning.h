/* SPDX-License-Identifier: Apache-2.0 */
/* row_planning.h: the model of tables that are cut by hotness behind a cache, and the exact
 * evaluation of cuts.
 *
 * A table's hottest rows lie in arrays, in the memory of its GPU and in tiers, and the rest behind
 * the cache (placement/split/split_model.h; a level is a memory of machine.h but the cache). The
 * cache sees the lookups of the rest only (placement/profile/hot_reuse.h), and has all bytes of
 * each tier that arrays and reserved bytes leave. So cuts alone determine hit rates, times and
 * limits. Cuts of whole tables cost what planning_evaluate() says of their places.
 *
 * The hot rows of a cut table need a remap from ids to rows. Thread: one. */
#ifndef EMBTIER_PLACEMENT_PLANNER_ROW_PLANNING_H
#define EMBTIER_PLACEMENT_PLANNER_ROW_PLANNING_H

#include "placement/planner/planning.h"
#include "placement/profile/hot_reuse.h"
#include "placement/split/split_check.h"

/* For each hot row of a cut table: more than the server's remap takes. */
#define ROW_REMAP_BYTES 16

/* The rest of a table. */
struct row_rest {
    struct cached_lookups cached;
    struct cache_cost cost;
};

struct row_planning {
    struct planning *p; /* borrowed */
    /* For a solver: capacities are all bytes that arrays may have, and times of the rest those of
     * the last row_planning_set_…() call. */
    struct split_model model;
    struct split_table *tables;
    struct model_memory levels[SPLIT_LEVELS_MAX];
    /* For the check of rules only: rooms without end. */
    struct split_model rules_only;
    struct model_memory endless[SPLIT_LEVELS_MAX];
    struct model_rule *rules;
    uint64_t room_bytes[SPLIT_LEVELS_MAX][MODEL_GPUS_MAX]; /* without what is reserved or kept */
    struct hot_reuse **hot;                                /* table_count */
    double *rest_s;          /* table_count * HOT_REUSE_VALUES_MAX: times of a lookup in the rest */
    struct reuse_left *left; /* table_count: of the last evaluation, as the next three */
    uint64_t *left_rows;     /* that are in arrays */
    struct row_rest *rests;
    struct reuse_ages ages[CACHE_TIERS_MAX];
    double *row_bytes;           /* table_count; scratch, as the next one */
    struct reuse_times *scratch; /* 2 */
};

/* @planning is borrowed. INVALID: a figure is beyond the limits of such models. NO_MEMORY. */
MUST_CHECK enum embtier_err row_planning_new(struct planning *planning,
                                             struct row_planning **ret_rows, struct err_msg *msg);
void row_planning_free(struct row_planning *rows);
DEFINE_CLEANUP(struct row_planning, row_planning_free)

/* Bytes of a table's rows in a level, with remap if it is cut; UINT64_MAX: more than an array can
 * have. */
uint64_t row_part_bytes(const struct row_planning *rows, uint32_t table,
                        const struct split_cut *cut, uint32_t level);
/* True: some rows are left for the cache. */
bool row_has_rest(const struct row_planning *rows, uint32_t table, const struct split_cut *cut);
/* True: no two tiers have rows of the table in arrays. The memory of its GPU is no tier. */
bool row_is_in_one_tier(const struct row_planning *rows, const struct split_cut *cut);

/* INVALID: a rule is broken, a level is too full, or a table has rows in arrays of several tiers,
 * as no server can (docs/internals/placement/apply.md); @msg says so. Limits that are exceeded are
 * no error here. */
MUST_CHECK enum embtier_err row_planning_evaluate(struct row_planning *rows,
                                                  const struct split_cut *cuts,
                                                  struct evaluation *ret_evaluation,
                                                  struct err_msg *msg);

/* Sets times of the rest as if each cut left the cache as it was at the last evaluation. @price: of
 * SSD's reads and writes, as in planning_ssd_s(). */
void row_planning_set_rests(struct row_planning *rows, double price);
/* Sets them as if each table had the whole cache alone, with all bytes of all tiers. No cuts have a
 * shorter time for any table. */
MUST_CHECK enum embtier_err row_planning_set_least_rests(struct row_planning *rows,
                                                         struct err_msg *msg);

#endif
