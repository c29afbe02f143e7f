/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/engine/ops/segment_copies.h"

#include <stddef.h>

#include "base/clock.h"
#include "daemon/access/operations.h"
#include "daemon/access/rights.h"
#include "daemon/engine/ops/region_bytes.h"
#include "daemon/engine/sessions/client_bytes.h"
#include "daemon/engine/tables/table.h"
#include "daemon/engine/tables/tables.h"
#include "proto/op_fields.h"

_Static_assert(OP_POOL_SEGMENTS_MAX * sizeof(struct op_pool_segment) <=
                       OP_SEGMENTS_MAX * sizeof(struct op_segment) &&
                   OP_POOL_SEGMENTS_MAX * sizeof(struct op_push_segment) <=
                       OP_SEGMENTS_MAX * sizeof(struct op_segment),
               "the lane's scratch memory holds copies of each kind");
_Static_assert(offsetof(struct op_segment, table) == 0 &&
                   offsetof(struct op_pool_segment, table) == 0 &&
                   offsetof(struct op_push_segment, table) == 0,
               "a segment begins with its table");

/* ---- Rights ---- */

/* Returns the least role for the submission, which has a rule (begin.c). */
static enum role role_of(const struct op_submission *submission)
{
    const struct operation *const operation = operation_of_op(submission->op, submission->flags);

    return operation ? operation->role : ROLE_COUNT;
}

static enum embtier_err refuse_rights(const struct session *session, uint32_t segment,
                                      enum role needed, struct refusal *ret_refusal)
{
    rights_note_refusal(session->rights);
    return refuse(ret_refusal, EMBTIER_PERMISSION, segment, rights_role(session->rights), needed);
}

/* A request that was put off for lack of memory has been counted. */
static bool comes_too_fast(const struct session *session)
{
    return UNLIKELY(rights_are_paced(session->rights)) && session->wanted_bytes == 0 &&
           !rights_begin(session->rights, clock_now_ns(&clock_monotonic));
}

/* ---- Copies ---- */

static uint32_t most_segments(enum op_segment_kind kind)
{
    return kind == OP_KIND_SEGMENT ? OP_SEGMENTS_MAX : OP_POOL_SEGMENTS_MAX;
}

/* Adds the segment's ids and bags to the sums. Returns true if its unused fields are 0. */
static inline bool add_up(const void *copy, enum op_segment_kind kind, uint32_t form,
                          struct segment_sums *sums)
{
    const struct op_segment *const plain = copy;
    const struct op_pool_segment *const pool = copy;
    const struct op_push_segment *const push = copy;

    switch (kind) {
    case OP_KIND_SEGMENT:
        sums->ids += plain->id_count;
        return op_segment_is_clean(plain, form);
    case OP_KIND_POOL_SEGMENT:
        sums->ids += pool->id_count;
        sums->bags += pool->bag_count;
        return op_pool_segment_is_clean(pool, form);
    case OP_KIND_PUSH_SEGMENT:
        sums->ids += push->count;
        return op_push_segment_is_clean(push, form);
    case OP_KIND_NO_SEGMENT:
        break;
    }
    return false;
}

enum embtier_err segment_copies_take(const struct request_rules *rules, struct session *session,
                                     const struct op_submission *submission, uint32_t form,
                                     uint32_t flags, struct segment_sums *ret_sums,
                                     struct refusal *ret_refusal)
{
    const enum op_segment_kind kind = op_segment_kind(form);
    const uint32_t most = most_segments(kind);
    const uint64_t bytes = op_segment_bytes(form);
    const uint32_t count = submission->segment_count;
    const uint8_t *copy = (const uint8_t *)rules->scratch;
    struct segment_sums sums = { 0 };

