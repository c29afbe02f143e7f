/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/solve/search.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "placement/solve/gpu_classes.h"

/* A smaller share of the time may be rounding, as a load is a sum of doubles. */
#define LEAST_GAIN 1e-12

struct ranked {
    double value;
    uint32_t item;
};

struct search {
    struct placing *s;
    const struct gpu_classes *classes;
    const struct bound *bound;
    struct ranked *order;  /* item_count: items that matter most come first */
    double *best_costs_s;  /* item_count: the least cost of each, where it is below the limit */
    uint32_t *best_places; /* item_count: of the best placement so far */
    uint32_t *tried;       /* item_count: places already tried, at each depth */
    uint32_t *gpu_items;   /* gpu_count: items on each GPU */
    double *extras_s;      /* item_count + 1: the sum of extra costs above each depth */
    double *loads_s;       /* item_count: of the GPU at each depth, before its item came */
    double base_s;         /* the bound without extra costs, times the sum of the weights */
    double sizes_s;        /* the sum of the sizes of all that base_s sums up */
    double rounding;       /* of base_s and extra costs, as a share of their sizes */
    double limit_s;        /* a load must be below this */
    double weights;
    uint64_t nodes; /* left */
    bool found;
};

static void free_parts(struct search *x)
{
    free(x->order);
    free(x->best_costs_s);
    free(x->best_places);
    free(x->tried);
    free(x->gpu_items);
    free(x->extras_s);
    free(x->loads_s);
}

static enum embtier_err new_parts(struct search *x, uint32_t items)
{
    x->order = calloc(items, sizeof(*x->order));
    x->best_costs_s = calloc(items, sizeof(*x->best_costs_s));
    x->best_places = calloc(items, sizeof(*x->best_places));
    x->tried = calloc(items, sizeof(*x->tried));
    x->gpu_items = calloc(x->s->x->gpu_count, sizeof(*x->gpu_items));
    x->extras_s = calloc(items + 1, sizeof(*x->extras_s));
    x->loads_s = calloc(items, sizeof(*x->loads_s));
    if (!x->order || !x->best_costs_s || !x->best_places || !x->tried || !x->gpu_items ||
        !x->extras_s || !x->loads_s)
        return EMBTIER_NO_MEMORY;
    return EMBTIER_OK;
}

static int compare_ranked(const void *a, const void *b)
{
    const struct ranked *const x = a, *const y = b;

    if (x->value != y->value)
        return x->value > y->value ? -1 : 1;
    return x->item < y->item ? -1 : x->item > y->item;
}

/* Items that take much of a room or of the time come first. */
static double importance(const struct instance *x, const struct bound *bound, uint32_t item)
{
    double value = 0;

    for (uint32_t p = 0; p < x->place_count; p++)
        if (instance_allows(x, item, p)) {
            const double room_bytes = (double)x->room_bytes[x->room_of_place[p]];

            value = fmax(value, (double)x->bytes[item] / room_bytes);
            value =
                fmax(value, fmin(instance_time_s(x, item, p) / fmax(bound->limit_s, 1e-300), 1));
        }
    return value;
}

/* Places where the item alone reaches the limit do not count: no node uses them. */
static double least_cost_s(const struct search *x, uint32_t item)
{
    const struct instance *const instance = x->s->x;
    double least_s = INFINITY;

    for (uint32_t p = 0; p < instance->place_count; p++)
        if (instance_allows(instance, item, p) && instance_time_s(instance, item, p) < x->limit_s)
            least_s = fmin(least_s, bound_cost_s(instance, x->bound, item, p));
    return least_s;
}

/* The costs and prices that the bound sums up. A price takes away what a cost adds, so their sum
 * may be far smaller than they are, and its rounding is a share of their sizes. */
static void sum_up(struct search *x)
{
    const struct instance *const instance = x->s->x;
    double rooms_s = 0;

    for (uint32_t i = 0; i < instance->item_count; i++)
        x->sizes_s += x->best_costs_s[i];
    for (uint32_t r = 0; r < instance->room_count; r++)
        rooms_s += x->bound->prices_s_byte[r] * (double)instance->room_bytes[r];
    x->base_s = x->sizes_s - rooms_s;
    x->sizes_s += rooms_s;
    for (uint32_t g = 0; g < instance->gpu_count; g++)
        x->weights += x->bound->weights[g];
    x->rounding = 4 * DBL_EPSILON *
                  ((double)instance->item_count + instance->room_count + instance->gpu_count + 8);
}

