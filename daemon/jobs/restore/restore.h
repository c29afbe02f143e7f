/* SPDX-License-Identifier: Apache-2.0 */
/* restore.h: makes tables of a checkpoint live again (checkpoint_restore.h). Thread: the job's, or
 * for another store that of the start. */
#ifndef EMBTIER_DAEMON_JOBS_RESTORE_RESTORE_H
#define EMBTIER_DAEMON_JOBS_RESTORE_RESTORE_H

#include <stdbool.h>

#include "base/err.h"
#include "daemon/jobs/restore/checkpoint_restore.h"

struct checkpoints;
struct progress_sink;

/* Restores all tables of the order, or none. Errors: those of checkpoint_restore() and
 * checkpoints_publish(). */
MUST_CHECK enum embtier_err restore_checkpoint(struct checkpoints *checkpoints,
                                               const struct restore_order *order,
                                               const struct progress_sink *progress,
                                               struct restored_tables *ret_restored,
                                               struct err_msg *msg);
/* Ends a restore at the start. */
struct restore_watch {
    bool (*wants_stop)(void *context); /* called often; it must be quick */
    void *context;
};
/* Does the same for all tables of another store's checkpoint, before any client is served. The log
 * tells how far it is. If @watch wants a stop, tables and checkpoints are stopped too
 * (tables_stop(), checkpoints_stop()). */
MUST_CHECK enum embtier_err restore_other_checkpoint(struct checkpoints *checkpoints,
                                                     const struct other_checkpoint *other,
                                                     const struct restore_watch *watch,
                                                     struct err_msg *msg);

#endif
