/* SPDX-License-Identifier: Apache-2.0 */
/* Begins a pooled lookup: copies and checks its segments, enters its tables, and takes memory. */
#include "daemon/engine/ops/pooled/pooled_impl.h"

#include <string.h>

#include "daemon/engine/memory/request_memory.h"
#include "daemon/engine/ops/get_set.h"
#include "daemon/engine/ops/op_table.h"
#include "daemon/engine/ops/segment_tables.h"
#include "daemon/engine/ops/tickets/ticket.h"
#include "daemon/engine/sessions/client_bytes.h"
#include "daemon/engine/tables/table.h"
#include "daemon/engine/turns/cost.h"
#include "proto/op_fields.h"

_Static_assert(OP_POOL_SEGMENTS_MAX * sizeof(struct op_pool_segment) <=
                   OP_SEGMENTS_MAX * sizeof(struct op_segment),
               "the lane's scratch memory holds them");
_Static_assert(EMBTIER_DIM_MAX * sizeof(float) <= WAVE_BYTES &&
                   EMBTIER_DIM_MAX * sizeof(float) <= WAVE_BAG_BYTES,
               "a wave has room for a row and for a bag");
_Static_assert(EMBTIER_DIM_MAX * sizeof(float) <= WAVE_HOT_BYTES, "and a hot one too");

/* Sums over all segments. */
struct sums {
    uint64_t ids;
    uint64_t bags;
    uint64_t bytes; /* of rows */
    bool weights;
};

/* Checks the submission, copies the segments, and checks everything that needs no table. */
static enum embtier_err copy_segments(const struct request_rules *rules,
                                      const struct session *session,
                                      const struct op_submission *submission, struct sums *sums,
                                      struct refusal *refusal)
{
    const struct op_pool_segment *const scratch = (const void *)rules->scratch;

    if (IS_BAD(CHECK_POOL_FLAGS, (submission->flags & ~(uint32_t)OP_FLAG_TICKET) != 0))
        return refuse(refusal, EMBTIER_UNSUPPORTED, UINT32_MAX, submission->flags, OP_FLAG_TICKET);
    if (IS_BAD(CHECK_POOL_SEGMENT_COUNT, submission->segment_count > OP_POOL_SEGMENTS_MAX))
        return refuse(refusal, EMBTIER_TOO_LARGE, UINT32_MAX, submission->segment_count,
                      OP_POOL_SEGMENTS_MAX);
    if (IS_BAD(CHECK_POOL_SEGMENTS_IN_ARENA,
               !in_region(session, submission->segments_offset,
                          submission->segment_count * sizeof(struct op_pool_segment), OP_ID_ALIGN)))
        return refuse(refusal, EMBTIER_OFFSET_RANGE, UINT32_MAX, submission->segments_offset,
                      session->channel.region_bytes);
    copy_once(rules->scratch, session->channel.region + submission->segments_offset,
              submission->segment_count * sizeof(struct op_pool_segment));
    for (uint32_t s = 0; s < submission->segment_count; s++) {
        const struct op_pool_segment *const wire = &scratch[s];

        if (IS_BAD(CHECK_POOL_SEGMENT_FIELDS, !op_pool_segment_is_clean(wire, OP_FORM_POOL)))
            return refuse_unused(OP_FORM_POOL, s, wire, refusal);
        if (IS_BAD(CHECK_POOL_MODE, wire->mode < EMBTIER_POOL_SUM || wire->mode > EMBTIER_POOL_MAX))
            return refuse(refusal, EMBTIER_INVALID, s, wire->mode, EMBTIER_POOL_MAX);
        if (IS_BAD(CHECK_POOL_WEIGHTS_OF_MAX,
                   wire->mode == EMBTIER_POOL_MAX && wire->weights_offset != 0))
            return refuse(refusal, EMBTIER_UNSUPPORTED, s, wire->mode, 0);
        sums->ids += wire->id_count;
        sums->bags += wire->bag_count;
    }
    if (IS_BAD(CHECK_POOL_ID_COUNT, sums->ids > rules->max_batch_rows))
        return refuse(refusal, EMBTIER_TOO_LARGE, UINT32_MAX, sums->ids, rules->max_batch_rows);
    if (IS_BAD(CHECK_POOL_BAG_COUNT, sums->bags > rules->max_batch_rows))
        return refuse(refusal, EMBTIER_TOO_LARGE, UINT32_MAX, sums->bags, rules->max_batch_rows);
    return EMBTIER_OK;
}

