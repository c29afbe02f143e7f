/* SPDX-License-Identifier: Apache-2.0 */
/* pooled_turns.h: adds up waves of pooled lookups, on any lane. */
#ifndef EMBTIER_DAEMON_ENGINE_OPS_POOLED_POOLED_TURNS_H
#define EMBTIER_DAEMON_ENGINE_OPS_POOLED_POOLED_TURNS_H

#include "daemon/engine/ops/op.h"

/* A wave whose rows are there: to any lane, which adds it up. */
extern const struct message_kind message_add_up;
/* The wave has been added up: to the home lane. */
extern const struct message_kind message_added_up;

/* Adds up some of a session's wave. */
void pooled_add_up_turn(struct op_lane *lane, struct session_lane *side);

#endif
