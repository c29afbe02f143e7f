/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/split/split_moves.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum embtier_err split_moves_new(const struct split_instance *x, struct split_moves **ret_moves)
{
    _cleanup_(split_moves_freep) struct split_moves *moves = calloc(1, sizeof(*moves));

    if (!moves)
        return EMBTIER_NO_MEMORY;
    moves->x = x;
    moves->loads = calloc((uint64_t)x->item_count * x->gpu_count, sizeof(*moves->loads));
    if (!moves->loads)
        return EMBTIER_NO_MEMORY;
    *ret_moves = TAKE(moves);
    return EMBTIER_OK;
}

void split_moves_free(struct split_moves *moves)
{
    if (!moves)
        return;
    free(moves->loads);
    free(moves);
}

static struct split_load load_on(const struct split_draft *d, uint32_t item, uint32_t gpu)
{
    const struct split_instance *const x = d->x;
    struct split_load load = { 0 };

    if (!split_item_allows(x, item, gpu))
        return (struct split_load){ .cost = INFINITY };
    for (uint32_t i = x->item_starts[item]; i < x->item_starts[item + 1]; i++) {
        const struct split_prices prices = split_draft_prices(d, x->tables[i], gpu);
        const struct split_use use = split_best_use(x, x->tables[i], gpu, &prices);

        load.cost += use.cost;
        load.time += use.time_s / d->largest_s;
        if (x->private_level < x->level_count)
            load.bytes += use.bytes[x->private_level] / fmax((double)x->room_bytes[gpu], 1);
    }
    return load;
}

static bool has_failed(const struct split_moves *moves, const struct split_move *move)
{
    for (uint32_t i = 0; i < MIN(moves->failed_count, SPLIT_FAILED_MAX); i++)
        if (moves->failed[i].first == move->first && moves->failed[i].gpu == move->gpu &&
            moves->failed[i].second == move->second)
            return true;
    return false;
}

/* Keeps the list sorted. A move that promises less than all of a full list is left out. */
static void add(struct split_moves *moves, const struct split_move *move)
{
    uint32_t at = moves->count;

    if (!(move->gain > 0))
        return;
    if (at == SPLIT_MOVES_MAX && move->gain <= moves->moves[--at].gain)
        return;
    if (has_failed(moves, move))
        return;
    moves->count = MIN(moves->count + 1, SPLIT_MOVES_MAX);
    for (; at > 0 && moves->moves[at - 1].gain < move->gain; at--)
        moves->moves[at] = moves->moves[at - 1];
    moves->moves[at] = *move;
}

/* The gain of moving the first load from @a to @b, and the second one back. */
static double gain_of(const struct split_moves *moves, const struct split_load *first,
                      const struct split_load *second, uint32_t a, uint32_t b)
{
    const double times[] = { second[a].time - first[a].time, first[b].time - second[b].time };
    const double bytes[] = { second[a].bytes - first[a].bytes, first[b].bytes - second[b].bytes };
    double squares = 0;

    for (uint32_t i = 0; i < 2; i++)
        squares += times[i] * times[i] + bytes[i] * bytes[i];
    return first[a].cost - first[b].cost + second[b].cost - second[a].cost -
           moves->steepness * squares;
}

static void add_item_moves(struct split_moves *moves, const struct split_draft *d, uint32_t first)
{
    static const struct split_load none[MODEL_GPUS_MAX];
    const uint32_t gpus = moves->x->gpu_count, from = d->gpus[first];
    const struct split_load *const loads = moves->loads + (uint64_t)first * gpus;

    for (uint32_t g = 0; g < gpus; g++)
        if (g != from)
            add(moves,
                &(struct split_move){ gain_of(moves, loads, none, from, g), first, g, MODEL_ANY });
    for (uint32_t second = first + 1; second < moves->x->item_count; second++) {
        const uint32_t to = d->gpus[second];

        if (to != from)
            add(moves, &(struct split_move){
                           gain_of(moves, loads, moves->loads + (uint64_t)second * gpus, from, to),
                           first, to, second });
    }
}

/* The cost of the largest time is the sum of the weights, over all GPUs. */
static double find_steepness(const struct split_draft *d)
{
    double weights = 0;

    for (uint32_t g = 0; g < d->x->gpu_count; g++)
        weights += d->weights[g];
    return weights / d->x->gpu_count * d->largest_s;
}

void split_moves_find(struct split_moves *moves, const struct split_draft *d)
{
    const struct split_instance *const x = moves->x;

    for (uint32_t i = 0; i < x->item_count; i++)
        for (uint32_t g = 0; g < x->gpu_count; g++)
            moves->loads[(uint64_t)i * x->gpu_count + g] = load_on(d, i, g);
    moves->steepness = moves->caution * find_steepness(d);
    moves->count = 0;
    for (uint32_t i = 0; i < x->item_count; i++)
        add_item_moves(moves, d, i);
}

static void move_item(struct split_draft *d, uint32_t item, uint32_t gpu)
{
    const struct split_instance *const x = d->x;

    d->gpus[item] = gpu;
    for (uint32_t i = x->item_starts[item]; i < x->item_starts[item + 1]; i++) {
        const struct split_prices prices = split_draft_prices(d, x->tables[i], gpu);

        d->uses[x->tables[i]] = split_best_use(x, x->tables[i], gpu, &prices);
    }
}

static void take(const struct split_move *move, struct split_draft *d)
{
    const uint32_t from = d->gpus[move->first];

    move_item(d, move->first, move->gpu);
    if (move->second != MODEL_ANY)
        move_item(d, move->second, from);
}

static bool are_apart(const struct split_move *a, const struct split_move *b)
{
    return a->gpu != b->gpu && a->first != b->first && a->first != b->second &&
           a->second != b->first && (a->second != b->second || a->second == MODEL_ANY);
}

void split_moves_take(const struct split_moves *moves, uint32_t first, uint32_t most,
                      struct split_draft *d)
{
    const struct split_move *taken[MODEL_GPUS_MAX];
    uint32_t count = 0;

    for (uint32_t i = first; i < moves->count && count < MIN(most, MODEL_GPUS_MAX); i++) {
        bool apart = true;

        for (uint32_t k = 0; k < count; k++)
            apart &= are_apart(&moves->moves[i], taken[k]);
        if (apart) {
            taken[count++] = &moves->moves[i];
            take(&moves->moves[i], d);
        }
    }
}

void split_moves_fail(struct split_moves *moves, uint32_t move)
{
    moves->failed[moves->failed_count++ % SPLIT_FAILED_MAX] = moves->moves[move];
}
