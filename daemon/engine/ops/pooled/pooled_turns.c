/* SPDX-License-Identifier: Apache-2.0 */
/* Pooled lookups on their lanes. Waves are taken on the home lane, looked up like GETs on all
 * lanes, and added up on one lane after the other. See pooled.h. */
#include "daemon/engine/ops/pooled/pooled_turns.h"

#include "daemon/engine/ops/op.h"
#include <assert.h>

#include "daemon/engine/memory/request_memory.h"
#include "daemon/engine/ops/groups/group.h"
#include "daemon/engine/ops/op_table.h"
#include "daemon/engine/ops/pooled/pooled.h"
#include "daemon/engine/ops/tickets/tickets.h"
#include "daemon/engine/sessions/client_bytes.h"
#include "daemon/engine/tables/table_counts.h"
#include "daemon/engine/turns/cost.h"
#include "proto/op_fields.h"

static struct wave *wave_of(struct request *request)
{
    return CONTAINER_OF(request, struct wave, request);
}

/* Turns a wave's error, which names a slice, into the lookup's, which names a segment. */
static void note_error(struct pooled *pooled, const struct wave *wave)
{
    const enum embtier_err err = (enum embtier_err)atomic_load(&wave->request.err);
    const uint32_t slice = wave->request.err_segment;

    if (err == EMBTIER_OK || pooled->refusal.err != EMBTIER_OK)
        return;
    pooled->refusal = (struct refusal){
        .err = err,
        .segment = slice < wave->slice_count ? wave->slices[slice].segment : UINT32_MAX,
        .value = wave->request.err_value,
    };
    pooled->is_taken = true; /* no more of it is taken */
}

/* True if rows may be added up where they lie, if all are cached. With one lane, nothing can happen
 * to them between here and the end. Not while an earlier request of the session is still to be
 * looked up. Nor before an earlier wave that has rows of the same bag and waits for some to be
 * read. */
static bool may_add_up(const struct op_lane *lane, const struct pooled *pooled,
                       const struct wave *wave)
{
    return lane->rules.lane_count == 1 && !pooled->session->lanes[0].first &&
           !pooled_must_wait(pooled, wave);
}

static struct table_counts *slice_counts(const struct op_lane *lane, const struct pooled *pooled,
                                         const struct slice *slice)
{
    return table_counts_of(pooled->segments[slice->segment].table, lane->rows->lane);
}

/* Begins to add a wave up in place, as table_counts_begin(): the wave is one piece. */
static uint64_t begin_in_place(const struct op_lane *lane, const struct pooled *pooled,
                               const struct wave *wave)
{
    return wave->slice_count > 0 ? table_counts_begin(slice_counts(lane, pooled, &wave->slices[0]))
                                 : 0;
}

/* Counts the lookups of a wave that was added up in place. A table has the time of its share. */
static void count_hits(struct op_lane *lane, struct pooled *pooled, const struct wave *wave,
                       uint64_t begin_ns)
{
    const uint64_t ns = begin_ns ? clock_since(clock_now_ns(&clock_monotonic), begin_ns) : 0;
    uint64_t rows = 0;

    for (uint32_t i = 0; i < wave->slice_count; i++)
        rows += wave->slices[i].id_count;
    for (uint32_t i = 0; i < wave->slice_count; i++) {
        const uint64_t some = wave->slices[i].id_count;
        struct table_counts *const counts = slice_counts(lane, pooled, &wave->slices[i]);

        counter_add(&counts->lookups, some);
        if (begin_ns && rows > 0)
            table_counts_timed(counts, ns * some / rows, some);
    }
    counter_add(&lane->rows->counts.get_rows, rows);
    pooled->hit_rows += rows;
}

static bool has_map(const struct op_lane *lane, const struct pooled *pooled, uint32_t segment,
                    struct row_spots *ret_spots)
{
    return home_spots(lane->rows, pooled->segments[segment].table, ret_spots);
}

/* Adds up rows of small tables while it finds them (row_map.h). If some are not there, the next
 * waves are not tried: each failure does the work twice. */
static bool search(struct op_lane *lane, struct pooled *pooled, struct wave *wave)
{
    const uint64_t begin_ns = begin_in_place(lane, pooled, wave);
    struct row_spots where;

    for (uint32_t i = 0; i < wave->slice_count; i++)
        if (!has_map(lane, pooled, wave->slices[i].segment, &where))
            return false;
    if (!pooled_copy_ids(pooled, wave))
        return false;
    for (uint32_t i = 0; i < wave->slice_count; i++)
        if (!has_map(lane, pooled, wave->slices[i].segment, &where) ||
            !pooled_search(pooled, wave, i, &where)) {
            pooled->search_from = wave->number + WAVE_SEARCH_PAUSE;
            return false;
        }
    pooled_searched(&lane->rules, pooled, wave);
    for (uint32_t i = 0; i < wave->slice_count; i++)
        home_used_spots(lane->rows, pooled->segments[wave->slices[i].segment].table,
                        wave->slices[i].id_count);
    count_hits(lane, pooled, wave, begin_ns);
    return true;
}

