/* SPDX-License-Identifier: Apache-2.0 */
/* schedule.h: whose turn it is on a lane, and what each turn may cost.
 *
 * Each session has one place among those that want turns (turns.h), whatever there is to be done
 * for it on this lane. All that is done for it is charged to that place, in its turn or not
 * (cost.h). So sessions that want all they can get share the lane by cost, and one that asks for
 * little is served soon. Thread: the lane. */
#ifndef EMBTIER_DAEMON_ENGINE_SESSIONS_SCHEDULE_H
#define EMBTIER_DAEMON_ENGINE_SESSIONS_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/engine/sessions/session.h"
#include "daemon/engine/turns/turns.h"

/* Zeroed at first, but for `lane`. */
struct schedule {
    uint32_t lane; /* whose it is */
    uint32_t turn_number;
    struct turns turns;
    const struct session_lane *last_turn; /* whose; it may be gone */
    uint64_t shared_ns;                   /* when it was another one's */
    uint64_t sparse_ns;                   /* when one ended that asked for little */
    uint64_t cast_cost;                   /* of what was cast here in this turn */
    uint64_t charged; /* to sessions, since the last look at what there is beside turns */
    uint64_t now_ns;  /* of this round of the loop, or a few before; the lane's */

    /* Sessions whose home this is, while their client need not ring; the lane's. */
    struct session *polled;
    uint32_t polled_count;
};

/* There is work of a kind to be done for the session on this lane. */
void schedule_add_work(struct schedule *schedule, struct session_lane *side,
                       enum session_work work);
/* The same of SESSION_BEGIN, on its home lane. */
void schedule_add_begin(struct schedule *schedule, struct session *session);
/* There is none of it left, for now. */
void schedule_remove_work(struct schedule *schedule, struct session_lane *side,
                          enum session_work work);
/* Home lane: goes on with what the session's request stalled for. */
void schedule_unstall(struct schedule *schedule, struct session *session);

/* Something was done for the session, in its turn or not. */
static inline void schedule_charge(struct schedule *schedule, struct session_lane *side,
                                   uint64_t cost)
{
    turns_charge(&schedule->turns, &side->flow, cost);
    schedule->charged += cost;
}

/* A turn of the session may cost so much now. NULL: what is done outside of turns, at a time. */
uint64_t schedule_turn_cost(const struct schedule *schedule, const struct session_lane *side);
/* Turns of a round may, all together, before the lane looks at what else there is. */
uint64_t schedule_round_cost(const struct schedule *schedule);
/* Begins the next turn: whose, and with what. False: nobody wants one. */
bool schedule_begin_turn(struct schedule *schedule, struct session_lane **ret_side,
                         enum session_work *ret_work);

/* The session whose side on this lane that is; and the other way round. */
struct session *schedule_session_of(const struct schedule *schedule, struct session_lane *side);
static inline struct session_lane *schedule_side_of(const struct schedule *schedule,
                                                    struct session *session)
{
    return &session->lanes[schedule->lane];
}

#endif
