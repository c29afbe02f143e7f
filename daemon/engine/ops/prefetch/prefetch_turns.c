/* SPDX-License-Identifier: Apache-2.0 */
/* Prefetches on their home lane. See prefetch.h. */
#include "daemon/engine/ops/op_table.h"
#include "daemon/engine/ops/prefetch/prefetch.h"
#include "daemon/engine/ops/push/push_impl.h"
#include "daemon/engine/ops/tickets/tickets.h"
#include "proto/op_fields.h"

/* Delays the answer of a refused prefetch until its pins are given back. Then, as far as its client
 * can see, it has pinned nothing, and a prefetch of fewer rows finds room. */
static void answer_unpinned(struct push *push)
{
    struct ticket *const ticket = push->ticket;

    if (!ticket->has_pins || push->refusal.err == EMBTIER_DISCONNECTED)
        return;
    ticket->answers = push->is_answered = true;
    ticket->request = push->number;
    ticket->refusal = push->refusal;
}

static void end(struct op_lane *lane, void *what)
{
    struct push *const push = what;
    struct session *const session = push->session;
    struct ticket *const ticket = push->ticket;
    uint64_t number = 0;

    if (push->refusal.err == EMBTIER_OK) {
        push->refusal.err = tickets_issue(lane, ticket);
        push->refusal.value = TICKETS_MAX;
    }
    if (push->refusal.err == EMBTIER_OK) {
        number = ticket->number;
    } else {
        answer_unpinned(push);
        tickets_end(lane, ticket);
    }
    push_free(&lane->rules, push, number);
    session_release(session);
}

/* Counts the rows that their homes pin, each once, in the user's account. A table may have another
 * home by the time its rows come in: those of others are never pinned, as nothing counts them. */
static enum embtier_err pin(const struct op_lane *lane, struct push *push, struct refusal *refusal)
{
    uint64_t bytes = 0;

    for (uint32_t g = 0; g < push->ticket->group_count; g++) {
        struct ticket_group *const group = &push->ticket->groups[g];

        group->takes_pins = home_takes_pins(lane->rows, push->groups[g].table);
        if (group->takes_pins)
            bytes += (uint64_t)group->run_count * push->groups[g].table->row_bytes;
    }
    return ticket_pin(&lane->rules, push->ticket, bytes, refusal);
}

/* False: there is no room for so many pins. The prefetch then waits for the pins that its session
 * gives back. So a client that has released one prefetch may ask for the next. */
static bool may_pin(struct op_lane *lane, struct push *push)
{
    struct refusal refusal;

    if (pin(lane, push, &refusal) == EMBTIER_OK)
        return true;
    push->is_taken = push->session->unpinning == 0;
    if (push->is_taken)
        push->refusal = refusal;
    return false;
}

/* Goes on with the stages before the first wave. */
static void prepare_turn(struct op_lane *lane, struct push *push)
{
    struct session_lane *const side = schedule_side_of(lane->schedule, push->session);
    const uint64_t most = MIN(lane->take_ids, schedule_turn_cost(lane->schedule, side));
    uint64_t left = most;
    enum embtier_err err = EMBTIER_OK;

    if (push->stage == PUSH_IDS)
        err = push_ids_turn(lane, push, PUSH_CASTING, &left);
    schedule_charge(lane->schedule, side, most - left);
    if (err != EMBTIER_OK && err != EMBTIER_AGAIN)
        push->is_taken = true;
    if (push->stage == PUSH_CASTING && push->ticket->casts_left == 0 && may_pin(lane, push)) {
        push->ticket->has_pins = true;
        push_set_stage(push, PUSH_UPDATING);
    }
}

static enum op_turn take_turn(struct op_lane *lane, void *what, uint64_t *left)
{
    struct push *const push = what;

    (void)left; /* each thing it does is given a turn's cost */
    if (op_is_over(push->session)) {
        push->refusal.err = EMBTIER_DISCONNECTED;
        push->is_taken = true;
    }
    if (!push->is_taken && push->stage != PUSH_UPDATING)
        prepare_turn(lane, push);
    if (!push->is_taken && push->stage != PUSH_UPDATING)
        return push->stage == PUSH_CASTING ? OP_TURN_STALLED : OP_TURN_MORE;
    if (!push->is_taken) {
        struct push_wave *const wave = push_free_wave(&lane->rules, push);

        if (!wave) /* its own is under way */
            return OP_TURN_STALLED;
        push_start_wave(lane, push, wave);
    }
    if (!push->is_taken)
        return OP_TURN_MORE;
    return push->waves.under_way > 0 ? OP_TURN_ISSUED : OP_TURN_COMPLETE;
}

static enum embtier_err begin(struct op_lane *lane, struct session *session, uint32_t number,
                              const struct op_submission *submission, struct taking *ret_taking,
                              struct refusal *refusal)
{
    struct push *push;

    TRY(prefetch_begin(&lane->rules, session, number, submission, &push, refusal));
    ret_taking->what = push;
    return EMBTIER_OK;
}

const struct op op_prefetch = {
    .name = "PREFETCH",
    .has_turns = true,
    .form = op_form_of,
    .begin = begin,
    .turn = take_turn,
    .end = end,
    .done = push_wave_done,
};
