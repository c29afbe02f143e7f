/* SPDX-License-Identifier: Apache-2.0 */
/* Makes finished tables live, after a checkpoint if only that makes them safe from a crash. */
#include <stdlib.h>

#include "daemon/jobs/checkpoint/checkpoints_state.h"
#include "store/catalog.h"
#include "store/store.h"

#define PUBLISH_TRIES 2

/* Makes a checkpoint if one is needed. Without it a crash could empty tables that clients use, and
 * a trainer could not learn the step to begin again from. */
static enum embtier_err make_safe(struct checkpoints *c, const struct table_info *infos,
                                  uint32_t count, const struct checkpoint_order *how,
                                  const struct progress_sink *progress, struct err_msg *msg)
{
    _cleanup_(freep) uint32_t *ids = calloc((size_t)count + 1, sizeof(*ids));
    const struct catalog_made made = { .table_ids = ids, .count = count };
    struct checkpoint_order order = *how;
    struct checkpoint_info info;
    enum embtier_err err;
    bool is_safe = !how->has_step && how->metadata[0] == '\0';
    uint32_t tries = 0;

    if (!ids)
        return err_set(msg, EMBTIER_NO_MEMORY, "checkpoints: out of memory");
    for (uint32_t i = 0; i < count; i++) {
        ids[i] = infos[i].table_id;
        is_safe = is_safe && infos[i].spec.durability != EMBTIER_DURABILITY_REPLAY;
    }
    if (is_safe)
        return EMBTIER_OK;
    order.made = &made;
    /* All rows are written already: that is worth more than one search for a
     * moment without updates. */
    do
        err = checkpoints_make(c, &order, progress, &info, msg);
    while (err == EMBTIER_BUSY && ++tries < PUBLISH_TRIES);
    return err;
}

enum embtier_err checkpoints_publish(struct checkpoints *c, struct table_info *infos,
                                     uint32_t count, const struct checkpoint_order *how,
                                     const struct progress_sink *progress, struct err_msg *msg)
{
    enum embtier_err err = make_safe(c, infos, count, how, progress, msg);

    if (err == EMBTIER_OK)
        err = tables_publish(c->opts.tables, infos, count, msg);
    if (err != EMBTIER_OK)
        tables_abandon(c->opts.tables, infos, count);
    return err;
}
