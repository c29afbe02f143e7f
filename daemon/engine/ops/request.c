/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/engine/ops/request.h"

#include <string.h>

#include "daemon/engine/memory/request_memory.h"
#include "daemon/engine/ops/group.h"
#include "daemon/engine/ops/pooled.h"
#include "daemon/engine/ops/push.h"
#include "daemon/engine/ops/request_impl.h"
#include "daemon/engine/ops/ticket.h"
#include "daemon/engine/sessions/session.h"
#include "daemon/engine/tables/table.h"
#include "daemon/engine/tables/tables.h"
#include "daemon/engine/turns/cost.h"

enum embtier_err request_refuse_unused(uint32_t form, uint32_t segment, const void *place,
                                       struct refusal *refusal)
{
    const struct shm_field *fields, *field;
    uint64_t bits = 0;
    uint32_t count;

    fields =
        segment == UINT32_MAX ? shm_submission_fields(&count) : shm_segment_fields(form, &count);
    field = shm_find_unused(fields, count, place, form, &bits);
    if (!field) /* it was asked for by somebody who found one */
        return refuse(refusal, EMBTIER_INTERNAL, segment, 0, 0);
    (void)refuse(refusal, field->err, segment, bits, 0);
    refusal->field = field->offset + 1;
    return field->err;
}

/* Whether it asks for an operation that there is, and for nothing that this does not use. */
static enum embtier_err check_fields(const struct shm_submission *submission, uint32_t form,
                                     struct refusal *refusal)
{
    if (IS_BAD(CHECK_OP, form == 0))
        return refuse(refusal, EMBTIER_INVALID, UINT32_MAX, submission->op, SHM_OP_LAST);
    if (IS_BAD(CHECK_FIELDS, !shm_submission_is_clean(submission, form)))
        return request_refuse_unused(form, UINT32_MAX, submission, refusal);
    return EMBTIER_OK;
}

/* Checks the submission, copies and checks the segments; the tables are not entered yet. */
static enum embtier_err copy_segments(const struct request_rules *rules,
                                      const struct session *session, uint32_t number,
                                      struct shm_submission *submission, uint64_t *ret_ids,
                                      struct refusal *refusal)
{
    uint64_t ids = 0;

    if (IS_BAD(CHECK_FLAGS, (submission->flags & ~(uint32_t)SHM_FLAG_STATE) != 0))
        return refuse(refusal, EMBTIER_UNSUPPORTED, UINT32_MAX, submission->flags, SHM_FLAG_STATE);
    if (IS_BAD(CHECK_SEGMENT_COUNT, submission->segment_count > SHM_SEGMENTS_MAX))
        return refuse(refusal, EMBTIER_TOO_LARGE, UINT32_MAX, submission->segment_count,
                      SHM_SEGMENTS_MAX);
    if (IS_BAD(CHECK_SEGMENTS_IN_ARENA,
               !in_region(session, submission->segments_offset,
                          submission->segment_count * sizeof(struct shm_segment), SHM_ID_ALIGN)))
        return refuse(refusal, EMBTIER_OFFSET_RANGE, UINT32_MAX, submission->segments_offset,
                      session->channel.region_bytes);
    copy_once(rules->scratch, session->channel.region + submission->segments_offset,
              submission->segment_count * sizeof(struct shm_segment));
    for (uint32_t s = 0; s < submission->segment_count; s++) {
        if (IS_BAD(CHECK_SEGMENT_FIELDS,
                   !shm_segment_is_clean(&rules->scratch[s], shm_form_of(submission))))
            return request_refuse_unused(shm_form_of(submission), s, &rules->scratch[s], refusal);
        ids += rules->scratch[s].id_count;
    }
    if (IS_BAD(CHECK_ID_COUNT, ids > rules->max_batch_rows))
        return refuse(refusal, EMBTIER_TOO_LARGE, UINT32_MAX, ids, rules->max_batch_rows);
    if (!IS_COPIED(COPY_SUBMISSION))
        copy_again(submission, channel_submission(&session->channel, number), sizeof(*submission));
    *ret_ids = ids;
    return EMBTIER_OK;
}

static uint64_t segments_place(uint64_t head_bytes)
{
    return align_up(head_bytes, CACHE_LINE);
}

