/* SPDX-License-Identifier: Apache-2.0 */
/* op.h: what an operation is, and what it may use of the lane that it runs on.
 *
 * An operation is one family of files and one row of the table of operations (op_table.c). Its
 * struct op has what the home lane does: begin a request, take some of it in each turn, end it. Its
 * struct row_op (row_op.h) has what is done to rows on their lanes. What all operations do alike is
 * elsewhere: requests are copied in begin.c, parts of rows are served in rows/, turns are given in
 * lane/. Thread: the session's home lane. */
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

/* A lane, as operations know it. */
struct op_lane {
    uint32_t index;
    uint32_t lane_count;
    const struct clock *clock;
    uint64_t take_ids; /* ids taken in of a session in one turn, at most */
    struct request_rules rules;
    struct rows *rows;
    struct schedule *schedule;
    struct update_gate *gate;
    struct mailbox *const *mailboxes; /* of all lanes, and their casters */
    struct caster *const *casters;

    /* tickets.h */
    struct ticket_lane *unpinning; /* prefetches that are over, any session's */
    struct ticket_lane *last_unpinning;
    struct ticket *oldest_ticket; /* of those that wait for their push */
    struct ticket *newest_ticket;
    uint64_t expired_tickets;

    /* To be called whenever a session's in_flight has become less: a push of a group may have
     * waited for that; and the session may be gone when nothing of it is under way any more. */
    void (*settle)(struct op_lane *lane, struct session *session);
};

/* The client is not to be answered any more. */
static inline bool op_is_over(const struct session *session)
{
    return session->broken || session->detaching ||
           atomic_load_explicit(&session->gone, memory_order_relaxed);
}

enum take_turn {
    TAKE_TURN_MORE,    /* some is left to be taken */
    TAKE_TURN_STALLED, /* the same, and not before something else is done: schedule_unstall() */
    TAKE_TURN_HELD,    /* the same, and not before the gate lets it begin */
    TAKE_TURN_TAKEN,   /* nothing is left; something is under way, or all is over */
    TAKE_TURN_DONE,    /* nothing is left, nor under way: end() is next */
};

struct op {
    const char *name; /* in capitals */
    bool has_turns; /* taking it is left to its turns, all of it: the next request waits for that */

    /* The form of the submission (proto/shm_fields.h), which says what fields it may use. */
    uint32_t (*form)(const struct shm_submission *submission);
    /* For requests of plain segments (segments.h): what is done to their rows, and how many bytes
     * each id has in the region. NULL: a row, of weights or whole. */
    const struct row_op *row_op;
    uint32_t (*place_bytes)(const struct table *table, bool with_state);

    /* Checks request @number, of which the submission has been copied, and sets @ret_taking->what;
     * NULL: it is over, to be answered with OK. AGAIN: no memory now; nothing has changed, and it
     * is called once more when memory_share is told, or one of the session's requests is done. Any
     * other error: the request is refused, *@ret_refusal says why. */
    enum embtier_err (*begin)(struct op_lane *lane, struct session *session, uint32_t number,
                              const struct shm_submission *submission, struct taking *ret_taking,
                              struct refusal *ret_refusal);
    /* Takes some of it for about *@left (cost.h), of which it leaves what it did not need: while
     * the turn in which it begins lasts, or one of its own. Of a session that is over it gives up
     * what has changed nothing. */
    enum take_turn (*turn)(struct op_lane *lane, void *what, uint64_t *left);
    /* Answers it and frees it. */
    void (*end)(struct op_lane *lane, void *what);
    /* All parts of a request of it (request->op) are done. */
    void (*done)(struct op_lane *lane, struct request *request);
};

/* A wave of @what is over, of which @under_way are left: it goes on, or ends with the last. */
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
