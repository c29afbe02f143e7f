/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/planner/row_search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "placement/planner/parts_search.h"
#include "placement/planner/row_fit.h"
#include "placement/planner/row_moves.h"
#include "placement/split/split_curve.h"
#include "placement/split/split_solve.h"

/* Effort for one model; many are solved. */
#define GAP      0.003
#define WORK     UINT64_C(40000)
#define REPEATS  2 /* of one model, with the cache that its own answer leaves */
#define ROUNDING 1e-6
#define CLIFF    0.01
/* Changes of single parts. */
#define CHANGES_MOST  4000
#define CHANGES_LEAST 64
#define CHANGES_WORK  64000 /* evaluations times tables */

struct searching {
    struct row_planning *rows;
    const struct homes_search_opts *opts;
    struct row_homes *best;
    bool has_best;
    bool is_slowed; /* SSD set the pace of cuts, or they exceeded a limit */
    struct evaluation last;
    struct split_cut *cuts; /* scratch */
    struct parts_search parts;
    double price;
    uint64_t done, total;
    uint64_t end; /* of changes */
};

void row_homes_free(struct row_homes *homes)
{
    if (!homes)
        return;
    free(homes->cuts);
    free(homes);
}

static size_t cuts_bytes(const struct searching *s)
{
    return s->rows->model.table_count * sizeof(*s->cuts);
}

/* ---- Candidates ---- */

/* Evaluates cuts, and keeps them if they are the best. INVALID: they do not fit. */
static enum embtier_err judge(struct searching *s, const struct split_cut *cuts, bool *ret_better,
                              struct err_msg *msg)
{
    *ret_better = false;
    s->done++;
    if (s->opts->progress)
        s->opts->progress(s->opts->ctx, MIN(s->done, s->total), s->total);
    TRY(row_planning_evaluate(s->rows, cuts, &s->last, msg));
    s->is_slowed = s->is_slowed || s->last.excess > 0 || s->last.batch_s > s->last.time_s;
    if (s->has_best && !evaluation_is_better(&s->last, &s->best->evaluation))
        return EMBTIER_OK;
    s->has_best = *ret_better = true;
    s->best->evaluation = s->last;
    memcpy(s->best->cuts, cuts, cuts_bytes(s));
    return EMBTIER_OK;
}

/* The same for cuts that may break a rule or a level. */
static enum embtier_err offer(struct searching *s, const struct split_cut *cuts, bool *ret_better)
{
    const enum embtier_err err = judge(s, cuts, ret_better, NULL);

    return err == EMBTIER_INVALID ? EMBTIER_OK : err;
}

static enum embtier_err return_to_best(struct searching *s)
{
    return s->has_best ? row_planning_evaluate(s->rows, s->best->cuts, &s->last, NULL) : EMBTIER_OK;
}

/* ---- Models with fixed times of the rest ---- */

/* The part of a tier's bytes without reserved ones. */
static uint64_t part_of(const struct searching *s, uint32_t level, uint64_t bytes)
{
    const uint32_t first = machine_first_tier(s->rows->p->machine);

    return level < first ? bytes : parts_of(bytes, s->parts.parts[level - first]);
}

static void fill_rooms(const struct searching *s, struct model_memory *ret_levels,
                       uint64_t (*ret_rooms)[MODEL_GPUS_MAX])
{
    const struct row_planning *const rows = s->rows;

    for (uint32_t m = 0; m < rows->model.level_count; m++) {
        const uint64_t reserved =
            rows->levels[m].shared ? rows->levels[m].capacity_bytes - rows->room_bytes[m][0] : 0;

        ret_levels[m] = rows->levels[m];
        if (rows->levels[m].shared)
            ret_levels[m].capacity_bytes = reserved + part_of(s, m, rows->room_bytes[m][0]);
        for (uint32_t g = 0; g < rows->model.gpu_count; g++)
            ret_rooms[m][g] = part_of(s, m, rows->room_bytes[m][g]);
    }
}

