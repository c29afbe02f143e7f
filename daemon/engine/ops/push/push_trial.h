/* SPDX-License-Identifier: Apache-2.0 */
/* push_trial.h: whether a push would make finite rows NaN or infinite, found out before any row
 * changes. A push that would is refused whole.
 *
 * The greatest gradient and weight of each segment are known when gradients have been looked
 * through. With the number of gradients that a row gets they bound its sum, and mostly that proves
 * that all rows stay finite (kernels/cpu/optimizer/finite.h): then nothing more is done. The rows
 * of tables for which it does not are tried first (PUSH_TRYING): waves as those of the update visit
 * each row where it lies, or have it read, and update a copy. A sum of gradients that is not finite
 * is a failure too, whatever the row: a client that adds up by itself (embtier_batch_coalesce()) is
 * refused for it. When all have been tried without a failure the same rows are updated.
 *
 * Requests of the same session for these rows are done before the trial, or after the update. Those
 * of other sessions may come between, and so may a client that writes over its gradients. So tables
 * that were tried are updated by finite_update(): there a finite row that would not stay finite
 * saturates.
 *
 * The failure that is told is that of the first table's row with the lowest id: waves are taken in
 * that order, and those that have been taken end. So it is the same with any number of lanes. */
#ifndef EMBTIER_DAEMON_ENGINE_OPS_PUSH_PUSH_TRIAL_H
#define EMBTIER_DAEMON_ENGINE_OPS_PUSH_PUSH_TRIAL_H

#include "daemon/engine/ops/push/push.h"

/* ---- The home lane ---- */

/* When all is cast; of a step, of the leader, when its ticket is. Says of each group whether its
 * rows are to be tried, and adds to @cost what it took to find out. Returns whether some are. */
bool push_trial_plan(struct push *push, uint64_t *cost);
/* All waves of it have ended. NONFINITE: a row failed. Else the updating begins. */
MUST_CHECK enum embtier_err push_trial_end(struct push *push, struct refusal *ret_refusal);

/* ---- Any lane ---- */

/* The row of the @run of @group fails. */
void push_trial_fail(struct push *push, uint32_t group, uint32_t run);
static inline bool push_trial_has_failed(const struct push *push)
{
    return atomic_load_explicit(&push->failed, memory_order_relaxed) != PUSH_NONE_FAILED;
}

#endif
