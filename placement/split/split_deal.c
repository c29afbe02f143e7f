/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/split/split_deal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "placement/random.h"

#define TRIES_PER_ITEM 2000
#define TRIES_MOST     (UINT64_C(1) << 22)
#define OVERFULL       100.0 /* weight of bytes above a room */

struct load {
    double time, bytes; /* in shares of an even time, and of a room */
};

struct dealing {
    struct split_draft *d;
    const struct split_instance *x;
    const struct split_bound *bound;
    struct load *loads; /* item_count * gpu_count */
    struct load sums[MODEL_GPUS_MAX];
    bool rooms_count; /* the private level's bytes have a price */
};

/* ---- loads ---- */

static struct split_use best_use(const struct dealing *l, uint32_t table, uint32_t gpu)
{
    const struct split_prices prices = split_bound_prices(l->x, l->bound, table, gpu);

    return split_best_use(l->x, table, gpu, &prices);
}

static struct load load_on(const struct dealing *l, uint32_t item, uint32_t gpu)
{
    const struct split_instance *const x = l->x;
    struct load load = { 0 };

    for (uint32_t i = x->item_starts[item]; i < x->item_starts[item + 1]; i++) {
        const struct split_use use = best_use(l, x->tables[i], gpu);

        load.time += use.time_s;
        if (x->private_level < x->level_count)
            load.bytes += use.bytes[x->private_level] / fmax((double)x->room_bytes[gpu], 1);
    }
    load.time /= fmax(l->bound->bound_s, 1e-30);
    return load;
}

static void find_loads(struct dealing *l)
{
    const struct split_instance *const x = l->x;

    for (uint32_t i = 0; i < x->item_count; i++)
        for (uint32_t g = 0; g < x->gpu_count; g++)
            if (split_item_allows(x, i, g))
                l->loads[(uint64_t)i * x->gpu_count + g] = load_on(l, i, g);
    for (uint32_t g = 0; g < x->gpu_count && x->private_level < x->level_count; g++)
        l->rooms_count |= l->bound->prices_s_byte[g] > 0;
}

/* ---- evenness ---- */

/* Grows faster than its load, so the least sum over GPUs is an even one. */
static double unevenness(const struct dealing *l, struct load sum)
{
    const double over = fmax(sum.bytes - 1, 0);
    const double value = sum.time * sum.time + OVERFULL * over * over;

    return l->rooms_count ? value + sum.bytes * sum.bytes : value;
}

static struct load moved(struct load sum, struct load off, struct load on)
{
    return (struct load){ sum.time - off.time + on.time, sum.bytes - off.bytes + on.bytes };
}

/* Moves items from GPU @a to @b, and from @b to @a, if that makes the sums more even. MODEL_ANY: no
 * item. */
static void try_exchange(struct dealing *l, uint32_t first, uint32_t second, uint32_t a, uint32_t b)
{
    const struct split_instance *const x = l->x;
    const struct load none = { 0 };
    const struct load *const first_loads = l->loads + (uint64_t)first * x->gpu_count;
    const struct load *const second_loads =
        second == MODEL_ANY ? NULL : l->loads + (uint64_t)second * x->gpu_count;
    const struct load on_a =
        moved(l->sums[a], first_loads[a], second_loads ? second_loads[a] : none);
    const struct load on_b =
        moved(l->sums[b], second_loads ? second_loads[b] : none, first_loads[b]);

    if (!split_item_allows(x, first, b) || (second_loads && !split_item_allows(x, second, a)))
        return;
    if (unevenness(l, on_a) + unevenness(l, on_b) >=
        unevenness(l, l->sums[a]) + unevenness(l, l->sums[b]))
        return;
    l->sums[a] = on_a;
    l->sums[b] = on_b;
    l->d->gpus[first] = b;
    if (second_loads)
        l->d->gpus[second] = a;
}

static void even_out(struct dealing *l, uint64_t seed)
{
    struct random random = { seed };
    const uint64_t tries = MIN(TRIES_PER_ITEM * (uint64_t)l->x->item_count, TRIES_MOST);

    for (uint64_t i = 0; i < tries && l->x->gpu_count > 1; i++) {
        const uint32_t first = (uint32_t)random_below(&random, l->x->item_count);
        const uint32_t other = (uint32_t)random_below(&random, l->x->item_count);
        const uint32_t gpu = (uint32_t)random_below(&random, l->x->gpu_count);
        const uint32_t from = l->d->gpus[first];

        if (i % 4 == 0 && gpu != from)
            try_exchange(l, first, MODEL_ANY, from, gpu);
        else if (l->d->gpus[other] != from)
            try_exchange(l, first, other, from, l->d->gpus[other]);
    }
}

/* ---- the largest first ---- */

struct ranked {
    double size;
    uint32_t item;
};

static int compare(const void *a, const void *b)
{
    const struct ranked *const left = a, *const right = b;

    if (left->size != right->size)
        return left->size < right->size ? 1 : -1;
    return (left->item > right->item) - (left->item < right->item);
}

static void deal_item(struct dealing *l, uint32_t item)
{
    const struct load *const loads = l->loads + (uint64_t)item * l->x->gpu_count;
    const struct load none = { 0 };
    double least = INFINITY;
    uint32_t gpu = 0;

    for (uint32_t g = 0; g < l->x->gpu_count; g++) {
        const double rise =
            unevenness(l, moved(l->sums[g], none, loads[g])) - unevenness(l, l->sums[g]);

        if (split_item_allows(l->x, item, g) && rise < least) {
            least = rise;
            gpu = g;
        }
    }
    l->d->gpus[item] = gpu;
    l->sums[gpu] = moved(l->sums[gpu], none, loads[gpu]);
}

static enum embtier_err deal_all(struct dealing *l)
{
    const struct split_instance *const x = l->x;
    _cleanup_(freep) struct ranked *ranked = calloc(x->item_count, sizeof(*ranked));

    if (!ranked)
        return EMBTIER_NO_MEMORY;
    for (uint32_t i = 0; i < x->item_count; i++) {
        ranked[i].item = i;
        for (uint32_t g = 0; g < x->gpu_count; g++) {
            const struct load load = l->loads[(uint64_t)i * x->gpu_count + g];

            ranked[i].size = fmax(ranked[i].size, fmax(load.time, load.bytes));
        }
    }
    qsort(ranked, x->item_count, sizeof(*ranked), compare);
    for (uint32_t i = 0; i < x->item_count; i++)
        deal_item(l, ranked[i].item);
    return EMBTIER_OK;
}

enum embtier_err split_deal(struct split_draft *d, const struct split_bound *bound, uint64_t seed)
{
    const struct split_instance *const x = d->x;
    struct dealing l = { .d = d, .x = x, .bound = bound };
    _cleanup_(freep) struct load *loads =
        calloc((uint64_t)x->item_count * x->gpu_count, sizeof(*loads));

    if (!loads)
        return EMBTIER_NO_MEMORY;
    l.loads = loads;
    find_loads(&l);
    TRY(deal_all(&l));
    even_out(&l, seed);
    for (uint32_t i = 0; i < x->table_count; i++)
        d->uses[i] = best_use(&l, i, split_draft_gpu(d, i));
    memcpy(d->weights, bound->weights, sizeof(d->weights));
    memcpy(d->prices_byte, bound->prices_s_byte, sizeof(d->prices_byte));
    d->largest_s = INFINITY;
    return EMBTIER_OK;
}
