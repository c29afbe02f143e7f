/* SPDX-License-Identifier: Apache-2.0 */
/* The loop of a lane: messages, sessions, turns of row work, reads; then, when there was nothing, a
 * moment of polling, then sleep.
 *
 * Sleep without losing a wake-up. The lane says `asleep`, then looks at its inbox once more; a
 * sender pushes, then looks at `asleep`; both with full barriers between, so one of the two sees
 * the other. The same goes for each session's `lane_asleep` and `tail`. Event descriptors are
 * watched edge-triggered and never read: a client that holds the same descriptor can neither
 * swallow a wake-up of ours nor make a read of it block. */
#include "daemon/engine/lane/lane.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/cpu.h"
#include "base/log/log.h"
#include "base/system/thread_class.h"
#include "config/config.h"
#include "daemon/engine/lane/lane_impl.h"
#include "daemon/engine/memory/engine_reserved.h"
#include "daemon/engine/memory/reserved.h"
#include "daemon/engine/memory/ticket_memory.h"
#include "daemon/engine/sessions/tsan.h"
#include "daemon/engine/tables/tables.h"
#include "store/store.h"

/* A session whose client has been silent this long must ring. */
#define SESSION_POLL_NS (UINT64_C(200) * 1000)
/* A lane that always has work looks this often whether somebody rang. */
#define DOORBELL_NS (UINT64_C(100) * 1000)
/* Requests begun of one session in one turn. */
#define REQUESTS_PER_TURN 4
/* Rows handed to the writer per step of a write-back. */
#define WRITE_BACK_STEP_ROWS 1024
#define PURGE_STEP_SETS      4096
#define TABLE_MARKS_BYTES    ((ROW_CACHE_TABLES_MAX + 1) * sizeof(uint32_t))

_Static_assert((sizeof(struct miss) + sizeof(uint32_t)) * LANE_MISSES_MAX +
                       SHM_SEGMENTS_MAX * sizeof(struct shm_segment) + TABLE_MARKS_BYTES +
                       READ_JOB_BYTES + PUSH_SCRATCH_BYTES + sizeof(struct lane) <=
                   LANE_FIXED_BYTES,
               "the configuration counts what a lane reserves");

/* ---- Sessions and requests ---- */

void lane_part_finished(struct lane *lane, struct part *part)
{
    struct request *const request = part->request;
    struct lane *const home = lane->opts.lanes[request->session->home];

    if (lane_log_holds(lane, part))
        return;
    if (!request_part_done(part))
        return;
    if (home != lane) {
        lane_send(home, &request->message);
        return;
    }
    request->message.next = NULL;
    *lane->last_done_here = &request->message;
    lane->last_done_here = &request->message.next;
}

static void session_poll(struct lane *lane, struct session *session)
{
    session->last_seen_ns = lane->now_ns;
    if (session->polled)
        return;
    session->polled = true;
    session->next_polled = lane->polled;
    lane->polled = session;
    lane->polled_count++;
    shm_lane_sleeps(session->control, 0);
}

static void session_break(struct session *session, const char *why)
{
    if (session->broken)
        return;
    session->broken = true;
    session->broken_why = why;
    session->send(session->owner, &session->broken_message);
}

void lane_start_request(struct lane *lane, struct request *request)
{
    if (atomic_load_explicit(&request->parts_left, memory_order_relaxed) == 0) {
        /* No ids at all. A part with nothing in it takes the one way in which requests end. */
        atomic_store_explicit(&request->parts_left, 1, memory_order_relaxed);
        lane_part_finished(lane, &request->parts[lane->opts.index]);
        return;
    }
    for (uint32_t i = 0; i < lane->rules.lane_count; i++) {
        struct part *const part = &request->parts[i];

        if (part->starts[request->segment_count] == 0)
            continue;
        if (i == lane->opts.index)
            lane_add_part(lane, part);
        else
            lane_send(lane->opts.lanes[i], &part->message);
    }
}

static enum update_kind kind_of(const struct request *request)
{
    return request->id_count > UPDATE_WHOLE_ROWS ? UPDATE_LARGE : UPDATE_SMALL;
}

/* The cost of taking it. */
static uint64_t taken_cost(const struct request *request)
{
    return (request->taken_ids + request->dealt_ids) * LANE_COST_ID +
           (uint64_t)request->taking_segment * LANE_COST_SEGMENT;
}

/* Takes @id_count more ids of a request, and starts it with the last id, or answers it if it is
 * refused. */
