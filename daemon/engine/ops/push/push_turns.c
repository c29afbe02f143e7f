/* SPDX-License-Identifier: Apache-2.0 */
/* Pushes on their home lane. A push takes its rows in waves, and each lane updates its own rows.
 * See push.h. Prefetches share the turns for ids and waves (push_impl.h). */
#include "daemon/engine/memory/request_memory.h"

#include <assert.h>

#include "daemon/engine/ops/groups/group.h"
#include "daemon/engine/ops/groups/group_turns.h"
#include "daemon/engine/ops/op_table.h"
#include "daemon/engine/ops/push/push_impl.h"
#include "daemon/engine/ops/push/push_trial.h"
#include "daemon/engine/ops/tickets/tickets.h"
#include "daemon/engine/sampling/sampler.h"
#include "daemon/engine/turns/cost.h"
#include "proto/op_fields.h"

/* The cost of putting down a row of a wave, and dealing it out. */
#define COST_WAVE_ROW (2 * LANE_COST_ID)

static void give_up(struct push *push)
{
    if (push->stage == PUSH_ARRIVED || push->joint)
        return; /* it is the group's, or the step that it leads is */
    if (push->is_update || push->is_applied)
        return; /* some rows have changed: then all do */
    push->refusal.err = EMBTIER_DISCONNECTED;
    push->is_taken = true;
}

/* Ends a ticket that a push has used. If the push was refused and has changed nothing, the client
 * has the ticket back. */
static void end_or_give_back(struct op_lane *lane, struct ticket *ticket, const struct push *push)
{
    const enum embtier_err err = push->refusal.err;

    if (ticket->is_issued && push->stage != PUSH_UPDATING && err != EMBTIER_OK &&
        err != EMBTIER_DISCONNECTED) {
        if (push->member) /* it may have waited for longer than a ticket's time */
            ticket->issued_ns = clock_now_ns(lane->clock);
        tickets_give_back(lane, ticket);
        return;
    }
    if (ticket->is_issued)
        ticket_take(ticket);
    tickets_end(lane, ticket);
}

/* Notes the rows that a push has changed, for a profile. */
static void note_updates(struct sampler_lane *sampler, const struct push *push)
{
    for (uint32_t g = 0; g < push->ticket->group_count; g++)
        if (push->groups[g].has_gradients)
            sampler_note_updates(sampler, push->groups[g].table, push->ticket->groups[g].run_count);
}

static void end(struct op_lane *lane, void *what)
{
    struct push *const push = what;
    struct session *const session = push->session;

    if (push->member)
        step_end(lane, push);
    if (UNLIKELY(lane->rules.sampler != NULL) && push->refusal.err == EMBTIER_OK)
        note_updates(lane->rules.sampler, push);
    if (push->prefetch)
        end_or_give_back(lane, push->prefetch, push);
    end_or_give_back(lane, push->ticket, push);
    if (push->is_update)
        update_end(lane->gate, session, push->kind);
    push_free(&lane->rules, push, 0);
    session_release(session);
}

static struct session_lane *side_of(const struct op_lane *lane, const struct push *push)
{
    return schedule_side_of(lane->schedule, push->session);
}

/* Has the push poll. It pays for a whole turn, so that other sessions have theirs meanwhile. */
static enum op_turn poll_later(struct op_lane *lane, const struct push *push)
{
    struct session_lane *const side = side_of(lane, push);

    schedule_charge(lane->schedule, side, schedule_turn_cost(lane->schedule, side));
    return OP_TURN_MORE;
}

enum embtier_err push_ids_turn(struct op_lane *lane, struct push *push, enum push_stage next,
                               uint64_t *left)
{
    const enum embtier_err err = push_take_ids(push, left, &push->refusal);

    tickets_cast(lane, push->ticket, err == EMBTIER_OK ? push->segment_count : push->segment);
    if (err == EMBTIER_OK)
        push_set_stage(push, next);
    return err;
}

/* Goes on with the stages before the first wave. Returns true when they are over. */
static bool prepare_turn(struct op_lane *lane, struct push *push)
{
    struct session_lane *const side = side_of(lane, push);
    const uint64_t most = MIN(lane->take_ids, schedule_turn_cost(lane->schedule, side));
    uint64_t left = most;
    enum embtier_err err = EMBTIER_OK;

    if (push->stage == PUSH_IDS) {
        err = push_ids_turn(lane, push, PUSH_NUMBERS, &left);
    } else if (push->stage == PUSH_NUMBERS) {
        err = push_check_numbers(push, &left, &push->refusal);
        if (err == EMBTIER_OK)
            push_set_stage(push, PUSH_CASTING);
    }
    schedule_charge(lane->schedule, side, most - left);
    if (err != EMBTIER_OK && err != EMBTIER_AGAIN)
        push->is_taken = true;
    if (push->stage == PUSH_CASTING && push->ticket->casts_left == 0) {
        uint64_t cost = push_prepare(push);

        push->is_taken = push_check_runs(push, &cost, &push->refusal) != EMBTIER_OK;
        if (!push->is_taken)
            push_set_stage(push, push->member                   ? PUSH_SETTLING
                                 : push_trial_plan(push, &cost) ? PUSH_TRYING
                                                                : PUSH_UPDATING);
        schedule_charge(lane->schedule, side, cost);
    }
    if (push->stage >= PUSH_SETTLING)
        step_turn(lane, push);
    return push->stage >= PUSH_TRYING;
}

