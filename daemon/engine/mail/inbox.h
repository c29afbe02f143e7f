/* SPDX-License-Identifier: Apache-2.0 */
/* inbox.h: messages from any thread to one thread, a lane or the control thread.
 *
 * The inbox is a stack. A producer pushes with one compare-and-swap. The owner takes the whole
 * stack with one exchange and reverses it, so messages of one producer arrive in the order they
 * were sent. No thread ever waits. Messages are embedded in their subjects (a part, a read job, a
 * call), so nothing is allocated. A message names its kind, which deals with it.
 *
 * The owner sees all bytes of a message (release on push, acquire on take). */
#ifndef EMBTIER_DAEMON_ENGINE_MAIL_INBOX_H
#define EMBTIER_DAEMON_ENGINE_MAIL_INBOX_H

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/macros.h"

struct control;
struct lane;
struct op_lane;
struct rows;
struct rpc_host;

/* The thread that takes messages, as the parts of it that handlers know. NULL: it has no such part,
 * so it must not get messages for it. */
struct receiver {
    struct rows *rows;
    struct op_lane *ops;
    struct lane *lane;
    struct control *control;
    struct rpc_host *rpc_host;
};

struct message;

/* A kind of message is one such struct, defined beside its handler. It is declared with the struct
 * that the message is embedded in, or where the message is sent. Nothing else knows the kinds. */
struct message_kind {
    /* Deals with the message, which may be gone afterwards. */
    void (*take)(const struct receiver *to, struct message *message);
    /* Called instead when the receiver has ended; NULL: there is nothing to free. */
    void (*drop)(const struct receiver *to, struct message *message);
};

struct message {
    struct message *next;
    const struct message_kind *kind; /* set before it is sent */
};

/* Defines @handler for messages that are the @member of a struct @type: calls @fn with the
 * receiver's @part and that struct. */
#define MESSAGE_HANDLER(handler, fn, part, type, member)                                           \
    static void handler(const struct receiver *to, struct message *message)                        \
    {                                                                                              \
        assert(to->part);                                                                          \
        fn(to->part, CONTAINER_OF(message, type, member));                                         \
    }
/* Defines the kind @name with such a handler. */
#define MESSAGE_KIND(name, fn, part, type, member)                                                 \
    MESSAGE_HANDLER(name##_take, fn, part, type, member)                                           \
    const struct message_kind name = { .take = name##_take };

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
