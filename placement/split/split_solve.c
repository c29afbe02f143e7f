/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/split/split_solve.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "placement/split/split_bound.h"
#include "placement/split/split_check.h"
#include "placement/split/split_cuts.h"
#include "placement/split/split_deal.h"
#include "placement/split/split_draft.h"
#include "placement/split/split_fit.h"
#include "placement/split/split_moves.h"
#include "placement/split/split_round.h"

#define SETTLES      4                /* changes of modes at new prices */
#define WORK         UINT64_C(800000) /* tables cut anew by trials */
#define ALL          UINT64_C(20000)  /* all combinations are tried if they are at most this many */
#define AT_ONCE      8                /* moves in a trial, at most */
#define TRIED        24               /* moves that fail, before smaller ones are tried */
#define CAUTION_STEP 2
#define CAUTION_MOST 1024
#define NO_GAIN      1e-12 /* as a share of the best time: rounding */

struct solving {
    const struct split_model *model;
    const struct split_opts *opts;
    struct split_instance *x;
    struct split_bound bound;
    struct split_draft *now, *best; /* @best is the draft of @best_cuts */
    struct split_cut *cuts, *best_cuts;
    double best_s; /* INFINITY: none */
};

static void free_parts(struct solving *s)
{
    split_instance_freep(&s->x);
    split_draft_freep(&s->now);
    split_draft_freep(&s->best);
    free(s->cuts);
    free(s->best_cuts);
}

static bool is_good(const struct solving *s)
{
    return !isinf(s->best_s) && s->best_s - s->bound.bound_s <= s->opts->gap * s->best_s;
}

/* ---- drafts ---- */

/* Keeps @now if it is better than @best, as the exact check sees it. */
static enum embtier_err judge(struct solving *s)
{
    double largest_s = INFINITY;
    enum embtier_err err;

    if (s->now->largest_s >= s->best_s * (1 - NO_GAIN))
        return EMBTIER_OK;
    split_round(s->now, s->cuts);
    err = split_check(s->model, s->cuts, &largest_s, NULL, NULL);
    if (err != EMBTIER_OK || largest_s >= s->best_s)
        return err == EMBTIER_INVALID ? EMBTIER_OK : err;
    s->best_s = largest_s;
    split_draft_copy(s->best, s->now);
    memcpy(s->best_cuts, s->cuts, s->model->table_count * sizeof(*s->cuts));
    return EMBTIER_OK;
}

static enum embtier_err cut_now(struct solving *s)
{
    s->now->largest_s = INFINITY;
    if (!split_draft_make_room(s->now))
        return EMBTIER_OK;
    TRY(split_cuts_find(s->now, &s->bound));
    return judge(s);
}

/* Cuts, and takes the modes that are best at the prices of these cuts, as long as that helps. */
static enum embtier_err settle(struct solving *s)
{
    double before_s = INFINITY;

    TRY(cut_now(s));
    for (uint32_t i = 0; i < SETTLES && s->now->largest_s < before_s; i++) {
        before_s = s->now->largest_s;
        if (!split_draft_choose_modes(s->now))
            break;
        TRY(cut_now(s));
    }
    return EMBTIER_OK;
}

/* ---- all combinations of few tables ---- */

/* The cost of a table's cheapest use in this mode, at the bound's prices. */
static double cost_at_bound(const struct solving *s, uint32_t table, uint32_t gpu, uint32_t mode)
{
    const struct split_prices prices = split_bound_prices(s->x, &s->bound, table, gpu);

    return split_use_of(s->x, table, mode, &prices).cost;
}

/* True: all combinations of GPUs and modes can be tried. */
static bool has_few(const struct split_instance *x)
{
    uint64_t count = split_cuts_effort(x);

    for (uint32_t i = 0; i < x->table_count && count <= ALL; i++) {
        uint32_t modes = 0;

        for (uint32_t g = 0; g < x->gpu_count; g++)
            modes += (uint32_t)__builtin_popcount(x->modes[(uint64_t)i * x->gpu_count + g]);
        count *= modes;
    }
    return count <= ALL;
}