/* True if waves of the trial are left, or under way. Otherwise ends the trial. */
static bool trial_goes_on(struct push *push)
{
    if (!push->is_tried && !push_trial_has_failed(push))
        return true;
    push->is_tried = true;
    if (push->waves.under_way > 0)
        return true;
    push->is_taken = push_trial_end(push, &push->refusal) != EMBTIER_OK;
    return false;
}

/* Returns the limit on rows of its next wave. While other sessions ask, that is what one turn can
 * take. */
static uint32_t wave_rows(const struct op_lane *lane, const struct push *push)
{
    const uint64_t most = schedule_turn_cost(lane->schedule, side_of(lane, push));

    return most < LANE_TURN_COST_ALONE ? (uint32_t)most / COST_WAVE_ROW : UINT32_MAX;
}

void push_start_wave(struct op_lane *lane, struct push *push, struct push_wave *wave)
{
    push_take_wave(&lane->rules, push, wave, wave_rows(lane, push));
    schedule_charge(lane->schedule, side_of(lane, push),
                    wave->slice_count * (uint64_t)LANE_COST_SEGMENT +
                        wave->request.id_count * COST_WAVE_ROW);
    waves_begin(&push->waves, wave);
    rows_start(lane->rows, &wave->request);
}

static enum op_turn take_turn(struct op_lane *lane, void *what, uint64_t *left)
{
    struct push *const push = what;
    struct push_wave *wave;
    bool begins;

    (void)left; /* each thing it does is given a turn's cost */
    if (op_is_over(push->session))
        give_up(push);
    if (!push->is_taken && push->stage < PUSH_TRYING && !prepare_turn(lane, push))
        return push->is_taken                ? OP_TURN_COMPLETE
               : push->stage >= PUSH_CASTING ? OP_TURN_STALLED
                                             : OP_TURN_MORE;
    if (!push->is_taken && push->stage == PUSH_TRYING && trial_goes_on(push) && push->is_tried)
        return OP_TURN_STALLED;
    begins = !push->is_taken && !push->is_update && push->stage == PUSH_UPDATING;
    if (begins)
        push->kind = push_kind(push);
    if (begins && !update_may_begin(lane->gate, push->session, push->kind))
        return OP_TURN_HELD;
    if (!push->is_taken) {
        wave = push_free_wave(&lane->rules, push);
        if (!wave) /* the push queues for memory, or polls until the session's other requests end:
                      each of them ends by itself */
            return push->waves.under_way > 0 ||
                           request_memory_waits(lane->rules.memory, &push->session->memory_share)
                       ? OP_TURN_STALLED
                       : poll_later(lane, push);
        if (begins) { /* not before it has its memory: the gate waits for its end */
            update_begin(lane->gate, push->session, push->kind);
            push->is_update = true;
            push_note_steps(push);
        }
        push_start_wave(lane, push, wave);
    }
    if (!push->is_taken)
        return OP_TURN_MORE;
    if (push->waves.under_way == 0)
        return OP_TURN_COMPLETE;
    return push->joint ? OP_TURN_STALLED : OP_TURN_ISSUED; /* the next may need the step */
}

void push_wave_done(struct op_lane *lane, struct request *request)
{
    struct push_wave *const wave = push_wave_of(request);
    struct push *const push = wave->push;
    const struct op *const op = request->op;
    const enum embtier_err err = (enum embtier_err)atomic_load(&request->err);
    const uint32_t slice = request->err_segment;

    if (err != EMBTIER_OK && push->refusal.err == EMBTIER_OK) {
        push->refusal.err = err;
        push->refusal.value = request->err_value;
        if (slice < wave->slice_count && !push->joint)
            push->refusal.segment = push->ticket->groups[wave->slices[slice].group].order[0];
        push->is_taken = true; /* no more of it is taken */
    }
    push_end_wave(&lane->rules, push, wave);
    op_after_wave(lane, push->session, op, push, push->waves.under_way);
}

/* ---- Beginning ---- */

static enum embtier_err begin(struct op_lane *lane, struct session *session, uint32_t number,
                              const struct op_submission *submission, struct taking *ret_taking,
                              struct refusal *refusal)
{
    struct group_member *member = NULL;
    struct push *push = NULL;
    enum embtier_err err = group_check(session, submission, true, &member, refusal);

    if (err == EMBTIER_OK)
        err = push_begin(&lane->rules, session, number, submission, member, &push, refusal);
    if (err != EMBTIER_OK && err != EMBTIER_AGAIN && member)
        group_refuse(member, err);
    if (err != EMBTIER_OK)
        return err;
    if (push->ticket->is_issued)
        tickets_lend(lane, push->ticket);
    if (push->prefetch)
        tickets_lend(lane, push->prefetch);
    ret_taking->what = push;
    return EMBTIER_OK;
}

const struct op op_push = {
    .name = "PUSH",
    .has_turns = true,
    .form = op_form_of,
    .begin = begin,
    .turn = take_turn,
    .end = end,
    .done = push_wave_done,
};
