/* SPDX-License-Identifier: Apache-2.0 */
/* The row work of a lane. Statements about a SET of weights hold here for a push as well: both
 * change a row that must be there first.
 *
 * A part's refs go to the cache in chunks. Cached rows are served at once. ref_locate() looks for
 * any other row in the miss table (being read), then in the write queue (on its way to SSD). A GET
 * of a row that is in neither makes a miss entry (row_reads.c). So does a SET of weights, if the
 * row has a state that stays. A SET is answered when its row has a place, or is logged (row_log.c).
 *
 * A ref may find no free miss entry (GET), or no room for a dirty row in cache or write queue
 * (SET). It then goes to the part's retry list, and the session is blocked on this lane until a
 * read or a write has finished. Other sessions go on. Nothing of the same part or of later parts of
 * the session is looked up before the retry list is empty. The exception is the work already done
 * by the same chunk, which was for other rows or behind the retried ref. */
#include "daemon/engine/rows/rows.h"

#include <assert.h>

#include "base/clock.h"
#include "daemon/engine/sessions/slow_log.h"
#include "daemon/engine/tables/table_counts.h"
#include "daemon/engine/turns/cost.h"

/* ---- Requests and their parts ---- */

void rows_part_finished(struct rows *rows, struct part *part)
{
    struct request *const request = part->request;
    const uint32_t home = request->session->home;

    assert(part->waiting == 0 && !part->retry_first);
    if (rows_log_holds(rows, part))
        return;
    if (!request_part_done(rows->rules, part))
        return;
    if (home != rows->lane) {
        mailbox_send(rows->mailboxes[home], &request->message);
        return;
    }
    request->message.next = NULL;
    *rows->last_done_here = &request->message;
    rows->last_done_here = &request->message.next;
}

void rows_start(struct rows *rows, struct request *request)
{
    struct request_time *const time = session_time(request->session, request->number);

    if (time->started_ns == 0)
        time->started_ns = rows->schedule->now_ns;
    if (atomic_load_explicit(&request->parts_left, memory_order_relaxed) == 0) {
        /* There are no ids at all. An empty part takes the one way in which requests end. */
        atomic_store_explicit(&request->parts_left, 1, memory_order_relaxed);
        rows_part_finished(rows, &request->parts[rows->lane]);
        return;
    }
    for (uint32_t i = 0; i < rows->rules->lane_count; i++) {
        struct part *const part = &request->parts[i];

        if (part->starts[request->segment_count] == 0)
            continue;
        if (i == rows->lane)
            rows_add_part(rows, part);
        else
            mailbox_send(rows->mailboxes[i], &part->message);
    }
}

void rows_part_abandon(struct rows *rows, struct part *part, uint64_t count)
{
    request_fail(part->request, EMBTIER_DISCONNECTED, UINT32_MAX, 0);
    counter_add(&rows->counts.abandoned_rows, count);
}

void rows_ref_fail(struct rows *rows, struct part *part, uint32_t segment, uint64_t id,
                   enum embtier_err err)
{
    request_fail(part->request, err, segment, id);
    counter_add(&rows->counts.failed_rows, 1);
}

/* Returns DONE if a row may be changed now, RETRY if later, REFUSED if not. */
static enum outcome may_change(struct rows *rows, struct part *part, uint32_t segment, uint64_t id)
{
    struct table *const table = part->request->segments[segment].table;
    enum embtier_err err;
    uint32_t room;

    if (!request_changes(part->request))
        return OUTCOME_DONE;
    err = rows_change_room(rows, table, &room);
    if (err == EMBTIER_OK)
        return room > 0 ? OUTCOME_DONE : OUTCOME_RETRY;
    rows_ref_fail(rows, part, segment, id, err);
    return OUTCOME_REFUSED;
}

/* ---- Chunks ---- */

static void part_retry_later(struct part *part, uint32_t index)
{
    assert(index < part->starts[part->request->segment_count]);
    part->refs[index].link = 0;
    if (part->retry_last)
        part->refs[part->retry_last - 1].link = index + 1;
    else
        part->retry_first = index + 1;
    part->retry_last = index + 1;
}

/* Serves a ref at the place where the newest version of its row is. No other code knows the order
 * of these places. The home comes first, as a row that has arrived there may have changed since.
 * The miss table comes before the queue: its updates are newer than a queued row. */
