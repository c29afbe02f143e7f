/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/engine/ops/segments.h"

#include "daemon/engine/memory/request_memory.h"
#include "daemon/engine/ops/groups/group.h"
#include "daemon/engine/ops/op_table.h"
#include "daemon/engine/ops/segment_copies.h"
#include "daemon/engine/sessions/client_bytes.h"
#include "daemon/engine/tables/table.h"
#include "daemon/engine/turns/cost.h"

/* ---- Beginning ---- */

/* Takes a block for the request and lays the request out there. */
static enum embtier_err request_new(const struct request_rules *rules, struct session *session,
                                    uint32_t number, const struct op_submission *submission,
                                    uint64_t id_count, struct request **ret_request,
                                    struct refusal *refusal)
{
    const uint32_t segments = submission->segment_count;
    const uint64_t largest = request_memory_largest(rules->memory);
    const uint64_t head_bytes = request_block_bytes(rules, sizeof(struct request), segments, 0);
    const uint64_t bytes = request_block_bytes(rules, sizeof(struct request), segments, id_count);
    struct request *request;

    if (bytes > largest)
        return refuse(refusal, EMBTIER_TOO_LARGE, UINT32_MAX, id_count,
                      head_bytes > largest ? 0 /* the segments alone are too many */
                                           : (largest - head_bytes) / request_ref_bytes(rules));
    request = request_memory_for(rules, session, bytes, REQUEST_MEMORY_ENDS);
    if (!request)
        return EMBTIER_AGAIN;
    request_lay_out(rules, request, sizeof(*request), segments, id_count);
    request->session = session;
    request->number = number;
    *ret_request = request;
    return EMBTIER_OK;
}

/* Notes the bytes of a session's last requests, the older the less. Equal requests add up to eight
 * of them, so a large request in pieces is as cold as a whole one. */
static void note_bytes(const struct request_rules *rules, struct request *request)
{
    struct session *const session = request->session;
    uint64_t bytes = 0;

    for (uint32_t s = 0; s < request->segment_count; s++)
        bytes += (uint64_t)request->segments[s].id_count *
                 MAX(request->segments[s].row_bytes, (uint32_t)LANE_COLD_ROW_BYTES);
    session->lately_bytes += bytes - session->lately_bytes / 8;
    request->is_cold = session->lately_bytes > LANE_CACHED_BYTES * rules->lane_count;
}

/* A request that is beginning. */
struct beginning {
    const struct request_rules *rules;
    const struct op_submission *submission;
    struct request *request;
    struct refusal *refusal;
};

/* Notes the segment's table, and checks that it may be changed, if it is to be, and where ids and
 * rows lie. */
static enum embtier_err take_segment(void *context, uint32_t s, struct table *table)
{
    const struct beginning *const b = context;
    const struct op *const op = b->request->op;
    const struct session *const session = b->request->session;
    const struct op_segment *const wire = &b->rules->scratch[s];
    struct request_segment *const segment = &b->request->segments[s];
    const bool with_state = b->submission->flags & OP_FLAG_STATE;

    segment->table = table;
    if (request_changes(b->request))
        TRY(request_admit_change(b->rules, s, table, wire->id_count, b->refusal));
    TRY(segment_ids_check(session, s, wire->ids_offset, wire->id_count, b->refusal));
    segment->row_bytes = op->place_bytes ? op->place_bytes(table, with_state)
                         : with_state    ? table->row_bytes
                                         : table->weight_bytes;
    if (IS_BAD(CHECK_ROWS_IN_REGION,
               !in_region(session, wire->rows_offset, (uint64_t)wire->id_count * segment->row_bytes,
                          OP_ROW_ALIGN)))
        return refuse(b->refusal, EMBTIER_OFFSET_RANGE, s, wire->rows_offset,
                      session->channel.region_bytes);
    return EMBTIER_OK;
}