static enum embtier_err solve(struct searching *s, uint64_t work, struct split_answer **ret_answer,
                              struct err_msg *msg)
{
    const struct split_opts opts = { .seed = s->opts->seed, .gap = GAP, .work = work };
    uint64_t rooms[SPLIT_LEVELS_MAX][MODEL_GPUS_MAX];
    struct model_memory levels[SPLIT_LEVELS_MAX];
    struct split_model model = s->rows->model;

    fill_rooms(s, levels, rooms);
    model.levels = levels;
    TRY(split_solve(&model, &opts, ret_answer, msg));
    memcpy(s->cuts, (*ret_answer)->cuts, cuts_bytes(s));
    row_fit(s->rows, rooms, s->cuts);
    return EMBTIER_OK;
}

/* Solves with these parts, beginning with the cache as it is for the best cuts. */
static enum embtier_err try_parts(void *ctx)
{
    struct searching *const s = ctx;

    TRY(return_to_best(s));
    for (uint32_t i = 0; i < REPEATS; i++) {
        _cleanup_(split_answer_freep) struct split_answer *answer = NULL;
        enum embtier_err err;
        bool better;

        row_planning_set_rests(s->rows, s->price);
        err = solve(s, WORK, &answer, NULL);
        if (err == EMBTIER_INVALID || err == EMBTIER_NO_SPACE)
            return EMBTIER_OK; /* too few bytes in these parts */
        TRY(err);
        TRY(offer(s, s->cuts, &better));
    }
    return EMBTIER_OK;
}

static const struct evaluation *best_so_far(const void *ctx)
{
    const struct searching *const s = ctx;

    return s->has_best ? &s->best->evaluation : NULL;
}

/* ---- Changes of single parts ---- */

static uint64_t count_changes(const struct searching *s)
{
    const uint64_t changes = CHANGES_WORK / s->rows->model.table_count;

    return MAX(MIN(changes, (uint64_t)CHANGES_MOST), (uint64_t)CHANGES_LEAST);
}

static enum embtier_err offer_move(void *ctx, const struct split_cut *cuts, bool *ret_better)
{
    return offer(ctx, cuts, ret_better);
}

static bool may_go_on(const void *ctx)
{
    const struct searching *const s = ctx;

    return s->done < s->end;
}

static enum embtier_err try_neighbours(struct searching *s)
{
    struct row_moves moves = { .rows = s->rows,
                               .best = s->best->cuts,
                               .cuts = s->cuts,
                               .offer = offer_move,
                               .may_go_on = may_go_on,
                               .ctx = s };
    struct evaluation before;

    if (!s->has_best)
        return EMBTIER_OK;
    s->end = s->done + count_changes(s);
    do {
        before = s->best->evaluation;
        for (uint32_t i = 0; i < s->rows->model.table_count && may_go_on(s); i++)
            TRY(row_moves_try(&moves, i));
    } while (may_go_on(s) && evaluation_is_better(&s->best->evaluation, &before));
    return EMBTIER_OK;
}

/* ---- All ---- */

static enum embtier_err offer_whole(struct searching *s, const struct homes *whole)
{
    bool better;

    for (uint32_t i = 0; i < s->rows->model.table_count; i++)
        s->cuts[i] = planning_cut_of(s->rows->p, i, whole->places[i]);
    return offer(s, s->cuts, &better);
}

/* The first model: each table has the whole cache alone. Its bound holds for all cuts. If it has no
 * answer, there are no cuts at all. */
static enum embtier_err start(struct searching *s, const struct homes *whole, struct err_msg *msg)
{
    _cleanup_(split_answer_freep) struct split_answer *answer = NULL;
    bool better;

    TRY(row_planning_set_least_rests(s->rows, msg));
    TRY(solve(s, WORK, &answer, msg));
    s->best->bound_s = MAX(answer->bound_s, 0.0) * (1 - ROUNDING);
    TRY(offer(s, s->cuts, &better));
    if (whole)
        TRY(offer_whole(s, whole));
    return s->rows->p->previous ? offer(s, s->rows->p->previous, &better) : EMBTIER_OK;
}

