/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/solve/solve.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "placement/model/assignment.h"
#include "placement/solve/anneal.h"
#include "placement/solve/bound.h"
#include "placement/solve/fit.h"
#include "placement/solve/milp.h"
#include "placement/solve/search.h"
#include "placement/solve/start.h"

#define STEPS_PER_ITEM 24000
#define STEPS_LEAST    (UINT64_C(1) << 18)
#define STEPS_MOST     (UINT64_C(1) << 25)
#define SEARCHES       8 /* in a pass */
#define PASSES         2
/* First temperatures. A hot search forgets where it started. A cool one stays near the linear
 * program's solution, which is best where that is nearly whole. */
#define HOT           0.2
#define COOL          0.005
#define SOLVER_ROUNDS 3
#define ROUND_GAP     0.01
#define SOLVER_CARE   1e-6 /* of a solver's bound, which its tolerances may raise */
#define NEARLY        1e-3 /* of a room: 1e-6 for each of many tables in it */
#define NODES         (UINT64_C(1) << 25)
#define SEARCH_ITEMS  24   /* more items have too many placements */
#define WEIGHT_LEAST  0.3  /* of a room whose price is 0: it must not overflow either */
#define CLOSE         1e-4 /* limits that differ by less, as a share, are not told apart */

struct solving {
    const struct model *model;
    const struct solve_opts *opts;
    struct instance *x;
    struct placing *now, *best;
    struct bound *bound;
    double *room_weights;
    double best_s;  /* of @best; INFINITY: none */
    double bound_s; /* the best proven */
    uint64_t seed;
    double own_s; /* of the best placement before the solver was asked */
    double solver_bound_s;
    bool solver_won;
    struct err_msg solver_says;
};

static void free_parts(struct solving *s)
{
    if (s->now)
        placing_free(s->now);
    if (s->best)
        placing_free(s->best);
    if (s->bound)
        bound_free(s->bound);
    if (s->x)
        instance_free(s->x);
    free(s->room_weights);
}

/* ---- candidates ---- */

/* Keeps @now if it is better than @best, as the exact check sees it. INVALID: it exceeds a memory
 * or breaks a rule, which @msg names. */
static enum embtier_err judge(struct solving *s, struct err_msg *msg)
{
    _cleanup_(freep) uint32_t *places = calloc(s->model->table_count, sizeof(*places));
    double largest_s = INFINITY;

    if (!places)
        return EMBTIER_NO_MEMORY;
    placing_tables(s->now, places);
    TRY(assignment_check(s->model, places, &largest_s, NULL, msg));
    if (largest_s < s->best_s) {
        s->best_s = largest_s;
        placing_copy(s->best, s->now);
    }
    return EMBTIER_OK;
}

/* The same for a placement of our own, which is dropped if it does not fit. */
static enum embtier_err judge_own(struct solving *s)
{
    const enum embtier_err err = judge(s, NULL);

    return err == EMBTIER_INVALID ? EMBTIER_OK : err;
}

static uint64_t step_count(const struct solving *s)
{
    const uint64_t steps = (uint64_t)STEPS_PER_ITEM * s->x->item_count;

    if (s->opts->steps)
        return s->opts->steps;
    return MAX(MIN(steps, STEPS_MOST), STEPS_LEAST);
}

/* Searches from @now. */
static enum embtier_err search_within(struct solving *s, double limit_s, double hot,
                                      bool *ret_found)
{
    const struct anneal_opts opts = { .limit_s = limit_s,
                                      .room_weights = s->room_weights,
                                      .hot = hot,
                                      .seed = s->opts->seed * 1000003 + ++s->seed * 2654435761,
                                      .steps = step_count(s) };

    *ret_found = anneal_run(s->now, &opts);
    return *ret_found ? judge_own(s) : EMBTIER_OK;
}

/* ---- steps ---- */

static enum embtier_err prepare(struct solving *s, struct err_msg *msg)
{
    TRY(instance_new(s->model, &s->x, msg));
    TRY(fit_check(s->x, msg));
    s->room_weights = calloc(s->x->room_count, sizeof(*s->room_weights));
    if (!s->room_weights || placing_new(s->x, &s->now) != EMBTIER_OK ||
        placing_new(s->x, &s->best) != EMBTIER_OK)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    for (uint32_t r = 0; r < s->x->room_count; r++)
        s->room_weights[r] = 1;
    return EMBTIER_OK;
}

/* Longer than any placement takes. */
static double longest_s(const struct instance *x)
{
    double sum_s = 0;

    for (uint32_t i = 0; i < x->item_count; i++) {
        double item_s = 0;

        for (uint32_t m = 0; m < x->memory_count; m++)
            item_s = fmax(item_s, x->times_s[i * x->memory_count + m]);
        sum_s += item_s;
    }
    return sum_s * 1.001;
}

