/* SPDX-License-Identifier: Apache-2.0 */
/* tickets.h: the tickets of a lane's sessions (ticket.h): being cast, waiting for their push, in
 * use, and over. Thread: the home lane. */
#ifndef EMBTIER_DAEMON_ENGINE_OPS_TICKETS_TICKETS_H
#define EMBTIER_DAEMON_ENGINE_OPS_TICKETS_TICKETS_H

#include "daemon/engine/ops/op.h"
#include "daemon/engine/ops/tickets/ticket.h"

/* Has the groups of a ticket cast whose segments are all known: segments before @segment are. */
void tickets_cast(struct op_lane *lane, struct ticket *ticket, uint32_t segment);
/* Gives a ticket to the client, for the time a ticket has. */
MUST_CHECK enum embtier_err tickets_issue(struct op_lane *lane, struct ticket *ticket);
/* Takes a ticket away from the client again. */
void tickets_take(struct op_lane *lane, struct ticket *ticket);
/* Lends a ticket to a push; the client still has it. */
void tickets_lend(struct op_lane *lane, struct ticket *ticket);
/* Ends the loan of a ticket that the push has not used: the client has it as before. */
void tickets_give_back(struct op_lane *lane, struct ticket *ticket);
/* Ends a ticket that no request needs any more. */
void tickets_end(struct op_lane *lane, struct ticket *ticket);
/* Ends the tickets whose time is over. Returns the time when the next one expires, or 0. */
uint64_t tickets_expire(struct op_lane *lane);
/* Ends all tickets that a session has. */
void tickets_forget(struct op_lane *lane, struct session *session);

#endif