/* Enters the segment's table, and checks that all its parts lie in the region. */
static enum embtier_err enter_segment(const struct request_rules *rules,
                                      const struct session *session, uint64_t segments_offset,
                                      uint32_t s, struct refusal *refusal)
{
    struct op_pool_segment *const wire = (struct op_pool_segment *)rules->scratch + s;
    const uint64_t count = wire->id_count;
    struct table *const table = segment_table_enter(rules, s, wire->table, refusal);
    uint64_t bags_bytes;

    rules->segment_tables[s] = table;
    if (IS_BAD(CHECK_POOL_TABLE, !table))
        return refusal->err;
    bags_bytes = (uint64_t)wire->bag_count * table->spec.dim * sizeof(float);
    if (IS_BAD(CHECK_POOL_IDS_IN_ARENA,
               !in_region(session, wire->ids_offset, count * sizeof(uint64_t), OP_ID_ALIGN)))
        return refuse(refusal, EMBTIER_OFFSET_RANGE, s, wire->ids_offset,
                      session->channel.region_bytes);
    if (IS_BAD(CHECK_POOL_BAGS_IN_ARENA,
               !in_region(session, wire->bags_offset, bags_bytes, OP_NUMBER_ALIGN)))
        return refuse(refusal, EMBTIER_OFFSET_RANGE, s, wire->bags_offset,
                      session->channel.region_bytes);
    if (IS_BAD(CHECK_POOL_OFFSETS_IN_ARENA,
               !in_region(session, wire->offsets_offset,
                          ((uint64_t)wire->bag_count + 1) * sizeof(uint32_t), OP_NUMBER_ALIGN)))
        return refuse(refusal, EMBTIER_OFFSET_RANGE, s, wire->offsets_offset,
                      session->channel.region_bytes);
    if (IS_BAD(CHECK_POOL_WEIGHTS_IN_ARENA,
               wire->weights_offset != 0 && !in_region(session, wire->weights_offset,
                                                       count * sizeof(float), OP_NUMBER_ALIGN)))
        return refuse(refusal, EMBTIER_OFFSET_RANGE, s, wire->weights_offset,
                      session->channel.region_bytes);
    if (!IS_COPIED(COPY_POOL_SEGMENTS))
        copy_again(wire, session->channel.region + segments_offset + s * sizeof(*wire),
                   sizeof(*wire));
    return EMBTIER_OK;
}

/* Enters all segments. On failure, leaves those entered again. */
static enum embtier_err enter_segments(const struct request_rules *rules,
                                       const struct session *session,
                                       const struct op_submission *submission, struct sums *sums,
                                       struct refusal *refusal)
{
    const struct op_pool_segment *const scratch = (const void *)rules->scratch;
    enum embtier_err err;

    for (uint32_t s = 0; s < submission->segment_count; s++) {
        err = enter_segment(rules, session, submission->segments_offset, s, refusal);
        if (err != EMBTIER_OK) {
            segment_tables_leave(rules, s + 1);
            return err;
        }
        sums->bytes += (uint64_t)scratch[s].id_count * rules->segment_tables[s]->weight_bytes;
        sums->weights |= scratch[s].weights_offset != 0;
    }
    return EMBTIER_OK;
}

static struct wave_shape shape_of(uint32_t segment_count, const struct sums *sums)
{
    return (struct wave_shape){
        .ids = (uint32_t)MIN(sums->ids, (uint64_t)WAVE_IDS),
        .bags = (uint32_t)MIN(sums->bags, (uint64_t)WAVE_BAGS),
        .slices = MIN(segment_count, (uint32_t)WAVE_SLICES),
        .staging_bytes = (uint32_t)MIN(sums->bytes, (uint64_t)WAVE_BYTES),
        .weights = sums->weights,
    };
}