static enum outcome ref_locate(struct rows *rows, struct part *part, uint32_t segment,
                               struct row_ref *ref, bool may_be_cached)
{
    const struct row_op *const op = part->request->row_op;
    struct table *const table = part->request->segments[segment].table;
    enum outcome outcome = OUTCOME_MISSED;
    const void *queued;

    if (may_be_cached)
        outcome = op->cached(rows, part, segment, ref);
    if (outcome != OUTCOME_MISSED)
        return outcome;
    if (rows_join_read(rows, part, table, ref)) {
        counter_add(&rows->counts.shared_reads, op->looks_up);
        return OUTCOME_DONE;
    }
    queued = write_queue_find(rows->write_queue, table->index, ref->hash, ref->id);
    if (queued)
        return op->queued(rows, part, segment, ref, queued);
    if (op->stored)
        outcome = op->stored(rows, part, segment, ref);
    if (outcome != OUTCOME_MISSED)
        return outcome;
    if (op->changes)
        return rows_read_to_change(rows, part, segment, ref);
    outcome = rows_read(rows, part, table, ref);
    if (outcome == OUTCOME_DONE && !op->pins) /* a prefetch is no lookup */
        table_counts_read(table_counts_of(table, rows->lane));
    return outcome;
}

static enum outcome ref_missed(struct rows *rows, struct part *part, uint32_t segment,
                               struct row_ref *ref, bool is_retried)
{
    const enum outcome may = may_change(rows, part, segment, ref->id);
    enum outcome outcome;

    if (may != OUTCOME_DONE)
        return may;
    outcome = ref_locate(rows, part, segment, ref, is_retried || part->request->row_op->places);
    assert(outcome != OUTCOME_MISSED);
    return outcome;
}

/* Retries, in order, the refs that found no room. False: there still is none. */
static bool part_retry(struct rows *rows, struct part *part, struct session_lane *side)
{
    while (part->retry_first) {
        const uint32_t index = part->retry_first - 1;
        struct row_ref *const ref = &part->refs[index];
        const uint32_t next = ref->link;

        if (ref_missed(rows, part, part_segment_of(part, index), ref, true) == OUTCOME_RETRY)
            return false;
        schedule_charge(rows->schedule, side, LANE_COST_MISS);
        part->retry_first = next;
        if (!next)
            part->retry_last = 0;
    }
    return true;
}

/* Serves a chunk with one call of the cache. Refs that must be tried again go to the retry list.
 * Returns how many were not cached. */
static uint32_t part_chunk(struct rows *rows, struct part *part, uint32_t count)
{
    const struct row_op *const op = part->request->row_op;
    struct table *const table = part->request->segments[part->segment].table;
    struct row_ref *const refs = part->refs + part->next_ref;
    const uint32_t missed = op->chunk(rows, part, refs, count);

    assert(missed <= count && count <= ROWS_CHUNK);
    if (op->changes)
        atomic_fetch_add_explicit(&table->updated_rows, count, memory_order_relaxed);
    part->hit_rows += count - missed;
    for (uint32_t i = 0; i < missed; i++) {
        struct row_ref *const ref = refs + rows->chunk_missed[i];

        /* Once one ref waits for room, all behind it do, so that two refs of the same row keep
         * their order. */
        if (part->retry_first || ref_missed(rows, part, part->segment, ref, false) == OUTCOME_RETRY)
            part_retry_later(part, (uint32_t)(ref - part->refs));
    }
    part->next_ref += count;
    assert(part->next_ref <= part->starts[part->segment + 1]);
    return missed;
}

enum turn { TURN_MORE, TURN_BLOCKED, TURN_FINISHED };

/* Returns how many of the next @count rows, all in the part's segment, may be changed now. 0: try
 * later. If the store takes none, the segment's remaining rows are refused and passed over. */
static uint32_t rows_to_change(struct rows *rows, struct part *part, uint32_t count)
{
    const uint32_t end = part->starts[part->segment + 1];
    enum embtier_err err;
    uint32_t room;

    err = rows_change_room(rows, part->request->segments[part->segment].table, &room);
    if (err == EMBTIER_OK)
        return MIN(count, room);
    request_fail(part->request, err, part->segment, part->refs[part->next_ref].id);
    counter_add(&rows->counts.failed_rows, end - part->next_ref);
    part->next_ref = end;
    return 0;
}

static void spend(struct rows *rows, struct session_lane *side, uint64_t cost, uint64_t *left)
{
    schedule_charge(rows->schedule, side, cost);
    *left -= MIN(*left, cost);
}

