/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/engine/ops/tickets/cast_queue.h"

#include <assert.h>

#include "base/macros.h"
#include "daemon/engine/ops/tickets/ticket.h"

void cast_queue_init(struct cast_queue *queue)
{
    *queue = (struct cast_queue){ .turns = { .root = NULL } };
    pthread_mutex_init(&queue->lock, NULL);
}

void cast_queue_destroy(struct cast_queue *queue)
{
    assert(turns_is_empty(&queue->turns));
    pthread_mutex_destroy(&queue->lock);
}

void cast_queue_put(struct cast_queue *queue, struct cast_line *line, struct ticket_group *group)
{
    group->message.next = NULL;
    pthread_mutex_lock(&queue->lock);
    if (line->first)
        line->last->next = &group->message;
    else
        line->first = &group->message;
    line->last = &group->message;
    turns_add(&queue->turns, &line->flow, 0);
    pthread_mutex_unlock(&queue->lock);
}

struct ticket_group *cast_queue_take(struct cast_queue *queue)
{
    struct ticket_group *group;
    struct turn_flow *flow;
    struct cast_line *line;

    pthread_mutex_lock(&queue->lock);
    flow = turns_begin(&queue->turns);
    assert(flow); /* the caller has counted it */
    line = CONTAINER_OF(flow, struct cast_line, flow);
    assert(line->first);
    group = CONTAINER_OF(line->first, struct ticket_group, message);
    line->first = line->first->next;
    turns_charge(&queue->turns, &line->flow, group->id_count);
    if (!line->first)
        turns_remove(&queue->turns, &line->flow);
    pthread_mutex_unlock(&queue->lock);
    return group;
}