static enum take_turn take_request(struct lane *lane, struct request *request, uint64_t id_count)
{
    struct session *const session = request->session;
    struct session_lane *const side = &session->lanes[lane->opts.index];
    const uint32_t number = request->number;
    const uint64_t cost_before = taken_cost(request);
    struct refusal refusal = { .segment = UINT32_MAX };
    enum embtier_err err;

    if (request_changes(request) && !lane_update_may_begin(lane, session, kind_of(request)))
        return TAKE_TURN_HELD;
    err = request_take(&lane->rules, request, id_count, &refusal);
    lane_charge(lane, side, taken_cost(request) - cost_before);
    if (err == EMBTIER_AGAIN)
        return TAKE_TURN_MORE;
    if (err == EMBTIER_OK) {
        if (request_changes(request))
            lane_update_begin(lane, session, kind_of(request));
        lane_start_request(lane, request);
    } else {
        request_discard(&lane->rules, request);
        session->in_flight--;
        request_answer(session, number, &refusal, 0, 0);
    }
    return TAKE_TURN_DONE;
}

static void add_work(struct lane *lane, struct session *session, enum session_work work)
{
    lane_add_work(lane, &session->lanes[lane->opts.index], work);
}

static void remove_work(struct lane *lane, struct session *session, enum session_work work)
{
    lane_remove_work(lane, &session->lanes[lane->opts.index], work);
}

static void end_taken(struct lane *lane, const struct taking *taking)
{
    if (taking->kind == TAKING_POOLED)
        lane_pool_end(lane, taking->pooled);
    else
        lane_push_end(lane, taking->push);
}

/* Its update waits for the gate, and takes no turns meanwhile. */
static void hold(struct lane *lane, struct session *session)
{
    session->next_held = NULL;
    if (lane->held)
        lane->last_held->next_held = session;
    else
        lane->held = session;
    lane->last_held = session;
}

void lane_release_held(struct lane *lane)
{
    struct session *session;

    while ((session = lane->held)) {
        lane->held = session->next_held;
        add_work(lane, session, SESSION_TAKE);
    }
}

/* Takes a wave of the session's pooled lookup or push. */
static void take_wave(struct lane *lane, struct session *session)
{
    const struct taking taking = session->taking;

    switch (taking.kind == TAKING_POOLED ? lane_pool_turn(lane, taking.pooled)
                                         : lane_push_turn(lane, taking.push)) {
    case TAKE_TURN_MORE:
        return;
    case TAKE_TURN_STALLED:
        session->stalled = true;
        break;
    case TAKE_TURN_HELD:
        hold(lane, session);
        break;
    case TAKE_TURN_TAKEN:
        session->taking.kind = TAKING_NOTHING;
        break;
    case TAKE_TURN_DONE:
        session->taking.kind = TAKING_NOTHING;
        end_taken(lane, &taking);
        break;
    }
    remove_work(lane, session, SESSION_TAKE);
}

void lane_unstall(struct lane *lane, struct session *session)
{
    if (session->stalled)
        add_work(lane, session, SESSION_TAKE);
    session->stalled = false;
}

static void lend_tickets(struct lane *lane, const struct push *push)
{
    if (push->ticket->is_issued)
        lane_ticket_lend(lane, push->ticket);
    if (push->prefetch)
        lane_ticket_lend(lane, push->prefetch);
}

/* Takes ids of the session's request of segments, and leaves the rest to its turns. */
static void go_on_taking(struct lane *lane, struct session *session, uint64_t id_count)
{
    const enum take_turn turn = take_request(lane, session->taking.request, id_count);

    if (turn == TAKE_TURN_MORE) {
        add_work(lane, session, SESSION_TAKE);
        return;
    }
    if (turn == TAKE_TURN_HELD)
        hold(lane, session);
    else
        session->taking.kind = TAKING_NOTHING;
    remove_work(lane, session, SESSION_TAKE);
}

/* Has begun a request: takes of its ids what *@left allows for, and of a pooled lookup or a push
 * nothing, which has its turns. */
static void begin_to_take(struct lane *lane, struct session *session, const struct taking *taking,
                          uint64_t *left)
{
    const uint64_t id_count = MIN(*left, lane->opts.take_ids);

    session->in_flight++;
    session->taking = *taking;
    if (taking->kind == TAKING_REQUEST && id_count > 0) {
        *left -= MIN(*left, taking->request->id_count);
        go_on_taking(lane, session, id_count);
        return;
    }
    *left = 0;
    if (taking->kind == TAKING_PUSH)
        lend_tickets(lane, taking->push);
    add_work(lane, session, SESSION_TAKE);
}

/* Begins to take one request, or answers it at once; *@left is what is left of this turn. False:
 * no memory for it now. */
