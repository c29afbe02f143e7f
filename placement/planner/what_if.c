/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/planner/what_if.h"

#include <stdio.h>

uint32_t what_if_count(const struct machine *machine)
{
    return machine->tier_count + 2;
}

/* A figure that is doubled is no longer that of the file: messages must not name the file's key. */
static void double_ssd(struct machine_ssd *ssd, struct machine_places *places)
{
    ssd->bytes = MIN(ssd->bytes * 2, MACHINE_BYTES_MAX);
    ssd->drive_bytes = MIN(ssd->drive_bytes * 2, MACHINE_BYTES_MAX);
    ssd->read_bandwidth_bytes_per_s *= 2;
    ssd->write_bandwidth_bytes_per_s *= 2;
    ssd->read_iops *= 2;
    places->ssd_bytes.text[0] = '\0';
    places->read_iops.text[0] = '\0';
    places->write_bandwidth.text[0] = '\0';
    places->drive_writes.text[0] = '\0'; /* its limit is a multiple of the drives' bytes */
}

void what_if_change(const struct machine *machine, uint32_t number, struct machine *ret_machine,
                    char ret_change[TIER_NAME_MAX + 8])
{
    *ret_machine = *machine;
    ret_change[0] = '\0';
    if (number == 0)
        return;
    if (number > machine->tier_count) {
        double_ssd(&ret_machine->ssd, &ret_machine->places);
        snprintf(ret_change, TIER_NAME_MAX + 8, "ssd x2");
        return;
    }
    ret_machine->tiers[number - 1].bytes =
        MIN(machine->tiers[number - 1].bytes * 2, MACHINE_BYTES_MAX);
    ret_machine->places.tier_bytes[number - 1].text[0] = '\0';
    snprintf(ret_change, TIER_NAME_MAX + 8, "%s x2", machine->tiers[number - 1].name);
}

/* Sets the figures of a plan. INVALID and NO_SPACE: there is none, and @why says why. */
static enum embtier_err plan_once(const struct planner_opts *opts, struct what_if *what_if,
                                  struct err_msg *why)
{
    _cleanup_(plan_freep) struct plan *plan = NULL;
    struct planner_warnings warnings;

    TRY(planner_make(opts, &plan, &warnings, why));
    what_if->has_plan = true;
    what_if->samples_per_s = plan->samples_per_s;
    what_if->time_s = plan->time_s;
    return EMBTIER_OK;
}

static bool is_refusal(enum embtier_err err)
{
    return err == EMBTIER_INVALID || err == EMBTIER_NO_SPACE;
}

enum embtier_err what_if_plan(const struct planner_opts *opts, uint32_t number,
                              struct what_if *ret_what_if)
{
    struct what_if what_if = { 0 };
    struct rules without_target = *opts->rules;
    struct planner_opts changed = *opts;
    struct machine machine;
    enum embtier_err err;

    what_if_change(opts->machine, number, &machine, what_if.change);
    changed.machine = &machine;
    what_if.cost = machine_cost(&machine);
    what_if.power_w = machine_power_w(&machine);
    err = plan_once(&changed, &what_if, &what_if.why);
    what_if.reaches = err == EMBTIER_OK;
    if (is_refusal(err) && opts->rules->target_samples_per_s > 0) {
        without_target.target_samples_per_s = 0;
        changed.rules = &without_target;
        err = plan_once(&changed, &what_if, NULL);
    }
    if (err != EMBTIER_OK && !is_refusal(err))
        return err;
    *ret_what_if = what_if;
    return EMBTIER_OK;
}

uint32_t what_if_cheapest(const struct what_if *all, uint32_t count)
{
    uint32_t best = count;

    for (uint32_t i = 0; i < count; i++)
        if (all[i].reaches && all[i].cost >= 0 && (best == count || all[i].cost < all[best].cost))
            best = i;
    return best;
}