/* True if the next wave should be searched. */
static bool should_search(const struct op_lane *lane, const struct pooled *pooled)
{
    struct row_spots where;

    return pooled->is_hot && pooled->next_number >= pooled->search_from &&
           pooled->segment < pooled->segment_count &&
           has_map(lane, pooled, pooled->segment, &where);
}

/* Adds up the wave where its rows lie, after it has found them all. False: not all are cached. */
static bool add_up_in_place(struct op_lane *lane, struct pooled *pooled, struct wave *wave)
{
    const struct request *const request = &wave->request;
    const struct part *const part = &request->parts[0];
    const uint64_t begin_ns = begin_in_place(lane, pooled, wave);

    for (uint32_t i = 0; i < wave->slice_count; i++)
        if (home_find(lane->rows, request->segments[i].table, part->refs + part->starts[i],
                      wave->slices[i].id_count, request->segments[i].row_bytes,
                      wave->rows + wave->slices[i].first) > 0)
            return false;
    wave_add_up(wave);
    for (uint32_t i = 0; i < wave->slice_count; i++) {
        const struct slice *const slice = &wave->slices[i];

        home_used(lane->rows, request->segments[i].table, part->refs + part->starts[i],
                  slice->id_count, wave->rows + slice->first);
    }
    count_hits(lane, pooled, wave, begin_ns);
    return true;
}

static void give_up(struct pooled *pooled)
{
    pooled->refusal.err = EMBTIER_DISCONNECTED;
    pooled->is_taken = true;
}

static void end(struct op_lane *lane, void *what)
{
    struct pooled *const pooled = what;
    struct session *const session = pooled->session;
    struct ticket *const ticket = pooled->ticket;

    if (ticket && pooled->refusal.err == EMBTIER_OK) {
        pooled->refusal.err = tickets_issue(lane, ticket);
        pooled->refusal.value = TICKETS_MAX;
    }
    if (ticket && pooled->refusal.err != EMBTIER_OK) {
        pooled->ticket = NULL;
        tickets_end(lane, ticket);
    }
    pooled_free(&lane->rules, pooled);
    session_release(session);
}

static struct session_lane *side_of(const struct op_lane *lane, const struct pooled *pooled)
{
    return schedule_side_of(lane->schedule, pooled->session);
}

/* Takes one wave, and adds it up if that can be. @most: UINT64_MAX for a wave that must be whole.
 * Returns the cost. */
static uint64_t take_wave(struct op_lane *lane, struct pooled *pooled, struct wave *wave,
                          uint64_t most)
{
    /* A lookup that is not hot takes as many ids as may be taken, which is more than may be added
     * up. */
    const bool may_find = pooled->is_hot || most == UINT64_MAX;
    uint64_t cost = LANE_COST_SEGMENT;
    enum embtier_err err;
    bool may = false;
    bool is_done = false;

    pooled->searches = should_search(lane, pooled);
    err = pooled_take(pooled, wave, most, &pooled->refusal);
    if (err == EMBTIER_OK) {
        may = may_add_up(lane, pooled, wave);
        is_done = may && pooled->searches && search(lane, pooled, wave);
        if (!is_done)
            err = pooled_take_ids(&lane->rules, pooled, wave, &pooled->refusal);
    }
    if (err != EMBTIER_OK) {
        pooled->is_taken = true;
        return cost;
    }
    cost = pooled_taking_cost(pooled, wave);
    if (pooled->ticket)
        tickets_cast(lane, pooled->ticket, pooled->segment);
    pooled->is_hot = is_done || (may && may_find && add_up_in_place(lane, pooled, wave));
    pooled->is_cached = false;
    if (pooled->is_hot)
        cost += pooled_adding_cost(pooled, wave);
    schedule_charge(lane->schedule, side_of(lane, pooled), cost);
    if (pooled->is_hot)
        return cost;
    assert(wave->state == WAVE_FREE);
    wave->state = WAVE_LOOKED_UP;
    waves_begin(&pooled->waves, wave);
    rows_start(lane->rows, &wave->request);
    return cost;
}

static enum op_turn take_turn(struct op_lane *lane, void *what, uint64_t *left)
{
    struct pooled *const pooled = what;
    const uint64_t most = *left;
    const bool is_alone = most >= LANE_TURN_COST_ALONE;
    uint64_t cost = 0;

