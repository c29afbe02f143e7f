/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/planner/homes_search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "placement/planner/parts_search.h"
#include "placement/solve/solve.h"

/* Effort for one model with fixed times; many are solved. */
#define STEPS_PER_TABLE 1000
#define STEPS_LEAST     20000
#define SEARCHES        1
#define NODES           4096
#define GAP             0.003
#define REPEATS         3 /* of one model, with the times of its own answer */
/* Predicted ages are found by bisection, so a hit rate may be too low by a part far below this. */
#define ROUNDING 1e-6
/* Moves of single tables and of pairs. */
#define MOVES_MOST  4000
#define MOVES_LEAST 64
#define MOVES_WORK  64000 /* evaluations times tables */

struct searching {
    struct planning *p;
    const struct homes_search_opts *opts;
    struct homes *best;
    bool has_best;
    bool is_slowed;         /* SSD set the pace of an assignment, or it exceeded a limit */
    struct evaluation last; /* of the last assignment that was offered */
    uint32_t *places;       /* scratch, as the next ones */
    uint32_t *moved;
    double *times_s;
    struct parts_search parts;
    double price;
    uint64_t done, total;
};

void homes_free(struct homes *homes)
{
    if (!homes)
        return;
    free(homes->places);
    free(homes);
}

static size_t places_bytes(const struct searching *s)
{
    return s->p->workload->table_count * sizeof(*s->places);
}

/* ---- Candidates ---- */

static void report(struct searching *s)
{
    s->done++;
    if (s->opts->progress)
        s->opts->progress(s->opts->ctx, MIN(s->done, s->total), s->total);
}

/* Evaluates an assignment, and keeps it if it is the best. INVALID: it does not fit. */
static enum embtier_err judge(struct searching *s, const uint32_t *places, bool *ret_better,
                              struct err_msg *msg)
{
    *ret_better = false;
    report(s);
    TRY(planning_evaluate(s->p, places, &s->last, msg));
    s->is_slowed = s->is_slowed || s->last.excess > 0 || s->last.batch_s > s->last.time_s;
    if (s->has_best && !evaluation_is_better(&s->last, &s->best->evaluation))
        return EMBTIER_OK;
    s->has_best = *ret_better = true;
    s->best->evaluation = s->last;
    memcpy(s->best->places, places, places_bytes(s));
    return EMBTIER_OK;
}

/* The same for an assignment that may break a rule or a memory. */
static enum embtier_err offer(struct searching *s, const uint32_t *places, bool *ret_better)
{
    const enum embtier_err err = judge(s, places, ret_better, NULL);

    return err == EMBTIER_INVALID ? EMBTIER_OK : err;
}

/* A table that is never looked up takes no time anywhere, and no bytes in the cache. */
static void cache_unused(const struct searching *s, uint32_t *places)
{
    const struct planning *const p = s->p;

    for (uint32_t i = 0; i < p->workload->table_count; i++)
        if (p->workload->tables[i].lookups == 0)
            places[i] =
                model_place(&p->model, machine_cache(p->machine), places[i] % p->model.gpu_count);
}

/* Offers the assignment with unused tables in the cache, and as it is if a rule forbids that. */
static enum embtier_err offer_tidy(struct searching *s, uint32_t *places, struct err_msg *msg)
{
    bool better = false;

    memcpy(s->moved, places, places_bytes(s));
    cache_unused(s, s->moved);
    if (judge(s, s->moved, &better, NULL) == EMBTIER_OK)
        return EMBTIER_OK;
    return judge(s, places, &better, msg);
}

/* ---- Models with fixed times ---- */

static void price_times(struct searching *s)
{
    const struct planning *const p = s->p;
    const uint32_t memories = p->model.memory_count;

    memcpy(s->times_s, p->times_s,
           (uint64_t)p->workload->table_count * memories * sizeof(*s->times_s));
    for (uint32_t i = 0; s->price > 0 && i < p->workload->table_count; i++)
        s->times_s[(uint64_t)i * memories + machine_cache(p->machine)] +=
            s->price * planning_ssd_s(p, &p->costs[i]);
}

/* Solves the model with the planning's times and with the parts of each tier, and offers the
 * answer. */
static enum embtier_err solve(struct searching *s, const struct solve_opts *opts,
                              struct solve_answer **ret_answer, struct err_msg *msg)
{
    struct model_memory memories[MODEL_MEMORIES_MAX];
    const uint32_t first = machine_first_tier(s->p->machine);
    struct model model = s->p->model;