/* Small drifts of a profile move nothing. */
static enum embtier_err stay(struct searching *s)
{
    const struct planning *const p = s->rows->p;
    struct evaluation in_force;
    enum embtier_err err;

    if (!p->has_exact_rows)
        return EMBTIER_OK;
    err = row_planning_evaluate(s->rows, p->previous, &in_force, NULL);
    if (err != EMBTIER_OK)
        return err == EMBTIER_INVALID ? EMBTIER_OK : err;
    if (planning_is_worth(p, &s->best->evaluation, &in_force))
        return EMBTIER_OK;
    s->best->evaluation = in_force;
    s->best->has_stayed = true;
    memcpy(s->best->cuts, p->previous, cuts_bytes(s));
    return EMBTIER_OK;
}

static uint64_t count_evaluations(const struct searching *s)
{
    const uint64_t tries = PARTS_TRIES * s->rows->p->machine->tier_count;

    return 3 + tries * REPEATS * (1 + PARTS_PRICES) + count_changes(s);
}

static enum embtier_err run(struct searching *s, const struct homes *whole, struct err_msg *msg)
{
    s->total = count_evaluations(s);
    parts_fill(&s->parts);
    TRY(start(s, whole, msg));
    TRY(parts_search(&s->parts));
    for (uint32_t i = 0; i < PARTS_PRICES && s->is_slowed; i++) {
        s->price = parts_prices[i];
        TRY(parts_search(&s->parts));
    }
    TRY(try_neighbours(s));
    if (!s->has_best)
        return err_set(msg, EMBTIER_NO_SPACE,
                       "no cuts were found that obey the rules: tables that may not lie in the "
                       "cache nearly fill the memories, or one of them fits into no single tier; "
                       "reserve less, or loosen rules");
    TRY(stay(s));
    return return_to_best(s);
}

/* True: for the cache as it is, the solver's curve of the table is below the true one somewhere by
 * more than a small part of its time. */
static bool has_cliff(const struct row_planning *rows, uint32_t table)
{
    const uint32_t levels = rows->model.level_count;
    const double last = levels > 0 ? split_bandwidth(&rows->model, levels - 1) : (double)INFINITY;
    struct split_point points[SPLIT_POINTS_MAX];
    struct split_curve curve;

    split_curve_make(&rows->tables[table], last, points, &curve);
    for (uint32_t i = 0; curve.is_hull && i < curve.point_count; i++)
        if (split_rest_s(&rows->tables[table], points[i].rows) >
            curve.rest_s - points[i].rest_s + CLIFF * curve.rest_s)
            return true;
    return false;
}

static void count_hulls(struct searching *s)
{
    row_planning_set_rests(s->rows, 0);
    for (uint32_t i = 0; i < s->rows->model.table_count; i++)
        s->best->hulls += has_cliff(s->rows, i);
}

static bool is_all_whole(const struct searching *s)
{
    for (uint32_t i = 0; i < s->rows->model.table_count; i++)
        if (!split_is_whole(&s->rows->model, i, &s->best->cuts[i]))
            return false;
    return true;
}

enum embtier_err row_search(struct row_planning *rows, const struct homes *whole,
                            const struct homes_search_opts *opts, struct row_homes **ret_homes,
                            struct err_msg *msg)
{
    const uint32_t count = rows->model.table_count;
    _cleanup_(row_homes_freep) struct row_homes *best = calloc(1, sizeof(*best));
    _cleanup_(freep) struct split_cut *cuts = calloc(count, sizeof(*cuts));
    struct searching s = { .rows = rows, .opts = opts, .best = best, .cuts = cuts };

    s.parts = (struct parts_search){
        .tier_count = rows->p->machine->tier_count, .try = try_parts, .best = best_so_far, .ctx = &s
    };
    if (best)
        best->cuts = calloc(count, sizeof(*best->cuts));
    if (!best || !best->cuts || !cuts)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    TRY(run(&s, whole, msg));
    best->is_whole = is_all_whole(&s);
    count_hulls(&s);
    *ret_homes = TAKE(best);
    return EMBTIER_OK;
}