static uint64_t parts_place(uint64_t head_bytes, uint32_t segments)
{
    return align_up(segments_place(head_bytes) + segments * sizeof(struct request_segment),
                    CACHE_LINE);
}

static uint64_t starts_place(const struct request_rules *rules, uint64_t head_bytes,
                             uint32_t segments)
{
    return parts_place(head_bytes, segments) + rules->lane_count * sizeof(struct part);
}

static uint64_t refs_place(const struct request_rules *rules, uint64_t head_bytes,
                           uint32_t segments)
{
    return align_up(starts_place(rules, head_bytes, segments) +
                        (uint64_t)rules->lane_count * (segments + 1) * sizeof(uint32_t),
                    CACHE_LINE);
}

/* With several lanes the ids are laid down once in the request's order behind the refs, then dealt
 * out. */
static uint64_t ref_copies(const struct request_rules *rules)
{
    return rules->lane_count > 1 ? 2 : 1;
}

uint64_t request_block_bytes(const struct request_rules *rules, uint64_t head_bytes,
                             uint32_t segments, uint64_t id_count)
{
    return refs_place(rules, head_bytes, segments) +
           ref_copies(rules) * id_count * sizeof(struct row_ref);
}

void request_lay_out(const struct request_rules *rules, struct request *request,
                     uint64_t head_bytes, uint32_t segments, uint64_t id_count)
{
    uint8_t *const block = (uint8_t *)request;
    struct row_ref *const refs =
        (struct row_ref *)(block + refs_place(rules, head_bytes, segments));
    uint32_t *const starts = (uint32_t *)(block + starts_place(rules, head_bytes, segments));

    memset(request, 0, sizeof(*request));
    memset(block + segments_place(head_bytes), 0,
           starts_place(rules, head_bytes, segments) - segments_place(head_bytes));
    request->id_count = id_count;
    request->message.kind = MESSAGE_REQUEST_DONE;
    request->segment_count = segments;
    request->lane_count = rules->lane_count;
    request->segments = (struct request_segment *)(block + segments_place(head_bytes));
    request->parts = (struct part *)(block + parts_place(head_bytes, segments));
    for (uint32_t lane = 0; lane < rules->lane_count; lane++) {
        request->parts[lane].message.kind = MESSAGE_PART;
        request->parts[lane].request = request;
        request->parts[lane].starts = starts + (uint64_t)lane * (segments + 1);
        request->parts[lane].refs = refs;
        starts[(uint64_t)lane * (segments + 1) + segments] = 0;
    }
    request->ids = refs + (ref_copies(rules) - 1) * id_count;
}

/* Takes a block for the request and lays it out there. */
static enum embtier_err request_new(const struct request_rules *rules, struct session *session,
                                    uint32_t number, const struct shm_submission *submission,
                                    uint64_t id_count, struct request **ret_request,
                                    struct refusal *refusal)
{
    const uint32_t segments = submission->segment_count;
    const uint64_t largest = request_memory_largest(rules->memory);
    const uint64_t head_bytes = refs_place(rules, sizeof(struct request), segments);
    const uint64_t bytes = request_block_bytes(rules, sizeof(struct request), segments, id_count);
    struct request *request;

    if (bytes > largest)
        return refuse(refusal, EMBTIER_TOO_LARGE, UINT32_MAX, id_count,
                      head_bytes > largest
                          ? 0 /* the segments alone are too many */
                          : (largest - head_bytes) / (ref_copies(rules) * sizeof(struct row_ref)));
    request = request_memory_for(rules, session, bytes, REQUEST_MEMORY_ENDS);
    if (!request)
        return EMBTIER_AGAIN;
    request_lay_out(rules, request, sizeof(*request), segments, id_count);
    request->session = session;
    request->number = number;
    request->op = (enum shm_op)submission->op;
    *ret_request = request;
    return EMBTIER_OK;
}

enum embtier_err request_change_refusal(const struct request_rules *rules,
                                        const struct table *table, uint64_t row_count)
{
    const enum embtier_err err = table->logged ? EMBTIER_OK : store_replay_refusal(rules->store);

    return err == EMBTIER_OK ? store_admit(rules->store, row_count, table->row_bytes, table->logged)
                             : err;
}