static bool session_begin(struct lane *lane, struct session *session, uint64_t *left)
{
    const uint32_t number = session->consumed;
    const uint32_t slot = number % session->slot_count;
    struct refusal refusal = { .segment = UINT32_MAX };
    struct taking taking = { .kind = TAKING_NOTHING };
    uint64_t cost;
    enum embtier_err err;

    if (atomic_load_explicit(&session->slot_busy[slot], memory_order_relaxed)) {
        session_break(session, "a request was submitted into a slot whose request is under way");
        return true;
    }
    err = request_begin(&lane->rules, session, number, &taking, &refusal);
    cost = LANE_COST_REQUEST + (uint64_t)taking.segment_count * LANE_COST_SEGMENT;
    lane_charge(lane, &session->lanes[lane->opts.index], cost);
    lane->stats.segments += taking.segment_count;
    session->begin_cost = MAX(cost, session->begin_cost / 2);
    *left -= MIN(*left, cost);
    if (err == EMBTIER_AGAIN) {
        session->memory_short = true;
        return false;
    }
    session->consumed++;
    lane->stats.requests++;
    if (err == EMBTIER_OK && taking.kind == TAKING_TICKET) {
        lane_ticket_take(lane, taking.ticket);
        lane_ticket_end(lane, taking.ticket);
    }
    if (err != EMBTIER_OK || taking.kind == TAKING_TICKET) {
        request_answer(session, number, &refusal, 0, 0);
        *left = 0; /* it may have been work to find out */
        return true;
    }
    atomic_store_explicit(&session->slot_busy[slot], 1, memory_order_relaxed);
    begin_to_take(lane, session, &taking, left);
    return true;
}

static bool session_may_begin(const struct session *session, uint32_t tail)
{
    return session->consumed != tail && session->taking.kind == TAKING_NOTHING &&
           !session->memory_short && !session->broken && !session->detaching;
}

void lane_begin_turn(struct lane *lane, struct session *session)
{
    const uint32_t tail = shm_read_tail(session->arena);
    uint64_t left = lane_turn_cost(lane, &session->lanes[lane->opts.index]);
    uint32_t begun = 0;

    if (tail - session->consumed > session->slot_count)
        session_break(session, "more requests submitted than there are slots");
    TSAN_ACQUIRE(session->control);
    while (begun < REQUESTS_PER_TURN && left > 0 && session_may_begin(session, tail) &&
           session_begin(lane, session, &left))
        begun++;
    if (session_may_begin(session, tail))
        lane_add_begin(lane, session);
    else /* until it is looked at again */
        remove_work(lane, session, SESSION_BEGIN);
}

/* Whether the client has submitted what can be begun now. */
static bool session_has_next(struct lane *lane, struct session *session)
{
    const bool is_over = session->broken || session->detaching;

    if (session->taking.kind != TAKING_NOTHING)
        return false;
    if (is_over || shm_read_tail(session->arena) == session->consumed) {
        request_memory_forget(&lane->rules, session); /* it took back what it wanted that for */
        session->memory_short = false;
        return false;
    }
    /* The client has just written it: it comes from there while the turn is found. */
    __builtin_prefetch(&shm_submissions(session->arena)[session->consumed % session->slot_count]);
    return !session->memory_short;
}

/* Takes a session out of the polled list; its client rings from now on. False: a request came in
 * between. */
static bool session_unpoll(struct session *session)
{
    shm_lane_sleeps(session->control, 1);
    if (!session->broken && !session->detaching &&
        shm_read_tail(session->arena) != session->consumed) {
        shm_lane_sleeps(session->control, 0);
        return false;
    }
    session->polled = false;
    return true;
}

/* It is with a pooled lookup or a push, after which its next request has its time. */
static bool session_is_waved(const struct session *session)
{
    return session->taking.kind == TAKING_POOLED || session->taking.kind == TAKING_PUSH;
}

/* Sees what clients have submitted, which is begun in their turns. */
static void look_at_sessions(struct lane *lane)
{
    struct session **at = &lane->polled;

    while (*at) {
        struct session *const session = *at;

        if (session_has_next(lane, session)) {
            session->last_seen_ns = lane->now_ns;
            if (!(session->lanes[lane->opts.index].work & SESSION_BEGIN))
                lane_add_begin(lane, session);
        } else if ((session->broken || session->detaching ||
                    lane->now_ns - session->last_seen_ns > SESSION_POLL_NS) &&
                   !session->memory_short && !session_is_waved(session) &&
                   session_unpoll(session)) {
            *at = session->next_polled;
            lane->polled_count--;
            continue;
        }
        at = &session->next_polled;
    }
}