/* Looks up rows of @part, for about *@left. */
static enum turn part_turn(struct rows *rows, struct part *part, struct session_lane *side,
                           uint64_t *left)
{
    const uint32_t segments = part->request->segment_count;

    if (part_is_abandoned(part) && !part_is_looked_up(part)) {
        rows_part_abandon(rows, part, part->starts[segments] - part->next_ref);
        part->retry_first = part->retry_last = 0;
        part->segment = segments;
    }
    for (;;) {
        uint32_t count, row_cost;
        uint64_t work;

        if (part->retry_first && !part_retry(rows, part, side))
            return TURN_BLOCKED;
        while (*left > 0 && part->segment < segments &&
               part->next_ref == part->starts[part->segment + 1]) {
            part->segment++;
            spend(rows, side, LANE_COST_SEGMENT, left);
        }
        if (part->segment == segments)
            return TURN_FINISHED;
        if (*left == 0)
            return TURN_MORE;
        row_cost =
            lane_row_cost(part->request->segments[part->segment].row_bytes, part->request->is_cold);
        count = (uint32_t)MIN(MAX(*left / row_cost, UINT64_C(1)), (uint64_t)ROWS_CHUNK);
        count = MIN(count, part->starts[part->segment + 1] - part->next_ref);
        if (request_changes(part->request)) {
            count = rows_to_change(rows, part, count);
            if (count == 0 && part->next_ref < part->starts[part->segment + 1])
                return TURN_BLOCKED;
            if (count == 0)
                continue;
        }
        work = (uint64_t)count * row_cost;
        if (part->request->row_op->limit)
            count = part->request->row_op->limit(part, count, *left, &work);
        work += (uint64_t)part_chunk(rows, part, count) * LANE_COST_MISS;
        spend(rows, side, work, left);
        if (*left < row_cost)
            *left = 0; /* not enough for a single row */
    }
}

void rows_add_part(struct rows *rows, struct part *part)
{
    struct session_lane *const side = &part->request->session->lanes[rows->lane];

    assert(part->waiting == 0 && !part->retry_first);
    part->next = NULL;
    if (side->last)
        side->last->next = part;
    else
        side->first = part;
    side->last = part;
    if (!side->is_blocked)
        schedule_add_work(rows->schedule, side, SESSION_PARTS);
}

MESSAGE_KIND(message_part, rows_add_part, rows, struct part, message)

static void block(struct rows *rows, struct session_lane *side)
{
    assert(!side->is_blocked && side->first);
    side->is_blocked = true;
    side->next_blocked = NULL;
    if (rows->blocked)
        rows->last_blocked->next_blocked = side;
    else
        rows->blocked = side;
    rows->last_blocked = side;
    schedule_remove_work(rows->schedule, side, SESSION_PARTS);
}

void rows_turn(struct rows *rows, struct session_lane *side)
{
    uint64_t left = schedule_turn_cost(rows->schedule, side);
    bool goes_on = true;

    while (goes_on) {
        struct part *const part = side->first;
        enum turn turn;

        assert(!side->is_blocked && part);
        turn = part_turn(rows, part, side, &left);

        if (turn == TURN_BLOCKED)
            block(rows, side);
        if (turn != TURN_FINISHED)
            return;
        side->first = part->next;
        goes_on = side->first && left > 0;
        if (!side->first) {
            side->last = NULL;
            schedule_remove_work(rows->schedule, side, SESSION_PARTS);
        }
        /* A SET's lookup may be over while rows still wait; the part ends with the last of them.
         * This call may free the part and, with its last part, the session. So all else is in order
         * by now. */
        if (part->waiting == 0)
            rows_part_finished(rows, part);
        else if (rows->rules->slow_log->limit_ns != 0)
            part->ssd_since_ns = clock_now_ns(rows->rules->clock);
    }
}

/* The scheduler picks the session whose rows have cost least. A session that has found room has
 * been charged for it, so it cannot take all of it, time and again, before others get some. */
void rows_unblock_all(struct rows *rows)
{
    struct session_lane *side = rows->blocked;

    rows->blocked = rows->last_blocked = NULL;
    while (side) {
        struct session_lane *const next = side->next_blocked;

        assert(side->is_blocked);
        side->is_blocked = false;
        schedule_add_work(rows->schedule, side, SESSION_PARTS);
        side = next;
    }
}
