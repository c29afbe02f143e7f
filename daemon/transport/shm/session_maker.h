/* SPDX-License-Identifier: Apache-2.0 */
/* session_maker.h: makes the shared memory of sessions, and frees it, beside the control thread: to
 * reserve or free a GiB takes the system some tenths of a second.
 *
 * One thread makes, in steps of SESSION_STEP_BYTES, and after each step another user's session has
 * its turn: so a GiB does not hold up anybody's MiB, however many sessions of a GiB one user asks
 * for. One thread frees.
 *
 * Thread: the control thread, which is told through @send. */
#ifndef EMBTIER_DAEMON_TRANSPORT_SHM_SESSION_MAKER_H
#define EMBTIER_DAEMON_TRANSPORT_SHM_SESSION_MAKER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "daemon/engine/mail/inbox.h"

struct session;
struct session_maker;
struct shm_channel;

#define SESSION_STEP_BYTES (UINT64_C(8) << 20)
/* Of its threads. */
#define SESSION_MAKER_THREADS 2

/* A session that is to be made. */
struct session_order {
    struct message made_message; /* MESSAGE_SESSION_MADE */
    void *owner;                 /* whose, for whoever is told */
    uint32_t request_id;
    uid_t uid;
    uint64_t id;          /* of the session */
    uint64_t arena_bytes; /* these as shm_channel_prepare() has them */
    uint32_t slot_count;
    uint32_t max_batch_rows;
    uint32_t lane_count;

    /* Result: both, or after an error no session, and the channel half made, or NULL. */
    struct shm_channel *channel;
    struct session *session;
    enum embtier_err err;
    struct err_msg msg;

    /* The maker's. */
    _Atomic bool given_up;
    uint64_t round; /* when it is its user's turn */
    struct session_order *next;
};

MUST_CHECK enum embtier_err session_maker_new(void (*send)(void *owner, struct message *message),
                                              void *owner, struct session_maker **ret_maker,
                                              struct err_msg *msg);
/* Ends what was ordered, and gives up what is not made yet: all are told. */
void session_maker_free(struct session_maker *maker);
DEFINE_CLEANUP(struct session_maker, session_maker_free)

/* Borrows @order until MESSAGE_SESSION_MADE. */
void session_maker_make(struct session_maker *maker, struct session_order *order);
/* Nobody wants it any more: it is made no further, with the error DISCONNECTED. */
void session_maker_give_up(struct session_order *order);
/* Gives the memory of a channel that no session has back to the system. Borrows it until
 * MESSAGE_CHANNEL_FREED, after which shm_channel_free() has nothing left to do that takes long.
 * @is_nobodys: no client reads it any more, so that it is freed whoever has it mapped. Else it is
 * freed when the client lets go of it too, which may still read answers there. */
void session_maker_release(struct session_maker *maker, struct shm_channel *channel,
                           bool is_nobodys);

#endif