void lane_session_maybe_gone(struct lane *lane, struct session *session)
{
    lane_step_settle(lane, session);
    if (!session->detaching || session->in_flight > 0)
        return;
    session->broken = true; /* and nothing more is taken */
    lane_tickets_forget(lane, session);
    if (session->in_flight > 0) /* pins are given back first */
        return;
    session->wanted_bytes = 0;
    request_memory_leave(lane->rules.memory, &session->memory_share);
    if (session->memory_share.is_told) /* memory_message is on its way */
        return;
    remove_work(lane, session, SESSION_BEGIN);
    for (struct session **at = &lane->polled; *at; at = &(*at)->next_polled) {
        if (*at == session) {
            *at = session->next_polled;
            lane->polled_count--;
            break;
        }
    }
    epoll_ctl(lane->epoll_fd, EPOLL_CTL_DEL, session->doorbell_fd, NULL);
    session->send(session->owner, &session->gone_message);
}

void lane_take_turn(struct lane *lane, struct session *session)
{
    const uint64_t cost = lane_turn_cost(lane, &session->lanes[lane->opts.index]);

    if (session_is_waved(session)) {
        if (!session->broken && !session->detaching)
            session->last_seen_ns = lane->now_ns;
        else if (session->taking.kind == TAKING_POOLED)
            lane_pool_give_up(session->taking.pooled);
        else
            lane_push_give_up(session->taking.push);
        take_wave(lane, session);
        lane_session_maybe_gone(lane, session);
        return;
    }
    session->last_seen_ns = lane->now_ns;
    if (session->broken || session->detaching) {
        request_discard(&lane->rules, session->taking.request);
        session->taking.kind = TAKING_NOTHING;
        session->in_flight--;
        remove_work(lane, session, SESSION_TAKE);
        lane_session_maybe_gone(lane, session);
        return;
    }
    go_on_taking(lane, session, MIN(cost, lane->opts.take_ids));
}

/* Called by the lane that has given memory back. */
static void wake_for_memory(struct request_memory_share *share)
{
    struct session *const session = CONTAINER_OF(share, struct session, memory_share);

    lane_send(session->lane, &session->memory_message);
}

/* It has been granted the memory that its next request waits for, or a push's first wave. */
static void on_memory(struct lane *lane, struct session *session)
{
    request_memory_heard(lane->rules.memory, &session->memory_share);
    session->memory_short = false;
    lane_unstall(lane, session);
    lane_session_maybe_gone(lane, session);
}

static void on_attach(struct lane *lane, struct session *session)
{
    struct epoll_event event = { .events = EPOLLIN | EPOLLET, .data.ptr = session };

    if (epoll_ctl(lane->epoll_fd, EPOLL_CTL_ADD, session->doorbell_fd, &event) != 0) {
        session_break(session, "its doorbell cannot be watched");
        return; /* it will be detached */
    }
    session->lane = lane;
    session->memory_share.wake = wake_for_memory;
    session_poll(lane, session);
}

/* A wave of it has been looked up, added up, or updated. */
static void after_wave(struct lane *lane, struct session *session, const struct taking *taking)
{
    const bool is_push = taking->kind == TAKING_PUSH;

    if (session->taking.kind == taking->kind &&
        (is_push ? session->taking.push == taking->push
                 : session->taking.pooled == taking->pooled)) {
        lane_unstall(lane, session);
    } else if ((is_push ? taking->push->under_way : taking->pooled->under_way) == 0) {
        end_taken(lane, taking);
        session->memory_short = false;
        lane_session_maybe_gone(lane, session);
    }
}

static void on_request_done(struct lane *lane, struct request *request)
{
    struct session *const session = request->session;
    struct taking taking = { .kind = TAKING_POOLED, .pooled = request->pooled };

    if (request->pooled) {
        lane_pool_on_looked_up(lane, request); /* after which the wave may be gone */
        after_wave(lane, session, &taking);
        return;
    }
    if (request->push) {
        taking = (struct taking){ .kind = TAKING_PUSH, .push = request->push };
        lane_push_on_updated(lane, request);
        after_wave(lane, session, &taking);
        return;
    }
    if (request_changes(request))
        lane_update_end(lane, session, kind_of(request));
    request_free(&lane->rules, request);
    session->memory_short = false;
    session->in_flight--;
    lane_session_maybe_gone(lane, session);
}

/* ---- Messages ---- */

struct lane_call {
    struct message message;
    void (*fn)(struct lane *lane, void *argument);
    void *argument;
    sem_t done;
};

static void on_call(struct lane *lane, struct lane_call *call)
{
    call->fn(lane, call->argument);
    sem_post(&call->done);
}

