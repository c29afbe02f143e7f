/* SPDX-License-Identifier: Apache-2.0 */
/* apply.h: the moves that bring a server's tables to where a plan wants them, in an order in which
 * each fits (docs/internals/placement/apply.md).
 *
 * The plan and the server's tables are values here; the caller moves tables and reports each move.
 * Thread: one. */
#ifndef EMBTIER_PLACEMENT_APPLY_APPLY_H
#define EMBTIER_PLACEMENT_APPLY_APPLY_H

#include "placement/plan/plan.h"

#define APPLY_NO_TIER UINT32_MAX

/* Where a table lives. */
struct apply_place {
    enum embtier_home home;
    uint32_t tier; /* of an array or a split: index into the server's tiers; else APPLY_NO_TIER */
    uint64_t hot_rows; /* of a split: how many; else 0 */
};

struct apply_tier {
    char name[TIER_NAME_MAX + 1];
    uint64_t array_bytes; /* that the tier keeps for arrays */
    uint64_t free_bytes;  /* of these */
};

/* A table of the server. */
struct apply_held {
    char name[EMBTIER_TABLE_NAME_MAX + 1];
    uint64_t rows;
    uint32_t dim;
    enum embtier_dtype dtype;
    enum embtier_optimizer optimizer;
    uint32_t row_bytes; /* weights and state */
    struct apply_place place;
};

struct apply_server {
    struct apply_tier tiers[TIERS_MAX];
    uint32_t tier_count;
    uint32_t lanes; /* 0: not known */
    struct apply_held *tables;
    uint32_t table_count;
};

struct apply_move {
    const struct apply_held *table; /* its place is the one before all moves */
    struct apply_place from, to;    /* @from changes when it takes a detour */
    uint64_t rows, row_bytes;       /* the most that move */
    uint64_t from_bytes, to_bytes;  /* of array memory; 0: the cache */
    bool goes_by_cache;             /* a split of other hot rows: the old one ends first */
    bool was_there;                 /* done without a move: the split had these hot rows */
    bool has_no_way_back;
    bool is_done;
};

struct apply {
    struct apply_server *server; /* borrowed */
    struct apply_move *moves;    /* in the order of the plan */
    uint32_t move_count;
    uint32_t same_count;      /* tables that are where the plan wants them; splits count when
                                 the server has said so */
    uint32_t unplanned_count; /* tables of the server that are not in the plan: they stay */
    uint32_t gpu_count;       /* parts in GPU memory for which there is another place */
    uint64_t row_bytes;       /* of all moves */
    /* Array memory of tables that the plan wants in GPU memory, and that have no place yet. */
    uint64_t unplaced_bytes[TIERS_MAX];
};

struct apply_opts {
    /* Put what the plan wants in GPU memory into arrays of the first tier with room, or else into
     * the cache. Otherwise a plan for GPUs is an error: no server has such arrays yet. */
    bool without_gpu;
};

/* @plan has passed plan_check(). NO_TABLE: the server lacks a table of the plan. MISMATCH: it
 * differs from the plan's. INVALID: the server has no such tier. TOO_LARGE: the arrays do not fit
 * into the tier. UNSUPPORTED: a table has ranges in several tiers, or the plan is for GPUs. @msg
 * names table or tier, the figures, and what can be done; with file, line and key before it if the
 * plan was read from a file. NO_MEMORY. */
MUST_CHECK enum embtier_err apply_new(const struct plan *plan, struct apply_server *server,
                                      const struct apply_opts *opts, struct apply **ret_apply,
                                      struct err_msg *msg);
void apply_free(struct apply *apply);
DEFINE_CLEANUP(struct apply, apply_free)

/* Gives a move to a split the hot rows that there are, at least one and at most as many as before.
 * To be called before the first step. */
void apply_limit_hot_rows(struct apply *apply, struct apply_move *move, uint64_t hot_rows);

/* A step: a move, or a detour through the cache: of a table that is in the way of others, or from a
 * split to another one. */
struct apply_step {
    struct apply_move *move;
    struct apply_place to;
};

/* Finds the next step that fits into the free bytes of the server's tiers. False: there is none;
 * then all moves are done, or apply_left() says that some are not. */
bool apply_next(const struct apply *apply, struct apply_step *ret_step);
/* Counts a step as done: its memory is taken, and the old one is free. */
void apply_done(struct apply *apply, const struct apply_step *step);
/* The server refused the step, as no gap in the tier is large enough: as if it had no room. */
void apply_refused(struct apply *apply, const struct apply_step *step);
/* True if the table is a split of as many hot rows in the same tier. These may be the same rows:
 * then the server has nothing to do, and takes no memory. */
bool apply_is_trial(const struct apply_step *step);
/* The server said that such a step's table has other hot rows. */
void apply_has_other_rows(const struct apply_step *step);
/* Finds a step that takes a table back to its old array, which it left for others in a detour, if
 * there is room: for a run that cannot go on. The largest comes first. Splits stay in the cache, as
 * nobody names their old hot rows. */
bool apply_next_back(const struct apply *apply, struct apply_step *ret_step);
/* Counts such a step as done; or notes that the server refused it. */
void apply_back_done(struct apply *apply, const struct apply_step *step);
void apply_back_refused(const struct apply_step *step);
/* Return the number of tables that have moved to their place, and of moves that are not done. */
uint32_t apply_moved(const struct apply *apply);
uint32_t apply_left(const struct apply *apply);
/* True if a table among the moves is a split of as many hot rows in the same tier already. Only a
 * server can tell if these are the same rows. */
bool apply_has_equal_split(const struct apply *apply);
/* Returns the number of tables that a detour has left in the cache, and the name of one of them. */
uint32_t apply_on_the_way(const struct apply *apply, const char **ret_name);

#endif
