/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/jobs/restore/restore.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/log/log.h"
#include "daemon/jobs/checkpoint/checkpoints.h"
#include "store/checkpoint/checkpoint_record.h"
#include "store/store.h"

enum embtier_err restore_checkpoint(struct checkpoints *c, const struct restore_order *order,
                                    const struct progress_sink *progress,
                                    struct restored_tables *ret_restored, struct err_msg *msg)
{
    enum embtier_err err;

    *ret_restored = (struct restored_tables){ 0 };
    TRY(checkpoints_begin_use(c, order->id, msg));
    err = checkpoint_restore(store_shelf(checkpoints_store(c)), checkpoints_tables(c),
                             checkpoints_memory(c), order, progress, ret_restored, msg);
    checkpoints_end_use(c, order->id);
    TRY(err);
    /* Keeps all checkpoints, because more tables of this one may be wanted. */
    return checkpoints_publish(c, ret_restored->infos, ret_restored->count,
                               &(struct checkpoint_order){ .automatic = true, .keep_all = true },
                               progress, msg);
}

static void log_other(const struct checkpoint_info *info)
{
    char step[24] = "none";

    if (info->has_step)
        snprintf(step, sizeof(step), "%" PRIu64, info->step);
    log_warn("restoring tables from this checkpoint of the other store; later updates there are "
             "not in it",
             "checkpoint=%" PRIu64 " step=%s made_seconds_ago=%" PRIu64, info->id, step,
             clock_since(clock_wall_ms(), info->created_ms) / 1000);
}

enum embtier_err restore_other_checkpoint(struct checkpoints *c,
                                          const struct other_checkpoint *other,
                                          const struct progress_sink *progress,
                                          struct restored_tables *ret_restored, struct err_msg *msg)
{
    const struct restore_order order = { .id = other->record->info.id, .keeps_owners = true };
    struct checkpoint_order how = { 0 };

    *ret_restored = (struct restored_tables){ 0 };
    log_other(&other->record->info);
    checkpoint_order_carry_over(&other->record->info, &how);
    TRY(checkpoint_restore(&other->shelf, checkpoints_tables(c), checkpoints_memory(c), &order,
                           progress, ret_restored, msg));
    return checkpoints_publish(c, ret_restored->infos, ret_restored->count, &how, progress, msg);
}