static void fill_in(const struct request_rules *rules, struct request *request)
{
    for (uint32_t s = 0; s < request->segment_count; s++) {
        const struct op_segment *const wire = &rules->scratch[s];
        struct request_segment *const segment = &request->segments[s];

        segment->ids_offset = wire->ids_offset;
        segment->id_count = wire->id_count;
        segment->rows = request->session->channel.region + wire->rows_offset;
    }
}

enum embtier_err segments_begin(struct op_lane *lane, struct session *session, uint32_t number,
                                const struct op_submission *submission, struct taking *ret_taking,
                                struct refusal *refusal)
{
    const struct request_rules *const rules = &lane->rules;
    const uint32_t form = ret_taking->op->form(submission);
    struct op_submission copy = *submission;
    struct beginning b = { .rules = rules, .submission = &copy, .refusal = refusal };
    struct group_member *member;
    struct segment_sums sums;
    enum embtier_err err;

    TRY(check_fields(&copy, form, refusal));
    TRY(group_check(session, &copy, false, &member, refusal));
    TRY(segment_copies_take(rules, session, &copy, form, OP_FLAG_STATE, &sums, refusal));
    if (!IS_COPIED(COPY_SUBMISSION))
        copy_again(&copy, channel_submission(&session->channel, number), sizeof(copy));
    TRY(request_new(rules, session, number, &copy, sums.ids, &b.request, refusal));
    op_own(IS_COPIED(COPY_SUBMISSION) ? ret_taking->op : op_of(copy.op), b.request);
    b.request->row_op = b.request->op->row_op;
    b.request->is_update = request_changes(b.request);
    err = segment_copies_enter(rules, session, &copy, form, take_segment, &b, refusal);
    if (err != EMBTIER_OK) {
        request_discard(rules, b.request);
        return err;
    }
    fill_in(rules, b.request);
    note_bytes(rules, b.request);
    ret_taking->what = b.request;
    return EMBTIER_OK;
}

/* ---- Turns ---- */

static enum update_kind kind_of(const struct request *request)
{
    return request->id_count > UPDATE_WHOLE_ROWS ? UPDATE_LARGE : UPDATE_SMALL;
}

/* Returns the cost of taking it so far. */
static uint64_t taken_cost(const struct request *request)
{
    return (request->taken_ids + request->dealt_ids) * LANE_COST_ID +
           (uint64_t)request->taking_segment * LANE_COST_SEGMENT;
}

/* Takes more ids of a request. Starts it with the last id, or answers it if it is refused. */
enum op_turn segments_turn(struct op_lane *lane, void *what, uint64_t *left)
{
    struct request *const request = what;
    const uint64_t most = *left;
    struct session *const session = request->session;
    struct session_lane *const side = schedule_side_of(lane->schedule, session);
    const uint32_t number = request->number;
    const uint64_t cost_before = taken_cost(request);
    struct refusal refusal = { .segment = UINT32_MAX };
    enum embtier_err err;

    if (session->broken || session->detaching) {
        request_discard(&lane->rules, request);
        session_release(session);
        return OP_TURN_ISSUED;
    }
    if (request_changes(request) && !update_may_begin(lane->gate, session, kind_of(request)))
        return OP_TURN_HELD;
    *left -= MIN(*left, request->id_count);
    err = request_take(&lane->rules, request, MIN(most, lane->take_ids), &refusal);
    schedule_charge(lane->schedule, side, taken_cost(request) - cost_before);
    if (err == EMBTIER_AGAIN)
        return OP_TURN_MORE;
    if (err == EMBTIER_OK) {
        if (request_changes(request))
            update_begin(lane->gate, session, kind_of(request));
        rows_start(lane->rows, request);
    } else {
        request_discard(&lane->rules, request);
        session_release(session);
        request_answer(&lane->rules, session, number, &refusal, 0, 0);
    }
    return OP_TURN_ISSUED;
}

void segments_done(struct op_lane *lane, struct request *request)
{
    struct session *const session = request->session;

    if (request_changes(request))
        update_end(lane->gate, session, kind_of(request));
    request_free(&lane->rules, request);
    session->memory_short = false;
    session_release(session);
    lane->settle(lane, session);
}
