/* SPDX-License-Identifier: Apache-2.0 */
/* The loop of a lane: messages, sessions, turns of row work, reads. When there was nothing to do,
 * the lane polls for a moment, then sleeps.
 *
 * No wake-up is lost. mailbox.h says why for messages; a session's `lane_asleep` and `tail` work in
 * the same way. Event descriptors are watched edge-triggered and never read. So a client that holds
 * the same descriptor can neither swallow a wake-up of ours nor make our read of it block. */
#include "daemon/engine/lane/lane.h"

#include <assert.h>
#include <limits.h>
#include <sys/epoll.h>

#include "base/counter.h"
#include "base/cpu.h"
#include "base/system/thread_class.h"
#include "daemon/engine/lane/lane_impl.h"
#include "daemon/engine/memory/engine_reserved.h"
#include "daemon/engine/memory/request_memory.h"
#include "daemon/engine/ops/begin.h"
#include "daemon/engine/ops/groups/group.h"
#include "daemon/engine/ops/groups/group_turns.h"
#include "daemon/engine/ops/pooled/pooled_turns.h"
#include "daemon/engine/ops/prefetch/prefetch_rows.h"
#include "daemon/engine/ops/tickets/tickets.h"
#include "daemon/engine/sessions/tsan.h"
#include "daemon/engine/turns/cost.h"

/* After so much silence, a session's client must ring. */
#define SESSION_POLL_NS (UINT64_C(200) * 1000)
/* A lane that always has work listens to doorbells this often. */
#define DOORBELL_NS (UINT64_C(100) * 1000)
/* The limit on requests of one session that are begun in one turn. */
#define REQUESTS_PER_TURN 4
/* A round in which nothing comes takes little more time than reading the clock, for which the next
 * request would wait. So one round in ROUNDS_PER_CLOCK reads it, as does each request. */
#define ROUNDS_PER_CLOCK 8

static void read_clock(struct lane *lane)
{
    lane->schedule.now_ns = clock_now_ns(lane->opts.clock);
    lane->rounds_to_clock = ROUNDS_PER_CLOCK;
}

/* ---- Sessions and requests ---- */

static void session_poll(struct lane *lane, struct session *session)
{
    session->last_seen_ns = lane->schedule.now_ns;
    if (session->polled)
        return;
    session->polled = true;
    session->next_polled = lane->schedule.polled;
    lane->schedule.polled = session;
    lane->schedule.polled_count++;
    session->channel.ops->set_polled(&session->channel, true);
}

static void session_break(struct session *session, const char *why)
{
    if (session->broken)
        return;
    assert(why);
    session->broken = true;
    session->broken_why = why;
    session->send(session->owner, &session->broken_message);
}

static void add_work(struct lane *lane, struct session *session, enum session_work work)
{
    schedule_add_work(&lane->schedule, &session->lanes[lane->opts.index], work);
}

static void remove_work(struct lane *lane, struct session *session, enum session_work work)
{
    schedule_remove_work(&lane->schedule, &session->lanes[lane->opts.index], work);
}

/* Takes some of the session's request, for about *@left, and leaves the rest to its turns. */
static void go_on_taking(struct lane *lane, struct session *session, uint64_t *left)
{
    const struct taking taking = session->taking;

    switch (taking.op->turn(&lane->ops, taking.what, left)) {
    case OP_TURN_MORE:
        add_work(lane, session, SESSION_TAKE);
        return;
    case OP_TURN_STALLED:
        assert(!session->stalled);
        session->stalled = true;
        break;
    case OP_TURN_HELD:
        update_hold(&lane->gate, session);
        break;
    case OP_TURN_ISSUED:
        session->taking = (struct taking){ .op = NULL };
        break;
    case OP_TURN_COMPLETE:
        session->taking = (struct taking){ .op = NULL };
        taking.op->end(&lane->ops, taking.what);
        break;
    }
    remove_work(lane, session, SESSION_TAKE);
}

/* Begins to take a request: as much of it as *@left allows, unless all of it has its turns. */
static void begin_to_take(struct lane *lane, struct session *session, const struct taking *taking,
                          uint64_t *left)
{
    session_hold(session);
    assert(!session->taking.op && taking->op && taking->what);
    session->taking = *taking;
    if (taking->op->has_turns || *left == 0) {
        *left = 0;
        add_work(lane, session, SESSION_TAKE);
        return;
    }
    go_on_taking(lane, session, left);
}