static void leave_tables(struct request *request)
{
    for (uint32_t s = 0; s < request->segment_count; s++)
        if (request->segments[s].table)
            table_leave(request->segments[s].table);
}

/* A session's last requests count, the older the less, eight like this one in all: so a large
 * request in pieces is as cold as a whole one. */
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
                                       const struct shm_submission *submission,
                                       struct refusal *refusal)
{
    const struct session *const session = request->session;
    const bool with_state = submission->flags & SHM_FLAG_STATE;

    for (uint32_t s = 0; s < request->segment_count; s++) {
        const struct shm_segment *const wire = &rules->scratch[s];
        struct request_segment *const segment = &request->segments[s];
        const uint64_t id_bytes = (uint64_t)wire->id_count * sizeof(uint64_t);
        uint32_t state = TABLE_FREE;
        enum embtier_err err;

        segment->table = tables_enter(rules->tables, wire->table, &state);
        if (IS_BAD(CHECK_TABLE, !segment->table))
            return refuse(refusal, state == TABLE_DROPPING ? EMBTIER_DROPPED : EMBTIER_NO_TABLE, s,
                          wire->table >> 32, 0);
        err = request_changes(request)
                  ? request_change_refusal(rules, segment->table, wire->id_count)
                  : EMBTIER_OK;
        if (err != EMBTIER_OK)
            return refuse(refusal, err, s, 0, 0);
        if (IS_BAD(CHECK_IDS_IN_ARENA,
                   !in_region(session, wire->ids_offset, id_bytes, SHM_ID_ALIGN)))
            return refuse(refusal, EMBTIER_OFFSET_RANGE, s, wire->ids_offset,
                          session->channel.region_bytes);
        segment->row_bytes = with_state ? segment->table->row_bytes : segment->table->weight_bytes;
        if (IS_BAD(CHECK_ROWS_IN_ARENA,
                   !in_region(session, wire->rows_offset,
                              (uint64_t)wire->id_count * segment->row_bytes, SHM_ROW_ALIGN)))
            return refuse(refusal, EMBTIER_OFFSET_RANGE, s, wire->rows_offset,
                          session->channel.region_bytes);
        if (!IS_COPIED(COPY_SEGMENTS))
            copy_again(&rules->scratch[s],
                       (const struct shm_segment *)(session->channel.region +
                                                    submission->segments_offset) +
                           s,
                       sizeof(*wire));
        segment->ids_offset = wire->ids_offset;
        segment->id_count = wire->id_count;
        segment->rows = session->channel.region + wire->rows_offset;
    }
    return EMBTIER_OK;
}

/* Copies @count ids of a segment from @first on, checks and hashes them. */
static enum embtier_err take_ids(const struct request_rules *rules, const struct request *request,
                                 uint32_t first, uint32_t count, struct refusal *refusal)
{
    const uint32_t s = request->taking_segment;
    const struct request_segment *const segment = &request->segments[s];
    const volatile uint64_t *const ids =
        (const volatile uint64_t *)(request->session->channel.region + segment->ids_offset) + first;
    const uint64_t rows = segment->table->spec.rows;
    const uint64_t last = rows == EMBTIER_UNBOUNDED ? UINT64_MAX : rows - 1;
    const uint32_t table_id = atomic_load_explicit(&segment->table->table_id, memory_order_relaxed);
    struct row_ref *const refs = request->ids + request->taken_ids;

    for (uint32_t i = 0; i < count; i++) {
        const uint64_t id = ids[i];

        if (UNLIKELY(IS_BAD(CHECK_ID, id > last)))
            return refuse(refusal, EMBTIER_ID_RANGE, s, id, rows);
        refs[i].id = id;
        refs[i].hash = row_hash(rules->hasher, table_id, id);
        refs[i].position = first + i;
        refs[i].link = 0;
    }
    for (uint32_t i = 0; !IS_COPIED(COPY_IDS) && i < count; i++)
        copy_once(&refs[i].id, &ids[i], sizeof(ids[i]));
    return EMBTIER_OK;
}

/* A lane's starts: where each segment begins, and at last how many ids there are. */
static uint32_t *starts_of(const struct request *request, uint32_t lane)
{
    return (uint32_t *)request->parts[lane].starts;
}

