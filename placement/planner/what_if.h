/* SPDX-License-Identifier: Apache-2.0 */
/* what_if.h: plans for a machine and for changes of it, to choose what to buy (MTrainS, section
 * 7.3). Thread: any; each plan may take minutes. */
#ifndef EMBTIER_PLACEMENT_PLANNER_WHAT_IF_H
#define EMBTIER_PLACEMENT_PLANNER_WHAT_IF_H

#include "placement/planner/planner.h"

/* The machine as it is, each tier doubled, the drives doubled. */
#define WHAT_IF_CHANGES_MAX (TIERS_MAX + 2)

struct what_if {
    char change[TIER_NAME_MAX + 8]; /* "", "dram x2", "ssd x2" */
    double cost, power_w;           /* MACHINE_UNKNOWN: a price is not given */
    bool has_plan;
    bool reaches;         /* the target, within all limits; any plan reaches none */
    double samples_per_s; /* of the plan */
    double time_s;
    struct err_msg why; /* if it has no plan or does not reach the target */
};

/* Returns how many changes there are: with that number, a tier is as it is, or has twice its bytes,
 * or the drives are twice as many: bytes, bandwidths, IOPS. A doubled figure has no place in
 * a file. */
uint32_t what_if_count(const struct machine *machine);
void what_if_change(const struct machine *machine, uint32_t number, struct machine *ret_machine,
                    char ret_change[TIER_NAME_MAX + 8]);

/* Plans for one change. Rules and target are those of @opts; what does not reach the target is
 * planned again without one. NO_MEMORY is the only error. */
MUST_CHECK enum embtier_err what_if_plan(const struct planner_opts *opts, uint32_t number,
                                         struct what_if *ret_what_if);

/* Returns the number of the cheapest that reaches the target; @count if none does, or no cost is
 * known. */
uint32_t what_if_cheapest(const struct what_if *all, uint32_t count);

#endif
