/* SPDX-License-Identifier: Apache-2.0 */
/* session.h: one connected client, as the lanes know it.
 *
 * A transport makes the channel to the client (channel.h), and the session on it. The control
 * thread gives the session to its home lane (lane_attach()), which polls it for requests. Every
 * lane keeps a queue of the session's parts, so that they run in order. When the client is gone,
 * the control thread asks the home lane to let go (lane_detach()). The lane answers
 * (gone_message) when no request is under way. Only then may the transport free the memory
 * that the channel points to. */
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
#include "daemon/engine/sessions/latencies.h"
#include "daemon/engine/turns/turns.h"
#include "proto/ops.h"

struct account;
struct group_member;
struct mailbox;
struct op;
struct part;
struct rights;
struct ticket;

/* How many tickets a session can have at a time. */
#define TICKETS_MAX 1024

/* Kinds of work that a lane may have for a session, one bit each. */
enum session_work {
    SESSION_PARTS = 1 << 0,  /* rows of its oldest part */
    SESSION_TAKE = 1 << 1,   /* home lane: more of a request that is half taken */
    SESSION_BEGIN = 1 << 2,  /* home lane: its next requests */
    SESSION_ADD_UP = 1 << 3, /* waves of pooled lookups */
};

/* One lane's side of a session: its parts, oldest first. Owned by that lane, on cache lines of its
 * own. */
struct session_lane {
    _Alignas(CACHE_LINE) struct part *first;
    struct part *last;
    struct turn_flow flow; /* among those that want turns, while it has work */
    uint8_t work;          /* SESSION_ bits of work that can be done now */
    uint8_t last_work;     /* the bit of its last turn */
    bool is_blocked;       /* in the lane's blocked list */
    /* Seldom used. */
    uint64_t began_due; /* flow.due when it last began to have work */
    struct session_lane *next_blocked;
    struct message *add_up; /* waves to be added up, oldest first */
    struct message *last_add_up;
    _Alignas(CACHE_LINE) struct cast_line casts; /* belongs to the lane's caster, not to the lane */
};

/* How a checkpoint treats a request that changes rows (update_gate.h). A request of more rows than
 * this is large. A push is large if it has more than one wave. */
#define UPDATE_WHOLE_ROWS 4096
enum update_kind { UPDATE_SMALL, UPDATE_LARGE, UPDATE_OF_GROUP, UPDATE_KINDS };

/* A request that was begun and is not yet taken to its end. */
struct taking {
    const struct op *op;    /* NULL: there is no such request */
    void *what;             /* the operation's own; NULL: it is over already */
    uint32_t segment_count; /* segments that were looked at, also if the request was refused */
};

/* The youngest ticket among the numbers that are equal modulo TICKETS_MAX. */
struct ticket_slot {
    struct ticket *ticket;
    uint32_t expired; /* the last number that was not used in time; 0: none */
};

/* Requests of a session, since it connected. */
struct session_counts {
    uint64_t requests;
    uint64_t rows;    /* that requests named; of a push with a ticket, bags */
    uint64_t tickets; /* that it holds now, those of prefetches too */
};

struct session {
    struct message attach_message;
    struct message detach_message;

    /* Constant. */
    uint64_t id;
    struct channel channel;
    uint32_t home; /* number of its home lane */
    uint32_t lane_count;
    enum transport_kind transport;
    struct account *account; /* the user's; open until the session is freed */
    struct rights *rights;   /* the user's (daemon/access/rights.h), kept as long */

    /* Set by the control thread, read by any lane. The client has hung up. Nothing more that it
     * asked for is begun, and requests that were not begun are not answered. */
    _Atomic bool gone;

    /* Set for good by the home lane: some of its requests count in the rights. */
    _Atomic bool counts_bytes;

    /* Groups that the session has joined. The control thread joins and frees them; the home lane
     * reads them. */
    _Atomic(struct group_member *) groups;

    pid_t pid; /* of the client; this and the user's id are as they were when it connected */
    uid_t uid;

