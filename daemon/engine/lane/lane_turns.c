/* SPDX-License-Identifier: Apache-2.0 */
/* Turns of sessions on a lane (schedule.h says whose). */
#include "daemon/engine/lane/lane_impl.h"

static void turn(struct lane *lane, struct session_lane *side, enum session_work work)
{
    switch (work) { /* after which the session may be gone */
    case SESSION_PARTS:
        lane_parts_turn(lane, side);
        break;
    case SESSION_TAKE:
        lane_take_turn(lane, schedule_session_of(&lane->schedule, side));
        break;
    case SESSION_BEGIN:
        lane_begin_turn(lane, schedule_session_of(&lane->schedule, side));
        break;
    case SESSION_ADD_UP:
        lane_pool_add_up_turn(lane, side);
        break;
    }
}

bool lane_turns(struct lane *lane)
{
    const uint64_t until = schedule_round_cost(&lane->schedule);
    struct session_lane *side;
    enum session_work work;
    bool worked = false;

    lane->schedule.charged = 0;
    while (lane->schedule.charged < until && schedule_begin_turn(&lane->schedule, &side, &work)) {
        turn(lane, side, work);
        worked = true;
    }
    return worked;
}