/* A choice of GPU and mode for each table, counted like the digits of a number. */
struct choice {
    uint32_t gpu, mode;
};

/* True: the next choices are allowed, and stay below the best time at the bound's prices. */
static bool is_worth_it(const struct solving *s, const struct choice *choices)
{
    const struct split_instance *const x = s->x;
    double cost = 0;

    for (uint32_t i = 0; i < x->table_count; i++) {
        if (!split_allows(x, i, choices[i].gpu, choices[i].mode) ||
            choices[i].gpu != choices[x->tables[x->item_starts[x->items[i]]]].gpu)
            return false;
        cost += cost_at_bound(s, i, choices[i].gpu, choices[i].mode);
    }
    for (uint32_t i = 0; i < x->item_count; i++)
        cost -= split_bound_own_room(x, &s->bound, i, choices[x->tables[x->item_starts[i]]].gpu);
    for (uint32_t r = 0; r < x->room_count; r++)
        cost -= s->bound.prices_s_byte[r] * (double)x->room_bytes[r];
    return cost < s->best_s;
}

/* Also skips modes that the table has on no GPU, so that few combinations are counted. */
static bool next_choice(const struct split_instance *x, struct choice *choices)
{
    for (uint32_t i = 0; i < x->table_count; i++) {
        struct choice *const c = &choices[i];

        do {
            if (++c->mode <= SPLIT_MIXED)
                continue;
            c->mode = 0;
            c->gpu++;
        } while (c->gpu < x->gpu_count && !split_allows(x, i, c->gpu, c->mode));
        if (c->gpu < x->gpu_count)
            return true;
        *c = (struct choice){ 0 };
        while (!split_allows(x, i, c->gpu, c->mode)) {
            c->gpu += c->mode == SPLIT_MIXED;
            c->mode = c->mode == SPLIT_MIXED ? 0 : c->mode + 1;
        }
    }
    return false;
}

static enum embtier_err try_all(struct solving *s)
{
    const struct split_instance *const x = s->x;
    _cleanup_(freep) struct choice *choices = NULL;

    if (!has_few(x) || is_good(s))
        return EMBTIER_OK;
    choices = calloc(x->table_count, sizeof(*choices));
    if (!choices)
        return EMBTIER_NO_MEMORY;
    do {
        if (!is_worth_it(s, choices))
            continue;
        for (uint32_t i = 0; i < x->table_count; i++) {
            s->now->gpus[x->items[i]] = choices[i].gpu;
            s->now->uses[i].mode = choices[i].mode;
            split_use_count(x, i, &s->now->uses[i]);
        }
        TRY(split_cuts_find(s->now, &s->bound));
        TRY(judge(s));
    } while (next_choice(x, choices));
    return EMBTIER_OK;
}

/* ---- trials ---- */

/* Tries moves of the best draft, up to the first trial that helps: several moves at once, as long
 * as that goes well. */
static enum embtier_err try_moves(struct solving *s, struct split_moves *moves, uint32_t *at_once,
                                  uint64_t *trials)
{
    const double before_s = s->best_s;
    uint32_t i = 0;

    split_moves_find(moves, s->best);
    while (i < MIN(moves->count, TRIED) && *trials > 0) {
        split_draft_copy(s->now, s->best);
        split_moves_take(moves, i, *at_once, s->now);
        TRY(cut_now(s));
        --*trials;
        if (s->best_s < before_s) {
            *at_once = MIN(2 * *at_once, AT_ONCE);
            return EMBTIER_OK;
        }
        if (*at_once == 1)
            split_moves_fail(moves, i++);
        *at_once = MAX(*at_once / 2, 1);
    }
    return EMBTIER_OK;
}

static enum embtier_err try_modes(struct solving *s)
{
    split_draft_copy(s->now, s->best);
    return split_draft_choose_modes(s->now) ? cut_now(s) : EMBTIER_OK;
}