static void on_message(struct lane *lane, struct message *message)
{
    switch (message->kind) {
    case MESSAGE_PART:
        lane_add_part(lane, CONTAINER_OF(message, struct part, message));
        break;
    case MESSAGE_REQUEST_DONE:
        on_request_done(lane, CONTAINER_OF(message, struct request, message));
        break;
    case MESSAGE_ADD_UP:
        lane_pool_add_up(lane, CONTAINER_OF(message, struct request, message));
        break;
    case MESSAGE_ADDED_UP: {
        struct request *const request = CONTAINER_OF(message, struct request, message);
        struct session *const session = request->session;
        const struct taking taking = { .kind = TAKING_POOLED, .pooled = request->pooled };

        lane_pool_on_added_up(lane, request);
        after_wave(lane, session, &taking);
        break;
    }
    case MESSAGE_UNPIN:
        lane_unpin(lane, CONTAINER_OF(message, struct ticket_lane, message));
        break;
    case MESSAGE_UNPINNED:
        lane_ticket_on_unpinned(lane, CONTAINER_OF(message, struct ticket_lane, message));
        break;
    case MESSAGE_CAST:
        lane_ticket_on_cast(lane, CONTAINER_OF(message, struct ticket_group, message));
        break;
    case MESSAGE_LEAD:
        lane_step_lead(lane, CONTAINER_OF(message, struct push, message));
        break;
    case MESSAGE_STEP_DONE:
        lane_step_done(lane, CONTAINER_OF(message, struct push, message));
        break;
    case MESSAGE_READ_DONE:
        lane_on_read_done(lane, CONTAINER_OF(message, struct read_job, message));
        break;
    case MESSAGE_WRITTEN:
        lane_on_written(lane);
        break;
    case MESSAGE_MEMORY:
        on_memory(lane, CONTAINER_OF(message, struct session, memory_message));
        break;
    case MESSAGE_ATTACH:
        on_attach(lane, CONTAINER_OF(message, struct session, attach_message));
        break;
    case MESSAGE_DETACH: {
        struct session *const session = CONTAINER_OF(message, struct session, detach_message);

        session->detaching = true;
        lane_release_held(lane);
        group_leave_all(session);
        lane_session_maybe_gone(lane, session);
        break;
    }
    case MESSAGE_CALL:
        on_call(lane, CONTAINER_OF(message, struct lane_call, message));
        break;
    default:
        log_error("message for another thread", "kind=%d", (int)message->kind);
        break;
    }
}

static void take_all(struct lane *lane, struct message *message)
{
    while (message) {
        struct message *const next = message->next; /* the message may be gone afterwards */

        on_message(lane, message);
        message = next;
    }
}

static bool take_messages(struct lane *lane)
{
    struct message *const done = lane->done_here;
    const bool has_mail = !inbox_is_empty(&lane->inbox);

    lane->done_here = NULL;
    lane->last_done_here = &lane->done_here;
    take_all(lane, done);
    if (has_mail) {
        take_all(lane, inbox_take_all(&lane->inbox));
        lane->rounds_to_clock = 0;
    }
    return done || has_mail;
}

void lane_send(struct lane *lane, struct message *message)
{
    const uint64_t one = 1;

    inbox_push(&lane->inbox, message);
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&lane->asleep, memory_order_relaxed) &&
        atomic_exchange(&lane->asleep, 0) && write(lane->wake_fd, &one, sizeof(one)) < 0 &&
        errno != EAGAIN) /* full: an edge has been seen or is pending, which is enough */
        log_error("lane cannot be woken", "lane=%u why=%s", lane->opts.index,
                  LOG_QUOTED(strerror(errno)));
}

void lane_call(struct lane *lane, void (*fn)(struct lane *lane, void *argument), void *argument)
{
    struct lane_call call = { .message.kind = MESSAGE_CALL, .fn = fn, .argument = argument };

    sem_init(&call.done, 0, 0);
    lane_send(lane, &call.message);
    while (sem_wait(&call.done) != 0 && errno == EINTR)
        continue;
    sem_destroy(&call.done);
}

/* ---- The loop ---- */

/* Rounds in which nothing comes, or a small request, take little more time than the clock, for
 * which the next request would wait. One of so many of these rounds looks at it. */
#define ROUNDS_PER_CLOCK 8

static void read_clock(struct lane *lane)
{
    lane->now_ns = clock_now_ns(lane->opts.clock);
}

/* Polls the sessions whose clients rang, after waiting for that, or for a message, at most
 * @timeout_ms (-1: as long as it takes). */
