/* SPDX-License-Identifier: Apache-2.0 */
/* Tickets and pushes on their lanes: a lookup's pairs are cast by the casters, a push takes its
 * rows in waves on the home lane, and each lane updates its own. See ticket.h and push.h. */
#include "daemon/engine/lane/lane_impl.h"
#include "daemon/engine/ops/push_trial.h"
#include "daemon/engine/tables/tables.h"

/* A row of a wave is put down, and dealt out. */
#define COST_WAVE_ROW (2 * LANE_COST_ID)

/* ---- Tickets ---- */

/* Groups are dealt out to the casters of all lanes, so that one lookup's are cast side by side. */
static void send_to_caster(struct lane *lane, struct ticket *ticket, struct ticket_group *group)
{
    const uint32_t number = (uint32_t)(group - ticket->groups) + ticket->session->last_ticket;
    const uint32_t to = (lane->opts.index + number) % lane->opts.lane_count;

    ticket->casts_left++;
    ticket->session->in_flight++;
    caster_send(lane->opts.lanes[to]->caster, &ticket->session->lanes[to].casts, group);
}

/* Few pairs are cast here: the caster would take longer to wake up. Of many groups that are
 * complete in one turn, as many as a turn is enough for. */
static void cast_group(struct lane *lane, struct ticket *ticket, struct ticket_group *group)
{
    struct session_lane *const side = &ticket->session->lanes[lane->opts.index];
    const uint64_t cost = group->id_count * (uint64_t)LANE_COST_PAIR;
    struct cast_pair scratch[CASTER_FEW_PAIRS];

    if (group->id_count > CASTER_FEW_PAIRS ||
        (lane->schedule.cast_cost > 0 &&
         lane->schedule.cast_cost + cost > schedule_turn_cost(&lane->schedule, side))) {
        send_to_caster(lane, ticket, group);
        return;
    }
    ticket_cast(group, scratch);
    lane->schedule.cast_cost += cost;
    schedule_charge(&lane->schedule, side, cost);
}

void lane_ticket_cast(struct lane *lane, struct ticket *ticket, uint32_t segment)
{
    for (; ticket->segments_taken < segment; ticket->segments_taken++) {
        struct ticket_group *const group = ticket_group_of(ticket, ticket->segments_taken);

        if (--group->segments_left == 0)
            cast_group(lane, ticket, group);
    }
}

void lane_ticket_on_cast(struct lane *lane, struct ticket_group *group)
{
    struct ticket *const ticket = group->ticket;
    struct session *const session = ticket->session;

    ticket->casts_left--;
    session->in_flight--;
    if (ticket->casts_left == 0 && ticket->is_ended)
        ticket_free(&lane->rules, ticket);
    else if (ticket->casts_left == 0 && session->taking.kind == TAKING_PUSH &&
             (session->taking.push->ticket == ticket || session->taking.push->joint == ticket))
        schedule_unstall(&lane->schedule, session);
    lane_session_maybe_gone(lane, session);
}

