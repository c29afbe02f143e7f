/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/split/split_bound.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "placement/solve/ascent.h"

#define ROUNDS 4   /* each in units of the time that the last one proved */
#define HEAVY  0.3 /* of the time or a room: an item that takes more gets a weight of its own */
/* Evaluations of the dual function in a round. Huge models get fewer, so that work is bounded. */
#define STEPS_MOST  300
#define STEPS_LEAST 20
#define WORK        UINT64_C(2000000) /* cuts of a table in a round */
/* Weights and prices beyond these could overflow, or lose digits, in a product or sum. */
#define DUAL_MAX      1e100
#define WEIGHTS_LEAST 1e-100 /* of their sum */

/* The item's own weight and price; zeros: it is not heavy. */
static struct split_heavy heavy_of(const struct split_bound *b, uint32_t item)
{
    for (uint32_t i = 0; i < b->heavy_count; i++)
        if (b->heavy[i].item == item)
            return b->heavy[i];
    return (struct split_heavy){ .item = item };
}

struct split_prices split_bound_prices(const struct split_instance *x,
                                       const struct split_bound *bound, uint32_t table,
                                       uint32_t gpu)
{
    const struct split_heavy heavy = heavy_of(bound, x->items[table]);
    double byte_prices[SPLIT_LEVELS_MAX];

    for (uint32_t m = 0; m < x->level_count; m++)
        byte_prices[m] = bound->prices_s_byte[split_room(x, m, gpu)] +
                         (m == x->private_level ? heavy.price_s_byte : 0);
    return split_prices_of(x, table, gpu, bound->weights[gpu] + heavy.weight, byte_prices);
}

double split_bound_own_room(const struct split_instance *x, const struct split_bound *bound,
                            uint32_t item, uint32_t gpu)
{
    return x->private_level < x->level_count
               ? heavy_of(bound, item).price_s_byte * (double)x->room_bytes[gpu]
               : 0;
}

/* ---- certificate ---- */

/* False for NaN, too. */
static bool is_dual(double value)
{
    return value >= 0 && value <= DUAL_MAX;
}

static bool are_duals(const struct split_instance *x, const struct split_bound *b)
{
    bool are = b->heavy_count <= SPLIT_HEAVY_MAX;

    for (uint32_t g = 0; g < x->gpu_count; g++)
        are &= is_dual(b->weights[g]);
    for (uint32_t r = 0; r < x->room_count; r++)
        are &= is_dual(b->prices_s_byte[r]);
    for (uint32_t i = 0; are && i < b->heavy_count; i++) {
        are &= is_dual(b->heavy[i].weight) && is_dual(b->heavy[i].price_s_byte);
        for (uint32_t j = 0; j < i; j++)
            are &= b->heavy[j].item != b->heavy[i].item;
    }
    return are;
}

/* The least cost of a table over all modes; all pieces are looked at. */
static double least_cost(const struct split_instance *x, uint32_t table, uint32_t gpu,
                         const struct split_prices *prices)
{
    double least = INFINITY;

    for (uint32_t mode = 0; mode <= x->level_count; mode++)
        if (split_allows(x, table, gpu, mode))
            least = fmin(least, split_use_of(x, table, mode, prices).cost);
    if (split_allows(x, table, gpu, SPLIT_MIXED))
        least = fmin(least, split_curve_least(&x->curves[table], prices));
    return least;
}

/* Also adds to @size_s the seconds that the sums in it passed through, as their rounding errors are
 * in proportion to these. */
static double item_cost(const struct split_instance *x, const struct split_bound *b, uint32_t item,
                        uint32_t gpu, double *size_s)
{
    const double own_room = split_bound_own_room(x, b, item, gpu);
    double cost = 0;

    for (uint32_t i = x->item_starts[item]; i < x->item_starts[item + 1]; i++) {
        const uint32_t table = x->tables[i];
        const struct split_curve *const c = &x->curves[table];
        const struct split_prices prices = split_bound_prices(x, b, table, gpu);
        const double slow_s =
            x->level_count > 0 ? c->read_bytes / x->bandwidths[x->level_count - 1] : 0;

        cost += least_cost(x, table, gpu, &prices);
        *size_s += prices.second * (slow_s + c->rest_s);
    }
    *size_s += own_room;
    return cost - own_room;
}

static double item_least(const struct split_instance *x, const struct split_bound *b, uint32_t item,
                         double *size_s)
{
    double least = INFINITY, most_s = 0;

    for (uint32_t g = 0; g < x->gpu_count; g++) {
        double gpu_size_s = 0;

        if (split_item_allows(x, item, g))
            least = fmin(least, item_cost(x, b, item, g, &gpu_size_s));
        most_s = fmax(most_s, gpu_size_s);
    }
    *size_s += most_s;
    return least;
}