static uint32_t lane_of(const struct request_rules *rules, const struct row_ref *ref)
{
    return rules->shard_lanes[row_hash_shard(ref->hash, rules->shard_count)];
}

/* Dealing ids out is a counting sort by (lane, segment) that keeps the request's order: how many
 * each lane gets is counted as they are taken. With one lane they stay where they are. */
static void count_ids(const struct request_rules *rules, struct request *request, uint32_t count)
{
    const struct row_ref *const refs = request->ids + request->taken_ids;
    uint32_t counts[CONFIG_LANES_MAX];

    if (rules->lane_count == 1) {
        starts_of(request, 0)[request->segment_count] += count;
        return;
    }
    for (uint32_t lane = 0; lane < rules->lane_count; lane++)
        counts[lane] = starts_of(request, lane)[request->segment_count];
    for (uint32_t i = 0; i < count; i++)
        counts[lane_of(rules, &refs[i])]++;
    for (uint32_t lane = 0; lane < rules->lane_count; lane++)
        starts_of(request, lane)[request->segment_count] = counts[lane];
}

static void begin_segment(const struct request_rules *rules, struct request *request)
{
    for (uint32_t lane = 0; lane < rules->lane_count; lane++)
        starts_of(request, lane)[request->taking_segment] =
            starts_of(request, lane)[request->segment_count];
}

static void begin_dealing(const struct request_rules *rules, struct request *request)
{
    struct row_ref *to = request->parts[0].refs;

    for (uint32_t lane = 0; lane < rules->lane_count; lane++) {
        request->parts[lane].refs = to;
        to += starts_of(request, lane)[request->segment_count];
    }
}

static void deal_ids(const struct request_rules *rules, struct request *request, uint64_t count)
{
    struct row_ref *next[CONFIG_LANES_MAX];

    for (uint32_t lane = 0; lane < rules->lane_count; lane++)
        next[lane] = request->parts[lane].refs + request->parts[lane].next_ref;
    for (const struct row_ref *ref = request->ids + request->dealt_ids, *end = ref + count;
         ref < end; ref++)
        *next[lane_of(rules, ref)]++ = *ref;
    for (uint32_t lane = 0; lane < rules->lane_count; lane++)
        request->parts[lane].next_ref = (uint32_t)(next[lane] - request->parts[lane].refs);
    request->dealt_ids += count;
}

/* All ids are where they belong. */
static void finish_taking(const struct request_rules *rules, struct request *request)
{
    uint32_t parts = 0;

    for (uint32_t lane = 0; lane < rules->lane_count; lane++) {
        request->parts[lane].next_ref = 0;
        parts += starts_of(request, lane)[request->segment_count] > 0;
    }
    atomic_store_explicit(&request->parts_left, parts, memory_order_relaxed);
}

enum embtier_err request_take(const struct request_rules *rules, struct request *request,
                              uint64_t id_count, struct refusal *ret_refusal)
{
    while (request->taking_segment < request->segment_count) {
        const uint32_t first = request->taking_position;
        const uint32_t left = request->segments[request->taking_segment].id_count - first;
        const uint32_t count = (uint32_t)MIN((uint64_t)left, id_count);

        if (id_count == 0)
            return EMBTIER_AGAIN;
        if (first == 0)
            begin_segment(rules, request);
        TRY(take_ids(rules, request, first, count, ret_refusal));
        count_ids(rules, request, count);
        request->taken_ids += count;
        request->taking_position += count;
        id_count -= count;
        if (count < left)
            return EMBTIER_AGAIN;
        /* A segment is work too, with no ids in it. */
        id_count -= MIN(id_count, (uint64_t)LANE_COST_SEGMENT);
        request->taking_segment++;
        request->taking_position = 0;
    }
    if (rules->lane_count > 1 && request->dealt_ids < request->id_count) {
        const uint64_t count = MIN(request->id_count - request->dealt_ids, id_count);

        if (request->dealt_ids == 0)
            begin_dealing(rules, request);
        deal_ids(rules, request, count);
        if (request->dealt_ids < request->id_count)
            return EMBTIER_AGAIN;
    }
    finish_taking(rules, request);
    return EMBTIER_OK;
}

