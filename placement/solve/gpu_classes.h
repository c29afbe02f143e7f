/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_classes.h: GPUs that no capacity and no rule tells apart, taken together.
 *
 * The best bound treats the GPUs of a class alike, since the average of two best duals is one too.
 * So the search for it has a variable for each class instead of each GPU: often one instead of 16.
 *
 * A point is what the search moves: a weight for each class, then for each class of rooms the price
 * of all its bytes, in units of the limit. Thread: any. */
#ifndef EMBTIER_PLACEMENT_SOLVE_GPU_CLASSES_H
#define EMBTIER_PLACEMENT_SOLVE_GPU_CLASSES_H

#include "placement/model/instance.h"

struct gpu_classes {
    uint32_t class_count, room_class_count;
    uint32_t *class_of_gpu;  /* gpu_count */
    uint32_t *first_gpus;    /* class_count */
    double *sizes;           /* class_count: GPUs in it */
    uint32_t *class_of_room; /* room_count */
    double *capacities;      /* room_class_count: bytes of all its rooms, at least 1 */
};

MUST_CHECK enum embtier_err gpu_classes_new(const struct instance *x,
                                            struct gpu_classes **ret_classes);
void gpu_classes_free(struct gpu_classes *classes);
DEFINE_CLEANUP(struct gpu_classes, gpu_classes_free)

static inline uint32_t gpu_classes_point_count(const struct gpu_classes *c)
{
    return c->class_count + c->room_class_count;
}

/* The point of equal weights and no prices. */
void gpu_classes_start(const struct gpu_classes *c, double *ret_point);
/* Returns the bound at @limit_s, in units of it, and its slopes; not rounded to the safe side. */
double gpu_classes_value(const struct gpu_classes *c, const struct instance *x, double limit_s,
                         const double *point, double *ret_slopes);
/* Turns a point into a weight for each GPU and a price for each room. */
void gpu_classes_spread(const struct gpu_classes *c, const struct instance *x, const double *point,
                        double limit_s, double *ret_weights, double *ret_prices_s_byte);

#endif