static void hear_doorbells(struct lane *lane, int timeout_ms)
{
    struct epoll_event events[64];
    const int count = epoll_wait(lane->epoll_fd, events, (int)ARRAY_LEN(events), timeout_ms);

    read_clock(lane);
    lane->heard_ns = lane->now_ns;
    for (int i = 0; i < count; i++)
        if (events[i].data.ptr)
            session_poll(lane, events[i].data.ptr);
}

static void lane_sleep(struct lane *lane, int timeout_ms)
{
    atomic_store_explicit(&lane->asleep, 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst); /* pairs with the fence in lane_send() */
    if (inbox_is_empty(&lane->inbox) && !lane->done_here)
        hear_doorbells(lane, timeout_ms);
    atomic_store_explicit(&lane->asleep, 0, memory_order_relaxed);
}

/* All but those whose next request is known and has no memory, or has its time after a pooled
 * lookup. False: a request has come in between. */
static bool unpoll_all(struct lane *lane)
{
    struct session **at = &lane->polled;

    while (*at) {
        if ((*at)->memory_short || session_is_waved(*at)) {
            at = &(*at)->next_polled;
            continue;
        }
        if (!session_unpoll(*at))
            return false;
        *at = (*at)->next_polled;
        lane->polled_count--;
    }
    return true;
}

/* How long it may sleep at most; -1: for ever. */
static int sleep_ms(const struct lane *lane)
{
    uint64_t left_ms;

    if (lane->ticket_end_ns == 0)
        return -1;
    left_ms = (lane->ticket_end_ns - MIN(lane->now_ns, lane->ticket_end_ns)) / 1000000 + 1;
    return (int)MIN(left_ms, (uint64_t)INT_MAX);
}

