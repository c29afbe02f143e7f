/* SPDX-License-Identifier: Apache-2.0 */
/* split_instance.h: a row-wise model whose rules are worked in, as the solver needs it.
 *
 * Tables that are kept together are one item. Pins and forbidden levels are a mask of allowed
 * levels for each table and GPU; reserved bytes are taken off the rooms. A room is one capacity:
 * the private level of one GPU, or a shared level.
 *
 * A table has a mode. In a whole mode all of its rows lie in one level without remap, or all in the
 * rest. In the mixed mode it is cut, and each of its rows in a level has a remap. Thread: any. */
#ifndef EMBTIER_PLACEMENT_SPLIT_SPLIT_INSTANCE_H
#define EMBTIER_PLACEMENT_SPLIT_SPLIT_INSTANCE_H

#include "placement/split/split_curve.h"
#include "placement/split/split_model.h"

/* Modes 0 to level_count - 1: whole in that level. level_count: whole in the rest. */
#define SPLIT_MIXED     (SPLIT_LEVELS_MAX + 1)
#define SPLIT_ROOMS_MAX (MODEL_GPUS_MAX + SPLIT_LEVELS_MAX)

struct split_instance {
    const struct split_model *model; /* borrowed */
    uint32_t gpu_count, level_count, table_count, item_count, room_count;
    uint32_t *items;       /* table_count: of each table */
    uint32_t *tables;      /* table_count: by item */
    uint32_t *item_starts; /* item_count + 1: the item's first one in @tables */
    uint8_t *modes;        /* table_count * gpu_count: bit m: the mode m; bit SPLIT_MIXED */
    uint8_t *levels;       /* table_count * gpu_count: bits as in split_prices.allowed */
    double bandwidths[SPLIT_LEVELS_MAX];
    uint32_t private_level;               /* level_count: there is none */
    uint64_t room_bytes[SPLIT_ROOMS_MAX]; /* capacity without what is reserved */
    struct split_curve *curves;           /* table_count */
    struct split_point *points;           /* of all curves */
};

/* @model has passed split_model_check(). NO_MEMORY, or INVALID: a level has less than its reserved
 * bytes, or a table or item has no place. */
MUST_CHECK enum embtier_err split_instance_new(const struct split_model *model,
                                               struct split_instance **ret_instance,
                                               struct err_msg *msg);
void split_instance_free(struct split_instance *x);
DEFINE_CLEANUP(struct split_instance, split_instance_free)

/* Rooms: one for each GPU if there is a private level, then one for each shared level. */
static inline uint32_t split_room(const struct split_instance *x, uint32_t level, uint32_t gpu)
{
    if (level == x->private_level)
        return gpu;
    return (x->private_level < x->level_count ? x->gpu_count : 0) + level -
           (level > x->private_level);
}

static inline bool split_allows(const struct split_instance *x, uint32_t table, uint32_t gpu,
                                uint32_t mode)
{
    return x->modes[(uint64_t)table * x->gpu_count + gpu] >> mode & 1;
}

/* True: each table of the item has a mode on this GPU. */
bool split_item_allows(const struct split_instance *x, uint32_t item, uint32_t gpu);

/* The room and the time that a table takes. */
struct split_use {
    uint32_t mode;
    double rows[SPLIT_LEVELS_MAX]; /* where its rows in each level end; not whole */
    double bytes[SPLIT_LEVELS_MAX];
    double time_s;
    double cost; /* at the prices that it was made for */
};

/* Fills in the costs for a GPU whose seconds cost @weight. @byte_prices has level_count numbers. */
struct split_prices split_prices_of(const struct split_instance *x, uint32_t table, uint32_t gpu,
                                    double weight, const double *byte_prices);
/* Returns the use of a table in a mode. Mixed: at its cheapest cut. */
struct split_use split_use_of(const struct split_instance *x, uint32_t table, uint32_t mode,
                              const struct split_prices *prices);
/* The same, of the cheapest mode that is allowed on the GPU. */
struct split_use split_best_use(const struct split_instance *x, uint32_t table, uint32_t gpu,
                                const struct split_prices *prices);
/* Computes bytes and time from rows and mode. */
void split_use_count(const struct split_instance *x, uint32_t table, struct split_use *use);

/* The memory that a room belongs to. */
const struct model_memory *split_room_level(const struct split_instance *x, uint32_t room);
/* Writes a room's name for a message: "level 'HBM' of GPU 3", or "level 'DRAM'". */
void split_room_name(const struct split_instance *x, uint32_t room, char *ret_name,
                     size_t name_bytes);

#endif
