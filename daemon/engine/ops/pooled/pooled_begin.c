/* SPDX-License-Identifier: Apache-2.0 */
/* Begins a pooled lookup: copies and checks its segments, enters its tables, and takes memory. */
#include "daemon/engine/ops/pooled/pooled_impl.h"

#include <string.h>

#include "daemon/engine/memory/request_memory.h"
#include "daemon/engine/ops/segment_copies.h"
#include "daemon/engine/ops/tickets/ticket.h"
#include "daemon/engine/sessions/client_bytes.h"
#include "daemon/engine/tables/table.h"
#include "proto/op_fields.h"

_Static_assert(EMBTIER_DIM_MAX * sizeof(float) <= WAVE_BYTES &&
                   EMBTIER_DIM_MAX * sizeof(float) <= WAVE_BAG_BYTES,
               "a wave has room for a row and for a bag");
_Static_assert(EMBTIER_DIM_MAX * sizeof(float) <= WAVE_HOT_BYTES, "and a hot one too");

/* A lookup that is beginning. */
struct beginning {
    const struct request_rules *rules;
    struct session *session;
    const struct op_submission *submission;
    const struct op_pool_segment *segments; /* copies */
    uint32_t entered;                       /* segments whose tables are in rules->segment_tables */
    struct segment_sums sums;
    uint64_t row_bytes; /* of all ids */
    bool weights;       /* some segment has them */
    struct refusal *refusal;
};

/* Copies the segments, and checks everything that needs no table. */
static enum embtier_err copy_segments(struct beginning *b)
{
    TRY(segment_copies_take(b->rules, b->session, b->submission, OP_FORM_POOL, OP_FLAG_TICKET,
                            &b->sums, b->refusal));
    for (uint32_t s = 0; s < b->submission->segment_count; s++) {
        const struct op_pool_segment *const wire = &b->segments[s];

        if (IS_BAD(CHECK_POOL_MODE, wire->mode < EMBTIER_POOL_SUM || wire->mode > EMBTIER_POOL_MAX))
            return refuse(b->refusal, EMBTIER_INVALID, s, wire->mode, EMBTIER_POOL_MAX);
        if (IS_BAD(CHECK_POOL_WEIGHTS_OF_MAX,
                   wire->mode == EMBTIER_POOL_MAX && wire->weights_offset != 0))
            return refuse(b->refusal, EMBTIER_UNSUPPORTED, s, wire->mode, 0);
    }
    return EMBTIER_OK;
}

/* Notes the segment's table, checks that all its parts lie in the region, and adds up what needs
 * the table. */
static enum embtier_err take_segment(void *context, uint32_t s, struct table *table)
{
    struct beginning *const b = context;
    const struct op_pool_segment *const wire = &b->segments[s];
    const uint64_t count = wire->id_count;
    const uint64_t bags_bytes = (uint64_t)wire->bag_count * table->spec.dim * sizeof(float);
    const uint64_t end = b->session->channel.region_bytes;

    b->rules->segment_tables[s] = table;
    b->entered = s + 1;
    TRY(segment_ids_check(b->session, s, wire->ids_offset, wire->id_count, b->refusal));
    if (IS_BAD(CHECK_POOL_BAGS_IN_REGION,
               !in_region(b->session, wire->bags_offset, bags_bytes, OP_NUMBER_ALIGN)))
        return refuse(b->refusal, EMBTIER_OFFSET_RANGE, s, wire->bags_offset, end);
    if (IS_BAD(CHECK_POOL_OFFSETS_IN_REGION,
               !in_region(b->session, wire->offsets_offset,
                          ((uint64_t)wire->bag_count + 1) * sizeof(uint32_t), OP_NUMBER_ALIGN)))
        return refuse(b->refusal, EMBTIER_OFFSET_RANGE, s, wire->offsets_offset, end);
    if (IS_BAD(CHECK_POOL_WEIGHTS_IN_REGION,
               wire->weights_offset != 0 && !in_region(b->session, wire->weights_offset,
                                                       count * sizeof(float), OP_NUMBER_ALIGN)))
        return refuse(b->refusal, EMBTIER_OFFSET_RANGE, s, wire->weights_offset, end);
    b->row_bytes += count * table->weight_bytes;
    b->weights |= wire->weights_offset != 0;
    return EMBTIER_OK;
}