    if (IS_BAD(CHECK_ROLE, rights_role(session->rights) < role_of(submission)))
        return refuse_rights(session, UINT32_MAX, role_of(submission), ret_refusal);
    if (IS_BAD(CHECK_PACE, comes_too_fast(session)))
        return refuse_quota(ret_refusal, QUOTA_requests_per_second, 1,
                            rights_per_second(session->rights));
    if (IS_BAD(CHECK_FLAGS, (submission->flags & ~flags) != 0))
        return refuse(ret_refusal, EMBTIER_UNSUPPORTED, UINT32_MAX, submission->flags, flags);
    if (IS_BAD(CHECK_SEGMENT_COUNT, count > most))
        return refuse(ret_refusal, EMBTIER_TOO_LARGE, UINT32_MAX, count, most);
    if (IS_BAD(CHECK_SEGMENTS_IN_REGION,
               !in_region(session, submission->segments_offset, count * bytes, OP_ID_ALIGN)))
        return refuse(ret_refusal, EMBTIER_OFFSET_RANGE, UINT32_MAX, submission->segments_offset,
                      session->channel.region_bytes);
    copy_once(rules->scratch, session->channel.region + submission->segments_offset, count * bytes);
    for (uint32_t s = 0; s < count; s++, copy += bytes)
        if (IS_BAD(CHECK_SEGMENT_FIELDS, !add_up(copy, kind, form, &sums)))
            return refuse_unused(form, s, copy, ret_refusal);
    if (IS_BAD(CHECK_ID_COUNT, sums.ids > rules->max_batch_rows))
        return refuse(ret_refusal, EMBTIER_TOO_LARGE, UINT32_MAX, sums.ids, rules->max_batch_rows);
    if (IS_BAD(CHECK_BAG_COUNT, sums.bags > rules->max_batch_rows))
        return refuse(ret_refusal, EMBTIER_TOO_LARGE, UINT32_MAX, sums.bags, rules->max_batch_rows);
    session->begin_rows = sums.ids;
    *ret_sums = sums;
    return EMBTIER_OK;
}

/* ---- Tables ---- */

enum embtier_err segment_table_enter(const struct request_rules *rules, uint32_t segment,
                                     uint64_t handle, struct table **ret_table,
                                     struct refusal *ret_refusal)
{
    uint32_t state = TABLE_FREE;
    struct table *const table = tables_enter(rules->tables, handle, &state);

    if (IS_BAD(CHECK_TABLE, !table))
        return refuse(ret_refusal, state == TABLE_DROPPING ? EMBTIER_DROPPED : EMBTIER_NO_TABLE,
                      segment, handle >> 32, 0);
    *ret_table = table;
    return EMBTIER_OK;
}

void segment_tables_leave(const struct request_rules *rules, uint32_t count)
{
    for (uint32_t s = 0; s < count; s++)
        table_leave(rules->segment_tables[s]);
}

enum embtier_err segment_ids_check(const struct session *session, uint32_t segment,
                                   uint64_t ids_offset, uint32_t id_count,
                                   struct refusal *ret_refusal)
{
    if (IS_BAD(CHECK_IDS_IN_REGION,
               !in_region(session, ids_offset, id_count * sizeof(uint64_t), OP_ID_ALIGN)))
        return refuse(ret_refusal, EMBTIER_OFFSET_RANGE, segment, ids_offset,
                      session->channel.region_bytes);
    return EMBTIER_OK;
}

/* Counts the request's bytes. @most is the user's quota of them, or 0. */
static enum embtier_err count_bytes(struct session *session, uint64_t bytes, uint64_t most,
                                    struct refusal *ret_refusal)
{
    if (IS_BAD(CHECK_BYTES_IN_FLIGHT, most != 0 && !session_count(session, bytes)))
        return refuse_quota(ret_refusal, QUOTA_bytes_in_flight, bytes, most);
    return EMBTIER_OK;
}

enum embtier_err segment_copies_enter(const struct request_rules *rules, struct session *session,
                                      const struct op_submission *submission, uint32_t form,
                                      enum embtier_err (*take)(void *context, uint32_t segment,
                                                               struct table *table),
                                      void *context, struct refusal *ret_refusal)
{
    const uint64_t bytes = op_segment_bytes(form);
    const enum role role = role_of(submission);
    const uint64_t most = rights_most_bytes(session->rights);
    uint64_t region = 0;
    uint64_t *copy = (uint64_t *)rules->scratch;

    for (uint32_t s = 0; s < submission->segment_count; s++, copy += bytes / sizeof(*copy)) {
        struct table *table = NULL;

        TRY(segment_table_enter(rules, s, copy[0], &table, ret_refusal));
        if (IS_BAD(CHECK_GRANT,
                   !rights_allow(session->rights, table->index, rights_use_of(role)))) {
            table_leave(table);
            return refuse_rights(session, s, role, ret_refusal);
        }
        TRY(take(context, s, table));
        if (UNLIKELY(most != 0))
            region += region_bytes(session, submission, form, s, copy, table);
        if (!IS_COPIED(COPY_SEGMENTS))
            copy_again(copy, session->channel.region + submission->segments_offset + s * bytes,
                       bytes);
    }
    return count_bytes(session, region, most, ret_refusal);
}
