/* SPDX-License-Identifier: Apache-2.0 */
/* caster.h: a thread that casts groups of tickets (ticket.h), so that lanes do not have to. A group
 * may have a million pairs, and the trainer's forward pass leaves time for it. There is one caster
 * per lane; the groups of a ticket are dealt out to all of them.
 *
 * Sessions share it by the number of pairs (cast_queue.h). A group of few pairs is not sent here:
 * its lane casts it at once, in less time than sending it takes. So it never waits for large
 * groups. */
#ifndef EMBTIER_DAEMON_ENGINE_OPS_TICKETS_CASTER_H
#define EMBTIER_DAEMON_ENGINE_OPS_TICKETS_CASTER_H

#include <stdint.h>

#include "base/err.h"
#include "daemon/engine/ops/tickets/cast_queue.h"

struct caster;
struct ticket_group;

/* The most pairs that are few. */
#define CASTER_FEW_PAIRS 256

/* Makes a caster for groups of up to @pairs_max pairs, and reserves memory for them. */
MUST_CHECK enum embtier_err caster_new(uint32_t index, uint64_t pairs_max,
                                       struct caster **ret_caster, struct err_msg *msg);
/* The caster must have no group. */
void caster_free(struct caster *caster);
DEFINE_CLEANUP(struct caster, caster_free)

/* Sends a group from any thread. @line: the line of the group's session for this caster. The group
 * comes back to its ticket's home lane as message_cast. */
void caster_send(struct caster *caster, struct cast_line *line, struct ticket_group *group);
/* Returns the time spent casting. Any thread. */
uint64_t caster_busy_ns(const struct caster *caster);

#endif
