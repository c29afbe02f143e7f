/* SPDX-License-Identifier: Apache-2.0 */
/* planner.h: from a profile, a machine and rules to a plan
 * (docs/internals/placement/planning.md).
 *
 * Equal input gives an equal plan on one machine. Thread: any; a call may take minutes. */
#ifndef EMBTIER_PLACEMENT_PLANNER_PLANNER_H
#define EMBTIER_PLACEMENT_PLANNER_PLANNER_H

#include "placement/planner/row_search.h"

struct planner_opts {
    const struct measured_profile *profile;   /* all borrowed for the call */
    const enum embtier_optimizer *optimizers; /* one for each table */
    const struct machine *machine;
    const struct rules *rules;
    const struct plan *previous; /* the plan in force; NULL: none */
    double samples_per_batch;    /* of the profile; 0: see workload_new() */
    bool row_wise;               /* tables may be cut by hotness */
    struct homes_search_opts search;
    const struct plan_input *inputs; /* that the plan names */
    uint32_t input_count;            /* PLAN_INPUTS_MAX at most */
};

/* Limits that the plan exceeds, and that the rules made warnings; a solver that failed; and what is
 * to be said of cut tables. */
struct planner_warnings {
    uint32_t count;
    struct err_msg texts[RULES_LIMITS];
    struct err_msg solver_says; /* why the outside solver's answer was not taken; "": it was, or
                                   none was asked */
    struct err_msg stay_says;   /* why the plan in force stays; "": it does not */
    struct err_msg rows_say;    /* why no table is cut, or whose cuts may be worse than others; "":
                                   nothing */
};

/* The plan has passed plan_check(). INVALID: the rules cannot be met; @msg names the limit, and by
 * how much it is missed. NO_SPACE: no placement was found, but there may be one. NO_MEMORY. */
MUST_CHECK enum embtier_err planner_make(const struct planner_opts *opts, struct plan **ret_plan,
                                         struct planner_warnings *ret_warnings,
                                         struct err_msg *msg);

#endif
