/* SPDX-License-Identifier: Apache-2.0 */
/* session.h: one connected client's shared memory and what the lanes know of it.
 *
 * The control thread has a session made (session_maker.h) and gives it to its home lane
 * (MESSAGE_ATTACH), which polls it for requests; every lane keeps a queue of the session's parts so
 * that they run in order. When the client is gone the control thread asks the home lane to let go
 * (MESSAGE_DETACH); that answers (MESSAGE_SESSION_GONE) when no request is under way, and only then
 * are the mappings removed. */
#ifndef EMBTIER_DAEMON_ENGINE_SESSIONS_SESSION_H
#define EMBTIER_DAEMON_ENGINE_SESSIONS_SESSION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "config/config.h"
#include "daemon/engine/lane/turns.h"
#include "daemon/engine/mail/inbox.h"
#include "daemon/engine/memory/request_memory.h"
#include "daemon/engine/memory/ticket_memory.h"
#include "daemon/engine/ops/cast_queue.h"
#include "daemon/engine/ops/group.h"
#include "daemon/engine/ops/request.h"
#include "daemon/engine/ops/ticket.h"
#include "proto/shm_layout.h"

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

struct session {
    struct message attach_message;
    struct message detach_message;

    /* Constant. */
    uint64_t id;
    struct shm_control *control;
    struct shm_completion *completions;
    struct shm_arena_head *arena;
    uint64_t arena_bytes;
    uint64_t reserved_bytes; /* of the arena: all, once it is made */
    uint64_t control_bytes;
    uint32_t slot_count;
    uint32_t home; /* lane */
    int control_fd;
    int arena_fd;
    int doorbell_fd;
    uint32_t lane_count;
    struct account *account; /* the user's: open until the memory is freed */

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
                           are given back; less: see lane_session_maybe_gone() */
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
    struct lane *lane;     /* home */
    uint64_t last_seen_ns; /* a request */
    bool polled;           /* in the lane's list; else the client rings the doorbell */
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
    struct message freed_message; /* sent by session_maker.c, whose these are too */
    struct session *next_freed;
    bool is_nobodys;
    void (*send)(void *owner, struct message *message);
    void *owner;

    struct session_lane lanes[]; /* lane_count */
};

/* The arena a client gets that asks for @wanted_bytes: never so small that the submissions would
 * not lie in it, whole pages. */
uint64_t session_arena_bytes(uint64_t wanted_bytes, uint32_t slot_count);

/* As much of a session counts in its user's account: that arena, and what the control memory has
 * beyond SESSION_BYTES, which the configuration counts for each session. */
uint64_t session_counted_bytes(uint64_t wanted_bytes, uint32_t slot_count);

/* Makes the shared memory, but for the arena's bytes: control sealed against writing by others,
 * arena against resizing. NO_MEMORY, or the system's error. */
MUST_CHECK enum embtier_err session_prepare(uint64_t id, uint64_t arena_bytes, uint32_t slot_count,
                                            uint32_t max_batch_rows, uint32_t lane_count,
                                            struct session **ret_session, struct err_msg *msg);
/* Reserves as much more of the arena at most, and maps it when that was the last. AGAIN: there is
 * more. Else as session_prepare(). */
MUST_CHECK enum embtier_err session_reserve(struct session *session, uint64_t bytes,
                                            struct err_msg *msg);
/* Both, whole. */
MUST_CHECK enum embtier_err session_new(uint64_t id, uint64_t arena_bytes, uint32_t slot_count,
                                        uint32_t max_batch_rows, uint32_t lane_count,
                                        struct session **ret_session, struct err_msg *msg);
/* Unmaps and closes the shared memory. If it is nobody's, of what others have of it the arena's
 * bytes are freed too, and read as zeros from then on. */
void session_release(struct session *session, bool is_nobodys);
/* With its shared memory. */
void session_free(struct session *session);
DEFINE_CLEANUP(struct session, session_free)

/* Tells the client why there will be no more answers, and wakes whoever waits. Any thread. */
void session_close_notice(struct session *session, enum embtier_err why);

/* Wakes a client that sleeps on @completion. */
void session_wake_client(struct session *session, struct shm_completion *completion);

#endif