    memcpy(memories, s->p->memories, sizeof(memories));
    for (uint32_t k = 0; k < s->p->machine->tier_count; k++) {
        uint64_t *const bytes = &memories[first + k].capacity_bytes;
        const uint64_t reserved = s->p->machine->tiers[k].bytes - s->p->tier_bytes[k];

        if (*bytes > reserved)
            *bytes = reserved + parts_of(*bytes - reserved, s->parts.parts[k]);
    }
    price_times(s);
    model.memories = memories;
    model.times_s = s->times_s;
    return solve_model(&model, opts, ret_answer, msg);
}

static struct solve_opts quick_opts(const struct searching *s)
{
    return (struct solve_opts){
        .seed = s->opts->seed,
        .steps = MAX((uint64_t)STEPS_LEAST, (uint64_t)STEPS_PER_TABLE * s->p->model.table_count),
        .searches = SEARCHES,
        .nodes = NODES,
        .gap = GAP,
    };
}

/* Returns to the times of the best assignment, so that each try begins alike. */
static enum embtier_err return_to_best(struct searching *s, struct err_msg *msg)
{
    if (!s->has_best)
        return EMBTIER_OK;
    return planning_evaluate(s->p, s->best->places, &s->last, msg);
}

/* Solves with these parts until the answer does not change. */
static enum embtier_err try_parts(void *ctx)
{
    struct searching *const s = ctx;
    const struct solve_opts opts = quick_opts(s);
    bool same = false;

    TRY(return_to_best(s, NULL));
    for (uint32_t i = 0; i < REPEATS && !same; i++) {
        _cleanup_(solve_answer_freep) struct solve_answer *answer = NULL;
        const enum embtier_err err = solve(s, &opts, &answer, NULL);

        if (err == EMBTIER_INVALID || err == EMBTIER_NO_SPACE)
            return EMBTIER_OK; /* too few bytes in these parts */
        TRY(err);
        same = i > 0 && memcmp(answer->places, s->places, places_bytes(s)) == 0;
        memcpy(s->places, answer->places, places_bytes(s));
        if (!same)
            TRY(offer_tidy(s, s->places, NULL));
    }
    return EMBTIER_OK;
}

static const struct evaluation *best_so_far(const void *ctx)
{
    const struct searching *const s = ctx;

    return s->has_best ? &s->best->evaluation : NULL;
}

/* ---- Moves ---- */

static uint64_t count_moves(const struct searching *s)
{
    const uint64_t moves = MOVES_WORK / s->p->workload->table_count;

    return MAX(MIN(moves, (uint64_t)MOVES_MOST), (uint64_t)MOVES_LEAST);
}

/* Tries every other place of a table. */
static enum embtier_err try_moves(struct searching *s, uint32_t table, uint64_t end)
{
    const uint32_t place_count = model_place_count(&s->p->model);

    for (uint32_t place = 0; place < place_count && s->done < end; place++) {
        bool better;

        if (place == s->best->places[table])
            continue;
        memcpy(s->moved, s->best->places, places_bytes(s));
        s->moved[table] = place;
        TRY(offer(s, s->moved, &better));
    }
    return EMBTIER_OK;
}

/* Gives the table the place of another one, which goes to each place in turn; to the table's old
 * one too. */
static enum embtier_err try_ejection(struct searching *s, uint32_t table, uint32_t other,
                                     uint64_t end)
{
    const uint32_t place_count = model_place_count(&s->p->model);
    bool better = false;

    for (uint32_t place = 0; place < place_count && s->done < end && !better; place++) {
        if (place == s->best->places[other])
            continue;
        memcpy(s->moved, s->best->places, places_bytes(s));
        s->moved[table] = s->best->places[other];
        s->moved[other] = place;
        TRY(offer(s, s->moved, &better));
    }
    return EMBTIER_OK;
}

static enum embtier_err try_ejections(struct searching *s, uint32_t table, uint64_t end)
{
    for (uint32_t other = 0; other < s->p->workload->table_count && s->done < end; other++)
        if (s->best->places[table] != s->best->places[other])
            TRY(try_ejection(s, table, other, end));
    return EMBTIER_OK;
}

/* Tables that are kept together move by the model only, as one of them alone breaks the rule. */
static enum embtier_err try_neighbours(struct searching *s)
{
    const uint64_t end = s->done + count_moves(s);
    struct evaluation before;

    do {
        before = s->best->evaluation;
        for (uint32_t i = 0; i < s->p->workload->table_count && s->done < end; i++)
            TRY(try_moves(s, i, end));
        for (uint32_t i = 0; i < s->p->workload->table_count && s->done < end; i++)
            TRY(try_ejections(s, i, end));
    } while (s->done < end && evaluation_is_better(&s->best->evaluation, &before));
    return EMBTIER_OK;
}

/* ---- All ---- */

static uint64_t count_evaluations(const struct searching *s)
{
    const uint64_t tries = PARTS_TRIES * s->p->machine->tier_count;

    return 2 + tries * REPEATS * (1 + PARTS_PRICES) + count_moves(s) + 2;
}

