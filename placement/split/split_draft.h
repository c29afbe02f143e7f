/* SPDX-License-Identifier: Apache-2.0 */
/* split_draft.h: a row-wise placement that is being changed: a GPU for each item, a mode for each
 * table, and cuts that are not yet whole rows. Thread: any. */
#ifndef EMBTIER_PLACEMENT_SPLIT_SPLIT_DRAFT_H
#define EMBTIER_PLACEMENT_SPLIT_SPLIT_DRAFT_H

#include "placement/split/split_instance.h"

struct split_draft {
    const struct split_instance *x; /* borrowed */
    uint32_t *gpus;                 /* item_count */
    struct split_use *uses;         /* table_count */
    /* Those that the cuts were made with. */
    double weights[MODEL_GPUS_MAX];
    double prices_byte[SPLIT_ROOMS_MAX];
    double largest_s; /* INFINITY: it has no cuts yet, or they do not fit */
};

MUST_CHECK enum embtier_err split_draft_new(const struct split_instance *x,
                                            struct split_draft **ret_draft);
void split_draft_free(struct split_draft *draft);
DEFINE_CLEANUP(struct split_draft, split_draft_free)
void split_draft_copy(struct split_draft *to, const struct split_draft *from);

static inline uint32_t split_draft_gpu(const struct split_draft *d, uint32_t table)
{
    return d->gpus[d->x->items[table]];
}

/* The prices that the draft has for a table on a GPU. */
struct split_prices split_draft_prices(const struct split_draft *d, uint32_t table, uint32_t gpu);

/* Takes for each table the mode that is cheapest at the draft's prices. Returns whether a mode has
 * changed. */
bool split_draft_choose_modes(struct split_draft *d);
/* Changes the modes of whole tables that overfill a room, those first that gain least from it.
 * False: no change helps. */
bool split_draft_make_room(struct split_draft *d);

#endif