    if (op_is_over(pooled->session))
        give_up(pooled);
    if (!is_alone && pooled->is_cached && !pooled->is_taken) {
        if (pooled->waves.under_way > 0) /* it seems that nothing has to be read meanwhile */
            return OP_TURN_STALLED;
        pooled->is_hot = true;
    }
    do {
        struct wave *wave;

        if (pooled->is_taken)
            break;
        wave = pooled_free_wave(&lane->rules, pooled);
        if (!wave)
            return OP_TURN_STALLED;
        cost += take_wave(lane, pooled, wave, is_alone ? UINT64_MAX : most);
        /* The rest may be too little for a bag, which is not cut if it is searched. */
    } while (pooled->is_hot && cost < (is_alone ? most : most / 2));
    if (!pooled->is_taken)
        return OP_TURN_MORE;
    return pooled->waves.under_way > 0 ? OP_TURN_ISSUED : OP_TURN_COMPLETE;
}

/* Gives the waves that are ready, and need not wait, to lanes to be added up. */
static void give_out(struct op_lane *lane, struct pooled *pooled)
{
    const uint32_t lanes = lane->rules.lane_count;

    for (uint32_t i = 0; i < pooled->waves.count; i++) {
        struct wave *const wave = pooled->waves.blocks[i];
        struct mailbox *to;

        if (wave->state != WAVE_READY || pooled_must_wait(pooled, wave))
            continue;
        to = lane->mailboxes[(lane->index + wave->number) % lanes];
        wave->state = WAVE_GIVEN_OUT;
        wave->request.message.kind = &message_add_up;
        mailbox_send(to, &wave->request.message);
    }
}

/* All rows of a wave are there, or it has failed. */
static void looked_up(struct op_lane *lane, struct request *request)
{
    struct wave *const wave = wave_of(request);
    struct pooled *const pooled = wave->pooled;

    note_error(pooled, wave);
    if (pooled->refusal.err != EMBTIER_OK) {
        pooled_end_wave(&lane->rules, pooled, wave);
    } else {
        pooled->is_cached =
            lane->rules.lane_count == 1 &&
            atomic_load_explicit(&request->hit_rows, memory_order_relaxed) == request->id_count;
        assert(wave->state == WAVE_LOOKED_UP);
        wave->state = WAVE_READY;
    }
    give_out(lane, pooled);
    op_after_wave(lane, pooled->session, &op_pool, pooled, pooled->waves.under_way);
}

/* Queues a wave to be added up. Each turn adds up some of it; with the last of it, the wave goes
 * home. */
static void on_add_up(struct op_lane *lane, struct request *request)
{
    struct session_lane *const side = &request->session->lanes[lane->index];
    struct message *const message = &request->message;

    message->next = NULL;
    if (side->add_up)
        side->last_add_up->next = message;
    else
        side->add_up = message;
    side->last_add_up = message;
    schedule_add_work(lane->schedule, side, SESSION_ADD_UP);
}

MESSAGE_KIND(message_add_up, on_add_up, ops, struct request, message)

void pooled_add_up_turn(struct op_lane *lane, struct session_lane *side)
{
    struct message *const message = side->add_up;
    struct request *const request = CONTAINER_OF(message, struct request, message);
    const uint64_t most = schedule_turn_cost(lane->schedule, side);
    uint64_t cost;
    const bool is_done = wave_add_up_staged(wave_of(request),
                                            most < LANE_TURN_COST_ALONE ? most : UINT64_MAX, &cost);

    schedule_charge(lane->schedule, side, cost);
    if (!is_done)
        return;
    side->add_up = message->next;
    if (!side->add_up)
        schedule_remove_work(lane->schedule, side, SESSION_ADD_UP);
    message->kind = &message_added_up;
    mailbox_send(lane->mailboxes[request->session->home], message); /* it may be gone then */
}

static void on_added_up(struct op_lane *lane, struct request *request)
{
    struct pooled *const pooled = wave_of(request)->pooled;

    pooled_end_wave(&lane->rules, pooled, wave_of(request));
    give_out(lane, pooled); /* a wave that goes on with this one's last bag */
    op_after_wave(lane, pooled->session, &op_pool, pooled, pooled->waves.under_way);
}

MESSAGE_KIND(message_added_up, on_added_up, ops, struct request, message)

static enum embtier_err begin(struct op_lane *lane, struct session *session, uint32_t number,
                              const struct op_submission *submission, struct taking *ret_taking,
                              struct refusal *refusal)
{
    struct group_member *member;
    struct pooled *pooled;

    TRY(check_fields(submission, op_form_of(submission), refusal));
    TRY(group_check(session, submission, false, &member, refusal));
    TRY(pooled_begin(&lane->rules, session, number, submission, &pooled, refusal));
    ret_taking->what = pooled;
    return EMBTIER_OK;
}

const struct op op_pool = {
    .name = "POOL",
    .has_turns = true,
    .form = op_form_of,
    .begin = begin,
    .turn = take_turn,
    .end = end,
    .done = looked_up,
};
