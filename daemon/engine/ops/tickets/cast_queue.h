/* SPDX-License-Identifier: Apache-2.0 */
/* cast_queue.h: groups of tickets that wait for a caster (caster.h).
 *
 * Sessions share the caster by the number of pairs (turns.h): a session's groups are cast oldest
 * first, and one of few pairs does not wait behind all of another session's. Thread: any; the lock
 * is held for some tens of nanoseconds. */
#ifndef EMBTIER_DAEMON_ENGINE_OPS_TICKETS_CAST_QUEUE_H
#define EMBTIER_DAEMON_ENGINE_OPS_TICKETS_CAST_QUEUE_H

#include <pthread.h>

#include "daemon/engine/sessions/cast_line.h"
#include "daemon/engine/turns/turns.h"

struct ticket_group;

struct cast_queue {
    pthread_mutex_t lock;
    struct turns turns; /* of lines that have groups */
};

void cast_queue_init(struct cast_queue *queue);
/* It is empty. */
void cast_queue_destroy(struct cast_queue *queue);
/* @line: of the group's session, for this queue. */
void cast_queue_put(struct cast_queue *queue, struct cast_line *line, struct ticket_group *group);
/* Takes the group whose turn it is. There is one. */
struct ticket_group *cast_queue_take(struct cast_queue *queue);

#endif
