/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/planner/planner.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "placement/plan/plan_reasons.h"
#include "placement/planner/plan_fill.h"

static const char *const limit_texts[] = {
#define X(name, word, text, unit) [LIMIT_##name] = text,
    RULES_LIMIT_TABLE(X)
#undef X
};
static const char *const limit_units[] = {
#define X(name, word, text, unit) [LIMIT_##name] = unit,
    RULES_LIMIT_TABLE(X)
#undef X
};

static bool is_exceeded(const struct evaluation *e, enum rules_limit limit)
{
    return e->needed[limit] > e->allowed[limit] * (1 + 1e-9);
}

/* The pace at which the limits are looked at. */
static double pace(const struct planner_opts *opts, const struct evaluation *e)
{
    return opts->rules->target_samples_per_s > 0 ? opts->rules->target_samples_per_s
                                                 : e->samples_per_s;
}

static void describe(const struct planner_opts *opts, const struct evaluation *e,
                     enum rules_limit limit, struct err_msg *msg)
{
    err_write(msg,
              "%s: %s: %.6g %s are needed at %.6g samples/s; allowed: %.6g, which is %.6g less",
              rules_limit_word(limit), limit_texts[limit], e->needed[limit], limit_units[limit],
              pace(opts, e), e->allowed[limit], e->needed[limit] - e->allowed[limit]);
}

static void fill_warnings(const struct planner_opts *opts, const struct evaluation *e,
                          struct planner_warnings *warnings)
{
    warnings->count = 0;
    for (uint32_t i = 0; i < RULES_LIMITS; i++)
        if (opts->rules->warns[i] && is_exceeded(e, i))
            describe(opts, e, i, &warnings->texts[warnings->count++]);
}

/* The best plan that was found exceeds a limit. The search prefers plans that exceed none, but not
 * finding one proves nothing, except where the bound does. */
static enum embtier_err check_limits(const struct planner_opts *opts, const struct homes *homes,
                                     struct err_msg *msg)
{
    const struct evaluation *const e = &homes->evaluation;
    struct err_msg reason = { { 0 } };

    if (e->excess == 0)
        return EMBTIER_OK;
    for (uint32_t i = 0; i < RULES_LIMITS; i++) {
        if (opts->rules->warns[i] || !is_exceeded(e, i))
            continue;
        describe(opts, e, i, &reason);
        if (i == LIMIT_TARGET && homes->bound_s > e->allowed[i])
            return err_set(msg, EMBTIER_INVALID, "%s; no plan takes less than %.6g s", reason.text,
                           homes->bound_s);
        return err_set(
            msg, EMBTIER_INVALID,
            "%s; no plan was found that needs less (`limits: {%s: warning}` in the rules "
            "accepts it)",
            reason.text, rules_limit_word(i));
    }
    return err_set(msg, EMBTIER_INVALID,
                   "moved_bytes_max: %" PRIu64 " bytes are to be moved from the plan in force; "
                   "allowed: %" PRIu64 ", which is %" PRIu64 " less; no plan was found that moves "
                   "less and obeys the rules",
                   e->moved_bytes, opts->rules->moved_bytes_max,
                   e->moved_bytes - opts->rules->moved_bytes_max);
}

enum embtier_err planner_make(const struct planner_opts *opts, struct plan **ret_plan,
                              struct planner_warnings *ret_warnings, struct err_msg *msg)
{
    _cleanup_(workload_freep) struct workload *workload = NULL;
    _cleanup_(planning_freep) struct planning *planning = NULL;
    _cleanup_(homes_freep) struct homes *homes = NULL;
    _cleanup_(plan_freep) struct plan *plan = NULL;

    assert(opts->input_count <= PLAN_INPUTS_MAX);
    TRY(workload_new(opts->profile, opts->optimizers, opts->samples_per_batch, &workload, msg));
    TRY(planning_new(workload, opts->machine, opts->rules, opts->previous, &planning, msg));
    TRY(homes_search(planning, &opts->search, &homes, msg));
    TRY(check_limits(opts, homes, msg));
    if (plan_fill(planning, homes, &plan) != EMBTIER_OK)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    plan->input_count = opts->input_count;
    if (opts->input_count > 0)
        memcpy(plan->inputs, opts->inputs, opts->input_count * sizeof(*opts->inputs));
    TRY(plan_check(plan, msg));
    plan_explain(plan);
    fill_warnings(opts, &homes->evaluation, ret_warnings);
    ret_warnings->solver_says = homes->solver_says;
    *ret_plan = TAKE(plan);
    return EMBTIER_OK;
}