void request_put_runs(const struct request_rules *rules, struct request *request,
                      const struct cast_pair *pairs, const uint32_t *starts)
{
    const struct request_segment *const segment = &request->segments[request->taking_segment];
    const uint32_t table_id = atomic_load_explicit(&segment->table->table_id, memory_order_relaxed);
    struct row_ref *const refs = request->ids + request->taken_ids;

    begin_segment(rules, request);
    for (uint32_t i = 0; i < segment->id_count; i++) {
        const uint64_t id = pairs[starts[i]].row;

        refs[i] = (struct row_ref){ .hash = row_hash(rules->hasher, table_id, id),
                                    .id = id,
                                    .position = i };
    }
    count_ids(rules, request, segment->id_count);
    request->taken_ids += segment->id_count;
    request->taking_segment++;
}

void request_deal(const struct request_rules *rules, struct request *request)
{
    if (rules->lane_count > 1) {
        begin_dealing(rules, request);
        deal_ids(rules, request, request->id_count);
    }
    finish_taking(rules, request);
}

void *request_memory_for(const struct request_rules *rules, struct session *session, uint64_t bytes,
                         enum request_memory_use use)
{
    void *const place = request_memory_take(rules->memory, &session->memory_share, bytes, use);

    session->wanted_bytes = place ? 0 : bytes;
    session->wanted_use = use;
    return place;
}

void request_memory_forget(const struct request_rules *rules, struct session *session)
{
    if (session->wanted_bytes == 0)
        return;
    session->wanted_bytes = 0;
    request_memory_leave(rules->memory, &session->memory_share);
}

static enum embtier_err release_begin(const struct request_rules *rules,
                                      const struct session *session,
                                      const struct shm_submission *submission,
                                      struct taking *ret_taking, struct refusal *refusal)
{
    const enum embtier_err err = ticket_find(session, submission->ticket, &ret_taking->ticket);

    if (err != EMBTIER_OK)
        return refuse(refusal, err, UINT32_MAX, submission->ticket, rules->ticket_ns / 1000000);
    TRY(check_fields(submission, shm_form_of(submission), refusal));
    ret_taking->kind = TAKING_TICKET;
    return EMBTIER_OK;
}

/* For a request that names a group: whether the group is where the request's step needs it to be.
 * A push is the next step's; others may be of that step, too. */
static enum embtier_err check_group(const struct session *session,
                                    const struct shm_submission *submission,
                                    struct group_member **ret_member, struct refusal *refusal)
{
    struct group_member *member = NULL;
    enum embtier_err err;
    uint64_t next;

    if (submission->group == 0)
        return EMBTIER_OK;
    err = group_find(session, submission->group, &member, refusal);
    if (IS_BAD(CHECK_GROUP, err != EMBTIER_OK))
        return err;
    next = group_step(member) + 1;
    *ret_member = member;
    if (IS_BAD(CHECK_GROUP_STEP,
               submission->op == SHM_OP_PUSH ? submission->step != next : submission->step > next))
        return refuse(refusal, EMBTIER_GROUP_STEP, UINT32_MAX, submission->step, next);
    return EMBTIER_OK;
}

static enum embtier_err begin_push(const struct request_rules *rules, struct session *session,
                                   uint32_t number, const struct shm_submission *submission,
                                   struct push **ret_push, struct refusal *refusal)
{
    struct group_member *member = NULL;
    enum embtier_err err = check_group(session, submission, &member, refusal);

    if (err == EMBTIER_OK)
        err = push_begin(rules, session, number, submission, member, ret_push, refusal);
    if (err != EMBTIER_OK && err != EMBTIER_AGAIN && member)
        group_refuse(member, err);
    return err;
}

/* For a request whose memory is there, as far as that is known. */
static enum embtier_err begin(const struct request_rules *rules, struct session *session,
                              uint32_t number, struct taking *ret_taking,
                              struct refusal *ret_refusal)
{
    struct shm_submission submission;
    struct group_member *member;
    struct request *request;
    uint64_t id_count = 0;
    enum embtier_err err;