static void weigh_rooms(struct solving *s)
{
    const double limit_s = s->bound->limit_s;

    for (uint32_t r = 0; r < s->x->room_count; r++) {
        const double share = s->bound->prices_s_byte[r] * (double)s->x->room_bytes[r] *
                             s->x->gpu_count / (limit_s > 0 ? limit_s : 1);

        s->room_weights[r] = fmax(share, WEIGHT_LEAST);
    }
}

static enum embtier_err start(struct solving *s)
{
    bool found = false;

    TRY(start_by_density(s->now));
    TRY(search_within(s, INFINITY, HOT, &found));
    TRY(bound_new(s->x, isinf(s->best_s) ? longest_s(s->x) : s->best_s, &s->bound));
    s->bound_s = s->bound->bound_s;
    weigh_rooms(s);
    TRY(start_by_bound(s->now, s->bound));
    return search_within(s, INFINITY, HOT, &found);
}

/* True: a placement is known, and is above @low_s by at most this share of its time. */
static bool is_within(const struct solving *s, double low_s, double share)
{
    return !isinf(s->best_s) && s->best_s - low_s <= share * s->best_s;
}

static bool is_good(const struct solving *s)
{
    return s->best_s <= s->bound_s || is_within(s, s->bound_s, s->opts->gap);
}

/* Bisects the limit between the bound and the best placement. As long as none is known, each search
 * may take as long as any placement. A failed search proves nothing, so the next pass begins at the
 * bound again. */
static enum embtier_err improve_pass(struct solving *s)
{
    const uint32_t searches = s->opts->searches ? s->opts->searches : SEARCHES;
    double low_s = s->bound_s;
    bool found = false;

    for (uint32_t i = 0; i < searches && !is_good(s) && !is_within(s, low_s, CLOSE); i++) {
        const double limit_s = isinf(s->best_s) ? longest_s(s->x) : low_s + (s->best_s - low_s) / 2;

        TRY(start_by_bound(s->now, s->bound));
        TRY(search_within(s, limit_s, COOL, &found));
        if (!found) {
            TRY(start_by_bound(s->now, s->bound));
            TRY(search_within(s, limit_s, HOT, &found));
        }
        if (!found && !isinf(s->best_s))
            low_s = limit_s;
    }
    return EMBTIER_OK;
}

/* Looks at all placements, if there are few enough for that. */
static enum embtier_err look_at_all(struct solving *s, bool *ret_complete)
{
    struct search_result result = { 0 };

    *ret_complete = false;
    if (s->x->item_count > SEARCH_ITEMS || s->best_s <= s->bound_s)
        return EMBTIER_OK;
    TRY(search_all(s->now, s->bound, s->best_s, s->opts->nodes ? s->opts->nodes : NODES, &result));
    if (result.found)
        TRY(judge_own(s));
    *ret_complete = result.complete;
    s->bound_s = fmax(s->bound_s, fmin(result.bound_s, s->best_s));
    return EMBTIER_OK;
}

/* ---- the outside solver ---- */

/* True: no room is too full by more than a solver's tolerances may explain. */
static bool nearly_fits(const struct solving *s)
{
    for (uint32_t r = 0; r < s->x->room_count; r++)
        if ((double)s->now->used_bytes[r] > (double)s->x->room_bytes[r] * (1 + NEARLY))
            return false;
    return true;
}

/* Sees whether the solver's values are a better placement. A solver's tolerance is many bytes of a
 * large room, so if the placement nearly fits, a search from there often finds one that does. */
static enum embtier_err judge_values(struct solving *s, const struct milp *milp,
                                     const double *values)
{
    const double known_s = s->best_s;
    struct err_msg reason = { { 0 } };
    bool found = false;
    enum embtier_err err;

    if (!milp_decode(milp, values, s->now)) {
        err_write(&s->solver_says, "its answer leaves a table without a place");
        return EMBTIER_OK;
    }
    err = judge(s, &reason);
    if (err == EMBTIER_INVALID) {
        err_write(&s->solver_says, "its answer exceeds a memory or breaks a rule: %s", reason.text);
        return nearly_fits(s) ? search_within(s, known_s * (1 - CLOSE), COOL, &found) : EMBTIER_OK;
    }
    TRY(err);
    if (s->best_s >= known_s)
        err_write(&s->solver_says, "its answer is no better");
    return EMBTIER_OK;
}

/* A solver's bound above a placement that the exact check has seen is wrong, unless rounding in the
 * solver explains it. */
static bool contradicts(const struct solving *s, double bound_s)
{
    return bound_s > s->best_s * (1 + SOLVER_CARE);
}