static void prepare(struct search *x, double best_s)
{
    const struct instance *const instance = x->s->x;

    x->limit_s = best_s * (1 - LEAST_GAIN);
    for (uint32_t i = 0; i < instance->item_count; i++) {
        x->order[i] = (struct ranked){ importance(instance, x->bound, i), i };
        x->best_costs_s[i] = least_cost_s(x, i);
        x->s->places[i] = PLACING_NONE;
    }
    qsort(x->order, instance->item_count, sizeof(*x->order), compare_ranked);
    sum_up(x);
    placing_reload(x->s);
}

/* A GPU without items, alike to one before it without items, would only repeat that one's nodes. */
static bool repeats(const struct search *x, uint32_t gpu)
{
    if (x->gpu_items[gpu] > 0)
        return false;
    for (uint32_t g = 0; g < gpu; g++)
        if (x->gpu_items[g] == 0 && x->classes->class_of_gpu[g] == x->classes->class_of_gpu[gpu])
            return true;
    return false;
}

/* The extra costs down to @depth, whose item has the place. */
static double extra_at(const struct search *x, uint32_t depth, uint32_t place)
{
    const uint32_t item = x->order[depth].item;

    return x->extras_s[depth] + bound_cost_s(x->s->x, x->bound, item, place) -
           x->best_costs_s[item];
}

/* True: a placement better than the limit may have @item there, and the items above where they
 * are. */
static bool may_lead_on(const struct search *x, uint32_t depth, uint32_t place)
{
    const uint32_t item = x->order[depth].item, gpu = instance_gpu(x->s->x, place);
    double extra_s;

    if (!placing_fits(x->s, item, place) ||
        x->s->loads_s[gpu] + instance_time_s(x->s->x, item, place) >= x->limit_s || repeats(x, gpu))
        return false;
    extra_s = extra_at(x, depth, place);
    return !(x->base_s + extra_s - x->rounding * (x->sizes_s + extra_s) > x->limit_s * x->weights);
}

static void enter(struct search *x, uint32_t depth, uint32_t place)
{
    const uint32_t item = x->order[depth].item;

    x->loads_s[depth] = x->s->loads_s[instance_gpu(x->s->x, place)];
    placing_put(x->s, item, place);
    x->gpu_items[instance_gpu(x->s->x, place)]++;
    x->extras_s[depth + 1] = extra_at(x, depth, place);
}

/* Puts the load back, as what is added and subtracted again would leave rounding behind. */
static void leave(struct search *x, uint32_t depth)
{
    const uint32_t item = x->order[depth].item;
    const uint32_t gpu = instance_gpu(x->s->x, x->s->places[item]);

    x->gpu_items[gpu]--;
    placing_take(x->s, item);
    x->s->loads_s[gpu] = x->loads_s[depth];
}

static void keep(struct search *x)
{
    struct placing *const s = x->s;

    if (placing_largest_s(s) >= x->limit_s)
        return;
    memcpy(x->best_places, s->places, s->x->item_count * sizeof(*s->places));
    x->limit_s = placing_largest_s(s) * (1 - LEAST_GAIN);
    x->found = true;
}

/* The next place of the item at @depth that may lead on, or PLACING_NONE. */
static uint32_t next_place(struct search *x, uint32_t depth)
{
    while (x->tried[depth] < x->s->x->place_count && x->nodes > 0) {
        const uint32_t place = x->tried[depth]++;

        x->nodes--;
        if (may_lead_on(x, depth, place))
            return place;
    }
    return PLACING_NONE;
}

static void walk(struct search *x)
{
    const uint32_t items = x->s->x->item_count;
    uint32_t depth = 0;

    x->tried[0] = 0;
    for (;;) {
        const uint32_t place = next_place(x, depth);

        if (place == PLACING_NONE && depth == 0)
            return;
        if (place == PLACING_NONE) {
            leave(x, --depth);
            continue;
        }
        enter(x, depth, place);
        if (depth + 1 < items) {
            x->tried[++depth] = 0;
            continue;
        }
        keep(x);
        leave(x, depth);
    }
}

enum embtier_err search_all(struct placing *placing, const struct bound *bound, double best_s,
                            uint64_t nodes, struct search_result *ret_result)
{
    _cleanup_(free_parts) struct search x = { .s = placing, .bound = bound, .nodes = nodes };
    _cleanup_(gpu_classes_freep) struct gpu_classes *classes = NULL;

    TRY(gpu_classes_new(placing->x, &classes));
    TRY(new_parts(&x, placing->x->item_count));
    x.classes = classes;
    prepare(&x, best_s);
    walk(&x);
    if (x.found)
        placing_set(placing, x.best_places);
    *ret_result =
        (struct search_result){ .complete = x.nodes > 0,
                                .found = x.found,
                                .bound_s = x.nodes > 0 ? x.limit_s * (1 - LEAST_GAIN) : 0 };
    return EMBTIER_OK;
}
