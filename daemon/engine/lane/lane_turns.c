/* SPDX-License-Identifier: Apache-2.0 */
/* Whose turn it is on a lane.
 *
 * Each session has one place among those that want turns (turns.h), whatever there is to be done
 * for it here: rows of its parts, ids of a request that is half taken, its next requests, waves to
 * be added up. These follow each other from turn to turn. All it costs (cost.h) is charged to
 * that place, and rows that have been read for it are too, which are served as they come. So
 * sessions that want all they can get share the lane by what they cost it, and one that asks for
 * little is served soon, whatever others ask for.
 *
 * A turn is short, so that the next one comes soon, while there are sessions that ask for little at
 * a time. It is longer if all ask for much, and long if nobody else is there. But for that, turns
 * differ in length: sessions that ask for the same would march in step, and one that asks for
 * little would wait for all of them each time.
 *
 * Between turns the lane looks what has come: more seldom the more clients there are to be looked
 * at. */
#include "daemon/engine/lane/lane_impl.h"

/* Each turn's, whatever is done in it. */
#define COST_TURN 8
/* For a look at one client. */
#define COST_LOOK 32
/* So long after its last turn another session may still want the next one soon. */
#define SHARED_NS (UINT64_C(10) * 1000 * 1000)

struct session *lane_session_of(const struct lane *lane, struct session_lane *session)
{
    return CONTAINER_OF(session - lane->opts.index, struct session, lanes);
}

void lane_add_work(struct lane *lane, struct session_lane *session, enum session_work work)
{
    turns_add(&lane->turns, &session->flow, 0);
    if (session->work == 0)
        session->began_due = session->flow.due;
    session->work |= (uint8_t)work;
}

/* A request is begun in one piece, of up to SHM_SEGMENTS_MAX segments, and may be refused after
 * all. Sessions that have such refused would march in step, and one that asks for little would wait
 * for all of them. So its turn is placed by where it ends, if it is as dear as the last ones. */
void lane_add_begin(struct lane *lane, struct session *session)
{
    struct session_lane *const side = &session->lanes[lane->opts.index];

    if (session->begin_cost > LANE_ROUND_COST && (side->work & ~(uint32_t)SESSION_BEGIN) == 0) {
        turns_remove(&lane->turns, &side->flow);
        turns_add(&lane->turns, &side->flow, session->begin_cost);
    }
    lane_add_work(lane, side, SESSION_BEGIN);
}

void lane_remove_work(struct lane *lane, struct session_lane *session, enum session_work work)
{
    if (session->work == 0)
        return;
    session->work &= (uint8_t)~work;
    if (session->work != 0)
        return;
    turns_remove(&lane->turns, &session->flow);
    if (session->flow.due - session->began_due < LANE_TURN_COST_LONG)
        lane->sparse_ns = lane->now_ns;
}

/* Sessions have taken turns not long ago. */
static bool is_shared(const struct lane *lane)
{
    return lane->now_ns - lane->shared_ns < SHARED_NS;
}

static bool is_alone(const struct lane *lane, const struct session_lane *session)
{
    const struct session *const polled = lane->polled;

    if (is_shared(lane) || (polled && polled->next_polled))
        return false;
    if (!session)
        return turns_is_empty(&lane->turns);
    return turns_is_only(&lane->turns, &session->flow) &&
           (!polled || session == &polled->lanes[lane->opts.index]);
}

uint64_t lane_turn_cost(const struct lane *lane, const struct session_lane *session)
{
    uint64_t most;

    if (is_alone(lane, session))
        return LANE_TURN_COST_ALONE;
    most = lane->now_ns - lane->sparse_ns < SHARED_NS ? LANE_TURN_COST : LANE_TURN_COST_LONG;
    /* Multiples of the golden ratio, of which only the fraction counts, are spread evenly. */
    return most / 2 + ((uint64_t)(lane->turn_number * UINT32_C(0x9e3779b1)) * most >> 32);
}

/* The kind of work after that of the last turn, round and round. */
static enum session_work next_work(const struct session_lane *session)
{
    const uint32_t later = session->work & ~(2u * session->last_work - 1);
    const uint32_t from = session->last_work && later ? later : session->work;

    return (enum session_work)(from & -from);
}

static void turn(struct lane *lane, struct session_lane *session)
{
    const enum session_work work = next_work(session);

    session->last_work = (uint8_t)work;
    lane->turn_number++;
    lane->cast_cost = 0;
    if (lane->last_turn != session)
        lane->shared_ns = lane->now_ns;
    lane->last_turn = session;
    lane_charge(lane, session, COST_TURN);
    switch (work) { /* after which the session may be gone */
    case SESSION_PARTS:
        lane_parts_turn(lane, session);
        break;
    case SESSION_TAKE:
        lane_take_turn(lane, lane_session_of(lane, session));
        break;
    case SESSION_BEGIN:
        lane_begin_turn(lane, lane_session_of(lane, session));
        break;
    case SESSION_ADD_UP:
        lane_pool_add_up_turn(lane, session);
        break;
    }
}

bool lane_turns(struct lane *lane)
{
    const uint32_t least = (is_shared(lane) ? LANE_TURN_COST : LANE_ROUND_COST) / 2;
    const uint64_t until = MAX((uint64_t)least, (uint64_t)lane->polled_count * COST_LOOK);
    bool worked = false;

    lane->charged = 0;
    while (lane->charged < until) {
        struct turn_flow *const flow = turns_begin(&lane->turns);

        if (!flow)
            break;
        turn(lane, CONTAINER_OF(flow, struct session_lane, flow));
        worked = true;
    }
    return worked;
}
