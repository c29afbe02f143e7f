/* SPDX-License-Identifier: Apache-2.0 */
/* session_maker.h: makes and frees sessions' channels off the control thread, whatever their
 * transport. The system takes some tenths of a second to reserve or free a GiB.
 *
 * One thread makes, in steps of SESSION_STEP_BYTES. After each step another user's session has its
 * turn, so that a GiB holds up no other user's MiB, however many such sessions one user asks for.
 * One thread frees.
 *
 * Thread: the control thread, which is told through @send. */
#ifndef EMBTIER_DAEMON_TRANSPORT_SESSION_MAKER_H
#define EMBTIER_DAEMON_TRANSPORT_SESSION_MAKER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "daemon/engine/mail/inbox.h"
#include "daemon/transport/transport.h"

struct session;
struct session_maker;

#define SESSION_STEP_BYTES (UINT64_C(8) << 20)
/* One makes, one frees. */
#define SESSION_MAKER_THREADS 2

/* A session to be made. */
struct session_order {
    struct message made_message; /* of a kind of the owner's */
    void *owner;                 /* the connection, for the thread that is told */
    uint32_t request_id;
    uint64_t user; /* its account's number */
    uint64_t id;   /* of the session */
    const struct transport *transport;
    struct channel_spec spec;
    uint32_t lane_count;

    /* The result: both. After an error: no session, and a half-made channel or NULL. */
    struct transport_channel *channel;
    struct session *session;
    enum embtier_err err;
    struct err_msg msg;

    /* The fields below are the maker's. */
    _Atomic bool given_up;
    uint64_t round; /* the round in which it has its next step */
    struct session_order *next;
};

MUST_CHECK enum embtier_err session_maker_new(void (*send)(void *owner, struct message *message),
                                              void *owner, struct session_maker **ret_maker,
                                              struct err_msg *msg);
/* Gives up what is not made yet (SHUTDOWN), and frees all released channels. Every
 * owner is told. */
void session_maker_free(struct session_maker *maker);
DEFINE_CLEANUP(struct session_maker, session_maker_free)

/* Borrows @order until made_message. */
void session_maker_make(struct session_maker *maker, struct session_order *order);
/* Gives up an order that no client wants any more. It ends with the error DISCONNECTED. */
void session_maker_give_up(struct session_order *order);
/* Gives the memory of a channel without a session back to the system. Borrows the channel until
 * freed_message; after that transport_channel_free() is quick. @is_abandoned: no client
 * reads the memory any more, so it is freed even if a process has it mapped. Else it is freed once
 * the client, which may still read answers there, lets go of it too. */
void session_maker_release(struct session_maker *maker, struct transport_channel *channel,
                           bool is_abandoned);

#endif
