/* SPDX-License-Identifier: Apache-2.0 */
/* pooled_turns.h: waves of pooled lookups that are added up, on any lane. */
#ifndef EMBTIER_DAEMON_ENGINE_OPS_POOLED_POOLED_TURNS_H
#define EMBTIER_DAEMON_ENGINE_OPS_POOLED_POOLED_TURNS_H

#include "daemon/engine/ops/op.h"

/* Any lane, on MESSAGE_ADD_UP: a wave is to be added up; some of it is in a turn, and with the last
 * it is sent home. */
void pooled_add_up(struct op_lane *lane, struct request *request);
void pooled_add_up_turn(struct op_lane *lane, struct session_lane *side);
/* The home lane, on MESSAGE_ADDED_UP. */
void pooled_on_added_up(struct op_lane *lane, struct request *request);

#endif