/* A placement with largest time T has T * sum(weights) >= the sum of its items' costs minus the
 * rooms' prices, those of heavy items included. Each product and sum of doubles is off by at most
 * 2^-53 of its value. A table's cost sums up at most SPLIT_POINTS_MAX pieces, each a difference of
 * numbers below those in
 * @size_s. */
double split_bound_certify(const struct split_instance *x, const struct split_bound *b)
{
    const double rounding =
        ((double)x->table_count + x->room_count + 2 * MODEL_GPUS_MAX + 16 * SPLIT_POINTS_MAX) *
        DBL_EPSILON;
    double weights = 0, items_s = 0, rooms_s = 0, size_s = 0, value_s;

    if (!are_duals(x, b))
        return 0;
    for (uint32_t g = 0; g < x->gpu_count; g++)
        weights += b->weights[g];
    for (uint32_t i = 0; i < b->heavy_count; i++)
        weights += b->heavy[i].weight;
    if (!(weights >= WEIGHTS_LEAST))
        return 0;
    for (uint32_t i = 0; i < x->item_count; i++)
        items_s += item_least(x, b, i, &size_s);
    for (uint32_t r = 0; r < x->room_count; r++)
        rooms_s += b->prices_s_byte[r] * (double)x->room_bytes[r];
    size_s += fabs(items_s) + rooms_s;
    value_s = (items_s - rooms_s - rounding * size_s) / (weights * (1 + rounding));
    return fmax(value_s * (1 - 4 * DBL_EPSILON), 0);
}

/* ---- classes of GPUs ---- */

/* GPUs that no capacity and no rule tells apart. The best bound treats them alike, so the search
 * has a variable for each class instead of each GPU.
 *
 * A point is a weight for each class, then for each class of rooms the price of all its bytes, in
 * units of scale_s, then for each heavy item its weight and the price of its own room. */
struct search {
    const struct split_instance *x;
    uint32_t class_count, room_class_count;
    uint32_t class_of_gpu[MODEL_GPUS_MAX], first_gpus[MODEL_GPUS_MAX];
    double sizes[MODEL_GPUS_MAX]; /* GPUs in the class */
    double capacities[SPLIT_ROOMS_MAX];
    double scale_s;
    uint32_t heavy_count;
    uint32_t heavy[SPLIT_HEAVY_MAX]; /* items */
};

static uint32_t point_count(const struct search *s)
{
    return s->class_count + s->room_class_count + 2 * s->heavy_count;
}

/* Where a point has the weight of a heavy item; the price comes next. 0: it is not heavy. */
static uint32_t heavy_at(const struct search *s, uint32_t item)
{
    for (uint32_t i = 0; i < s->heavy_count; i++)
        if (s->heavy[i] == item)
            return s->class_count + s->room_class_count + 2 * i;
    return 0;
}

static bool are_alike(const struct split_instance *x, uint32_t a, uint32_t b)
{
    for (uint32_t m = 0; m < x->level_count; m++)
        if (x->room_bytes[split_room(x, m, a)] != x->room_bytes[split_room(x, m, b)])
            return false;
    for (uint32_t i = 0; i < x->table_count; i++) {
        const uint64_t row = (uint64_t)i * x->gpu_count;

        if (x->modes[row + a] != x->modes[row + b] || x->levels[row + a] != x->levels[row + b])
            return false;
    }
    return true;
}

/* The class of a room, among rooms. */
static uint32_t room_class(const struct search *s, uint32_t level, uint32_t gpu_class)
{
    const struct split_instance *const x = s->x;

    if (level == x->private_level)
        return gpu_class;
    return (x->private_level < x->level_count ? s->class_count : 0) + level -
           (level > x->private_level);
}

static void find_classes(struct search *s)
{
    const struct split_instance *const x = s->x;

    for (uint32_t g = 0; g < x->gpu_count; g++) {
        uint32_t k = 0;

        while (k < s->class_count && !are_alike(x, s->first_gpus[k], g))
            k++;
        if (k == s->class_count)
            s->first_gpus[s->class_count++] = g;
        s->class_of_gpu[g] = k;
        s->sizes[k]++;
    }
    s->room_class_count = s->class_count - 1 + x->level_count;
    if (x->private_level == x->level_count)
        s->room_class_count = x->level_count;
    for (uint32_t m = 0; m < x->level_count; m++)
        for (uint32_t k = 0; k < s->class_count; k++) {
            const double bytes = (double)x->room_bytes[split_room(x, m, s->first_gpus[k])];

            s->capacities[room_class(s, m, k)] =
                fmax(m == x->private_level ? bytes * s->sizes[k] : bytes, 1);
        }
}

/* ---- the dual function ---- */

struct item_use {
    double cost, time_s;
    double bytes[SPLIT_LEVELS_MAX];
    double own_room; /* bytes in the private level above one room of it, in rooms */
    uint32_t gpu_class;
};

