/* SPDX-License-Identifier: Apache-2.0 */
/* schedule.h: decides whose turn it is on a lane, and how much a turn may cost.
 *
 * Each session has one place among those that want turns (turns.h), whatever work the lane has for
 * it. All work for the session is charged to that place, in its turn or not (cost.h). So sessions
 * that want all they can get share the lane by cost, and one that asks for little is served soon.
 * Thread: the lane. */
#ifndef EMBTIER_DAEMON_ENGINE_SESSIONS_SCHEDULE_H
#define EMBTIER_DAEMON_ENGINE_SESSIONS_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/engine/sessions/session.h"
#include "daemon/engine/turns/turns.h"

/* Initially zero, except `lane`. */
struct schedule {
    uint32_t lane; /* its lane's number */
    uint32_t turn_number;
    struct turns turns;
    const struct session_lane *last_turn; /* the side that had it; may be gone */
    uint64_t shared_ns;                   /* when the turn last went to another session */
    uint64_t sparse_ns;                   /* when one that asked for little last ran out of work */
    uint64_t cast_cost; /* of the pairs that the lane itself has cast in this turn */
    uint64_t charged;   /* to sessions, since the last round of turns began */
    uint64_t now_ns; /* when the lane read the clock: in this round of the loop, or a few before */

    /* The lane's: sessions whose home this is, while their clients need not ring. */
    struct session *polled;
    uint32_t polled_count;
};

/* The session has work of this kind on this lane. */
void schedule_add_work(struct schedule *schedule, struct session_lane *side,
                       enum session_work work);
/* The same for SESSION_BEGIN, on the session's home lane. */
void schedule_add_begin(struct schedule *schedule, struct session *session);
/* The session has no work of this kind left, for now. */
void schedule_remove_work(struct schedule *schedule, struct session_lane *side,
                          enum session_work work);
/* Home lane: goes on with the session's request if it has stalled. */
void schedule_unstall(struct schedule *schedule, struct session *session);

/* Charges work that was done for the session, in its turn or not. */
static inline void schedule_charge(struct schedule *schedule, struct session_lane *side,
                                   uint64_t cost)
{
    turns_charge(&schedule->turns, &side->flow, cost);
    schedule->charged += cost;
}

/* Returns how much a turn of the session may cost now. NULL: how much work outside of turns may
 * cost at a time. */
uint64_t schedule_turn_cost(const struct schedule *schedule, const struct session_lane *side);
/* Returns how much the turns of one round may cost together, before the lane looks for other
 * work. */
uint64_t schedule_round_cost(const struct schedule *schedule);
/* Begins the next turn; returns its session and its kind of work. False: no session wants one. */
bool schedule_begin_turn(struct schedule *schedule, struct session_lane **ret_side,
                         enum session_work *ret_work);

/* Return the session of a side on this lane, and the side of a session. */
struct session *schedule_session_of(const struct schedule *schedule, struct session_lane *side);
static inline struct session_lane *schedule_side_of(const struct schedule *schedule,
                                                    struct session *session)
{
    return &session->lanes[schedule->lane];
}

#endif
