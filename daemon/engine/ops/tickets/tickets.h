/* SPDX-License-Identifier: Apache-2.0 */
/* tickets.h: the tickets of a lane's sessions (ticket.h): cast by casters, waiting for their push,
 * in use, and over. Thread: the home lane. */
#ifndef EMBTIER_DAEMON_ENGINE_OPS_TICKETS_TICKETS_H
#define EMBTIER_DAEMON_ENGINE_OPS_TICKETS_TICKETS_H

#include "daemon/engine/ops/op.h"
#include "daemon/engine/ops/tickets/ticket.h"

/* Has those groups of a ticket cast of which all is known: segments before @segment are. */
void tickets_cast(struct op_lane *lane, struct ticket *ticket, uint32_t segment);
/* On MESSAGE_CAST. */
void tickets_on_cast(struct op_lane *lane, struct ticket_group *group);
/* The client gets it, for the time a ticket has. */
MUST_CHECK enum embtier_err tickets_issue(struct op_lane *lane, struct ticket *ticket);
/* Takes it away from the client again. */
void tickets_take(struct op_lane *lane, struct ticket *ticket);
/* The client has it still, but a push uses it. */
void tickets_lend(struct op_lane *lane, struct ticket *ticket);
/* The push has not used it: the client has it as before. */
void tickets_give_back(struct op_lane *lane, struct ticket *ticket);
/* Nobody needs it any more. */
void tickets_end(struct op_lane *lane, struct ticket *ticket);
/* On MESSAGE_UNPINNED. */
void tickets_on_unpinned(struct op_lane *lane, struct ticket_lane *part);
/* Ends those whose time is over. Returns when that of the next is, or 0. */
uint64_t tickets_expire(struct op_lane *lane);
/* Ends all that a session has. */
void tickets_forget(struct op_lane *lane, struct session *session);

#endif