    copy_once(&submission, channel_submission(&session->channel, number), sizeof(submission));
    ret_taking->segment_count = MIN(submission.segment_count, (uint32_t)SHM_SEGMENTS_MAX);
    if (submission.op == SHM_OP_PUSH) {
        ret_taking->kind = TAKING_PUSH;
        return begin_push(rules, session, number, &submission, &ret_taking->push, ret_refusal);
    }
    if (submission.op == SHM_OP_PREFETCH) {
        ret_taking->kind = TAKING_PUSH;
        return push_begin(rules, session, number, &submission, NULL, &ret_taking->push,
                          ret_refusal);
    }
    if (submission.op == SHM_OP_RELEASE)
        return release_begin(rules, session, &submission, ret_taking, ret_refusal);
    TRY(check_fields(&submission, shm_form_of(&submission), ret_refusal));
    TRY(check_group(session, &submission, &member, ret_refusal));
    if (submission.op == SHM_OP_POOL) {
        ret_taking->kind = TAKING_POOLED;
        return pooled_begin(rules, session, number, &submission, &ret_taking->pooled, ret_refusal);
    }
    TRY(copy_segments(rules, session, number, &submission, &id_count, ret_refusal));
    TRY(request_new(rules, session, number, &submission, id_count, &request, ret_refusal));
    err = check_segments(rules, request, &submission, ret_refusal);
    if (err != EMBTIER_OK) {
        request_discard(rules, request);
        return err;
    }
    note_bytes(rules, request);
    ret_taking->kind = TAKING_REQUEST;
    ret_taking->request = request;
    return EMBTIER_OK;
}

enum embtier_err request_begin(const struct request_rules *rules, struct session *session,
                               uint32_t number, struct taking *ret_taking,
                               struct refusal *ret_refusal)
{
    enum embtier_err err;

    if (session->wanted_bytes != 0 &&
        !request_memory_reserve(rules->memory, &session->memory_share, session->wanted_bytes,
                                session->wanted_use))
        return EMBTIER_AGAIN;
    err = begin(rules, session, number, ret_taking, ret_refusal);
    if (err != EMBTIER_AGAIN) /* it is refused, or needs none */
        request_memory_forget(rules, session);
    return err;
}

void request_discard(const struct request_rules *rules, struct request *request)
{
    leave_tables(request);
    request_free(rules, request);
}

void request_free(const struct request_rules *rules, struct request *request)
{
    request_memory_give(rules->memory, request);
}

void request_fail(struct request *request, enum embtier_err err, uint32_t segment, uint64_t value)
{
    uint32_t none = EMBTIER_OK;

    if (atomic_compare_exchange_strong(&request->err, &none, (uint32_t)err)) {
        /* Read only by the last part done, which comes after this one's own parts_left decrement.
         */
        request->err_segment = segment;
        request->err_value = value;
    }
}

void request_answer(struct session *session, uint32_t number, const struct refusal *refusal,
                    uint64_t hit_rows, uint64_t ticket)
{
    session_answer(session, number,
                   &(struct answer){ .refusal = *refusal, .hit_rows = hit_rows, .ticket = ticket });
}

bool request_part_done(struct part *part)
{
    struct request *const request = part->request;
    enum embtier_err err;

    atomic_fetch_add_explicit(&request->hit_rows, part->hit_rows, memory_order_relaxed);
    if (atomic_fetch_sub_explicit(&request->parts_left, 1, memory_order_acq_rel) != 1)
        return false;
    if (request->pooled || request->push)
        return true; /* which go on with it */
    leave_tables(request);
    err = (enum embtier_err)atomic_load(&request->err);
    if (err == EMBTIER_DISCONNECTED)
        return true; /* rows were left out since the client is gone */
    request_answer(request->session, request->number,
                   &(struct refusal){
                       .err = err, .segment = request->err_segment, .value = request->err_value },
                   atomic_load_explicit(&request->hit_rows, memory_order_relaxed), 0);
    return true;
}

uint32_t part_segment_of(const struct part *part, uint32_t index)
{
    uint32_t low = 0;
    uint32_t high = part->request->segment_count;

    /* The last segment that starts at or before @index; empty ones before it start there too. */
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;

        if (part->starts[middle] <= index)
            low = middle;
        else
            high = middle;
    }
    return low;
}
