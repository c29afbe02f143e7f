/* SPDX-License-Identifier: Apache-2.0 */
/* Decides whose turn it is on a lane.
 *
 * Each session has one place among those that want turns (turns.h), whatever work the lane has for
 * it: rows of its parts, ids of a request that is half taken, its next requests, waves to be added
 * up. These kinds follow each other from turn to turn. All their cost (cost.h) is charged to that
 * place. So is the cost of rows that were read for the session, which are served as they come. So
 * sessions that want all they can get share the lane by cost. One that asks for little is served
 * soon, whatever others ask for.
 *
 * While there are sessions that ask for little at a time, a turn is short, so that the next one
 * comes soon. It is longer if all ask for much, and long if a session is alone. In addition,
 * turns vary in length. Otherwise sessions that ask for the same would march in step, and one that
 * asks for little would wait for all of them each time.
 *
 * Between turns the lane looks for new work, less often the more clients it has to look at. */
#include "daemon/engine/sessions/schedule.h"

#include <assert.h>

#include "daemon/engine/turns/cost.h"

/* The cost of a turn, whatever is done in it. */
#define COST_TURN 8
/* The cost of a look at one client. */
#define COST_LOOK 32
/* For so long after its last turn another session may still want the next one soon. */
#define SHARED_NS (UINT64_C(10) * 1000 * 1000)

struct session *schedule_session_of(const struct schedule *schedule, struct session_lane *side)
{
    return CONTAINER_OF(side - schedule->lane, struct session, lanes);
}

void schedule_add_work(struct schedule *schedule, struct session_lane *side, enum session_work work)
{
    turns_add(&schedule->turns, &side->flow, 0);
    if (side->work == 0)
        side->began_due = side->flow.due;
    side->work |= (uint8_t)work;
}

/* A request is begun in one piece, of up to OP_SEGMENTS_MAX segments, and may be refused after
 * all. Sessions with such requests would march in step, and one that asks for little would wait for
 * all of them. So the turn is placed by where it ends, assuming that it is as dear as the last
 * ones. */
void schedule_add_begin(struct schedule *schedule, struct session *session)
{
    struct session_lane *const side = &session->lanes[schedule->lane];

    if (session->begin_cost > LANE_ROUND_COST && (side->work & ~(uint32_t)SESSION_BEGIN) == 0) {
        turns_remove(&schedule->turns, &side->flow);
        turns_add(&schedule->turns, &side->flow, session->begin_cost);
    }
    schedule_add_work(schedule, side, SESSION_BEGIN);
}

void schedule_remove_work(struct schedule *schedule, struct session_lane *side,
                          enum session_work work)
{
    if (side->work == 0)
        return;
    side->work &= (uint8_t)~work;
    if (side->work != 0)
        return;
    assert(turns_has(&side->flow));
    turns_remove(&schedule->turns, &side->flow);
    if (side->flow.due - side->began_due < LANE_TURN_COST_LONG)
        schedule->sparse_ns = schedule->now_ns;
}

/* True if turns have gone to different sessions not long ago. */
static bool is_shared(const struct schedule *schedule)
{
    return schedule->now_ns - schedule->shared_ns < SHARED_NS;
}

static bool is_alone(const struct schedule *schedule, const struct session_lane *side)
{
    const struct session *const polled = schedule->polled;

    if (is_shared(schedule) || (polled && polled->next_polled))
        return false;
    if (!side)
        return turns_is_empty(&schedule->turns);
    return turns_is_only(&schedule->turns, &side->flow) &&
           (!polled || side == &polled->lanes[schedule->lane]);
}

uint64_t schedule_turn_cost(const struct schedule *schedule, const struct session_lane *side)
{
    uint64_t most;

    if (is_alone(schedule, side))
        return LANE_TURN_COST_ALONE;
    most =
        schedule->now_ns - schedule->sparse_ns < SHARED_NS ? LANE_TURN_COST : LANE_TURN_COST_LONG;
    /* Multiples of the golden ratio, of which only the fraction counts, are spread evenly. */
    return most / 2 + ((uint64_t)(schedule->turn_number * UINT32_C(0x9e3779b1)) * most >> 32);
}

/* Returns the kind of work after that of the last turn, in rotation. */
static enum session_work next_work(const struct session_lane *side)
{
    const uint32_t later = side->work & ~(2u * side->last_work - 1);
    const uint32_t from = side->last_work && later ? later : side->work;

    return (enum session_work)(from & -from);
}

bool schedule_begin_turn(struct schedule *schedule, struct session_lane **ret_side,
                         enum session_work *ret_work)
{
    struct turn_flow *const flow = turns_begin(&schedule->turns);
    struct session_lane *side;

    if (!flow)
        return false;
    side = CONTAINER_OF(flow, struct session_lane, flow);
    *ret_side = side;
    *ret_work = next_work(side);
    assert(side->work != 0 && (side->work & *ret_work) != 0);
    side->last_work = (uint8_t)*ret_work;
    schedule->turn_number++;
    schedule->cast_cost = 0;
    if (schedule->last_turn != side)
        schedule->shared_ns = schedule->now_ns;
    schedule->last_turn = side;
    schedule_charge(schedule, side, COST_TURN);
    return true;
}

uint64_t schedule_round_cost(const struct schedule *schedule)
{
    const uint32_t least = (is_shared(schedule) ? LANE_TURN_COST : LANE_ROUND_COST) / 2;

    return MAX((uint64_t)least, (uint64_t)schedule->polled_count * COST_LOOK);
}

void schedule_unstall(struct schedule *schedule, struct session *session)
{
    if (session->stalled)
        schedule_add_work(schedule, schedule_side_of(schedule, session), SESSION_TAKE);
    session->stalled = false;
}
