/* SPDX-License-Identifier: Apache-2.0 */
/* caster.h: a thread that casts groups of tickets (ticket.h), oldest first, so that lanes do not
 * have to: a group may have a million pairs, and a trainer has a forward pass of time. One per
 * lane; what tickets need is dealt out to all of them. */
#ifndef EMBTIER_DAEMON_CASTER_H
#define EMBTIER_DAEMON_CASTER_H

#include <stdint.h>

#include "base/err.h"

struct caster;
struct ticket_group;

/* Casts groups of up to @pairs_max pairs, for which it reserves memory. */
MUST_CHECK enum embtier_err caster_new(uint32_t index, uint64_t pairs_max,
                                       struct caster **ret_caster, struct err_msg *msg);
/* No group is with it. */
void caster_free(struct caster *caster);
DEFINE_CLEANUP(struct caster, caster_free)

/* Any thread. The group comes back to its ticket's home lane as MESSAGE_CAST. */
void caster_send(struct caster *caster, struct ticket_group *group);
/* Any thread: time spent casting. */
uint64_t caster_busy_ns(const struct caster *caster);

#endif
