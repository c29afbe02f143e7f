/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/planner/planner.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/text/bytes.h"
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

/* Returns @place, or @word if no file has the key. */
static const char *place_or(const char *place, const char *word)
{
    return place[0] != '\0' ? place : word;
}

/* The key that sets the limit, for the head of a message. */
static const char *limit_place(const struct planner_opts *opts, enum rules_limit limit)
{
    const struct machine_places *const places = &opts->machine->places;
    const char *const keys[] = { [LIMIT_TARGET] = opts->rules->target_place.text,
                                 [LIMIT_READ_IOPS] = places->read_iops.text,
                                 [LIMIT_WRITE_BANDWIDTH] = places->write_bandwidth.text,
                                 [LIMIT_DRIVE_WRITES] = places->drive_writes.text };

    return place_or(keys[limit], rules_limit_word(limit));
}

static const char *moved_place(const struct planner_opts *opts)
{
    return place_or(opts->rules->moved_place.text, "moved_bytes_max");
}

static void describe(const struct planner_opts *opts, const struct evaluation *e,
                     enum rules_limit limit, struct err_msg *msg)
{
    err_write(msg,
              "%s: %s: %.6g %s are needed at %.6g samples/s; allowed: %.6g, which is %.6g less",
              limit_place(opts, limit), limit_texts[limit], e->needed[limit], limit_units[limit],
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

/* Adds how much the other limits from @first on are exceeded. */
static void add_others(const struct planner_opts *opts, const struct evaluation *e, uint32_t first,
                       struct err_msg *msg)
{
    for (uint32_t i = first; i < RULES_LIMITS; i++) {
        const size_t used = strlen(msg->text);

        if (!opts->rules->warns[i] && is_exceeded(e, i))
            snprintf(msg->text + used, sizeof(msg->text) - used, "; %s by %.6g %s",
                     rules_limit_word(i), e->needed[i] - e->allowed[i], limit_units[i]);
    }
}

static void describe_moves(const struct planner_opts *opts, const struct evaluation *e,
                           struct err_msg *msg)
{
    err_write(msg, "%s: %s are to be moved from the plan in force; allowed: %s, which is %s less",
              moved_place(opts), BYTES_TEXT(e->moved_bytes),
              BYTES_TEXT(opts->rules->moved_bytes_max),
              BYTES_TEXT(e->moved_bytes - opts->rules->moved_bytes_max));
}

static void add_moves(const struct planner_opts *opts, const struct evaluation *e,
                      struct err_msg *msg)
{
    const size_t used = strlen(msg->text);

    if (e->moved_bytes > opts->rules->moved_bytes_max)
        snprintf(msg->text + used, sizeof(msg->text) - used, "; moved_bytes_max by %s",
                 BYTES_TEXT(e->moved_bytes - opts->rules->moved_bytes_max));
}

/* The best plan that was found exceeds a limit: the search took limits as elastic. It prefers plans
 * that exceed none, but not finding one proves nothing, except where the bound does. */
static enum embtier_err check_limits(const struct planner_opts *opts, const struct evaluation *e,
                                     double bound_s, struct err_msg *msg)
{
    struct err_msg reason = { { 0 } };

    if (e->excess == 0)
        return EMBTIER_OK;
    for (uint32_t i = 0; i < RULES_LIMITS; i++) {
        if (opts->rules->warns[i] || !is_exceeded(e, i))
            continue;
        describe(opts, e, i, &reason);
        add_others(opts, e, i + 1, &reason);
        add_moves(opts, e, &reason);
        if (i == LIMIT_TARGET && bound_s > e->allowed[i])
            return err_set(msg, EMBTIER_INVALID, "%s; no plan takes less than %.6g s", reason.text,
                           bound_s);
        return err_set(
            msg, EMBTIER_INVALID,
            "%s; no plan was found that needs less (`limits: {%s: warning}` in the rules "
            "accepts it)",
            reason.text, rules_limit_word(i));
    }
    describe_moves(opts, e, &reason);
    return err_set(msg, EMBTIER_INVALID,
                   "%s; no plan was found that moves less and obeys the rules", reason.text);
}

/* ---- Plans ---- */

static void say_that_it_stays(const struct planner_opts *opts, struct planner_warnings *warnings)
{
    err_write(&warnings->stay_says,
              "the plan in force stays: no other plan was found that is faster by %g%% "
              "(`least_gain` in the rules)",
              100 * opts->rules->least_gain);
}

/* A plan that is being made. */
struct making {
    const struct planner_opts *opts;
    struct planning *planning;
    struct homes *homes; /* of whole tables; NULL: none were found */
    struct plan *plan;
    struct planner_warnings warnings;
};

static void free_making(struct making *m)
{
    planning_freep(&m->planning);
    homes_freep(&m->homes);
    plan_freep(&m->plan);
}

static bool is_refusal(enum embtier_err err)
{
    return err == EMBTIER_INVALID || err == EMBTIER_NO_SPACE;
}

static enum embtier_err finish_whole(struct making *m, struct err_msg *msg)
{
    const struct evaluation *e;

    assert(m->homes);
    e = &m->homes->evaluation;
    TRY(check_limits(m->opts, e, m->homes->bound_s, msg));
    if (plan_fill(m->planning, m->homes, &m->plan) != EMBTIER_OK)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    fill_warnings(m->opts, e, &m->warnings);
    if (m->homes->has_stayed)
        say_that_it_stays(m->opts, &m->warnings);
    return EMBTIER_OK;
}

static enum embtier_err finish_rows(struct making *m, const struct row_planning *rows,
                                    const struct row_homes *cuts, struct err_msg *msg)
{
    TRY(check_limits(m->opts, &cuts->evaluation, cuts->bound_s, msg));
    if (plan_fill_rows(rows, cuts, &m->plan) != EMBTIER_OK)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    fill_warnings(m->opts, &cuts->evaluation, &m->warnings);
    if (cuts->has_stayed)
        say_that_it_stays(m->opts, &m->warnings);
    else if (cuts->is_whole)
        err_write(&m->warnings.rows_say, "no table is cut: no cut makes a better plan than whole "
                                         "tables");
    else if (cuts->hulls > 0)
        err_write(&m->warnings.rows_say,
                  "%" PRIu32 " tables have cliffs, where only many rows together are worth their "
                  "memory: their cuts were found on the hull of the curve, and may not be the best",
                  cuts->hulls);
    return EMBTIER_OK;
}

/* Cuts tables. If that cannot be done, whole tables are the plan. */
static enum embtier_err make_rows(struct making *m, struct err_msg *msg)
{
    _cleanup_(row_planning_freep) struct row_planning *rows = NULL;
    _cleanup_(row_homes_freep) struct row_homes *cuts = NULL;
    struct err_msg why = { { 0 } };
    enum embtier_err err = row_planning_new(m->planning, &rows, &why);

    if (err == EMBTIER_OK)
        err = row_search(rows, m->homes, &m->opts->search, &cuts, &why);
    if (err == EMBTIER_OK)
        return finish_rows(m, rows, cuts, msg);
    if (!is_refusal(err) || !m->homes)
        return err_set(msg, err, "%s", why.text);
    err_write(&m->warnings.rows_say, "no table is cut, as the model does not allow it: %.400s",
              why.text);
    return finish_whole(m, msg);
}

static enum embtier_err make(struct making *m, const struct workload *workload, struct err_msg *msg)
{
    const struct planner_opts *const opts = m->opts;
    enum embtier_err err;

    TRY(planning_new(workload, opts->machine, opts->rules, opts->previous, &m->planning, msg));
    err = homes_search(m->planning, &opts->search, &m->homes, msg);
    if (m->homes)
        m->warnings.solver_says = m->homes->solver_says;
    if (opts->row_wise && (err == EMBTIER_OK || is_refusal(err)))
        return make_rows(m, msg);
    return err == EMBTIER_OK ? finish_whole(m, msg) : err;
}

enum embtier_err planner_make(const struct planner_opts *opts, struct plan **ret_plan,
                              struct planner_warnings *ret_warnings, struct err_msg *msg)
{
    _cleanup_(workload_freep) struct workload *workload = NULL;
    _cleanup_(free_making) struct making m = { .opts = opts };

    assert(opts->input_count <= PLAN_INPUTS_MAX);
    if (!opts->previous && opts->rules->moved_bytes_max != UINT64_MAX)
        return err_set(msg, EMBTIER_INVALID,
                       "%s: there is no plan in force to count moves from: give it with "
                       "--previous, or leave this rule out",
                       moved_place(opts));
    TRY(workload_new(opts->profile, opts->optimizers, opts->samples_per_batch, &workload, msg));
    TRY(make(&m, workload, msg));
    m.plan->input_count = opts->input_count;
    if (opts->input_count > 0)
        memcpy(m.plan->inputs, opts->inputs, opts->input_count * sizeof(*opts->inputs));
    TRY(plan_check(m.plan, msg));
    plan_explain(m.plan, opts->row_wise);
    *ret_warnings = m.warnings;
    *ret_plan = TAKE(m.plan);
    return EMBTIER_OK;
}
