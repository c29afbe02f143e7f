/* SPDX-License-Identifier: Apache-2.0 */
/* group_turns.h: pushes that are parts of a group's step, on their home lanes. See group.h. */
#ifndef EMBTIER_DAEMON_ENGINE_OPS_GROUPS_GROUP_TURNS_H
#define EMBTIER_DAEMON_ENGINE_OPS_GROUPS_GROUP_TURNS_H

#include "daemon/engine/ops/op.h"
#include "daemon/engine/ops/push/push.h"

/* Goes on with a push of a group's step that is ready. */
void step_turn(struct op_lane *lane, struct push *push);
/* Called when something else of the session is done: a push may have waited for that. */
void step_settle(struct op_lane *lane, struct session *session);
/* Ends the group's part of a push that is over, and the step if the push leads. */
void step_end(struct op_lane *lane, struct push *push);

#endif