/* Where the promises of moves were not kept, smaller moves are tried next, and other modes last. */
static enum embtier_err improve(struct solving *s)
{
    const uint64_t work = s->opts->work ? s->opts->work : WORK;
    uint64_t trials = work / s->x->table_count / split_cuts_effort(s->x);
    _cleanup_(split_moves_freep) struct split_moves *moves = NULL;
    uint32_t at_once = AT_ONCE;

    TRY(split_moves_new(s->x, &moves));
    moves->caution = 1;
    while (trials > 0 && !isinf(s->best_s) && !is_good(s) && moves->caution < CAUTION_MOST) {
        const double before_s = s->best_s;

        TRY(try_moves(s, moves, &at_once, &trials));
        if (s->best_s < before_s) {
            moves->caution = fmax(moves->caution / CAUTION_STEP, 1);
            continue;
        }
        moves->caution *= CAUTION_STEP;
        if (moves->caution >= CAUTION_MOST) {
            TRY(try_modes(s));
            moves->caution = s->best_s < before_s ? 1 : CAUTION_MOST;
        }
    }
    return EMBTIER_OK;
}

/* ---- answer ---- */

static enum embtier_err make_answer(const struct solving *s, struct split_answer **ret_answer)
{
    const uint32_t count = s->model->table_count;
    _cleanup_(split_answer_freep) struct split_answer *answer = calloc(1, sizeof(*answer));

    if (!answer)
        return EMBTIER_NO_MEMORY;
    answer->cuts = calloc(count, sizeof(*answer->cuts));
    answer->hulls = calloc(count, sizeof(*answer->hulls));
    if (!answer->cuts || !answer->hulls)
        return EMBTIER_NO_MEMORY;
    memcpy(answer->cuts, s->best_cuts, count * sizeof(*answer->cuts));
    for (uint32_t i = 0; i < count; i++)
        answer->hulls[i] = s->x->curves[i].is_hull;
    answer->largest_s = s->best_s;
    assert(s->bound.bound_s <= s->best_s); /* both are proven */
    answer->bound_s = s->bound.bound_s;
    *ret_answer = TAKE(answer);
    return EMBTIER_OK;
}

static enum embtier_err run(struct solving *s, struct split_answer **ret_answer,
                            struct err_msg *msg)
{
    TRY(split_bound_find(s->x, &s->bound));
    TRY(split_deal(s->now, &s->bound, s->opts->seed));
    TRY(settle(s));
    TRY(try_all(s));
    if (!has_few(s->x))
        TRY(improve(s));
    if (isinf(s->best_s))
        return err_set(msg, EMBTIER_NO_SPACE,
                       "no placement was found: the tables that may not lie in the rest nearly "
                       "fill the levels; reserve less, or loosen rules");
    return make_answer(s, ret_answer);
}

enum embtier_err split_solve(const struct split_model *model, const struct split_opts *opts,
                             struct split_answer **ret_answer, struct err_msg *msg)
{
    _cleanup_(free_parts) struct solving s = { .model = model, .opts = opts, .best_s = INFINITY };
    enum embtier_err err;

    TRY(split_model_check(model, msg));
    TRY(split_instance_new(model, &s.x, msg));
    TRY(split_fit_check(s.x, msg));
    s.cuts = calloc(model->table_count, sizeof(*s.cuts));
    s.best_cuts = calloc(model->table_count, sizeof(*s.best_cuts));
    if (!s.cuts || !s.best_cuts || split_draft_new(s.x, &s.now) != EMBTIER_OK ||
        split_draft_new(s.x, &s.best) != EMBTIER_OK)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    err = run(&s, ret_answer, msg);
    if (err == EMBTIER_NO_MEMORY)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    return err;
}

void split_answer_free(struct split_answer *answer)
{
    if (!answer)
        return;
    free(answer->cuts);
    free(answer->hulls);
    free(answer);
}

double split_gap(const struct split_answer *answer)
{
    return answer->largest_s > 0 ? 1 - answer->bound_s / answer->largest_s : 0;
}
