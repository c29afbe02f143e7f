/* SPDX-License-Identifier: Apache-2.0 */
/* session.h: one connected client, as the lanes know it.
 *
 * A transport makes the channel through which the client is reached (channel.h), and the session on
 * it. The control thread gives the session to its home lane
 * (MESSAGE_ATTACH), which polls it for requests; every lane keeps a queue of the session's parts so
 * that they run in order. When the client is gone the control thread asks the home lane to let go
 * (MESSAGE_DETACH); that answers (MESSAGE_SESSION_GONE) when no request is under way, and only then
 * the transport may free what the channel points to. */
#ifndef EMBTIER_DAEMON_ENGINE_SESSIONS_SESSION_H
#define EMBTIER_DAEMON_ENGINE_SESSIONS_SESSION_H

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "config/config.h"
#include "daemon/engine/mail/inbox.h"
#include "daemon/engine/memory/request_memory.h"
#include "daemon/engine/memory/ticket_memory.h"
#include "daemon/engine/sessions/cast_line.h"
#include "daemon/engine/sessions/channel.h"
#include "daemon/engine/turns/turns.h"
#include "proto/shm_layout.h"

struct account;
struct group_member;
struct mailbox;
struct op;
struct part;
struct ticket;

/* Tickets of a session, at a time. */
#define TICKETS_MAX 1024

/* Kinds of work that a lane may have to do for a session: a bit each. */
enum session_work {
    SESSION_PARTS = 1 << 0,  /* rows of its oldest part */
    SESSION_TAKE = 1 << 1,   /* home lane: more of the request that is half taken */
    SESSION_BEGIN = 1 << 2,  /* home lane: its next requests */
    SESSION_ADD_UP = 1 << 3, /* waves of pooled lookups */
};

/* One lane's side of a session: its parts, oldest first. Owned by that lane, on lines of its own.
 */
struct session_lane {
    _Alignas(CACHE_LINE) struct part *first;
    struct part *last;
    struct turn_flow flow; /* among those that want turns, while there is some work */
    uint8_t work;          /* SESSION_ bits, of what can be done now */
    uint8_t last_work;     /* the bit of its last turn */
    bool is_blocked;       /* in the lane's blocked list */
    /* Seldom. */
    uint64_t began_due; /* flow.due when there began to be some work */
    struct session_lane *next_blocked;
    struct message *add_up; /* waves to be added up, oldest first */
    struct message *last_add_up;
    _Alignas(CACHE_LINE) struct cast_line casts; /* for the lane's caster, other than the rest */
};

/* Requests that change rows, as a checkpoint takes them (lane_epoch.c). One of more rows is large;
 * a push, of more than one wave. */
#define UPDATE_WHOLE_ROWS 4096
enum update_kind { UPDATE_SMALL, UPDATE_LARGE, UPDATE_OF_GROUP, UPDATE_KINDS };

/* A request that has been begun, and not taken to its end yet. */
struct taking {
    const struct op *op;    /* NULL: there is none */
    void *what;             /* the operation's own; NULL: it is over already */
    uint32_t segment_count; /* that have been looked at, also of one that was refused */
};

/* One of a session's numbers of tickets, of each TICKETS_MAX the youngest. */
struct ticket_slot {
    struct ticket *ticket;
    uint32_t expired; /* the last that was not used in time; 0: none */
};

struct session {
    struct message attach_message;
    struct message detach_message;

    /* Constant. */
    uint64_t id;
    struct channel channel;
    uint32_t home; /* lane */
    uint32_t lane_count;
    struct account *account; /* the user's, open until the session is freed */

    /* Any lane: set by the control thread. The client hung up: of what it asked for nothing more is
     * begun, and what was not is not answered. */
    _Atomic bool gone;

    /* Joined by the control thread, which frees them; read by the home lane. */
    _Atomic(struct group_member *) groups;

    pid_t pid; /* of the client, and its user; as they were when it connected */
    uid_t uid;

    /* Home lane. */
    struct session *next_polled;
    uint32_t consumed;  /* requests taken */
    uint32_t in_flight; /* requests, groups of tickets that are being cast, prefetches whose pins
                           are given back; less: settle() of struct op_lane */
    uint32_t unpinning; /* prefetches whose pins are given back */
    struct request_memory_share memory_share;
    struct taking taking;           /* begun, and not taken to its end yet */
    bool stalled;                   /* that, until something of it is done */
    uint32_t updates[UPDATE_KINDS]; /* under way (lane_epoch.c) */
    struct session *next_updating;
    struct session *previous_updating;
    struct session *next_held; /* see hold() */
    uint64_t wanted_bytes;     /* that the next request, or a push, found no room for; else 0 */
    enum request_memory_use wanted_use;
    uint64_t begin_cost;   /* of the dearest of its last requests to begin */
    uint64_t lately_bytes; /* that its last requests asked for, the older the less (request.c) */
    struct ticket_share ticket_share;
    uint32_t last_ticket;
    struct ticket_slot tickets[TICKETS_MAX];
    bool memory_short; /* the next request found no memory; another look when it has been granted
                          some (memory_message), or when one that is under way is done */
    struct message memory_message;
    struct mailbox *mailbox; /* of the home lane */
    uint64_t last_seen_ns;   /* a request */
    bool polled;             /* in the lane's list; else the client rings the doorbell */
    bool detaching;
    bool broken; /* spoke nonsense: nothing more is taken from it */

    /* Any lane: set while the slot's request is under way. On lines of their own: other lanes'
     * stores are not to take the home lane's fields from it. */
    _Alignas(CACHE_LINE) _Atomic uint8_t slot_busy[SHM_SLOTS_MAX];

    /* To the control thread, sent by the home lane through these when it has let go, and when the
     * client breaks the protocol; @why is a constant. */
    struct message gone_message;
    struct message broken_message;
    const char *broken_why;
    void (*send)(void *owner, struct message *message);
    void *owner;

    struct session_lane lanes[]; /* lane_count */
};

/* A session of client @id on a copy of @channel, for @lane_count lanes; its home is one of them.
 * NO_MEMORY.
 */
MUST_CHECK enum embtier_err session_new(uint64_t id, const struct channel *channel,
                                        uint32_t lane_count, struct session **ret_session,
                                        struct err_msg *msg);
/* No lane knows it any more. The channel is the transport's, and stays. */
void session_free(struct session *session);
DEFINE_CLEANUP(struct session, session_free)

/* Home lane: something of the session is under way, and keeps it; and is not any more. */
static inline void session_hold(struct session *session)
{
    assert(session->in_flight < UINT32_MAX);
    session->in_flight++;
}

static inline void session_release(struct session *session)
{
    assert(session->in_flight > 0);
    session->in_flight--;
}

/* Answers request @number, after which its slot may be used again. Any lane. */
void session_answer(struct session *session, uint32_t number, const struct answer *answer);

#endif
