/* SPDX-License-Identifier: Apache-2.0 */
/* push_trial.h: finds out, before any row changes, if a push would make finite rows NaN or
 * infinite. Such a push is refused as a whole.
 *
 * The greatest gradient and weight of each segment are known when gradients have been searched.
 * With the number of gradients that a row gets, they bound its sum. Mostly that proves that all
 * rows stay finite (kernels/cpu/optimizer/finite.h), and nothing more is done. Otherwise the
 * table's rows are tried first (PUSH_TRYING). Waves like those of the update visit each row where
 * it lies, or have it read, and update a copy. A sum of gradients that is not finite is a failure
 * too, whatever the row. A client that adds up by itself (embtier_batch_coalesce()) is refused for
 * it as well. When all rows have been tried without a failure, the same rows are updated.
 *
 * Requests of the same session for these rows are done before the trial, or after the update.
 * Requests of other sessions may come between, and a client may overwrite its gradients. So tables
 * that were tried are updated by finite_update(), where a finite row that would not stay finite
 * saturates.
 *
 * The reported failure is the one in the first table's row with the lowest id. Waves are taken in
 * that order, and those that have been taken end. So it is the same with any number of lanes. */
#ifndef EMBTIER_DAEMON_ENGINE_OPS_PUSH_PUSH_TRIAL_H
#define EMBTIER_DAEMON_ENGINE_OPS_PUSH_PUSH_TRIAL_H

#include "daemon/engine/ops/push/push.h"

/* ---- The home lane ---- */

/* Called when all is cast; for a step, when the leader's ticket is. Decides for each group if its
 * rows are to be tried, and adds the cost to @cost. Returns true if some are. */
bool push_trial_plan(struct push *push, uint64_t *cost);
/* Ends the trial after all its waves. NONFINITE: a row failed. OK: the updating begins. */
MUST_CHECK enum embtier_err push_trial_end(struct push *push, struct refusal *ret_refusal);

/* ---- Any lane ---- */

/* Records that the row of @run of @group failed. */
void push_trial_fail(struct push *push, uint32_t group, uint32_t run);
static inline bool push_trial_has_failed(const struct push *push)
{
    return atomic_load_explicit(&push->failed, memory_order_relaxed) != PUSH_NONE_FAILED;
}

#endif
