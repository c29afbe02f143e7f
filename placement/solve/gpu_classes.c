/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/solve/gpu_classes.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define VALUE_MAX 1e9 /* for items without a place: far above any value that matters */

void gpu_classes_free(struct gpu_classes *classes)
{
    if (!classes)
        return;
    free(classes->class_of_gpu);
    free(classes->first_gpus);
    free(classes->sizes);
    free(classes->class_of_room);
    free(classes->capacities);
    free(classes);
}

static bool are_alike(const struct instance *x, uint32_t a, uint32_t b)
{
    for (uint32_t m = 0; m < x->memory_count; m++) {
        const uint32_t p = model_place(x->model, m, a), q = model_place(x->model, m, b);

        if (x->room_bytes[x->room_of_place[p]] != x->room_bytes[x->room_of_place[q]])
            return false;
        for (uint32_t i = 0; i < x->item_count; i++)
            if (instance_allows(x, i, p) != instance_allows(x, i, q))
                return false;
    }
    return true;
}

static void class_gpus(struct gpu_classes *c, const struct instance *x)
{
    for (uint32_t g = 0; g < x->gpu_count; g++) {
        uint32_t k = 0;

        while (k < c->class_count && !are_alike(x, c->first_gpus[k], g))
            k++;
        if (k == c->class_count)
            c->first_gpus[c->class_count++] = g;
        c->class_of_gpu[g] = k;
        c->sizes[k]++;
    }
}

static void class_rooms(struct gpu_classes *c, const struct instance *x)
{
    for (uint32_t m = 0; m < x->memory_count; m++) {
        const bool shared = x->model->memories[m].shared;

        for (uint32_t g = 0; g < (shared ? 1 : x->gpu_count); g++) {
            const uint32_t room = x->room_of_place[model_place(x->model, m, g)];

            c->class_of_room[room] = c->room_class_count + (shared ? 0 : c->class_of_gpu[g]);
            c->capacities[c->class_of_room[room]] += (double)x->room_bytes[room];
        }
        c->room_class_count += shared ? 1 : c->class_count;
    }
    for (uint32_t r = 0; r < c->room_class_count; r++)
        c->capacities[r] = fmax(c->capacities[r], 1);
}

enum embtier_err gpu_classes_new(const struct instance *x, struct gpu_classes **ret_classes)
{
    _cleanup_(gpu_classes_freep) struct gpu_classes *c = calloc(1, sizeof(*c));

    if (!c)
        return EMBTIER_NO_MEMORY;
    c->class_of_gpu = calloc(x->gpu_count, sizeof(*c->class_of_gpu));
    c->first_gpus = calloc(x->gpu_count, sizeof(*c->first_gpus));
    c->sizes = calloc(x->gpu_count, sizeof(*c->sizes));
    c->class_of_room = calloc(x->room_count, sizeof(*c->class_of_room));
    c->capacities = calloc(x->room_count, sizeof(*c->capacities));
    if (!c->class_of_gpu || !c->first_gpus || !c->sizes || !c->class_of_room || !c->capacities)
        return EMBTIER_NO_MEMORY;
    class_gpus(c, x);
    class_rooms(c, x);
    *ret_classes = TAKE(c);
    return EMBTIER_OK;
}

void gpu_classes_start(const struct gpu_classes *c, double *ret_point)
{
    double gpus = 0;

    for (uint32_t k = 0; k < c->class_count; k++)
        gpus += c->sizes[k];
    for (uint32_t k = 0; k < c->class_count; k++)
        ret_point[k] = c->sizes[k] / gpus;
    for (uint32_t r = 0; r < c->room_class_count; r++)
        ret_point[c->class_count + r] = 0;
}

struct best {
    double cost;
    uint32_t gpu_class, room_class;
    double time, share; /* in units of the limit; of the room class's bytes */
};

static struct best look_at(const struct gpu_classes *c, const struct instance *x, double limit_s,
                           const double *point, uint32_t item, uint32_t place, uint32_t gpu_class)
{
    const uint32_t room = c->class_of_room[x->room_of_place[place]];
    const double time = instance_time_s(x, item, place) / limit_s;
    const double share = (double)x->bytes[item] / c->capacities[room];
    const double cost =
        point[gpu_class] / c->sizes[gpu_class] * time + point[c->class_count + room] * share;

    return (struct best){ cost, gpu_class, room, time, share };
}

/* Finds the cheapest place of @item at the limit. False: it has none, and @ret_best is zeros. */
static bool find_best(const struct gpu_classes *c, const struct instance *x, double limit_s,
                      const double *point, uint32_t item, struct best *ret_best)
{
    bool found = false;

    *ret_best = (struct best){ 0 };
    for (uint32_t m = 0; m < x->memory_count; m++)
        for (uint32_t k = 0; k < c->class_count; k++) {
            const uint32_t place = model_place(x->model, m, c->first_gpus[k]);

            if (instance_allows(x, item, place) && instance_time_s(x, item, place) <= limit_s) {
                const struct best here = look_at(c, x, limit_s, point, item, place, k);

                if (!found || here.cost < ret_best->cost)
                    *ret_best = here;
                found = true;
            }
        }
    return found;
}

static double sum_weights(const struct gpu_classes *c, const double *point)
{
    double sum = 0;

    for (uint32_t k = 0; k < c->class_count; k++)
        sum += point[k];
    return fmax(sum, 1e-6);
}

double gpu_classes_value(const struct gpu_classes *c, const struct instance *x, double limit_s,
                         const double *point, double *ret_slopes)
{
    const double weights = sum_weights(c, point);
    double value = 0;
    struct best best = { 0 };

    memset(ret_slopes, 0, gpu_classes_point_count(c) * sizeof(double));
    for (uint32_t i = 0; i < x->item_count; i++) {
        if (!find_best(c, x, limit_s, point, i, &best))
            return VALUE_MAX;
        value += best.cost;
        ret_slopes[best.gpu_class] += best.time / c->sizes[best.gpu_class];
        ret_slopes[c->class_count + best.room_class] += best.share;
    }
    for (uint32_t r = 0; r < c->room_class_count; r++) {
        value -= point[c->class_count + r];
        ret_slopes[c->class_count + r] -= 1;
    }
    value /= weights;
    for (uint32_t k = 0; k < c->class_count; k++)
        ret_slopes[k] -= value;
    for (uint32_t j = 0; j < gpu_classes_point_count(c); j++)
        ret_slopes[j] /= weights;
    return value;
}

void gpu_classes_spread(const struct gpu_classes *c, const struct instance *x, const double *point,
                        double limit_s, double *ret_weights, double *ret_prices_s_byte)
{
    const double weights = sum_weights(c, point);

    for (uint32_t g = 0; g < x->gpu_count; g++)
        ret_weights[g] = point[c->class_of_gpu[g]] / c->sizes[c->class_of_gpu[g]] / weights;
    for (uint32_t r = 0; r < x->room_count; r++)
        ret_prices_s_byte[r] = point[c->class_count + c->class_of_room[r]] * limit_s /
                               c->capacities[c->class_of_room[r]] / weights;
}
