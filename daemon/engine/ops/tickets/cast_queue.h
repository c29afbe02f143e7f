/* SPDX-License-Identifier: Apache-2.0 */
/* cast_queue.h: groups of tickets that wait for a caster (caster.h).
 *
 * Sessions share the caster by the number of pairs (turns.h). A session's groups are cast oldest
 * first, and a group of few pairs does not wait behind all groups of another session. Thread: any;
 * the lock is held for some tens of nanoseconds. */
#ifndef EMBTIER_DAEMON_ENGINE_OPS_TICKETS_CAST_QUEUE_H
#define EMBTIER_DAEMON_ENGINE_OPS_TICKETS_CAST_QUEUE_H

#include <pthread.h>

#include "daemon/engine/sessions/cast_line.h"
#include "daemon/engine/turns/turns.h"

struct ticket_group;

struct cast_queue {
    pthread_mutex_t lock;
    struct turns turns; /* the lines that have groups */
};

void cast_queue_init(struct cast_queue *queue);
/* The queue must be empty. */
void cast_queue_destroy(struct cast_queue *queue);
/* Adds a group. @line: the line of the group's session for this queue. */
void cast_queue_put(struct cast_queue *queue, struct cast_line *line, struct ticket_group *group);
/* Takes the group whose turn it is. The queue must have one. */
struct ticket_group *cast_queue_take(struct cast_queue *queue);

#endif