/* Notes when request @number was first looked at. */
static void note_taken(struct lane *lane, struct session *session, uint32_t number)
{
    if (UNLIKELY(session->begins_again)) {
        session->begins_again = false;
        return;
    }
    read_clock(lane);
    *session_time(session, number) = (struct request_time){ .taken_ns = lane->schedule.now_ns };
}

/* Begins to take one request, or answers it at once. *@left is the rest of this turn. False: there
 * is no memory for it now. */
static bool session_begin(struct lane *lane, struct session *session, uint64_t *left)
{
    const uint32_t number = session->consumed;
    const uint32_t slot = number % session->channel.slot_count;
    struct refusal refusal = { .segment = UINT32_MAX };
    struct taking taking = { .op = NULL };
    uint64_t cost;
    enum embtier_err err;

    if (atomic_load_explicit(&session->slot_busy[slot], memory_order_acquire)) {
        session_break(session, "a request was submitted into a slot whose request is under way");
        return true;
    }
    note_taken(lane, session, number);
    session->begin_rows = 0;
    err = op_begin(&lane->ops, session, number, &taking, &refusal);
    cost = LANE_COST_REQUEST + (uint64_t)taking.segment_count * LANE_COST_SEGMENT;
    schedule_charge(&lane->schedule, &session->lanes[lane->opts.index], cost);
    counter_add(&lane->segments, taking.segment_count);
    session->begin_cost = MAX(cost, session->begin_cost / 2);
    *left -= MIN(*left, cost);
    if (err == EMBTIER_AGAIN) {
        session->memory_short = session->begins_again = true;
        return false;
    }
    session->consumed++;
    counter_add(&lane->requests, 1);
    counter_add(&session->counts.requests, 1);
    if (err != EMBTIER_OK || !taking.what) {
        request_answer(&lane->ops.rules, session, number, &refusal, 0, 0);
        *left = 0; /* that may have cost much to find out */
        return true;
    }
    counter_add(&session->counts.rows, session->begin_rows);
    session_time(session, number)->rows = (uint32_t)MIN(session->begin_rows, (uint64_t)UINT32_MAX);
    atomic_store_explicit(&session->slot_busy[slot], 1, memory_order_relaxed);
    begin_to_take(lane, session, &taking, left);
    return true;
}

static bool session_may_begin(const struct session *session, uint32_t tail)
{
    return session->consumed != tail && !session->taking.op && !session->memory_short &&
           !session->broken && !session->detaching;
}

static void begin_turn(struct lane *lane, struct session *session)
{
    const uint32_t tail = channel_read_tail(&session->channel);
    uint64_t left = schedule_turn_cost(&lane->schedule, &session->lanes[lane->opts.index]);
    uint32_t begun = 0;

    if (tail - session->consumed > session->channel.slot_count)
        session_break(session, "more requests submitted than there are slots");
    TSAN_ACQUIRE(&session->channel);
    while (begun < REQUESTS_PER_TURN && left > 0 && session_may_begin(session, tail) &&
           session_begin(lane, session, &left))
        begun++;
    if (session_may_begin(session, tail))
        schedule_add_begin(&lane->schedule, session);
    else /* until the lane looks at the session again */
        remove_work(lane, session, SESSION_BEGIN);
}

/* True if the client has submitted a request that can be begun now. */
static bool session_has_next(struct lane *lane, struct session *session)
{
    const bool is_over = session->broken || session->detaching;

    if (session->taking.op)
        return false;
    if (is_over || channel_read_tail(&session->channel) == session->consumed) {
        request_memory_forget(&lane->ops.rules, session); /* it took the request back */
        session->memory_short = session->begins_again = false;
        return false;
    }
    /* The client has just written the submission: the line comes from its core while the turn is
     * found. */
    __builtin_prefetch(channel_submission(&session->channel, session->consumed));
    return !session->memory_short;
}

/* Stops polling a session, whose client rings from now on. The caller takes it out of the list.
 * False: a request came in between. */
static bool session_unpoll(struct session *session)
{
    session->channel.ops->set_polled(&session->channel, false);
    if (!session->broken && !session->detaching &&
        channel_read_tail(&session->channel) != session->consumed) {
        session->channel.ops->set_polled(&session->channel, true);
        return false;
    }
    assert(session->polled);
    session->polled = false;
    return true;
}

/* True if the session is at a pooled lookup or a push; its next request waits for the end of
 * that. */
static bool session_is_waved(const struct session *session)
{
    return session->taking.op && session->taking.op->has_turns;
}