/* The list is in the order of issue. One that comes back is one of the newest, most often. */
static void list_add(struct lane *lane, struct ticket *ticket)
{
    struct ticket *older = lane->newest_ticket;
    struct ticket *newer = NULL;

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

static void list_remove(struct lane *lane, struct ticket *ticket)
{
    if (ticket->older)
        ticket->older->newer = ticket->newer;
    else
        lane->oldest_ticket = ticket->newer;
    if (ticket->newer)
        ticket->newer->older = ticket->older;
    else
        lane->newest_ticket = ticket->older;
}

enum embtier_err lane_ticket_issue(struct lane *lane, struct ticket *ticket)
{
    TRY(ticket_issue(ticket, clock_now_ns(lane->opts.clock)));
    list_add(lane, ticket);
    return EMBTIER_OK;
}

void lane_ticket_take(struct lane *lane, struct ticket *ticket)
{
    list_remove(lane, ticket);
    ticket_take(ticket);
}

void lane_ticket_lend(struct lane *lane, struct ticket *ticket)
{
    list_remove(lane, ticket);
    ticket->is_lent = true;
}

/* Every lane gives the pins back that it has for a prefetch. */
static void unpin(struct lane *lane, struct ticket *ticket)
{
    ticket->has_pins = false;
    ticket->lanes_left = lane->rules.lane_count;
    ticket->session->in_flight++;
    ticket->session->unpinning++;
    for (uint32_t i = 0; i < lane->rules.lane_count; i++)
        lane_send(lane->opts.lanes[i], &ticket->lanes[i].message);
}

void lane_ticket_end(struct lane *lane, struct ticket *ticket)
{
    ticket->is_ended = true;
    if (ticket->has_pins)
        unpin(lane, ticket);
    else if (ticket->casts_left == 0 && ticket->lanes_left == 0)
        ticket_free(&lane->rules, ticket);
}

void lane_ticket_on_unpinned(struct lane *lane, struct ticket_lane *part)
{
    struct ticket *const ticket = part->ticket;
    struct session *const session = ticket->session;

    if (--ticket->lanes_left > 0)
        return;
    ticket_unpinned(&lane->rules, ticket);
    if (ticket->answers)
        request_answer(session, ticket->request, &ticket->refusal, 0, 0);
    ticket_free(&lane->rules, ticket);
    session->in_flight--;
    session->unpinning--;
    if (session->taking.kind == TAKING_PUSH && session->taking.push->is_prefetch)
        schedule_unstall(&lane->schedule, session); /* it may wait for these */
    lane_session_maybe_gone(lane, session);
}

uint64_t lane_tickets_expire(struct lane *lane)
{
    struct ticket *ticket;

    while ((ticket = lane->oldest_ticket)) {
        const uint64_t end_ns = ticket->issued_ns + lane->rules.ticket_ns;

        if (lane->schedule.now_ns < end_ns)
            return end_ns;
        ticket->session->tickets[(uint32_t)ticket->number % TICKETS_MAX].expired =
            (uint32_t)ticket->number;
        lane->stats.expired_tickets++;
        lane_ticket_take(lane, ticket);
        lane_ticket_end(lane, ticket);
    }
    return 0;
}

void lane_tickets_forget(struct lane *lane, struct session *session)
{
    for (uint32_t i = 0; i < TICKETS_MAX; i++) {
        struct ticket *const ticket = session->tickets[i].ticket;

        if (!ticket)
            continue;
        lane_ticket_take(lane, ticket);
        lane_ticket_end(lane, ticket);
    }
}

/* ---- Pushes, on the home lane ---- */

void lane_push_give_up(struct push *push)
{
    if (push->stage == PUSH_ARRIVED || push->joint)
        return; /* it is the group's, or what it leads is */
    if (push->is_update || push->is_applied)
        return; /* some rows have changed: then all do */
    push->refusal.err = EMBTIER_DISCONNECTED;
    push->is_taken = true;
}

/* A ticket that a push has used; not if the push was refused and has changed nothing. */
static void end_or_give_back(struct lane *lane, struct ticket *ticket, const struct push *push)
{
    const enum embtier_err err = push->refusal.err;

    if (ticket->is_issued && push->stage != PUSH_UPDATING && err != EMBTIER_OK &&
        err != EMBTIER_DISCONNECTED) {
        ticket->is_lent = false;
        if (push->member) /* it may have waited for longer than it has */
            ticket->issued_ns = clock_now_ns(lane->opts.clock);
        list_add(lane, ticket);
        return;
    }
    if (ticket->is_issued)
        ticket_take(ticket);
    lane_ticket_end(lane, ticket);
}

/* A prefetch that was refused has pinned nothing, as far as its client can see: that is told when
 * the pins are back that it had, so that one of fewer rows finds room. */
static void answer_unpinned(struct push *push)
{
    struct ticket *const ticket = push->ticket;

    if (!ticket->has_pins || push->refusal.err == EMBTIER_DISCONNECTED)
        return;
    ticket->answers = push->is_answered = true;
    ticket->request = push->number;
    ticket->refusal = push->refusal;
}

void lane_push_end(struct lane *lane, struct push *push)
{
    struct session *const session = push->session;
    struct ticket *const ticket = push->ticket;

    if (push->is_prefetch && push->refusal.err == EMBTIER_OK) {
        push->refusal.err = lane_ticket_issue(lane, ticket);
        push->refusal.value = TICKETS_MAX;
    }
    if (push->is_prefetch && push->refusal.err != EMBTIER_OK)
        answer_unpinned(push);
    if (push->member)
        lane_step_end(lane, push);
    if (push->prefetch)
        end_or_give_back(lane, push->prefetch, push);
    if (!push->is_prefetch || push->refusal.err != EMBTIER_OK)
        end_or_give_back(lane, ticket, push);
    if (push->is_update)
        update_end(&lane->gate, session, push->kind);
    push_free(&lane->rules, push);
    session->in_flight--;
}

static struct session_lane *side_of(const struct lane *lane, const struct push *push)
{
    return &push->session->lanes[lane->opts.index];
}

/* It looks again until something else has changed, and others have a turn of theirs meanwhile. */
static enum take_turn look_again(struct lane *lane, const struct push *push)
{
    struct session_lane *const side = side_of(lane, push);

    schedule_charge(&lane->schedule, side, schedule_turn_cost(&lane->schedule, side));
    return TAKE_TURN_MORE;
}

/* Counts what a prefetch is to pin. One that finds no room waits for the pins that its session
 * gives back: a client that has released one prefetch may ask for the next. */
static bool may_pin(struct lane *lane, struct push *push)
{
    struct refusal refusal;

    if (!push->is_prefetch || push_pin(&lane->rules, push, &refusal) == EMBTIER_OK)
        return true;
    push->is_taken = push->session->unpinning == 0;
    if (push->is_taken)
        push->refusal = refusal;
    return false;
}

/* Goes on with what comes before the first wave. Returns whether it is over. */
static bool prepare_turn(struct lane *lane, struct push *push)
{
    struct session_lane *const side = side_of(lane, push);
    const uint64_t most = MIN(lane->opts.take_ids, schedule_turn_cost(&lane->schedule, side));
    uint64_t left = most;
    enum embtier_err err = EMBTIER_OK;

    if (push->stage == PUSH_IDS) {
        err = push_take_ids(push, &left, &push->refusal);
        lane_ticket_cast(lane, push->ticket,
                         err == EMBTIER_OK ? push->segment_count : push->segment);
        if (err == EMBTIER_OK)
            push->stage = PUSH_NUMBERS;
    } else if (push->stage == PUSH_NUMBERS) {
        err = push_check_numbers(push, &left, &push->refusal);
        if (err == EMBTIER_OK)
            push->stage = PUSH_CASTING;
    }
    schedule_charge(&lane->schedule, side, most - left);
    if (err != EMBTIER_OK && err != EMBTIER_AGAIN)
        push->is_taken = true;
    if (push->stage == PUSH_CASTING && push->ticket->casts_left == 0 && may_pin(lane, push)) {
        uint64_t cost = push_prepare(push);

        push->is_taken = push_check_runs(push, &cost, &push->refusal) != EMBTIER_OK;
        if (!push->is_taken)
            push->stage = push->member                   ? PUSH_SETTLING
                          : push_trial_plan(push, &cost) ? PUSH_TRYING
                                                         : PUSH_UPDATING;
        schedule_charge(&lane->schedule, side, cost);
    }
    if (push->stage >= PUSH_SETTLING)
        lane_step_turn(lane, push);
    return push->stage >= PUSH_TRYING;
}

/* Whether waves of the trial are left, or are under way. If not its end is told. */
static bool trial_goes_on(struct push *push)
{
    if (!push->is_tried && !push_trial_has_failed(push))
        return true;
    push->is_tried = true;
    if (push->under_way > 0)
        return true;
    push->is_taken = push_trial_end(push, &push->refusal) != EMBTIER_OK;
    return false;
}

/* How many rows its next wave may have: beside others those that a turn is enough to take. */
static uint32_t wave_rows(const struct lane *lane, const struct push *push)
{
    const uint64_t most = schedule_turn_cost(&lane->schedule, side_of(lane, push));

    return most < LANE_TURN_COST_ALONE ? (uint32_t)most / COST_WAVE_ROW : UINT32_MAX;
}

enum take_turn lane_push_turn(struct lane *lane, struct push *push)
{
    struct push_wave *wave;
    bool begins;

    if (atomic_load_explicit(&push->session->gone, memory_order_relaxed))
        lane_push_give_up(push);
    if (!push->is_taken && push->stage < PUSH_TRYING && !prepare_turn(lane, push))
        return push->is_taken                ? TAKE_TURN_DONE
               : push->stage >= PUSH_CASTING ? TAKE_TURN_STALLED
                                             : TAKE_TURN_MORE;
    if (!push->is_taken && push->stage == PUSH_TRYING && trial_goes_on(push) && push->is_tried)
        return TAKE_TURN_STALLED;
    begins =
        !push->is_taken && !push->is_prefetch && !push->is_update && push->stage == PUSH_UPDATING;
    if (begins)
        push->kind = push_kind(push);
    if (begins && !update_may_begin(&lane->gate, push->session, push->kind))
        return TAKE_TURN_HELD;
    if (!push->is_taken) {
        wave = push_free_wave(&lane->rules, push);
        if (!wave) /* without any it stands in line, or looks again until others of the session are
                      done, which all end by themselves */
            return push->under_way > 0 ||
                           request_memory_waits(lane->rules.memory, &push->session->memory_share)
                       ? TAKE_TURN_STALLED
                       : look_again(lane, push);
        if (begins) { /* not before it has what it needs: the gate waits for its end */
            update_begin(&lane->gate, push->session, push->kind);
            push->is_update = true;
            push_note_steps(push);
        }
        push_take_wave(&lane->rules, push, wave, wave_rows(lane, push));
        schedule_charge(&lane->schedule, side_of(lane, push),
                        wave->slice_count * (uint64_t)LANE_COST_SEGMENT +
                            wave->request.id_count * COST_WAVE_ROW);
        wave->is_under_way = true;
        push->under_way++;
        lane_start_request(lane, &wave->request);
    }
    if (!push->is_taken)
        return TAKE_TURN_MORE;
    if (push->under_way == 0)
        return TAKE_TURN_DONE;
    return push->joint ? TAKE_TURN_STALLED : TAKE_TURN_TAKEN; /* what is next may need the step */
}

void lane_push_on_updated(struct lane *lane, struct request *request)
{
    struct push *const push = request->push;
    struct push_wave *const wave = CONTAINER_OF(request, struct push_wave, request);
    const enum embtier_err err = (enum embtier_err)atomic_load(&request->err);
    const uint32_t slice = request->err_segment;

    if (err != EMBTIER_OK && push->refusal.err == EMBTIER_OK) {
        push->refusal.err = err;
        push->refusal.value = request->err_value;
        if (slice < wave->slice_count && !push->joint)
            push->refusal.segment = push->ticket->groups[wave->slices[slice].group].order[0];
        push->is_taken = true; /* no more of it */
    }
    push_end_wave(&lane->rules, push, wave);
}

/* ---- Pushes, on any lane ---- */

uint32_t lane_push_chunk(struct lane *lane, struct part *part, const struct row_ref *refs,
                         uint32_t count)
{
    const struct request *const request = part->request;
    struct table *const table = request->segments[part->segment].table;
    const uint32_t missed_count =
        request->is_trial ? lane_rows_find(lane, table, refs, count, lane->chunk_rows)
                          : lane_rows_change(lane, table, refs, count, lane->chunk_rows);
    uint32_t missed = 0;

    push_update(request, part->segment, refs, lane->chunk_rows, count, lane->gradients);
    if (table->logged && !request->is_trial)
        lane_rows_log(lane, part, table, refs, lane->chunk_rows, count);
    for (uint32_t i = 0; missed < missed_count; i++)
        if (!lane->chunk_rows[i])
            lane->chunk_missed[missed++] = i;
    if (!request->is_trial)
        row_cache_changed(lane->cache, table->index, refs, count, lane->chunk_rows);
    return missed_count;
}

static uint64_t gradient_cost(const struct part *part, uint32_t segment)
{
    return LANE_COST_ID +
           part->request->segments[segment].table->spec.dim * sizeof(float) / LANE_COST_BYTES;
}

uint64_t lane_push_row(struct lane *lane, const struct part *part, uint32_t segment,
                       const struct row_ref *ref, void *row)
{
    push_update(part->request, segment, ref, &row, 1, lane->gradients);
    return gradient_cost(part, segment) * push_pair_count(part->request, segment, ref->position, 1);
}

/* How many of @count rows have @most pairs together; at least one. */
static uint32_t rows_that_fit(const struct part *part, const struct row_ref *refs, uint32_t count,
                              uint64_t most, uint64_t *ret_pairs)
{
    uint64_t sum = push_pair_count(part->request, part->segment, refs[0].position, 1);
    uint32_t rows = 1;

    for (; rows < count; rows++) {
        const uint64_t more = push_pair_count(part->request, part->segment, refs[rows].position, 1);

        if (sum + more > most)
            break;
        sum += more;
    }
    *ret_pairs = sum;
    return rows;
}

uint32_t lane_push_chunk_rows(const struct part *part, uint32_t count, uint64_t most,
                              uint64_t *work)
{
    const struct row_ref *const refs = part->refs + part->next_ref;
    const uint64_t cost = gradient_cost(part, part->segment);
    /* Positions ascend; with one lane, whose rows are all, by 1. */
    const bool are_neighbours = refs[count - 1].position - refs[0].position == count - 1;
    uint64_t pairs = 0;

    if (are_neighbours)
        pairs = push_pair_count(part->request, part->segment, refs[0].position, count);
    if (!are_neighbours || pairs * cost > most)
        count = rows_that_fit(part, refs, count, most / cost, &pairs);
    *work = MAX(*work, pairs * cost);
    return count;
}

/* ---- Prefetches, on any lane ---- */

static enum row_pin pin_row(struct lane *lane, const struct part *part, uint32_t segment,
                            const struct row_ref *ref)
{
    const enum row_pin pin =
        row_cache_pin_one(lane->cache, part->request->segments[segment].table->index, ref);

    if (pin == ROW_PINNED)
        push_note_pin(part->request, segment, ref->position);
    return pin;
}

uint32_t lane_prefetch_chunk(struct lane *lane, struct part *part, const struct row_ref *refs,
                             uint32_t count)
{
    const uint16_t table = part->request->segments[part->segment].table->index;
    uint64_t pinned[LANE_CHUNK_ROWS / 64];
    uint32_t missed = 0;

    row_cache_pin(lane->cache, table, refs, count, pinned);
    for (uint32_t i = 0; i < count; i++) {
        if (pinned[i / 64] >> i % 64 & 1)
            push_note_pin(part->request, part->segment, refs[i].position);
        else
            lane->chunk_missed[missed++] = i;
    }
    return missed;
}

enum row_pin lane_prefetch_row(struct lane *lane, const struct part *part, uint32_t segment,
                               const struct row_ref *ref, const void *row)
{
    const uint16_t table = part->request->segments[segment].table->index;
    enum row_pin pin = pin_row(lane, part, segment, ref);
    uint32_t refused;

    if (pin != ROW_NOT_CACHED || !row)
        return pin;
    if (row_cache_insert(lane->cache, table, ref, 1, &row, NULL, &refused) > 0)
        return ROW_NOT_PINNED;
    return pin_row(lane, part, segment, ref);
}

void lane_unpin(struct lane *lane, struct ticket_lane *part)
{
    part->next = NULL;
    if (lane->unpinning)
        lane->last_unpinning->next = part;
    else
        lane->unpinning = part;
    lane->last_unpinning = part;
}

/* Unpins those of @count runs that are of this lane and pinned. */
static void unpin_runs(struct lane *lane, const struct ticket_group *group, uint32_t first,
                       uint32_t count)
{
    const struct table *const table = tables_at(lane->opts.tables, (uint16_t)group->table);
    const uint32_t table_id = (uint32_t)(group->table >> 32);
    struct row_ref refs[LANE_CHUNK_ROWS];
    uint32_t found = 0;

    if (atomic_load_explicit(&table->table_id, memory_order_relaxed) != table_id)
        return; /* it was dropped, and its rows with it */
    for (uint32_t run = first; run < first + count; run++) {
        const uint64_t id = group->pairs[group->starts[run]].row;
        const uint64_t hash = row_hash(lane->rules.hasher, table_id, id);

        if (group->pinned[run] &&
            lane->rules.shard_lanes[row_hash_shard(hash, lane->rules.shard_count)] ==
                lane->opts.index)
            refs[found++] = (struct row_ref){ .hash = hash, .id = id };
    }
    row_cache_unpin(lane->cache, table->index, refs, found);
}

bool lane_unpin_turn(struct lane *lane)
{
    struct ticket_lane *const part = lane->unpinning;
    const uint64_t most = schedule_turn_cost(&lane->schedule, NULL) / LANE_COST_ROW;
    uint64_t rows = 0;

    if (!part)
        return false;
    while (rows < most && part->group < part->ticket->group_count) {
        const struct ticket_group *const group = &part->ticket->groups[part->group];
        const uint32_t count = MIN(group->run_count - part->run, (uint32_t)LANE_CHUNK_ROWS);

        unpin_runs(lane, group, part->run, count);
        rows += MAX(count, 1u);
        part->run += count;
        if (part->run == group->run_count) {
            part->group++;
            part->run = 0;
        }
    }
    schedule_charge(&lane->schedule, &part->ticket->session->lanes[lane->opts.index],
                    rows * LANE_COST_ROW);
    if (part->group == part->ticket->group_count) {
        lane->unpinning = part->next;
        part->message.kind = MESSAGE_UNPINNED;
        mailbox_send(part->ticket->home, &part->message);
    }
    return true;
}
