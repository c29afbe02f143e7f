/* SPDX-License-Identifier: Apache-2.0 */
/* instance.h: a model whose rules are worked in, as a solver needs it.
 *
 * Tables that are kept together are one item. Pins, forbidden places and sizes are a list of
 * allowed places for each item. A room is one capacity: a private memory of one GPU, or a shared
 * memory. Reserved bytes are taken off the rooms. Thread: any. */
#ifndef EMBTIER_PLACEMENT_MODEL_INSTANCE_H
#define EMBTIER_PLACEMENT_MODEL_INSTANCE_H

#include "placement/model/model.h"

enum instance_allow {
    INSTANCE_RULED_OUT, /* by a rule */
    INSTANCE_TOO_SMALL, /* rules allow the place, but the item is larger than its room */
    INSTANCE_ALLOWED,
};

struct instance {
    const struct model *model; /* borrowed */
    uint32_t gpu_count, memory_count, place_count, room_count, item_count;
    uint32_t *item_of_table; /* table_count */
    uint64_t *bytes;         /* item_count */
    uint64_t *read_bytes;    /* item_count */
    double *times_s;         /* item_count * memory_count: the time that the item takes there */
    uint8_t *allowed;        /* item_count * place_count: enum instance_allow */
    uint32_t *room_of_place; /* place_count */
    uint64_t *room_bytes;    /* room_count: capacity without what is reserved */
};

/* @model has passed model_check(). NO_MEMORY, or INVALID: a memory has less than its reserved
 * bytes. */
MUST_CHECK enum embtier_err instance_new(const struct model *model, struct instance **ret_instance,
                                         struct err_msg *msg);
void instance_free(struct instance *instance);
DEFINE_CLEANUP(struct instance, instance_free)

static inline double instance_time_s(const struct instance *x, uint32_t item, uint32_t place)
{
    return x->times_s[item * x->memory_count + place / x->gpu_count];
}

static inline bool instance_allows(const struct instance *x, uint32_t item, uint32_t place)
{
    return x->allowed[(uint64_t)item * x->place_count + place] == INSTANCE_ALLOWED;
}

static inline uint32_t instance_gpu(const struct instance *x, uint32_t place)
{
    return place % x->gpu_count;
}

/* The memory that a room belongs to. */
const struct model_memory *instance_room_memory(const struct instance *x, uint32_t room);
/* Writes a room's name for a message: "HBM of GPU 3", or "DRAM". */
void instance_room_name(const struct instance *x, uint32_t room, char *ret_name, size_t name_bytes);
/* The first table of an item. */
uint32_t instance_table(const struct instance *x, uint32_t item);
/* The number of the first rule that rules the place out, or MODEL_ANY if none does. */
uint32_t instance_rule(const struct instance *x, uint32_t item, uint32_t place);

#endif