/* Finds sessions whose clients have submitted requests, which are begun in their turns. */
static void look_at_sessions(struct lane *lane)
{
    struct session **at = &lane->schedule.polled;

    while (*at) {
        struct session *const session = *at;

        if (session_has_next(lane, session)) {
            session->last_seen_ns = lane->schedule.now_ns;
            if (!(session->lanes[lane->opts.index].work & SESSION_BEGIN))
                schedule_add_begin(&lane->schedule, session);
        } else if ((session->broken || session->detaching ||
                    lane->schedule.now_ns - session->last_seen_ns > SESSION_POLL_NS) &&
                   !session->memory_short && !session_is_waved(session) &&
                   session_unpoll(session)) {
            *at = session->next_polled;
            assert(lane->schedule.polled_count > 0);
            lane->schedule.polled_count--;
            continue;
        }
        at = &session->next_polled;
    }
}

/* Lets go of a session that is being detached, once nothing of it is under way. */
void lane_settle(struct op_lane *ops, struct session *session)
{
    struct lane *const lane = CONTAINER_OF(ops, struct lane, ops);

    step_settle(ops, session);
    if (!session->detaching || session->in_flight > 0)
        return;
    session->broken = true; /* nothing more is taken */
    tickets_forget(ops, session);
    if (session->in_flight > 0) /* pins are given back first */
        return;
    session->wanted_bytes = 0;
    request_memory_leave(lane->ops.rules.memory, &session->memory_share);
    if (session->memory_share.is_told) /* memory_message is on its way */
        return;
    assert(!session->taking.op && !session->stalled);
    remove_work(lane, session, SESSION_BEGIN);
    assert(session->lanes[lane->opts.index].work == 0);
    for (struct session **at = &lane->schedule.polled; *at; at = &(*at)->next_polled) {
        if (*at == session) {
            *at = session->next_polled;
            assert(lane->schedule.polled_count > 0);
            lane->schedule.polled_count--;
            break;
        }
    }
    epoll_ctl(lane->epoll_fd, EPOLL_CTL_DEL, session->channel.doorbell_fd, NULL);
    session->send(session->owner, &session->gone_message);
}

static void take_turn(struct lane *lane, struct session *session)
{
    uint64_t left = schedule_turn_cost(&lane->schedule, &session->lanes[lane->opts.index]);

    if (!session->broken && !session->detaching)
        session->last_seen_ns = lane->schedule.now_ns;
    go_on_taking(lane, session, &left);
    lane_settle(&lane->ops, session);
}

/* Called by the lane that has given memory back. */
static void wake_for_memory(struct request_memory_share *share)
{
    struct session *const session = CONTAINER_OF(share, struct session, memory_share);

    mailbox_send(session->mailbox, &session->memory_message);
}

/* The session has been granted the memory that its next request, or a push's first wave, waits
 * for. */
static void on_memory(struct lane *lane, struct session *session)
{
    request_memory_heard(lane->ops.rules.memory, &session->memory_share);
    session->memory_short = false;
    schedule_unstall(&lane->schedule, session);
    lane_settle(&lane->ops, session);
}

MESSAGE_KIND(message_memory, on_memory, lane, struct session, memory_message)

static void on_attach(struct lane *lane, struct session *session)
{
    struct epoll_event ring = { .events = EPOLLIN | EPOLLET, .data.ptr = session };

    if (epoll_ctl(lane->epoll_fd, EPOLL_CTL_ADD, session->channel.doorbell_fd, &ring) != 0) {
        session_break(session, "its doorbell cannot be watched");
        return; /* the control thread will detach it */
    }
    assert(!session->mailbox && session->home == lane->opts.index);
    session->mailbox = &lane->mailbox;
    session->memory_message.kind = &message_memory;
    session->memory_share.wake = wake_for_memory;
    session_poll(lane, session);
}

MESSAGE_KIND(message_attach, on_attach, lane, struct session, attach_message)

static void on_detach(struct lane *lane, struct session *session)
{
    assert(!session->detaching);
    session->detaching = true;
    update_release_held(&lane->gate);
    group_leave_all(session);
    lane_settle(&lane->ops, session);
}

MESSAGE_KIND(message_detach, on_detach, lane, struct session, detach_message)

/* ---- Messages ---- */

static void take_all(struct lane *lane, struct message *message)
{
    const struct receiver to = { .rows = &lane->rows, .ops = &lane->ops, .lane = lane };

    while (message) {
        struct message *const next = message->next; /* the message may be gone afterwards */

        message->kind->take(&to, message);
        message = next;
    }
}

