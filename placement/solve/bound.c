/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/solve/bound.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "placement/solve/ascent.h"
#include "placement/solve/gpu_classes.h"

#define BISECTIONS   40
#define CLOSE_ENOUGH 1e-6 /* of the limit */
/* Evaluations of the dual function for a limit. Huge models get fewer, so that work is bounded. */
#define STEPS_MOST  400
#define STEPS_LEAST 40
#define WORK        UINT64_C(8000000000) /* costs and products, for all limits */
/* Weights and prices beyond these could overflow, or lose digits, in a product or sum. */
#define DUAL_MAX      1e100
#define WEIGHTS_LEAST 1e-100 /* of their sum */

void bound_free(struct bound *bound)
{
    if (!bound)
        return;
    free(bound->weights);
    free(bound->prices_s_byte);
    free(bound);
}

static enum embtier_err new_bound(const struct instance *x, struct bound **ret_bound)
{
    _cleanup_(bound_freep) struct bound *b = calloc(1, sizeof(*b));

    if (!b)
        return EMBTIER_NO_MEMORY;
    b->weights = calloc(x->gpu_count, sizeof(*b->weights));
    b->prices_s_byte = calloc(x->room_count, sizeof(*b->prices_s_byte));
    if (!b->weights || !b->prices_s_byte)
        return EMBTIER_NO_MEMORY;
    for (uint32_t g = 0; g < x->gpu_count; g++)
        b->weights[g] = 1.0 / x->gpu_count;
    *ret_bound = TAKE(b);
    return EMBTIER_OK;
}

/* ---- certificate ---- */

double bound_best_cost_s(const struct instance *x, const struct bound *b, uint32_t item)
{
    double best = INFINITY;

    for (uint32_t p = 0; p < x->place_count; p++)
        if (instance_allows(x, item, p) && instance_time_s(x, item, p) <= b->limit_s)
            best = fmin(best, bound_cost_s(x, b, item, p));
    return best;
}

/* False for NaN, too. */
static bool are_duals(const double *values, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (!(values[i] >= 0 && values[i] <= DUAL_MAX))
            return false;
    return true;
}

static double sum(const double *values, uint32_t count)
{
    double value = 0;

    for (uint32_t i = 0; i < count; i++)
        value += values[i];
    return value;
}

/* An assignment with largest time T' <= limit has T' * sum(weights) >= the sum of its tables' costs
 * minus the rooms' prices. Each product and sum of doubles is off by at most 2^-53 of its value, so
 * the sum of n values is off by less than (n + 8) * 2^-52 of the sum of their sizes. */
double bound_certify(const struct instance *x, const struct bound *b)
{
    const double rounding =
        ((double)x->item_count + x->room_count + x->gpu_count + 8) * DBL_EPSILON;
    const double weights = sum(b->weights, x->gpu_count);
    double items_s = 0, rooms_s = 0, value_s;

    if (!are_duals(b->weights, x->gpu_count) || !are_duals(b->prices_s_byte, x->room_count) ||
        !(weights >= WEIGHTS_LEAST) || !(b->limit_s >= 0))
        return 0;
    for (uint32_t i = 0; i < x->item_count; i++)
        items_s += bound_best_cost_s(x, b, i);
    for (uint32_t r = 0; r < x->room_count; r++)
        rooms_s += b->prices_s_byte[r] * (double)x->room_bytes[r];
    if (isinf(items_s)) /* some item has no place at this limit */
        return b->limit_s;
    value_s = (items_s - rooms_s - rounding * (items_s + rooms_s)) / (weights * (1 + rounding));
    value_s = fmin(value_s, b->limit_s) * (1 - 4 * DBL_EPSILON);
    return fmax(value_s, 0);
}

/* ---- search for weights and prices ---- */

static void take_point(const struct gpu_classes *classes, const struct instance *x,
                       const struct ascent *ascent, double limit_s, struct bound *b)
{
    b->limit_s = limit_s;
    gpu_classes_spread(classes, x, ascent->best, limit_s, b->weights, b->prices_s_byte);
}

struct trial {
    const struct instance *x;
    const struct gpu_classes *classes;
    double limit_s;
    uint32_t steps;
};

static double try_point(void *ctx, const double *point, double *ret_slopes)
{
    const struct trial *const trial = ctx;

    return gpu_classes_value(trial->classes, trial->x, trial->limit_s, point, ret_slopes);
}

/* Keeps @best if the limit proves more than it does. True: the limit is below the bound. */
static bool try_limit(const struct trial *trial, struct ascent *ascent, struct bound *spare,
                      struct bound *best)
{
    ascent_run(ascent, try_point, (void *)trial, trial->steps, 1.0);
    take_point(trial->classes, trial->x, ascent, trial->limit_s, spare);
    spare->bound_s = bound_certify(trial->x, spare);
    if (spare->bound_s > best->bound_s) {
        best->bound_s = spare->bound_s;
        best->limit_s = spare->limit_s;
        memcpy(best->weights, spare->weights, trial->x->gpu_count * sizeof(*best->weights));
        memcpy(best->prices_s_byte, spare->prices_s_byte,
               trial->x->room_count * sizeof(*best->prices_s_byte));
    }
    return ascent->best_value > 1;
}

/* A step looks at the cost of each place, and multiplies by a matrix of points (ascent.c) about
 * five times. */
static uint32_t step_count(const struct instance *x, const struct gpu_classes *classes)
{
    const uint64_t costs = (uint64_t)x->item_count * x->memory_count * classes->class_count;
    const uint64_t points = gpu_classes_point_count(classes);

    return (uint32_t)MAX(MIN(WORK / BISECTIONS / (costs + 5 * points * points), STEPS_MOST),
                         STEPS_LEAST);
}

enum embtier_err bound_new(const struct instance *x, double upper_s, struct bound **ret_bound)
{
    _cleanup_(bound_freep) struct bound *best = NULL, *spare = NULL;
    _cleanup_(gpu_classes_freep) struct gpu_classes *classes = NULL;
    _cleanup_(ascent_freep) struct ascent *ascent = NULL;
    struct trial trial = { .x = x };
    double low_s = 0, high_s = upper_s;

    TRY(new_bound(x, &best));
    TRY(new_bound(x, &spare));
    TRY(gpu_classes_new(x, &classes));
    TRY(ascent_new(gpu_classes_point_count(classes), &ascent));
    gpu_classes_start(classes, ascent->start);
    trial.classes = classes;
    trial.steps = step_count(x, classes);
    for (uint32_t i = 0; i < BISECTIONS && high_s - low_s > CLOSE_ENOUGH * high_s; i++) {
        trial.limit_s = i == 0 ? upper_s : low_s + (high_s - low_s) / 2;
        if (try_limit(&trial, ascent, spare, best))
            low_s = trial.limit_s;
        else
            high_s = trial.limit_s;
        low_s = fmax(low_s, fmin(best->bound_s, high_s));
    }
    *ret_bound = TAKE(best);
    return EMBTIER_OK;
}