static struct split_prices prices_at(const struct search *s, const double *point, uint32_t table,
                                     uint32_t gpu_class, uint32_t heavy)
{
    const struct split_instance *const x = s->x;
    const uint32_t gpu = s->first_gpus[gpu_class];
    double weight = point[gpu_class] / s->sizes[gpu_class];
    double byte_prices[SPLIT_LEVELS_MAX];

    for (uint32_t m = 0; m < x->level_count; m++) {
        const uint32_t room = room_class(s, m, gpu_class);

        byte_prices[m] = point[s->class_count + room] / s->capacities[room];
        if (heavy && m == x->private_level)
            byte_prices[m] += point[heavy + 1] / fmax((double)x->room_bytes[gpu], 1);
    }
    if (heavy)
        weight += point[heavy];
    return split_prices_of(x, table, gpu, weight / s->scale_s, byte_prices);
}

static struct item_use look_at(const struct search *s, const double *point, uint32_t item,
                               uint32_t gpu_class)
{
    const struct split_instance *const x = s->x;
    const uint32_t gpu = s->first_gpus[gpu_class], heavy = heavy_at(s, item);
    struct item_use sum = { .gpu_class = gpu_class };

    for (uint32_t i = x->item_starts[item]; i < x->item_starts[item + 1]; i++) {
        const struct split_prices prices = prices_at(s, point, x->tables[i], gpu_class, heavy);
        const struct split_use use = split_best_use(x, x->tables[i], gpu, &prices);

        sum.cost += use.cost;
        sum.time_s += use.time_s;
        for (uint32_t m = 0; m < x->level_count; m++)
            sum.bytes[m] += use.bytes[m];
    }
    if (x->private_level < x->level_count)
        sum.own_room = sum.bytes[x->private_level] / fmax((double)x->room_bytes[gpu], 1) - 1;
    if (heavy && x->private_level < x->level_count)
        sum.cost -= point[heavy + 1];
    return sum;
}

static struct item_use best_item_use(const struct search *s, const double *point, uint32_t item)
{
    struct item_use best = { .cost = INFINITY };

    for (uint32_t k = 0; k < s->class_count; k++) {
        if (split_item_allows(s->x, item, s->first_gpus[k])) {
            const struct item_use use = look_at(s, point, item, k);

            if (use.cost < best.cost)
                best = use;
        }
    }
    return best;
}

/* Adds the item's cheapest use to the slopes, and returns its cost. */
static double add_item(const struct search *s, const double *point, uint32_t item, double *slopes)
{
    const struct item_use use = best_item_use(s, point, item);
    const uint32_t heavy = heavy_at(s, item);

    slopes[use.gpu_class] += use.time_s / s->scale_s / s->sizes[use.gpu_class];
    for (uint32_t m = 0; m < s->x->level_count; m++) {
        const uint32_t room = room_class(s, m, use.gpu_class);

        slopes[s->class_count + room] += use.bytes[m] / s->capacities[room];
    }
    if (heavy) {
        slopes[heavy] += use.time_s / s->scale_s;
        slopes[heavy + 1] += use.own_room;
    }
    return use.cost;
}

/* True: this variable of a point is a weight. */
static bool is_weight(const struct search *s, uint32_t variable)
{
    const uint32_t heavy = s->class_count + s->room_class_count;

    return variable < s->class_count || (variable >= heavy && (variable - heavy) % 2 == 0);
}

static double sum_weights(const struct search *s, const double *point)
{
    double sum = 0;

    for (uint32_t i = 0; i < point_count(s); i++)
        sum += is_weight(s, i) ? point[i] : 0;
    return fmax(sum, 1e-6);
}

static double value_at(void *ctx, const double *point, double *ret_slopes)
{
    const struct search *const s = ctx;
    const uint32_t count = point_count(s);
    const double weights = sum_weights(s, point);
    double value = 0;

    memset(ret_slopes, 0, count * sizeof(*ret_slopes));
    for (uint32_t i = 0; i < s->x->item_count; i++)
        value += add_item(s, point, i, ret_slopes);
    for (uint32_t r = 0; r < s->room_class_count; r++) {
        value -= point[s->class_count + r];
        ret_slopes[s->class_count + r] -= 1;
    }
    value /= weights;
    for (uint32_t j = 0; j < count; j++)
        ret_slopes[j] = (ret_slopes[j] - (is_weight(s, j) ? value : 0)) / weights;
    return value;
}

/* ---- search ---- */

