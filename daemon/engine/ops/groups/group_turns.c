/* SPDX-License-Identifier: Apache-2.0 */
/* Pushes that are parts of a group's step, on their home lanes. See group.h. */
#include "daemon/engine/ops/groups/group_turns.h"

#include <assert.h>

#include "daemon/engine/ops/groups/group.h"
#include "daemon/engine/ops/push/push_trial.h"
#include "daemon/engine/ops/tickets/tickets.h"

/* Hands the push to the group. It is the last thing that the session has under way. So requests
 * that the session sent before get rows as they are before the step. */
static void arrive(struct push *push)
{
    push_set_stage(push, PUSH_ARRIVED); /* set first: it may be sent back at once */
    push_leave_tables(push);
    if (group_arrive(push->member, push, &push->refusal) == EMBTIER_OK)
        return;
    push_set_stage(push, PUSH_SETTLING);
    push->is_taken = true;
}

/* Begins a step whose rows are known. */
static void begin_step(struct op_lane *lane, struct push *push)
{
    uint64_t cost = 0;

    if (push_check_runs(push, &cost, &push->refusal) != EMBTIER_OK)
        push->is_taken = true;
    else
        push_set_stage(push, push_trial_plan(push, &cost) ? PUSH_TRYING : PUSH_UPDATING);
    schedule_charge(lane->schedule, schedule_side_of(lane->schedule, push->session), cost);
}

void step_turn(struct op_lane *lane, struct push *push)
{
    if (push->stage == PUSH_SETTLING && push->session->in_flight == 1)
        arrive(push);
    else if (push->stage == PUSH_ARRIVED && push->joint && push->joint->casts_left == 0)
        begin_step(lane, push);
}

void step_settle(struct op_lane *lane, struct session *session)
{
    const struct push *const push = push_being_taken(session);

    if (push && push->stage == PUSH_SETTLING && session->in_flight == 1)
        schedule_unstall(lane->schedule, session);
}

static void on_step_done(struct op_lane *lane, struct push *push)
{
    assert(push->stage == PUSH_ARRIVED);
    if (push->is_applied)
        push_set_stage(push, PUSH_UPDATING);
    push->is_taken = true;
    schedule_unstall(lane->schedule, push->session);
}

MESSAGE_KIND(message_step_done, on_step_done, ops, struct push, message)

static void on_lead(struct op_lane *lane, struct push *push)
{
    struct refusal refusal = { .segment = UINT32_MAX };

    assert(push->stage == PUSH_ARRIVED && !push->joint);
    if (push_join(&lane->rules, push, &refusal) == EMBTIER_OK) {
        tickets_cast(lane, push->joint, push->joint->segment_count);
        if (push->joint->casts_left == 0)
            schedule_unstall(lane->schedule,
                             push->session); /* the lane has done all casts, if any */
        return;
    }
    group_end_step(push->member, &refusal, false, 0);
    push->refusal = refusal;
    on_step_done(lane, push);
}

MESSAGE_KIND(message_lead, on_lead, ops, struct push, message)

void step_end(struct op_lane *lane, struct push *push)
{
    if (push->joint) {
        group_end_step(push->member, &push->refusal, push->stage == PUSH_UPDATING, push->hit_rows);
        tickets_end(lane, push->joint);
    } else if (push->stage < PUSH_ARRIVED && push->refusal.err != EMBTIER_OK &&
               push->refusal.err != EMBTIER_DISCONNECTED) {
        group_refuse(push->member, push->refusal.err);
    }
}