static void lane_idle(struct lane *lane)
{
    if (lane->idle_since_ns == 0) {
        read_clock(lane);
        lane->idle_since_ns = lane->now_ns;
    }
    if (lane->now_ns - lane->idle_since_ns < lane->opts.spin_ns) {
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
    lane->rounds_to_clock =
        lane->rounds_to_clock == 0 ? ROUNDS_PER_CLOCK - 1 : lane->rounds_to_clock - 1;
    worked = take_messages(lane);
    /* Others may keep us from ever going to sleep, where doorbells are heard otherwise. */
    if (lane->now_ns - lane->heard_ns > DOORBELL_NS)
        hear_doorbells(lane, 0);
    lane->ticket_end_ns = lane_tickets_expire(lane);
    look_at_sessions(lane);
    took_long = lane_unpin_turn(lane);
    took_long |= lane_serve_read(lane);
    worked |= lane_turns(lane);
    took_long |= lane_dispatch_reads(lane);
    if (took_long || lane->charged > LANE_ROUND_COST)
        lane->rounds_to_clock = 0;
    return worked || took_long;
}

static void *lane_main(void *context)
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

/* ---- Making and ending ---- */

static uint64_t hash_for_cache(void *context, uint16_t table, uint64_t id)
{
    const struct lane *const lane = context;
    const struct table *const t = tables_at(lane->opts.tables, table);

    return row_hash(lane->rules.hasher, atomic_load_explicit(&t->table_id, memory_order_relaxed),
                    id);
}

static bool evict_from_cache(void *context, uint16_t table, uint64_t hash, uint64_t id,
                             const void *row, uint32_t bytes)
{
    struct lane *const lane = context;

    (void)bytes;
    return write_queue_put(lane->write_queue, tables_at(lane->opts.tables, table), hash, id, row);
}

static enum embtier_err cache_new(struct lane *lane, struct err_msg *msg)
{
    struct row_cache_opts opts = {
        .arenas = lane->opts.arenas,
        .arena_count = lane->opts.arena_count,
        .hash = hash_for_cache,
        .evict = evict_from_cache,
        .context = lane,
    };

    memcpy(opts.arena_first_slab, lane->opts.arena_first_slab, sizeof(opts.arena_first_slab));
    memcpy(opts.arena_slab_count, lane->opts.arena_slab_count, sizeof(opts.arena_slab_count));
    opts.map_slabs = lane->opts.map_slabs;
    return row_cache_new(&opts, &lane->cache, msg);
}

static enum embtier_err events_new(struct lane *lane, struct err_msg *msg)
{
    struct epoll_event event = { .events = EPOLLIN | EPOLLET, .data.ptr = NULL };

    lane->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    lane->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (lane->epoll_fd < 0 || lane->wake_fd < 0 ||
        epoll_ctl(lane->epoll_fd, EPOLL_CTL_ADD, lane->wake_fd, &event) != 0)
        return err_set_errno(msg, errno, "lane %u: event descriptors", lane->opts.index);
    return EMBTIER_OK;
}

_Static_assert(sizeof(struct cast_pair) <= LANE_PAIR_BYTES &&
                   sizeof(struct cast_pair) + sizeof(uint32_t) >= LANE_PAIR_TICKET,
               "the configuration counts a caster's memory");

/* The largest group that a ticket may have: of the ids of a request, if the memory of tickets holds
 * as many. */
static uint64_t cast_pairs_max(const struct lane_opts *opts)
{
    const uint64_t most =
        ticket_memory_largest(opts->ticket_memory) / (sizeof(struct cast_pair) + sizeof(uint32_t));

    return MAX(MIN(most, (uint64_t)opts->max_batch_rows), UINT64_C(1));
}

enum embtier_err lane_new(const struct lane_opts *opts, struct lane **ret_lane, struct err_msg *msg)
{
    _cleanup_(lane_freep) struct lane *lane = NULL;
    const uint32_t shards = store_shard_count(opts->store);

    lane = aligned_alloc(CACHE_LINE, align_up(sizeof(*lane), CACHE_LINE));
    if (!lane)
        return err_set(msg, EMBTIER_NO_MEMORY, "lane: out of memory");
    memset(lane, 0, sizeof(*lane));
    lane->epoll_fd = lane->wake_fd = -1;
    lane->last_done_here = &lane->done_here;
    lane->opts = *opts;
    lane->request_base = request_memory_base(opts->memory);
    lane->scratch_row = reserved_new(READ_JOB_BYTES);
    lane->rules = (struct request_rules){
        .lane = lane,
        .hasher = store_hasher(opts->store),
        .store = opts->store,
        .tables = opts->tables,
        .memory = opts->memory,
        .ticket_memory = opts->ticket_memory,
        .ticket_ns = opts->ticket_ns,
        .shard_lanes = opts->shard_lanes,
        .shard_count = shards,
        .lane_count = opts->lane_count,
        .max_batch_rows = opts->max_batch_rows,
        .scratch = reserved_new(SHM_SEGMENTS_MAX * sizeof(struct shm_segment)),
        .table_marks = reserved_new(TABLE_MARKS_BYTES),
    };
    lane->gradients = reserved_new(PUSH_SCRATCH_BYTES);
    if (!lane->scratch_row || !lane->rules.scratch || !lane->rules.table_marks || !lane->gradients)
        return err_set(msg, EMBTIER_NO_MEMORY, "lane: out of memory");
    TRY(events_new(lane, msg));
    TRY(cache_new(lane, msg));
    if (miss_table_new(LANE_MISSES_MAX, &lane->misses) != EMBTIER_OK ||
        read_order_new(lane->misses, shards, &lane->read_order) != EMBTIER_OK)
        return err_set(msg, EMBTIER_NO_MEMORY, "lane: out of memory");
    TRY(write_queue_new(lane, opts->store, opts->write_queue_bytes, &lane->write_queue, msg));
    TRY(read_pool_new(lane, opts->store, opts->reader_count, &lane->readers, msg));
    TRY(caster_new(opts->index, cast_pairs_max(opts), &lane->caster, msg));
    *ret_lane = TAKE(lane);
    return EMBTIER_OK;
}

enum embtier_err lane_start(struct lane *lane, struct err_msg *msg)
{
    char name[16];
    const int rc = pthread_create(&lane->thread, NULL, lane_main, lane);

    if (rc != 0)
        return err_set_errno(msg, rc, "lane %u: thread", lane->opts.index);
    snprintf(name, sizeof(name), "lane-%u", lane->opts.index);
    pthread_setname_np(lane->thread, name);
    lane->has_thread = true;
    return EMBTIER_OK;
}

static void call_stop(struct lane *lane, void *argument)
{
    (void)argument;
    lane->stopping = true;
}

void lane_stop(struct lane *lane)
{
    if (!lane || !lane->has_thread)
        return;
    lane_call(lane, call_stop, NULL);
    pthread_join(lane->thread, NULL);
    lane->has_thread = false;
    caster_free(TAKE(lane->caster)); /* it, too, may be about to wake another lane */
}

void lane_free(struct lane *lane)
{
    if (!lane)
        return;
    lane_stop(lane);
    caster_free(lane->caster);
    read_pool_free(lane->readers);
    write_queue_free(lane->write_queue);
    row_cache_free(lane->cache);
    read_order_free(lane->read_order);
    miss_table_free(lane->misses);
    closep(&lane->epoll_fd);
    closep(&lane->wake_fd);
    reserved_free(lane->rules.scratch, SHM_SEGMENTS_MAX * sizeof(struct shm_segment));
    reserved_free(lane->rules.table_marks, TABLE_MARKS_BYTES);
    reserved_free(lane->gradients, PUSH_SCRATCH_BYTES);
    reserved_free(lane->scratch_row, READ_JOB_BYTES);
    free(lane);
}

/* ---- Calls from control threads ---- */

struct add_table {
    const struct table *table;
    enum embtier_err err;
};

static void call_add_table(struct lane *lane, void *argument)
{
    struct add_table *const add = argument;

    add->err = row_cache_add_table(lane->cache, add->table->index, add->table->row_bytes,
                                   add->table->spec.rows);
}

enum embtier_err lane_add_table(struct lane *lane, const struct table *table)
{
    struct add_table add = { .table = table };

    lane_call(lane, call_add_table, &add);
    return add.err;
}

/* How long a purge waits for a disk that takes no writes. */
#define PURGE_PATIENCE_NS (UINT64_C(5) * 1000 * 1000 * 1000)

struct purge {
    const struct table *table;
    uint64_t mark; /* all of the table's rows in the write queue are before this */
    bool cache_done;
    bool done;
    enum embtier_err write_err; /* what keeps the queue from draining */
};

static void call_purge(struct lane *lane, void *argument)
{
    struct purge *const purge = argument;
    struct write_queue_stats stats;

    if (!purge->cache_done) {
        purge->cache_done =
            row_cache_purge_table(lane->cache, purge->table->index, PURGE_STEP_SETS);
        purge->mark = write_queue_mark(lane->write_queue);
    }
    purge->done = purge->cache_done && write_queue_passed(lane->write_queue, purge->mark);
    write_queue_stats(lane->write_queue, &stats);
    purge->write_err = (enum embtier_err)stats.err;
}

static void pause_ms(long ms)
{
    nanosleep(&(struct timespec){ .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L }, NULL);
}

enum embtier_err lane_purge_table(struct lane *lane, const struct table *table,
                                  const _Atomic bool *give_up)
{
    struct purge purge = { .table = table };
    uint64_t healthy_ns = clock_now_ns(lane->opts.clock);

    while (!purge.done) {
        const uint64_t now_ns = clock_now_ns(lane->opts.clock);

        if (atomic_load(give_up))
            return EMBTIER_SHUTDOWN;
        if (purge.write_err == EMBTIER_OK)
            healthy_ns = now_ns;
        else if (purge.cache_done && now_ns - healthy_ns > PURGE_PATIENCE_NS)
            return purge.write_err;
        lane_call(lane, call_purge, &purge);
        if (purge.cache_done && !purge.done)
            pause_ms(1);
    }
    return EMBTIER_OK;
}

struct write_back {
    uint64_t *cursor;
    bool done;
};

static void call_write_back(struct lane *lane, void *argument)
{
    struct write_back *const step = argument;
    bool cache_done = false;

    row_cache_write_back(lane->cache, step->cursor, WRITE_BACK_STEP_ROWS, &cache_done);
    step->done =
        cache_done && write_queue_passed(lane->write_queue, write_queue_mark(lane->write_queue));
}

bool lane_write_back_step(struct lane *lane, uint64_t *cursor)
{
    struct write_back step = { .cursor = cursor };

    lane_call(lane, call_write_back, &step);
    return step.done;
}

static void call_stats(struct lane *lane, void *argument)
{
    struct lane_stats *const stats = argument;

    *stats = lane->stats;
    stats->casting_ns = caster_busy_ns(lane->caster);
    stats->reading_rows = miss_table_count(lane->misses);
    row_cache_stats(lane->cache, &stats->cache);
    stats->cache.misses -= lane->second_looks;
    write_queue_stats(lane->write_queue, &stats->write_queue);
}

void lane_stats(struct lane *lane, struct lane_stats *ret_stats)
{
    lane_call(lane, call_stats, ret_stats);
}

static void call_pulse(struct lane *lane, void *argument)
{
    struct lane_pulse *const pulse = argument;
    struct write_queue_stats queue;
    struct row_cache_stats cache;

    pulse->pressure = lane->pressure;
    lane->pressure = false;
    write_queue_stats(lane->write_queue, &queue);
    row_cache_stats(lane->cache, &cache);
    pulse->unwritten_rows = queue.rows;
    pulse->unwritten_bytes = queue.bytes;
    for (uint32_t t = 0; t < lane->opts.arena_count; t++) {
        pulse->unwritten_rows += cache.tiers[t].dirty_rows;
        pulse->unwritten_bytes += cache.tiers[t].dirty_bytes;
    }
}

void lane_pulse(struct lane *lane, struct lane_pulse *ret_pulse)
{
    lane_call(lane, call_pulse, ret_pulse);
}
