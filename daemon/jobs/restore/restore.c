/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/jobs/restore/restore.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log/log.h"
#include "daemon/engine/tables/progress.h"
#include "daemon/engine/tables/tables.h"
#include "daemon/jobs/checkpoint/checkpoints.h"
#include "store/checkpoint/checkpoint_record.h"
#include "store/store.h"

#define PROGRESS_INTERVAL_NS (UINT64_C(1000) * 1000 * 1000) /* between two lines of the log */

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

/* A restore at the start. */
struct watched {
    struct checkpoints *checkpoints;
    const struct restore_watch *watch;
    uint64_t told_ns;
};

/* Logs the progress now and then. */
static void on_progress(void *context, uint64_t done, uint64_t total, const char *unit)
{
    struct watched *const watched = context;
    const uint64_t now_ns = clock_now_ns(&clock_monotonic);

    if (watched->watch->wants_stop(watched->watch->context)) {
        tables_stop(checkpoints_tables(watched->checkpoints));
        checkpoints_stop(watched->checkpoints);
    }
    if (now_ns - watched->told_ns < PROGRESS_INTERVAL_NS)
        return;
    watched->told_ns = now_ns;
    log_info("restoring tables from another store's checkpoint",
             "done=%" PRIu64 " of=%" PRIu64 " what=%s", done, total, unit);
}

static enum embtier_err restore_and_publish(struct checkpoints *c,
                                            const struct other_checkpoint *other,
                                            const struct progress_sink *progress,
                                            struct restored_tables *restored, struct err_msg *msg)
{
    const struct restore_order order = { .id = other->record->info.id, .keeps_owners = true };
    struct checkpoint_order how = { 0 };

    checkpoint_order_carry_over(&other->record->info, &how);
    TRY(checkpoint_restore(&other->shelf, checkpoints_tables(c), checkpoints_memory(c), &order,
                           progress, restored, msg));
    return checkpoints_publish(c, restored->infos, restored->count, &how, progress, msg);
}

enum embtier_err restore_other_checkpoint(struct checkpoints *c,
                                          const struct other_checkpoint *other,
                                          const struct restore_watch *watch, struct err_msg *msg)
{
    const uint64_t began_ns = clock_now_ns(&clock_monotonic);
    struct watched watched = { .checkpoints = c, .watch = watch, .told_ns = began_ns };
    const struct progress_sink progress = { .report = on_progress, .context = &watched };
    struct restored_tables restored = { 0 };
    enum embtier_err err;

    log_other(&other->record->info);
    err = restore_and_publish(c, other, &progress, &restored, msg);
    if (err == EMBTIER_OK)
        log_info("tables were restored from the other store's checkpoint",
                 "tables=%u spent_ms=%" PRIu64, restored.count,
                 (clock_now_ns(&clock_monotonic) - began_ns) / 1000000);
    free(restored.infos);
    return err;
}
