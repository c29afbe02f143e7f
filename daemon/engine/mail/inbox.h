/* SPDX-License-Identifier: Apache-2.0 */
/* inbox.h: messages from any thread to one thread, a lane or the control thread.
 *
 * The inbox is a stack. A producer pushes with one compare-and-swap. The owner takes the whole
 * stack with one exchange and reverses it, so messages of one producer arrive in the order they
 * were sent. No thread ever waits. Messages are embedded in their subjects (a part, a read job, a
 * call), so nothing is allocated.
 *
 * The owner sees all bytes of a message (release on push, acquire on take). */
#ifndef EMBTIER_DAEMON_ENGINE_MAIL_INBOX_H
#define EMBTIER_DAEMON_ENGINE_MAIL_INBOX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum message_kind {
    /* To a lane. */
    MESSAGE_PART,         /* struct part: do your share of a request */
    MESSAGE_REQUEST_DONE, /* struct request: every lane has done its part; to the home lane */
    MESSAGE_ADD_UP,       /* struct request of a wave (pooled.h): add up its rows */
    MESSAGE_ADDED_UP,     /* the same: done; to the home lane */
    MESSAGE_UNPIN,        /* struct ticket_lane: unpin the rows that this lane has pinned for it */
    MESSAGE_UNPINNED,     /* the same: done; to the home lane */
    MESSAGE_CAST,         /* struct ticket_group: its caster has cast it */
    MESSAGE_LEAD, /* struct push: the group's pushes have all arrived; to member 0's home lane */
    MESSAGE_STEP_DONE, /* struct push: the group is done with it; to its home lane */
    MESSAGE_READ_DONE, /* struct read_job */
    MESSAGE_MEMORY,    /* struct session: it has got the request memory that it waited for */
    MESSAGE_WRITTEN,   /* struct write_queue: rows have reached RocksDB */
    MESSAGE_ATTACH,    /* struct session: serve it */
    MESSAGE_DETACH,    /* struct session: forget it, tell the control thread */
    MESSAGE_CALL,      /* struct lane_call: run a function on the lane */

    /* To the control thread. */
    MESSAGE_SESSION_MADE,   /* struct session_order */
    MESSAGE_SESSION_GONE,   /* struct session: its home lane has let go of it */
    MESSAGE_SESSION_BROKEN, /* struct session: it broke the protocol */
    MESSAGE_CHANNEL_FREED,  /* struct transport_channel: its memory has been freed */
    MESSAGE_JOB_PROGRESS,   /* struct job */
    MESSAGE_JOB_DONE,       /* struct job */
};

struct message {
    struct message *next;
    enum message_kind kind;
};

struct inbox {
    _Atomic(struct message *) newest;
};

/* Any thread. */
static inline void inbox_push(struct inbox *inbox, struct message *message)
{
    struct message *seen = atomic_load_explicit(&inbox->newest, memory_order_relaxed);

    do {
        message->next = seen;
    } while (!atomic_compare_exchange_weak_explicit(&inbox->newest, &seen, message,
                                                    memory_order_release, memory_order_relaxed));
}

/* Owner only. Cheap when the inbox is empty. */
static inline bool inbox_is_empty(const struct inbox *inbox)
{
    return atomic_load_explicit(&inbox->newest, memory_order_relaxed) == NULL;
}

/* Owner only. Returns all messages, oldest first, linked by `next`, or NULL. */
static inline struct message *inbox_take_all(struct inbox *inbox)
{
    struct message *newest = atomic_exchange_explicit(&inbox->newest, NULL, memory_order_acquire);
    struct message *oldest = NULL;

    while (newest) {
        struct message *next = newest->next;

        newest->next = oldest;
        oldest = newest;
        newest = next;
    }
    return oldest;
}

#endif