/* Solves quickly, and with all effort if that finds nothing. */
static enum embtier_err solve_somehow(struct searching *s, struct solve_answer **ret_answer,
                                      struct err_msg *msg)
{
    const struct solve_opts quick = quick_opts(s), full = { .seed = s->opts->seed };
    const enum embtier_err err = solve(s, &quick, ret_answer, msg);

    return err == EMBTIER_NO_SPACE ? solve(s, &full, ret_answer, msg) : err;
}

/* The first model: each table has the whole cache alone. Its bound holds for all assignments. If it
 * has no answer, there is no assignment at all. */
static enum embtier_err start(struct searching *s, struct err_msg *msg)
{
    _cleanup_(solve_answer_freep) struct solve_answer *answer = NULL;
    bool better;

    TRY(planning_set_least_times(s->p, msg));
    TRY(solve_somehow(s, &answer, msg));
    s->best->bound_s = MAX(answer->bound_s, 0.0) * (1 - ROUNDING);
    TRY(offer_tidy(s, answer->places, msg));
    return s->p->previous ? offer(s, s->p->previous_places, &better) : EMBTIER_OK;
}

/* Solves the best assignment's model once more with all effort, and with the outside solver. */
static enum embtier_err finish(struct searching *s, struct err_msg *msg)
{
    _cleanup_(solve_answer_freep) struct solve_answer *answer = NULL;
    const struct solve_opts opts = { .seed = s->opts->seed, .solver = s->opts->solver, .gap = GAP };
    const uint32_t first = machine_first_tier(s->p->machine);

    TRY(return_to_best(s, msg));
    s->price = 0;
    for (uint32_t k = 0; k < s->p->machine->tier_count; k++)
        s->parts.parts[k] = (uint32_t)MIN(
            (double)PARTS, ceil((double)s->best->evaluation.array_bytes[k] * PARTS /
                                MAX(1.0, (double)s->p->memories[first + k].capacity_bytes)));
    if (solve(s, &opts, &answer, NULL) != EMBTIER_OK)
        return EMBTIER_OK;
    s->best->solver_says = answer->solver_says;
    return offer_tidy(s, answer->places, msg);
}

/* Small drifts of a profile move nothing. */
static enum embtier_err stay(struct searching *s)
{
    struct evaluation in_force;
    enum embtier_err err;

    if (!s->p->has_exact_places)
        return EMBTIER_OK;
    report(s);
    err = planning_evaluate(s->p, s->p->previous_places, &in_force, NULL);
    if (err != EMBTIER_OK)
        return err == EMBTIER_INVALID ? EMBTIER_OK : err;
    if (planning_is_worth(s->p, &s->best->evaluation, &in_force))
        return EMBTIER_OK;
    s->best->evaluation = in_force;
    s->best->has_stayed = true;
    memcpy(s->best->places, s->p->previous_places, places_bytes(s));
    return EMBTIER_OK;
}

static enum embtier_err try_prices(struct searching *s)
{
    for (uint32_t i = 0; i < PARTS_PRICES; i++) {
        s->price = parts_prices[i];
        TRY(parts_search(&s->parts));
    }
    return EMBTIER_OK;
}

static enum embtier_err run(struct searching *s, struct err_msg *msg)
{
    s->total = count_evaluations(s);
    parts_fill(&s->parts);
    TRY(start(s, msg));
    TRY(parts_search(&s->parts));
    if (s->is_slowed)
        TRY(try_prices(s));
    TRY(finish(s, msg));
    TRY(try_neighbours(s));
    TRY(stay(s));
    return return_to_best(s, msg);
}

enum embtier_err homes_search(struct planning *p, const struct homes_search_opts *opts,
                              struct homes **ret_homes, struct err_msg *msg)
{
    const uint32_t count = p->workload->table_count;
    _cleanup_(homes_freep) struct homes *best = calloc(1, sizeof(*best));
    _cleanup_(freep) uint32_t *places = calloc(count, sizeof(*places));
    _cleanup_(freep) uint32_t *moved = calloc(count, sizeof(*moved));
    _cleanup_(freep) double *times_s =
        calloc((uint64_t)count * p->model.memory_count, sizeof(*times_s));
    struct searching s = {
        .p = p, .opts = opts, .best = best, .places = places, .moved = moved, .times_s = times_s
    };

    s.parts = (struct parts_search){
        .tier_count = p->machine->tier_count, .try = try_parts, .best = best_so_far, .ctx = &s
    };
    if (best)
        best->places = calloc(count, sizeof(*best->places));
    if (!best || !best->places || !places || !moved || !times_s)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    TRY(run(&s, msg));
    *ret_homes = TAKE(best);
    return EMBTIER_OK;
}
