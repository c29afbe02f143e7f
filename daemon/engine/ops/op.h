/* SPDX-License-Identifier: Apache-2.0 */
/* op.h: the interface of an operation, and the parts of its lane that it may use.
 *
 * An operation is one family of files and one row of the table of operations (op_table.c). Its
 * struct op has the work of the home lane: begin a request, take some of it in each turn, end it.
 * Its struct row_op (row_op.h) has the work on rows, on their lanes. The work common to all
 * operations is elsewhere: begin.c copies requests, rows/ serves parts of rows, and lane/ gives
 * turns. Thread: the session's home lane. */
#ifndef EMBTIER_DAEMON_ENGINE_OPS_OP_H
#define EMBTIER_DAEMON_ENGINE_OPS_OP_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/engine/mail/mailbox.h"
#include "daemon/engine/rows/request.h"
#include "daemon/engine/rows/rows.h"
#include "daemon/engine/sessions/schedule.h"
#include "daemon/engine/sessions/session.h"
#include "daemon/engine/sessions/update_gate.h"

struct caster;
struct ticket;
struct ticket_lane;

/* A lane, as operations see it. */
struct op_lane {
    uint32_t index;
    uint32_t lane_count;
    const struct clock *clock;
    uint64_t take_ids; /* most ids that are taken of a session in one turn */
    struct request_rules rules;
    struct rows *rows;
    struct schedule *schedule;
    struct update_gate *gate;
    struct mailbox *const *mailboxes; /* of all lanes, and their casters */
    struct caster *const *casters;

    /* tickets.h */
    struct ticket_lane *unpinning; /* ended prefetches of any session, to be unpinned */
    struct ticket_lane *last_unpinning;
    struct ticket *oldest_ticket; /* list of the tickets that wait for their push */
    struct ticket *newest_ticket;
    uint64_t expired_tickets; /* a counter (base/counter.h) */

    /* The caller calls this whenever a session's in_flight has become less. A push of a group may
     * have waited for that. The session may be freed when nothing of it is under way any more. */
    void (*settle)(struct op_lane *lane, struct session *session);
};

/* True if the client must not be answered any more. */
static inline bool op_is_over(const struct session *session)
{
    return session->broken || session->detaching ||
           atomic_load_explicit(&session->gone, memory_order_relaxed);
}

enum op_turn {
    OP_TURN_MORE,     /* some is left to be taken */
    OP_TURN_STALLED,  /* the same, and it waits until something else is done: schedule_unstall() */
    OP_TURN_HELD,     /* the same, and it waits until the gate lets it begin */
    OP_TURN_ISSUED,   /* nothing is left; the request ends by itself, or has ended */
    OP_TURN_COMPLETE, /* nothing is left or under way: end() is next */
};

struct op {
    const char *name; /* in capitals */
    bool has_turns;   /* taken in separate turns only; the next request waits for that */

    /* Returns the form of the submission (proto/op_fields.h), which says which fields it may
     * use. */
    uint32_t (*form)(const struct op_submission *submission);
    /* For requests of plain segments (segments.h): the work on their rows. place_bytes() returns
     * the bytes in the region for each id; NULL: a row, of weights or whole. */
    const struct row_op *row_op;
    uint32_t (*place_bytes)(const struct table *table, bool with_state);

    /* Checks request @number, whose submission has been copied, and sets @ret_taking->what. NULL
     * there: it is over, and is answered with OK. AGAIN: there is no memory now, and nothing has
     * changed. It is called once more when memory_share is told, or when one of the session's
     * requests is done. Any other error: the request is refused, and *@ret_refusal says why. */
    enum embtier_err (*begin)(struct op_lane *lane, struct session *session, uint32_t number,
                              const struct op_submission *submission, struct taking *ret_taking,
                              struct refusal *ret_refusal);
    /* Takes some of the request for a cost of about *@left (cost.h), and leaves in *@left the cost
     * it did not need. It runs within the turn in which the request begins, or in a turn of its
     * own. If the session is over, it gives up everything that has changed nothing. */
    enum op_turn (*turn)(struct op_lane *lane, void *what, uint64_t *left);
    /* Answers the request and frees it. */
    void (*end)(struct op_lane *lane, void *what);
    /* Called when all parts of one of its requests (request->op) are done. */
    void (*done)(struct op_lane *lane, struct request *request);
};

/* Calls done() of the request's operation. begin.c */
extern const struct message_kind message_request_done;

/* Makes @op the operation of a request that has been laid out. */
static inline void op_own(const struct op *op, struct request *request)
{
    request->op = op;
    request->message.kind = &message_request_done;
}

/* Goes on after a wave of @what, of which @under_way waves are left. Takes more of it, or ends it
 * with its last wave. */
static inline void op_after_wave(struct op_lane *lane, struct session *session, const struct op *op,
                                 void *what, uint32_t under_way)
{
    if (session->taking.what == what) {
        schedule_unstall(lane->schedule, session);
    } else if (under_way == 0) {
        op->end(lane, what);
        session->memory_short = false;
        lane->settle(lane, session);
    }
}

#endif