/* Turns a point into a weight for each GPU and a price for each room. */
static void spread(const struct search *s, const double *point, struct split_bound *ret_bound)
{
    const struct split_instance *const x = s->x;
    const double weights = sum_weights(s, point);

    for (uint32_t g = 0; g < x->gpu_count; g++) {
        const uint32_t k = s->class_of_gpu[g];

        ret_bound->weights[g] = point[k] / s->sizes[k] / weights;
        for (uint32_t m = 0; m < x->level_count; m++) {
            const uint32_t room = room_class(s, m, k);

            ret_bound->prices_s_byte[split_room(x, m, g)] =
                point[s->class_count + room] * s->scale_s / s->capacities[room] / weights;
        }
    }
    ret_bound->heavy_count = s->heavy_count;
    for (uint32_t i = 0; i < s->heavy_count; i++) {
        const double *const own = point + heavy_at(s, s->heavy[i]);
        const double bytes =
            x->private_level < x->level_count ? (double)x->room_bytes[0] : INFINITY;

        ret_bound->heavy[i] =
            (struct split_heavy){ s->heavy[i], own[0] / weights,
                                  own[1] * s->scale_s / fmax(bytes, 1) / weights };
    }
}

/* The time of all lookups if there were room for all in the fastest level, on average over GPUs. */
static double least_time_s(const struct split_instance *x)
{
    double sum_s = 0;

    for (uint32_t i = 0; i < x->table_count; i++)
        sum_s +=
            x->level_count > 0 ? x->curves[i].read_bytes / x->bandwidths[0] : x->curves[i].rest_s;
    return sum_s / x->gpu_count;
}

static uint32_t step_count(const struct search *s)
{
    const uint64_t cuts = MAX((uint64_t)s->x->table_count * s->class_count, 1);

    return (uint32_t)MAX(MIN(WORK / cuts, STEPS_MOST), STEPS_LEAST);
}

static void run_round(struct search *s, struct ascent *ascent, struct split_bound *best)
{
    struct split_bound found = { 0 };

    ascent_run(ascent, value_at, s, step_count(s), INFINITY);
    spread(s, ascent->best, &found);
    found.bound_s = split_bound_certify(s->x, &found);
    if (found.bound_s > best->bound_s)
        *best = found;
    if (!(ascent->best_value > 0))
        return;
    s->scale_s *= ascent->best_value;
    for (uint32_t i = 0; i < point_count(s); i++)
        if (!is_weight(s, i))
            ascent->start[i] /= ascent->best_value;
}

/* Lists the items that take most of the time or of a room at a point, at most SPLIT_HEAVY_MAX. */
static void find_heavy(struct search *s, const double *point)
{
    double sizes[SPLIT_HEAVY_MAX] = { 0 };

    for (uint32_t i = 0; i < s->x->item_count; i++) {
        const struct item_use use = best_item_use(s, point, i);
        const double size = fmax(use.time_s / s->scale_s, use.own_room + 1);
        uint32_t at = s->heavy_count;

        if (size < HEAVY)
            continue;
        if (at == SPLIT_HEAVY_MAX && size <= sizes[--at])
            continue;
        s->heavy_count = MIN(s->heavy_count + 1, SPLIT_HEAVY_MAX);
        for (; at > 0 && sizes[at - 1] < size; at--) {
            sizes[at] = sizes[at - 1];
            s->heavy[at] = s->heavy[at - 1];
        }
        sizes[at] = size;
        s->heavy[at] = i;
    }
}

static enum embtier_err run_rounds(struct search *s, const double *start,
                                   struct ascent **ret_ascent, struct split_bound *best)
{
    _cleanup_(ascent_freep) struct ascent *ascent = NULL;

    TRY(ascent_new(point_count(s), &ascent));
    memcpy(ascent->start, start, (s->class_count + s->room_class_count) * sizeof(*start));
    for (uint32_t i = 0; i < ROUNDS; i++)
        run_round(s, ascent, best);
    *ret_ascent = TAKE(ascent);
    return EMBTIER_OK;
}

enum embtier_err split_bound_find(const struct split_instance *x, struct split_bound *ret_bound)
{
    struct search s = { .x = x, .scale_s = least_time_s(x) };
    struct split_bound best = { 0 };
    double start[MODEL_GPUS_MAX + SPLIT_ROOMS_MAX] = { 0 };
    _cleanup_(ascent_freep) struct ascent *ascent = NULL, *heavy_ascent = NULL;

    for (uint32_t g = 0; g < x->gpu_count; g++)
        best.weights[g] = 1.0 / x->gpu_count;
    find_classes(&s);
    for (uint32_t k = 0; k < s.class_count; k++)
        start[k] = s.sizes[k] / x->gpu_count;
    *ret_bound = best;
    if (!(s.scale_s > 0))
        return EMBTIER_OK;
    TRY(run_rounds(&s, start, &ascent, &best));
    find_heavy(&s, ascent->start);
    if (s.heavy_count > 0)
        TRY(run_rounds(&s, ascent->start, &heavy_ascent, &best));
    *ret_bound = best;
    return EMBTIER_OK;
}
