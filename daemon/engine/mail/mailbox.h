/* SPDX-License-Identifier: Apache-2.0 */
/* mailbox.h: the inbox of a lane or an RPC loop, and how its thread is woken when it sleeps.
 *
 * Readers, the writer, casters and other lanes hold a lane's mailbox, and nothing else of the lane.
 *
 * No wake-up is lost. The lane announces that it sleeps, then looks at its inbox once more. A
 * sender pushes, then checks if the lane sleeps. Both have a full barrier in between, so one of the
 * two sees the other. The event descriptor is watched edge-triggered and never read. */
#ifndef EMBTIER_DAEMON_ENGINE_MAIL_MAILBOX_H
#define EMBTIER_DAEMON_ENGINE_MAIL_MAILBOX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/macros.h"
#include "daemon/engine/mail/inbox.h"

struct mailbox {
    /* Written by other threads. On a cache line of their own. */
    _Alignas(CACHE_LINE) struct inbox inbox;
    _Atomic uint32_t asleep;
    /* Constant. */
    _Alignas(CACHE_LINE) int wake_fd; /* an event descriptor, non-blocking */
    const char *owner;                /* for the log: "lane" or "rpc"; and its number */
    uint32_t number;
};

/* @owner is borrowed. Fails with the system's error if there is no event descriptor. */
MUST_CHECK enum embtier_err mailbox_init(struct mailbox *mailbox, const char *owner,
                                         uint32_t number, struct err_msg *msg);
/* May be called after mailbox_init() has failed. */
void mailbox_destroy(struct mailbox *mailbox);

/* Any thread. Borrows @message until the lane has dealt with it. */
void mailbox_send(struct mailbox *mailbox, struct message *message);

/* The lane calls this before it sleeps. It must then look at its inbox once more. */
static inline void mailbox_sleeps(struct mailbox *mailbox)
{
    atomic_store_explicit(&mailbox->asleep, 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst); /* pairs with the fence in mailbox_send() */
}

/* The lane calls this when it has woken up. */
static inline void mailbox_wakes(struct mailbox *mailbox)
{
    atomic_store_explicit(&mailbox->asleep, 0, memory_order_relaxed);
}

#endif