static bool take_messages(struct lane *lane)
{
    struct message *const done = lane->rows.done_here;
    const bool has_mail = !inbox_is_empty(&lane->mailbox.inbox);

    lane->rows.done_here = NULL;
    lane->rows.last_done_here = &lane->rows.done_here;
    take_all(lane, done);
    if (has_mail) {
        take_all(lane, inbox_take_all(&lane->mailbox.inbox));
        lane->rounds_to_clock = 0;
    }
    return done || has_mail;
}

/* ---- The loop ---- */

static void turn(struct lane *lane, struct session_lane *side, enum session_work work)
{
    switch (work) { /* the session may be gone after its turn */
    case SESSION_PARTS:
        rows_turn(&lane->rows, side);
        break;
    case SESSION_TAKE:
        take_turn(lane, schedule_session_of(&lane->schedule, side));
        break;
    case SESSION_BEGIN:
        begin_turn(lane, schedule_session_of(&lane->schedule, side));
        break;
    case SESSION_ADD_UP:
        pooled_add_up_turn(&lane->ops, side);
        break;
    }
}

/* Runs turns of sessions until it is time to look for other work. False: no session wants one. */
static bool take_turns(struct lane *lane)
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

/* Polls the sessions whose clients have rung. First waits for a ring or a message, at most
 * @timeout_ms (-1: without limit). */
static void hear_doorbells(struct lane *lane, int timeout_ms)
{
    struct epoll_event events[64];
    const int count = epoll_wait(lane->epoll_fd, events, (int)ARRAY_LEN(events), timeout_ms);

    read_clock(lane);
    lane->heard_ns = lane->schedule.now_ns;
    for (int i = 0; i < count; i++)
        if (events[i].data.ptr)
            session_poll(lane, events[i].data.ptr);
}

static void lane_sleep(struct lane *lane, int timeout_ms)
{
    mailbox_sleeps(&lane->mailbox);
    if (inbox_is_empty(&lane->mailbox.inbox) && !lane->rows.done_here)
        hear_doorbells(lane, timeout_ms);
    mailbox_wakes(&lane->mailbox);
}

/* Stops polling all sessions, except those whose next request waits for memory, or for the end of a
 * pooled lookup or a push. False: a request has come in between. */
static bool unpoll_all(struct lane *lane)
{
    struct session **at = &lane->schedule.polled;

    while (*at) {
        if ((*at)->memory_short || session_is_waved(*at)) {
            at = &(*at)->next_polled;
            continue;
        }
        if (!session_unpoll(*at))
            return false;
        *at = (*at)->next_polled;
        assert(lane->schedule.polled_count > 0);
        lane->schedule.polled_count--;
    }
    return true;
}

/* Returns how long the lane may sleep at most; -1: for ever. */
static int sleep_ms(const struct lane *lane)
{
    uint64_t left_ms;

    if (lane->ticket_end_ns == 0)
        return -1;
    left_ms = (lane->ticket_end_ns - MIN(lane->schedule.now_ns, lane->ticket_end_ns)) / 1000000 + 1;
    return (int)MIN(left_ms, (uint64_t)INT_MAX);
}

static void lane_idle(struct lane *lane)
{
    if (lane->idle_since_ns == 0) {
        read_clock(lane);
        lane->idle_since_ns = lane->schedule.now_ns;
    }
    if (lane->schedule.now_ns - lane->idle_since_ns < lane->opts.spin_ns) {
        cpu_relax();
        return;
    }
    if (unpoll_all(lane))
        lane_sleep(lane, sleep_ms(lane));
    lane->idle_since_ns = 0;
}

bool lane_round(struct lane *lane)
{
    bool worked, took_long;

    if (lane->rounds_to_clock == 0)
        read_clock(lane);
    lane->rounds_to_clock--;
    worked = take_messages(lane);
    /* A lane that goes to sleep hears doorbells then. But work may keep it from ever going to
     * sleep. */
    if (lane->schedule.now_ns - lane->heard_ns > DOORBELL_NS)
        hear_doorbells(lane, 0);
    lane->ticket_end_ns = tickets_expire(&lane->ops);
    look_at_sessions(lane);
    took_long = pins_turn(&lane->ops);
    took_long |= rows_serve_read(&lane->rows);
    worked |= take_turns(lane);
    took_long |= rows_dispatch_reads(&lane->rows);
    if (took_long || lane->schedule.charged > LANE_ROUND_COST)
        lane->rounds_to_clock = 0;
    return worked || took_long;
}

void *lane_main(void *context)
{
    struct lane *const lane = context;

    thread_class_answering();
    while (!lane->stopping) {
        if (lane_round(lane))
            lane->idle_since_ns = 0;
        else
            lane_idle(lane);
    }
    return NULL;
}