static uint64_t first_wave_place(uint32_t segment_count)
{
    return align_up(sizeof(struct pooled) + segment_count * sizeof(struct pooled_segment),
                    CACHE_LINE);
}

/* Takes memory for the lookup and its first wave. */
static enum embtier_err pooled_new(const struct request_rules *rules, struct session *session,
                                   uint32_t segment_count, const struct sums *sums,
                                   struct pooled **ret_pooled, struct refusal *refusal)
{
    const struct op_pool_segment *const scratch = (const void *)rules->scratch;
    const struct wave_shape shape = shape_of(segment_count, sums);
    const uint64_t wave_at = first_wave_place(segment_count);
    const uint64_t bytes = wave_at + wave_bytes(rules, &shape);
    struct pooled *pooled;

    if (bytes > request_memory_largest(rules->memory))
        return refuse(refusal, EMBTIER_TOO_LARGE, UINT32_MAX, sums->ids, 0);
    pooled = request_memory_for(rules, session, bytes, REQUEST_MEMORY_ENDS);
    if (!pooled)
        return EMBTIER_AGAIN;
    memset(pooled, 0, sizeof(*pooled));
    pooled->session = session;
    pooled->segment_count = segment_count;
    pooled->segments = (struct pooled_segment *)(pooled + 1);
    pooled->id_count = sums->ids;
    pooled->shape = shape;
    pooled->is_hot = rules->lane_count == 1;
    pooled->refusal.segment = UINT32_MAX;
    waves_init(&pooled->waves, wave_lay_out(rules, &shape, (uint8_t *)pooled + wave_at));
    for (uint32_t s = 0; s < segment_count; s++)
        pooled->segments[s] = (struct pooled_segment){
            .table = rules->segment_tables[s],
            .mode = (enum embtier_pool)scratch[s].mode,
            .id_count = scratch[s].id_count,
            .bag_count = scratch[s].bag_count,
            .ids_offset = scratch[s].ids_offset,
            .offsets_offset = scratch[s].offsets_offset,
            .weights_offset = scratch[s].weights_offset,
            .bags = (float *)(session->channel.region + scratch[s].bags_offset),
        };
    *ret_pooled = pooled;
    return EMBTIER_OK;
}

static struct ticket_part ticket_part_of(const void *context, uint32_t s)
{
    const struct request_rules *const rules = context;
    const struct op_pool_segment *const segment =
        (const struct op_pool_segment *)rules->scratch + s;

    return (struct ticket_part){ .table = rules->segment_tables[s],
                                 .mode = (enum embtier_pool)segment->mode,
                                 .id_count = segment->id_count,
                                 .bag_count = segment->bag_count,
                                 .is_weighted = segment->weights_offset != 0 };
}

enum embtier_err pooled_begin(const struct request_rules *rules, struct session *session,
                              uint32_t number, const struct op_submission *submission,
                              struct pooled **ret_pooled, struct refusal *ret_refusal)
{
    struct sums sums = { 0 };
    struct ticket *ticket = NULL;
    enum embtier_err err = EMBTIER_OK;

    TRY(copy_segments(rules, session, submission, &sums, ret_refusal));
    TRY(enter_segments(rules, session, submission, &sums, ret_refusal));
    if (submission->flags & OP_FLAG_TICKET)
        err = ticket_new(rules, session, TICKET_OF_BAGS, submission->segment_count, ticket_part_of,
                         rules, &ticket, ret_refusal);
    if (err == EMBTIER_OK)
        err = pooled_new(rules, session, submission->segment_count, &sums, ret_pooled, ret_refusal);
    if (err != EMBTIER_OK) {
        if (ticket)
            ticket_free(rules, ticket);
        segment_tables_leave(rules, submission->segment_count);
        return err;
    }
    (*ret_pooled)->number = number;
    (*ret_pooled)->ticket = ticket;
    return EMBTIER_OK;
}
