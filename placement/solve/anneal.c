/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/solve/anneal.h"

#include <math.h>

#include "placement/random.h"

#define EPOCHS    256  /* after each, the temperature falls */
#define COLD      1e-5 /* the last temperature */
#define NEARLY_NO 1e-9 /* a cost that may be 0, but for rounding */

struct run {
    struct placing *s;
    const struct anneal_opts *opts;
    struct random random;
    double cost, temperature;
};

/* A step: @item goes to @to, and @other to where @item was. */
struct step {
    uint32_t item, to;
    uint32_t other; /* PLACING_NONE: nothing comes back */
};

/* ---- cost ---- */

static double load_cost(const struct run *run, uint32_t gpu, double more_s)
{
    const double load_s = run->s->loads_s[gpu] + more_s;

    return load_s > run->opts->limit_s ? load_s / run->opts->limit_s - 1 : 0;
}

static double room_cost(const struct run *run, uint32_t room, int64_t more_bytes)
{
    const uint64_t used_bytes = run->s->used_bytes[room] + (uint64_t)more_bytes;
    const uint64_t room_bytes = run->s->x->room_bytes[room];

    if (used_bytes <= room_bytes)
        return 0;
    return (double)(used_bytes - room_bytes) / (double)room_bytes * run->opts->room_weights[room];
}

/* Sums up loads, rooms and cost anew, without the rounding of many small changes. */
static void measure(struct run *run)
{
    placing_reload(run->s);
    run->cost = 0;
    for (uint32_t g = 0; g < run->s->x->gpu_count; g++)
        run->cost += load_cost(run, g, 0);
    for (uint32_t r = 0; r < run->s->x->room_count; r++)
        run->cost += room_cost(run, r, 0);
}

static double loads_change(const struct run *run, const struct step *step)
{
    const struct instance *const x = run->s->x;
    const uint32_t from = run->s->places[step->item];
    const uint32_t a = instance_gpu(x, from), b = instance_gpu(x, step->to);
    double more_a_s = -instance_time_s(x, step->item, from);
    double more_b_s = instance_time_s(x, step->item, step->to);

    if (step->other != PLACING_NONE) {
        more_a_s += instance_time_s(x, step->other, from);
        more_b_s -= instance_time_s(x, step->other, step->to);
    }
    if (a == b)
        return load_cost(run, a, more_a_s + more_b_s) - load_cost(run, a, 0);
    return load_cost(run, a, more_a_s) - load_cost(run, a, 0) + load_cost(run, b, more_b_s) -
           load_cost(run, b, 0);
}

static double rooms_change(const struct run *run, const struct step *step)
{
    const struct instance *const x = run->s->x;
    const uint32_t a = x->room_of_place[run->s->places[step->item]];
    const uint32_t b = x->room_of_place[step->to];
    int64_t bytes = (int64_t)x->bytes[step->item];

    if (a == b)
        return 0;
    if (step->other != PLACING_NONE)
        bytes -= (int64_t)x->bytes[step->other];
    return room_cost(run, a, -bytes) - room_cost(run, a, 0) + room_cost(run, b, bytes) -
           room_cost(run, b, 0);
}

/* ---- steps ---- */

static bool may_lie(const struct run *run, uint32_t item, uint32_t place)
{
    return instance_allows(run->s->x, item, place) &&
           instance_time_s(run->s->x, item, place) <= run->opts->limit_s;
}

static bool is_possible(const struct run *run, const struct step *step)
{
    const uint32_t from = run->s->places[step->item];

    return from != step->to && may_lie(run, step->item, step->to) &&
           (step->other == PLACING_NONE || may_lie(run, step->other, from));
}

static bool is_accepted(struct run *run, double change)
{
    return change <= 0 || change <= -run->temperature * log(random_share(&run->random));
}

static void take_step(struct run *run, const struct step *step)
{
    const uint32_t from = run->s->places[step->item];

    placing_take(run->s, step->item);
    if (step->other != PLACING_NONE) {
        placing_take(run->s, step->other);
        placing_put(run->s, step->other, from);
    }
    placing_put(run->s, step->item, step->to);
}

static struct step draw_step(struct run *run)
{
    const struct instance *const x = run->s->x;
    const uint32_t item = (uint32_t)random_below(&run->random, x->item_count);
    uint32_t other;

    if (random_u64(&run->random) & 1)
        return (struct step){ item, (uint32_t)random_below(&run->random, x->place_count),
                              PLACING_NONE };
    other = (uint32_t)random_below(&run->random, x->item_count);
    return (struct step){ item, run->s->places[other], other };
}

static void try_step(struct run *run)
{
    const struct step step = draw_step(run);
    double change;

    if (!is_possible(run, &step))
        return;
    change = loads_change(run, &step) + rooms_change(run, &step);
    if (!is_accepted(run, change))
        return;
    take_step(run, &step);
    run->cost += change;
    if (run->cost < NEARLY_NO)
        measure(run);
}

/* ---- run ---- */

/* Moves items away from where they alone take too long. False: one has no other place. */
static bool obey_limit(struct run *run)
{
    const struct instance *const x = run->s->x;

    for (uint32_t i = 0; i < x->item_count; i++) {
        uint32_t place = 0;

        if (may_lie(run, i, run->s->places[i]))
            continue;
        while (place < x->place_count && !may_lie(run, i, place))
            place++;
        if (place == x->place_count)
            return false;
        placing_take(run->s, i);
        placing_put(run->s, i, place);
    }
    return true;
}

bool anneal_run(struct placing *placing, const struct anneal_opts *opts)
{
    struct run run = { .s = placing, .opts = opts, .random = { opts->seed } };

    if (!obey_limit(&run))
        return false;
    measure(&run);
    for (uint32_t epoch = 0; epoch < EPOCHS && run.cost > 0; epoch++) {
        run.temperature = opts->hot * pow(COLD / opts->hot, epoch / (EPOCHS - 1.0));
        for (uint64_t i = 0; i <= opts->steps / EPOCHS && run.cost > 0; i++)
            try_step(&run);
        measure(&run);
    }
    return run.cost == 0;
}
