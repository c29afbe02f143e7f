/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/engine/ops/segments.h"

#include "daemon/engine/memory/request_memory.h"
#include "daemon/engine/ops/groups/group.h"
#include "daemon/engine/ops/op_table.h"
#include "daemon/engine/ops/segment_tables.h"
#include "daemon/engine/sessions/client_bytes.h"
#include "daemon/engine/tables/table.h"
#include "daemon/engine/turns/cost.h"
#include "proto/op_fields.h"

/* ---- Beginning ---- */

/* Checks the submission, copies and checks the segments; the tables are not entered yet. */
static enum embtier_err copy_segments(const struct request_rules *rules,
                                      const struct session *session, uint32_t number,
                                      struct op_submission *submission, uint32_t form,
                                      uint64_t *ret_ids, struct refusal *refusal)
{
    uint64_t ids = 0;

    if (IS_BAD(CHECK_FLAGS, (submission->flags & ~(uint32_t)OP_FLAG_STATE) != 0))
        return refuse(refusal, EMBTIER_UNSUPPORTED, UINT32_MAX, submission->flags, OP_FLAG_STATE);
    if (IS_BAD(CHECK_SEGMENT_COUNT, submission->segment_count > OP_SEGMENTS_MAX))
        return refuse(refusal, EMBTIER_TOO_LARGE, UINT32_MAX, submission->segment_count,
                      OP_SEGMENTS_MAX);
    if (IS_BAD(CHECK_SEGMENTS_IN_ARENA,
               !in_region(session, submission->segments_offset,
                          submission->segment_count * sizeof(struct op_segment), OP_ID_ALIGN)))
        return refuse(refusal, EMBTIER_OFFSET_RANGE, UINT32_MAX, submission->segments_offset,
                      session->channel.region_bytes);
    copy_once(rules->scratch, session->channel.region + submission->segments_offset,
              submission->segment_count * sizeof(struct op_segment));
    for (uint32_t s = 0; s < submission->segment_count; s++) {
        if (IS_BAD(CHECK_SEGMENT_FIELDS, !op_segment_is_clean(&rules->scratch[s], form)))
            return refuse_unused(form, s, &rules->scratch[s], refusal);
        ids += rules->scratch[s].id_count;
    }
    if (IS_BAD(CHECK_ID_COUNT, ids > rules->max_batch_rows))
        return refuse(refusal, EMBTIER_TOO_LARGE, UINT32_MAX, ids, rules->max_batch_rows);
    if (!IS_COPIED(COPY_SUBMISSION))
        copy_again(submission, channel_submission(&session->channel, number), sizeof(*submission));
    *ret_ids = ids;
    return EMBTIER_OK;
}

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

/* Enters the segments' tables and checks where ids and rows lie. */
static enum embtier_err check_segments(const struct request_rules *rules, struct request *request,
                                       const struct op_submission *submission,
                                       struct refusal *refusal)
{
    const struct session *const session = request->session;
    const struct op *const op = request->op;
    const bool with_state = submission->flags & OP_FLAG_STATE;

    for (uint32_t s = 0; s < request->segment_count; s++) {
        const struct op_segment *const wire = &rules->scratch[s];
        struct request_segment *const segment = &request->segments[s];
        const uint64_t id_bytes = (uint64_t)wire->id_count * sizeof(uint64_t);
        enum embtier_err err;

        segment->table = segment_table_enter(rules, s, wire->table, refusal);
        if (IS_BAD(CHECK_TABLE, !segment->table))
            return refusal->err;
        err = request_changes(request)
                  ? request_change_refusal(rules, segment->table, wire->id_count)
                  : EMBTIER_OK;
        if (err != EMBTIER_OK)
            return refuse(refusal, err, s, 0, 0);
        if (IS_BAD(CHECK_IDS_IN_ARENA,
                   !in_region(session, wire->ids_offset, id_bytes, OP_ID_ALIGN)))
            return refuse(refusal, EMBTIER_OFFSET_RANGE, s, wire->ids_offset,
                          session->channel.region_bytes);
        segment->row_bytes = op->place_bytes ? op->place_bytes(segment->table, with_state)
                             : with_state    ? segment->table->row_bytes
                                             : segment->table->weight_bytes;
        if (IS_BAD(CHECK_ROWS_IN_ARENA,
                   !in_region(session, wire->rows_offset,
                              (uint64_t)wire->id_count * segment->row_bytes, OP_ROW_ALIGN)))
            return refuse(refusal, EMBTIER_OFFSET_RANGE, s, wire->rows_offset,
                          session->channel.region_bytes);
        if (!IS_COPIED(COPY_SEGMENTS))
            copy_again(
                &rules->scratch[s],
                (const struct op_segment *)(session->channel.region + submission->segments_offset) +
                    s,
                sizeof(*wire));
        segment->ids_offset = wire->ids_offset;
        segment->id_count = wire->id_count;
        segment->rows = session->channel.region + wire->rows_offset;
    }
    return EMBTIER_OK;
}

enum embtier_err segments_begin(struct op_lane *lane, struct session *session, uint32_t number,
                                const struct op_submission *submission, struct taking *ret_taking,
                                struct refusal *refusal)
{
    const struct request_rules *const rules = &lane->rules;
    const uint32_t form = ret_taking->op->form(submission);
    struct op_submission copy = *submission;
    struct group_member *member;
    struct request *request;
    uint64_t id_count = 0;
    enum embtier_err err;

    TRY(check_fields(&copy, form, refusal));
    TRY(group_check(session, &copy, false, &member, refusal));
    TRY(copy_segments(rules, session, number, &copy, form, &id_count, refusal));
    TRY(request_new(rules, session, number, &copy, id_count, &request, refusal));
    request->op = IS_COPIED(COPY_SUBMISSION) ? ret_taking->op : op_of(copy.op);
    request->row_op = request->op->row_op;
    request->is_update = request_changes(request);
    err = check_segments(rules, request, &copy, refusal);
    if (err != EMBTIER_OK) {
        request_discard(rules, request);
        return err;
    }
    note_bytes(rules, request);
    ret_taking->what = request;
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
        request_answer(session, number, &refusal, 0, 0);
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
