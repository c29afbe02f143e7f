/* SPDX-License-Identifier: Apache-2.0 */
/* prefetch.h: a prefetch under way: rows of batches to come are brought in and pinned (MTrainS,
 * section 5.7).
 *
 * A prefetch has the ids, the casting and the waves of a push of rows (push.h), so it is a struct
 * push. Nothing changes: there are no gradients, no optimizer and no group. The ticket made of its
 * ids stays, to say which rows are pinned.
 *
 *   PUSH_IDS      ids are copied and checked, and cast, to have each row once
 *   PUSH_CASTING  until the casters are done, and the user has room for so many pins
 *   PUSH_UPDATING waves, whose rows are pinned by their lanes (prefetch_rows.c)
 *
 * Thread: the home lane. */
#ifndef EMBTIER_DAEMON_ENGINE_OPS_PREFETCH_PREFETCH_H
#define EMBTIER_DAEMON_ENGINE_OPS_PREFETCH_PREFETCH_H

#include "daemon/engine/ops/push/push.h"

/* Begins a prefetch for begin() of struct op; same contract. */
MUST_CHECK enum embtier_err prefetch_begin(const struct request_rules *rules,
                                           struct session *session, uint32_t number,
                                           const struct op_submission *submission,
                                           struct push **ret_prefetch, struct refusal *ret_refusal);

#endif