/* Keeps the best bound of all rounds. NaN and infinity are none. */
static void keep_solver_bound(struct solving *s, double bound_s)
{
    if (!isfinite(bound_s))
        return;
    if (contradicts(s, bound_s))
        err_write(&s->solver_says, "its bound of %g s contradicts a placement of %g s", bound_s,
                  s->best_s);
    else
        s->solver_bound_s = fmax(s->solver_bound_s, bound_s);
}

static enum embtier_err ask_once(struct solving *s)
{
    const struct milp_solver *const solver = s->opts->solver;
    _cleanup_(milp_freep) struct milp *milp = NULL;
    _cleanup_(freep) double *values = NULL;
    const double known_s = s->best_s;
    double bound = -INFINITY;
    enum embtier_err err;

    if (!solver || is_good(s) || is_within(s, s->bound_s, CLOSE))
        return EMBTIER_OK;
    err = milp_new(s->best, s->bound, &milp);
    if (err == EMBTIER_TOO_LARGE) {
        err_write(&s->solver_says, "the model is too large for a solver");
        return EMBTIER_OK;
    }
    TRY(err);
    values = calloc(milp->column_count, sizeof(*values));
    if (!values)
        return EMBTIER_NO_MEMORY;
    if (solver->solve(solver->ctx, milp, values, &bound, &s->solver_says) != EMBTIER_OK)
        return EMBTIER_OK; /* the own answer stays */
    TRY(judge_values(s, milp, values));
    keep_solver_bound(s, bound * known_s);
    return EMBTIER_OK;
}

/* A better answer leaves fewer places open, so the solver is asked again after a success, unless
 * little is left to win. */
static enum embtier_err ask_solver(struct solving *s)
{
    double before_s;
    uint32_t round = 0;

    do {
        before_s = s->best_s;
        TRY(ask_once(s));
    } while (++round < SOLVER_ROUNDS && s->best_s < before_s &&
             s->best_s - s->bound_s > ROUND_GAP * s->best_s);
    s->solver_won = s->best_s < s->own_s;
    if (s->solver_won)
        s->solver_says.text[0] = '\0';
    return EMBTIER_OK;
}

/* ---- answer ---- */

static enum embtier_err refuse(bool complete, struct err_msg *msg)
{
    if (complete)
        return err_set(msg, EMBTIER_INVALID,
                       "no placement fits: the tables have room together, but cannot be dealt out "
                       "whole to the memories; all were tried");
    return err_set(msg, EMBTIER_NO_SPACE,
                   "no placement was found: the tables nearly fill the memories; reserve less, or "
                   "loosen rules");
}

static enum embtier_err make_answer(struct solving *s, struct solve_answer **ret_answer)
{
    _cleanup_(solve_answer_freep) struct solve_answer *answer = calloc(1, sizeof(*answer));

    if (!answer)
        return EMBTIER_NO_MEMORY;
    answer->places = calloc(s->model->table_count, sizeof(*answer->places));
    if (!answer->places)
        return EMBTIER_NO_MEMORY;
    placing_tables(s->best, answer->places);
    answer->largest_s = s->best_s;
    assert(s->bound_s <= s->best_s); /* both are proven */
    answer->bound_s = s->bound_s;
    answer->solver_won = s->solver_won;
    answer->solver_bound_s =
        contradicts(s, s->solver_bound_s) ? -INFINITY : fmin(s->solver_bound_s, s->best_s);
    answer->solver_says = s->solver_says;
    *ret_answer = TAKE(answer);
    return EMBTIER_OK;
}

static enum embtier_err run(struct solving *s, struct solve_answer **ret_answer,
                            struct err_msg *msg)
{
    bool complete = false;

    TRY(start(s));
    for (uint32_t i = 0; i < PASSES; i++)
        TRY(improve_pass(s));
    TRY(look_at_all(s, &complete));
    if (isinf(s->best_s))
        return refuse(complete, msg);
    s->own_s = s->best_s;
    TRY(ask_solver(s));
    return make_answer(s, ret_answer);
}

enum embtier_err solve_model(const struct model *model, const struct solve_opts *opts,
                             struct solve_answer **ret_answer, struct err_msg *msg)
{
    _cleanup_(free_parts) struct solving s = {
        .model = model, .opts = opts, .best_s = INFINITY, .solver_bound_s = -INFINITY
    };
    enum embtier_err err;

    TRY(model_check(model, msg));
    TRY(prepare(&s, msg));
    err = run(&s, ret_answer, msg);
    if (err == EMBTIER_NO_MEMORY)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    return err;
}

void solve_answer_free(struct solve_answer *answer)
{
    if (!answer)
        return;
    free(answer->places);
    free(answer);
}

double solve_gap(const struct solve_answer *answer)
{
    return answer->largest_s > 0 ? 1 - answer->bound_s / answer->largest_s : 0;
}
