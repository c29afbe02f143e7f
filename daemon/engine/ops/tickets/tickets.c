/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/engine/ops/tickets/tickets.h"

#include <assert.h>

#include "base/counter.h"
#include "daemon/engine/ops/push/push.h"
#include "daemon/engine/ops/tickets/caster.h"
#include "daemon/engine/turns/cost.h"

/* Deals groups out to the casters of all lanes, so that one lookup's groups are cast side by
 * side. */
static void send_to_caster(struct op_lane *lane, struct ticket *ticket, struct ticket_group *group)
{
    const uint32_t number = (uint32_t)(group - ticket->groups) + ticket->session->last_ticket;
    const uint32_t to = (lane->index + number) % lane->lane_count;

    assert(!ticket->is_ended);
    ticket->casts_left++;
    session_hold(ticket->session);
    caster_send(lane->casters[to], &ticket->session->lanes[to].casts, group);
}

/* Casts few pairs here: a caster would take longer to wake up. If many groups are complete in one
 * turn, casts as many as fit into a turn. */
static void cast_group(struct op_lane *lane, struct ticket *ticket, struct ticket_group *group)
{
    struct session_lane *const side = &ticket->session->lanes[lane->index];
    const uint64_t cost = group->id_count * (uint64_t)LANE_COST_PAIR;
    struct cast_pair scratch[CASTER_FEW_PAIRS];

    if (group->id_count > CASTER_FEW_PAIRS ||
        (lane->schedule->cast_cost > 0 &&
         lane->schedule->cast_cost + cost > schedule_turn_cost(lane->schedule, side))) {
        send_to_caster(lane, ticket, group);
        return;
    }
    ticket_cast(group, scratch);
    lane->schedule->cast_cost += cost;
    schedule_charge(lane->schedule, side, cost);
}

void tickets_cast(struct op_lane *lane, struct ticket *ticket, uint32_t segment)
{
    for (; ticket->segments_taken < segment; ticket->segments_taken++) {
        struct ticket_group *const group = ticket_group_of(ticket, ticket->segments_taken);

        assert(group->segments_left > 0);
        if (--group->segments_left == 0)
            cast_group(lane, ticket, group);
    }
}

static void on_cast(struct op_lane *lane, struct ticket_group *group)
{
    struct ticket *const ticket = group->ticket;
    struct session *const session = ticket->session;
    const struct push *const push = push_being_taken(session);

    assert(ticket->casts_left > 0);
    ticket->casts_left--;
    session_release(session);
    if (ticket->casts_left == 0 && ticket->is_ended)
        ticket_free(&lane->rules, ticket);
    else if (ticket->casts_left == 0 && push && (push->ticket == ticket || push->joint == ticket))
        schedule_unstall(lane->schedule, session);
    lane->settle(lane, session);
}

MESSAGE_KIND(message_cast, on_cast, ops, struct ticket_group, message)

/* Adds a ticket to the list, which is in the order of issue. A ticket that comes back is one of the
 * newest, most often. */
static void list_add(struct op_lane *lane, struct ticket *ticket)
{
    struct ticket *older = lane->newest_ticket;
    struct ticket *newer = NULL;

    assert(ticket->is_issued && !ticket->is_lent);
    for (; older && older->issued_ns > ticket->issued_ns; older = older->older)
        newer = older;
    ticket->older = older;
    ticket->newer = newer;
    if (older)
        older->newer = ticket;
    else
        lane->oldest_ticket = ticket;
    if (newer)
        newer->older = ticket;
    else
        lane->newest_ticket = ticket;
}

static void list_remove(struct op_lane *lane, struct ticket *ticket)
{
    assert(ticket->is_issued && !ticket->is_lent);
    if (ticket->older)
        ticket->older->newer = ticket->newer;
    else
        lane->oldest_ticket = ticket->newer;
    if (ticket->newer)
        ticket->newer->older = ticket->older;
    else
        lane->newest_ticket = ticket->older;
}

enum embtier_err tickets_issue(struct op_lane *lane, struct ticket *ticket)
{
    TRY(ticket_issue(ticket, clock_now_ns(lane->clock)));
    list_add(lane, ticket);
    return EMBTIER_OK;
}

void tickets_take(struct op_lane *lane, struct ticket *ticket)
{
    list_remove(lane, ticket);
    ticket_take(ticket);
}

void tickets_lend(struct op_lane *lane, struct ticket *ticket)
{
    list_remove(lane, ticket);
    assert(!ticket->is_ended);
    ticket->is_lent = true;
}

void tickets_give_back(struct op_lane *lane, struct ticket *ticket)
{
    assert(ticket->is_issued && ticket->is_lent);
    ticket->is_lent = false;
    list_add(lane, ticket);
}

/* Has every lane give back its pins of a prefetch. */
static void unpin(struct op_lane *lane, struct ticket *ticket)
{
    assert(ticket->has_pins && ticket->lanes_left == 0);
    ticket->has_pins = false;
    ticket->lanes_left = lane->rules.lane_count;
    session_hold(ticket->session);
    ticket->session->unpinning++;
    for (uint32_t i = 0; i < lane->rules.lane_count; i++)
        mailbox_send(lane->mailboxes[i], &ticket->lanes[i].message);
}

void tickets_end(struct op_lane *lane, struct ticket *ticket)
{
    assert(!ticket->is_ended && !ticket->is_issued);
    ticket->is_ended = true;
    if (ticket->has_pins)
        unpin(lane, ticket);
    else if (ticket->casts_left == 0 && ticket->lanes_left == 0)
        ticket_free(&lane->rules, ticket);
}

static void on_unpinned(struct op_lane *lane, struct ticket_lane *part)
{
    struct ticket *const ticket = part->ticket;
    struct session *const session = ticket->session;

    assert(ticket->lanes_left > 0);
    if (--ticket->lanes_left > 0)
        return;
    ticket_unpinned(&lane->rules, ticket);
    if (ticket->answers)
        request_answer(&lane->rules, session, ticket->request, &ticket->refusal, 0, 0);
    ticket_free(&lane->rules, ticket);
    session_release(session);
    assert(session->unpinning > 0);
    session->unpinning--;
    if (session->taking.op == &op_prefetch)
        schedule_unstall(lane->schedule, session); /* it may wait for these pins */
    lane->settle(lane, session);
}

MESSAGE_KIND(message_unpinned, on_unpinned, ops, struct ticket_lane, message)

uint64_t tickets_expire(struct op_lane *lane)
{
    struct ticket *ticket;

    while ((ticket = lane->oldest_ticket)) {
        const uint64_t end_ns = ticket->issued_ns + lane->rules.ticket_ns;

        if (lane->schedule->now_ns < end_ns)
            return end_ns;
        ticket->session->tickets[(uint32_t)ticket->number % TICKETS_MAX].expired =
            (uint32_t)ticket->number;
        counter_add(&lane->expired_tickets, 1);
        tickets_take(lane, ticket);
        tickets_end(lane, ticket);
    }
    return 0;
}

void tickets_forget(struct op_lane *lane, struct session *session)
{
    for (uint32_t i = 0; i < TICKETS_MAX; i++) {
        struct ticket *const ticket = session->tickets[i].ticket;

        if (!ticket)
            continue;
        tickets_take(lane, ticket);
        tickets_end(lane, ticket);
    }
}