static struct wave_shape shape_of(const struct beginning *b)
{
    return (struct wave_shape){
        .ids = (uint32_t)MIN(b->sums.ids, (uint64_t)WAVE_IDS),
        .bags = (uint32_t)MIN(b->sums.bags, (uint64_t)WAVE_BAGS),
        .slices = MIN(b->submission->segment_count, (uint32_t)WAVE_SLICES),
        .staging_bytes = (uint32_t)MIN(b->row_bytes, (uint64_t)WAVE_BYTES),
        .weights = b->weights,
    };
}

static uint64_t first_wave_place(uint32_t segment_count)
{
    return align_up(sizeof(struct pooled) + segment_count * sizeof(struct pooled_segment),
                    CACHE_LINE);
}

/* Takes memory for the lookup and its first wave. */
static enum embtier_err pooled_new(const struct beginning *b, struct pooled **ret_pooled)
{
    const struct request_rules *const rules = b->rules;
    const struct wave_shape shape = shape_of(b);
    const uint64_t wave_at = first_wave_place(b->submission->segment_count);
    const uint64_t bytes = wave_at + wave_bytes(rules, &shape);
    struct pooled *pooled;

    if (bytes > request_memory_largest(rules->memory))
        return refuse(b->refusal, EMBTIER_TOO_LARGE, UINT32_MAX, b->sums.ids, 0);
    pooled = request_memory_for(rules, b->session, bytes, REQUEST_MEMORY_ENDS);
    if (!pooled)
        return EMBTIER_AGAIN;
    memset(pooled, 0, sizeof(*pooled));
    pooled->session = b->session;
    pooled->segment_count = b->submission->segment_count;
    pooled->segments = (struct pooled_segment *)(pooled + 1);
    pooled->id_count = b->sums.ids;
    pooled->shape = shape;
    pooled->is_hot = rules->lane_count == 1;
    pooled->refusal.segment = UINT32_MAX;
    waves_init(&pooled->waves, wave_lay_out(rules, &shape, (uint8_t *)pooled + wave_at));
    for (uint32_t s = 0; s < pooled->segment_count; s++) {
        const struct op_pool_segment *const wire = &b->segments[s];

        pooled->segments[s] = (struct pooled_segment){
            .table = rules->segment_tables[s],
            .mode = (enum embtier_pool)wire->mode,
            .id_count = wire->id_count,
            .bag_count = wire->bag_count,
            .ids_offset = wire->ids_offset,
            .offsets_offset = wire->offsets_offset,
            .weights_offset = wire->weights_offset,
            .bags = (float *)(b->session->channel.region + wire->bags_offset),
        };
    }
    *ret_pooled = pooled;
    return EMBTIER_OK;
}

static struct ticket_part ticket_part_of(const void *context, uint32_t s)
{
    const struct beginning *const b = context;
    const struct op_pool_segment *const segment = &b->segments[s];

    return (struct ticket_part){ .table = b->rules->segment_tables[s],
                                 .mode = (enum embtier_pool)segment->mode,
                                 .id_count = segment->id_count,
                                 .bag_count = segment->bag_count,
                                 .is_weighted = segment->weights_offset != 0 };
}

enum embtier_err pooled_begin(const struct request_rules *rules, struct session *session,
                              uint32_t number, const struct op_submission *submission,
                              struct pooled **ret_pooled, struct refusal *ret_refusal)
{
    struct beginning b = { .rules = rules,
                           .session = session,
                           .submission = submission,
                           .segments = (const struct op_pool_segment *)rules->scratch,
                           .refusal = ret_refusal };
    struct ticket *ticket = NULL;
    enum embtier_err err;

    TRY(copy_segments(&b));
    err = segment_copies_enter(rules, session, submission, OP_FORM_POOL, take_segment, &b,
                               ret_refusal);
    if (err == EMBTIER_OK && submission->flags & OP_FLAG_TICKET)
        err = ticket_new(rules, session, TICKET_OF_BAGS, submission->segment_count, ticket_part_of,
                         &b, &ticket, ret_refusal);
    if (err == EMBTIER_OK)
        err = pooled_new(&b, ret_pooled);
    if (err != EMBTIER_OK) {
        if (ticket)
            ticket_free(rules, ticket);
        segment_tables_leave(rules, b.entered);
        return err;
    }
    (*ret_pooled)->number = number;
    (*ret_pooled)->ticket = ticket;
    return EMBTIER_OK;
}
