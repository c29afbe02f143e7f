/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "daemon/jobs/checkpoint/checkpoint_restore.h"
#include "daemon/jobs/checkpoint/checkpoints_state.h"
#include "store/catalog.h"
#include "store/store.h"

#define PUBLISH_TRIES 2

/* So that nobody uses what a crash would empty, or begins again at a step that nothing tells. */
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
    /* What has been written is worth more than one search for a moment without updates. */
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

enum embtier_err checkpoints_restore(struct checkpoints *c, const struct restore_order *order,
                                     const struct progress_sink *progress,
                                     struct restored_tables *ret_restored, struct err_msg *msg)
{
    enum embtier_err err;

    *ret_restored = (struct restored_tables){ 0 };
    TRY(checkpoints_begin_use(c, order->id, msg));
    err = checkpoint_restore(store_shelf(c->opts.store), c->opts.tables, c->opts.memory, order,
                             progress, ret_restored, msg);
    checkpoints_end_use(c, order->id);
    TRY(err);
    /* More tables may be wanted of it. */
    return checkpoints_publish(c, ret_restored->infos, ret_restored->count,
                               &(struct checkpoint_order){ .automatic = true, .keep_all = true },
                               progress, msg);
}

static void log_other(const struct checkpoint_info *info)
{
    char step[24] = "none";

    if (info->has_step)
        snprintf(step, sizeof(step), "%" PRIu64, info->step);
    log_warn("tables are made as they were when this checkpoint of the other store was made, what "
             "was updated there since is not in it",
             "checkpoint=%" PRIu64 " step=%s made_seconds_ago=%" PRIu64, info->id, step,
             clock_since(clock_wall_ms(), info->created_ms) / 1000);
}

enum embtier_err checkpoints_restore_other(struct checkpoints *c,
                                           const struct other_checkpoint *other,
                                           const struct progress_sink *progress,
                                           struct restored_tables *ret_restored,
                                           struct err_msg *msg)
{
    const struct restore_order order = { .id = other->record->info.id, .keeps_owners = true };
    struct checkpoint_order how = { 0 };

    *ret_restored = (struct restored_tables){ 0 };
    log_other(&other->record->info);
    checkpoint_order_carry_over(&other->record->info, &how);
    TRY(checkpoint_restore(&other->shelf, c->opts.tables, c->opts.memory, &order, progress,
                           ret_restored, msg));
    return checkpoints_publish(c, ret_restored->infos, ret_restored->count, &how, progress, msg);
}
