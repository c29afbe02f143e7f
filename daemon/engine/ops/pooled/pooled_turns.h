/* SPDX-License-Identifier: Apache-2.0 */
/* pooled_turns.h: adds up waves of pooled lookups, on any lane. */
#ifndef EMBTIER_DAEMON_ENGINE_OPS_POOLED_POOLED_TURNS_H
#define EMBTIER_DAEMON_ENGINE_OPS_POOLED_POOLED_TURNS_H

#include "daemon/engine/ops/op.h"

/* On MESSAGE_ADD_UP, on any lane: queues a wave to be added up. Each turn adds up some of it; with
 * the last of it, the wave goes home. */
void pooled_add_up(struct op_lane *lane, struct request *request);
void pooled_add_up_turn(struct op_lane *lane, struct session_lane *side);
/* On MESSAGE_ADDED_UP, on the home lane. */
void pooled_on_added_up(struct op_lane *lane, struct request *request);

#endif
