/* SPDX-License-Identifier: Apache-2.0 */
/* caster.h: a thread that casts groups of tickets (ticket.h), so that lanes do not have to: a group
 * may have a million pairs, and a trainer has a forward pass of time. One per lane; what tickets
 * need is dealt out to all of them.
 *
 * Sessions share it by the number of pairs (cast_queue.h). A group of few pairs is not sent here:
 * its lane casts it at once, in less time than it takes to send it, so it never waits for large
 * ones. */
#ifndef EMBTIER_DAEMON_ENGINE_OPS_TICKETS_CASTER_H
#define EMBTIER_DAEMON_ENGINE_OPS_TICKETS_CASTER_H

#include <stdint.h>

#include "base/err.h"
#include "daemon/engine/ops/tickets/cast_queue.h"

struct caster;
struct ticket_group;

/* As many pairs at most are few. */
#define CASTER_FEW_PAIRS 256

/* Casts groups of up to @pairs_max pairs, for which it reserves memory. */
MUST_CHECK enum embtier_err caster_new(uint32_t index, uint64_t pairs_max,
                                       struct caster **ret_caster, struct err_msg *msg);
/* No group is with it. */
void caster_free(struct caster *caster);
DEFINE_CLEANUP(struct caster, caster_free)

/* Any thread. @line: of the group's session, for this caster. The group comes back to its ticket's
 * home lane as MESSAGE_CAST. */
void caster_send(struct caster *caster, struct cast_line *line, struct ticket_group *group);
/* Any thread: time spent casting. */
uint64_t caster_busy_ns(const struct caster *caster);

#endif
