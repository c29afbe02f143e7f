/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/split/split_draft.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum embtier_err split_draft_new(const struct split_instance *x, struct split_draft **ret_draft)
{
    _cleanup_(split_draft_freep) struct split_draft *d = calloc(1, sizeof(*d));

    if (!d)
        return EMBTIER_NO_MEMORY;
    d->x = x;
    d->largest_s = INFINITY;
    d->gpus = calloc(x->item_count, sizeof(*d->gpus));
    d->uses = calloc(x->table_count, sizeof(*d->uses));
    if (!d->gpus || !d->uses)
        return EMBTIER_NO_MEMORY;
    *ret_draft = TAKE(d);
    return EMBTIER_OK;
}

void split_draft_free(struct split_draft *draft)
{
    if (!draft)
        return;
    free(draft->gpus);
    free(draft->uses);
    free(draft);
}

void split_draft_copy(struct split_draft *to, const struct split_draft *from)
{
    uint32_t *const gpus = to->gpus;
    struct split_use *const uses = to->uses;

    memcpy(gpus, from->gpus, from->x->item_count * sizeof(*gpus));
    memcpy(uses, from->uses, from->x->table_count * sizeof(*uses));
    *to = *from;
    to->gpus = gpus;
    to->uses = uses;
}

struct split_prices split_draft_prices(const struct split_draft *d, uint32_t table, uint32_t gpu)
{
    const struct split_instance *const x = d->x;
    double byte_prices[SPLIT_LEVELS_MAX];

    for (uint32_t m = 0; m < x->level_count; m++)
        byte_prices[m] = d->prices_byte[split_room(x, m, gpu)];
    return split_prices_of(x, table, gpu, d->weights[gpu], byte_prices);
}

/* ---- modes ---- */

bool split_draft_choose_modes(struct split_draft *d)
{
    bool changed = false;

    for (uint32_t i = 0; i < d->x->table_count; i++) {
        const struct split_prices prices = split_draft_prices(d, i, split_draft_gpu(d, i));
        const struct split_use best = split_best_use(d->x, i, split_draft_gpu(d, i), &prices);

        changed |= best.mode != d->uses[i].mode;
        d->uses[i] = best;
    }
    return changed;
}

/* The cheapest use of a table that is whole in a slower level or the rest, or mixed. Its cost is
 * INFINITY if it has none. */
static struct split_use other_use(const struct split_draft *d, uint32_t table, uint32_t level)
{
    const struct split_prices prices = split_draft_prices(d, table, split_draft_gpu(d, table));
    struct split_use best = { .cost = INFINITY };

    for (uint32_t mode = level + 1; mode <= SPLIT_MIXED; mode++)
        if (split_allows(d->x, table, split_draft_gpu(d, table), mode)) {
            const struct split_use use = split_use_of(d->x, table, mode, &prices);

            if (use.cost < best.cost)
                best = use;
        }
    return best;
}

/* Finds the whole table in the room that loses least by leaving it, for each byte. False: none can
 * leave. */
static bool find_leaver(const struct split_draft *d, uint32_t level, uint32_t room,
                        uint32_t *ret_table, struct split_use *ret_use)
{
    double least = INFINITY;

    for (uint32_t i = 0; i < d->x->table_count; i++) {
        struct split_use other;
        double loss;

        if (d->uses[i].mode != level || split_room(d->x, level, split_draft_gpu(d, i)) != room)
            continue;
        other = other_use(d, i, level);
        loss = (other.time_s - d->uses[i].time_s) / d->x->curves[i].whole_bytes;
        if (!isinf(other.cost) && loss < least) {
            least = loss;
            *ret_table = i;
            *ret_use = other;
        }
    }
    return !isinf(least);
}

static double whole_bytes(const struct split_draft *d, uint32_t level, uint32_t room)
{
    double bytes = 0;

    for (uint32_t i = 0; i < d->x->table_count; i++)
        if (d->uses[i].mode == level && split_room(d->x, level, split_draft_gpu(d, i)) == room)
            bytes += d->x->curves[i].whole_bytes;
    return bytes;
}

bool split_draft_make_room(struct split_draft *d)
{
    const struct split_instance *const x = d->x;

    for (uint32_t m = 0; m < x->level_count; m++)
        for (uint32_t g = 0; g < (m == x->private_level ? x->gpu_count : 1); g++) {
            const uint32_t room = split_room(x, m, g);
            double bytes = whole_bytes(d, m, room);

            while (bytes > (double)x->room_bytes[room]) {
                struct split_use use = { 0 };
                uint32_t table = 0;

                if (!find_leaver(d, m, room, &table, &use))
                    return false;
                d->uses[table] = use;
                bytes -= x->curves[table].whole_bytes;
            }
        }
    return true;
}