    /* Home lane. */
    struct session *next_polled;
    struct session_counts counts; /* any thread reads them (counter.h) */
    uint64_t begin_rows;          /* named by the segments of the request that begins */
    uint32_t consumed;            /* requests taken from the ring */
    uint32_t in_flight; /* requests, groups of tickets that are being cast, prefetches whose pins
                           are being given back; when it falls: settle() of struct op_lane */
    uint32_t unpinning; /* prefetches whose pins are being given back */
    struct request_memory_share memory_share;
    struct taking taking;           /* the request that is half taken */
    bool stalled;                   /* `taking` cannot go on before schedule_unstall() */
    uint32_t updates[UPDATE_KINDS]; /* under way (update_gate.h) */
    struct session *next_updating;
    struct session *previous_updating;
    struct session *next_held; /* see update_hold() */
    bool is_held;
    uint64_t wanted_bytes; /* that the next request, or a push, found no room for; else 0 */
    enum request_memory_use wanted_use;
    uint64_t begin_cost;   /* of the dearest of its last requests, to begin it */
    uint64_t lately_bytes; /* that it asked for; older requests count less (segments.c) */
    uint32_t begin_lines;  /* counted for the request that begins (session_count()) */
    struct ticket_share ticket_share;
    uint32_t last_ticket;
    struct ticket_slot tickets[TICKETS_MAX];
    bool memory_short; /* the next request found no memory; the lane looks again when some has been
                          granted (memory_message), or when a request under way is done */
    struct message memory_message;
    struct mailbox *mailbox; /* of the home lane */
    uint64_t last_seen_ns;   /* when the lane last saw a request of it */
    bool begins_again;       /* its next request has been taken, and waits for memory */
    bool polled;             /* in the lane's list; if not, the client rings the doorbell */
    bool detaching;
    bool broken; /* it broke the protocol: nothing more is taken from it */

    /* Any lane. Set while the slot's request is under way. On cache lines of their own, so that
     * other lanes' stores do not take the home lane's fields from its cache. */
    _Alignas(CACHE_LINE) _Atomic uint8_t slot_busy[OP_SLOTS_MAX];
    /* Bytes that the slot's request has in the user's rights, in lines of OP_ALIGN. */
    _Alignas(CACHE_LINE) _Atomic uint32_t slot_lines[OP_SLOTS_MAX];

    /* The home lane sends these messages to the control thread through send(): one when it has let
     * go, one when the client breaks the protocol. The control thread sets their kinds. broken_why
     * is a constant. */
    struct message gone_message;
    struct message broken_message;
    const char *broken_why;
    void (*send)(void *owner, struct message *message);
    void *owner;

    /* Times of the slots' requests, behind the lanes. Read before slot_busy is cleared. */
    struct request_time *slot_times;

    struct session_lane lanes[]; /* lane_count */
};

/* Returns the bytes of a session's slots, beyond those of as many as a client has by default. */
static inline uint64_t session_slot_bytes(uint32_t slot_count)
{
    return slot_count > OP_SLOTS_DEFAULT
               ? (slot_count - OP_SLOTS_DEFAULT) * sizeof(struct request_time)
               : 0;
}

/* Makes a session of client @id on a copy of @channel, for @lane_count lanes. Its home is one of
 * them. NO_MEMORY. */
MUST_CHECK enum embtier_err session_new(uint64_t id, const struct channel *channel,
                                        uint32_t lane_count, struct session **ret_session,
                                        struct err_msg *msg);
/* Frees a session that no lane knows any more. The channel is the transport's, and stays. */
void session_free(struct session *session);
DEFINE_CLEANUP(struct session, session_free)

/* Home lane. Holds the session while something of it is under way; releases it when that is
 * over. */
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

/* Home lane. Counts @bytes of the request that begins in the user's rights. False: the user would
 * have more under way than it may. */
MUST_CHECK bool session_count(struct session *session, uint64_t bytes);
/* Home lane. The request that began with that is @number, and gives the bytes back with its answer;
 * or it has not begun. */
void session_begun(struct session *session, uint32_t number, bool has_begun);

static inline struct request_time *session_time(struct session *session, uint32_t number)
{
    return &session->slot_times[number % session->channel.slot_count];
}

/* Returns how many requests are under way. Any thread. */
uint32_t session_under_way(const struct session *session);
/* Answers request @number. Its slot may be used again after that. Any lane. */
void session_answer(struct session *session, uint32_t number, const struct answer *answer);

/* Checks that bytes lie in the client's part of its region. INVALID: @session is NULL, as the
 * client has no shared memory. OFFSET_RANGE. */
MUST_CHECK enum embtier_err session_check_bytes(const struct session *session, uint64_t offset,
                                                uint64_t bytes, struct err_msg *msg);

#endif
