/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/solve/start.h"

#include <math.h>
#include <stdlib.h>

struct ranked {
    double value;
    uint32_t item;
    uint32_t memory;
};

/* The largest value first; equal ones by item, so that the order is the same everywhere. */
static int compare_ranked(const void *a, const void *b)
{
    const struct ranked *const x = a, *const y = b;

    if (x->value != y->value)
        return x->value > y->value ? -1 : 1;
    return x->item < y->item ? -1 : x->item > y->item;
}

static bool allows_memory(const struct instance *x, uint32_t item, uint32_t memory)
{
    for (uint32_t g = 0; g < x->gpu_count; g++)
        if (instance_allows(x, item, model_place(x->model, memory, g)))
            return true;
    return false;
}

/* ---- where an item goes ---- */

/* The least full room for its bytes, if none has space. */
static uint32_t emptiest_place(const struct placing *s, uint32_t item)
{
    uint32_t best = PLACING_NONE;
    double best_share = INFINITY;

    for (uint32_t p = 0; p < s->x->place_count; p++) {
        const uint32_t room = s->x->room_of_place[p];
        const double share = ((double)s->used_bytes[room] + (double)s->x->bytes[item]) /
                             fmax((double)s->x->room_bytes[room], 1);

        if (instance_allows(s->x, item, p) && share < best_share) {
            best = p;
            best_share = share;
        }
    }
    return best;
}

/* The place of least load that has space, in @memory if possible. */
static uint32_t best_place(const struct placing *s, uint32_t item, uint32_t memory)
{
    uint32_t best = PLACING_NONE;
    bool best_there = false;
    double best_s = INFINITY;

    for (uint32_t p = 0; p < s->x->place_count; p++) {
        const double load_s = s->loads_s[instance_gpu(s->x, p)] + instance_time_s(s->x, item, p);
        const bool there = p / s->x->gpu_count == memory;

        if (placing_fits(s, item, p) &&
            (there > best_there || (there == best_there && load_s < best_s))) {
            best = p;
            best_there = there;
            best_s = load_s;
        }
    }
    return best == PLACING_NONE ? emptiest_place(s, item) : best;
}

/* @ranked has each item's memory. */
static void deal(struct placing *s, struct ranked *ranked)
{
    const struct instance *const x = s->x;

    for (uint32_t i = 0; i < x->item_count; i++)
        ranked[i].value = x->times_s[ranked[i].item * x->memory_count + ranked[i].memory];
    qsort(ranked, x->item_count, sizeof(*ranked), compare_ranked);
    for (uint32_t i = 0; i < x->item_count; i++)
        s->places[i] = PLACING_NONE;
    placing_reload(s);
    for (uint32_t i = 0; i < x->item_count; i++)
        placing_put(s, ranked[i].item, best_place(s, ranked[i].item, ranked[i].memory));
}

/* ---- which memory ---- */

static void room_of_memories(const struct instance *x, double *ret_bytes)
{
    for (uint32_t m = 0; m < x->memory_count; m++) {
        ret_bytes[m] = 0;
        for (uint32_t g = 0; g < (x->model->memories[m].shared ? 1 : x->gpu_count); g++)
            ret_bytes[m] += (double)x->room_bytes[x->room_of_place[model_place(x->model, m, g)]];
    }
}

static uint32_t fastest_with_space(const struct instance *x, uint32_t item, const double *left)
{
    uint32_t best = 0;
    double best_s = INFINITY;

    for (uint32_t m = 0; m < x->memory_count; m++) {
        const double time_s = x->model->times_s ? x->times_s[(uint64_t)item * x->memory_count + m]
                                                : 1 / model_gpu_bandwidth(x->model, m);

        if (left[m] >= (double)x->bytes[item] && allows_memory(x, item, m) && time_s < best_s) {
            best = m;
            best_s = time_s;
        }
    }
    return best;
}

enum embtier_err start_by_density(struct placing *placing)
{
    const struct instance *const x = placing->x;
    _cleanup_(freep) struct ranked *ranked = calloc(x->item_count, sizeof(*ranked));
    double left[MODEL_MEMORIES_MAX] = { 0 };

    if (!ranked)
        return EMBTIER_NO_MEMORY;
    for (uint32_t i = 0; i < x->item_count; i++)
        ranked[i] = (struct ranked){ (double)x->read_bytes[i] / (double)x->bytes[i], i, 0 };
    qsort(ranked, x->item_count, sizeof(*ranked), compare_ranked);
    room_of_memories(x, left);
    for (uint32_t i = 0; i < x->item_count; i++) {
        ranked[i].memory = fastest_with_space(x, ranked[i].item, left);
        left[ranked[i].memory] -= (double)x->bytes[ranked[i].item];
    }
    deal(placing, ranked);
    return EMBTIER_OK;
}

static uint32_t cheapest_memory(const struct instance *x, const struct bound *bound, uint32_t item)
{
    uint32_t best = 0;
    double best_s = INFINITY;

    for (uint32_t p = 0; p < x->place_count; p++)
        if (instance_allows(x, item, p) &&
            instance_time_s(x, item, p) <= bound->limit_s * (1 + 1e-9) &&
            bound_cost_s(x, bound, item, p) < best_s) {
            best = p / x->gpu_count;
            best_s = bound_cost_s(x, bound, item, p);
        }
    return best;
}

enum embtier_err start_by_bound(struct placing *placing, const struct bound *bound)
{
    const struct instance *const x = placing->x;
    _cleanup_(freep) struct ranked *ranked = calloc(x->item_count, sizeof(*ranked));

    if (!ranked)
        return EMBTIER_NO_MEMORY;
    for (uint32_t i = 0; i < x->item_count; i++)
        ranked[i] = (struct ranked){ 0, i, cheapest_memory(x, bound, i) };
    deal(placing, ranked);
    return EMBTIER_OK;
}
