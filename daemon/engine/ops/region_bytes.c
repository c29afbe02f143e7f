/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/engine/ops/region_bytes.h"

#include "daemon/engine/ops/tickets/ticket.h"
#include "daemon/engine/sessions/session.h"
#include "daemon/engine/tables/table.h"
#include "proto/op_fields.h"
#include "proto/ops.h"

#define ID_BYTES sizeof(uint64_t)

static uint64_t plain_bytes(const struct op_segment *segment, uint32_t flags,
                            const struct table *table)
{
    const uint64_t row = flags & OP_FLAG_STATE ? table->row_bytes : table->weight_bytes;

    return segment->id_count * (ID_BYTES + row);
}

static uint64_t pool_bytes(const struct op_pool_segment *segment, const struct table *table)
{
    const uint64_t bag = table->spec.dim * sizeof(float);

    return segment->id_count * (ID_BYTES + (segment->weights_offset ? sizeof(float) : 0)) +
           segment->bag_count * bag + (segment->bag_count + UINT64_C(1)) * sizeof(uint32_t);
}

/* The gradients of weights are as many as the lookup had ids, which the ticket knows. */
static uint64_t push_bytes(const struct op_push_segment *segment, const struct session *session,
                           uint64_t ticket_number, uint32_t number)
{
    const uint64_t gradients =
        segment->gradients_offset ? (uint64_t)segment->count * segment->dim * sizeof(float) : 0;
    struct ticket *ticket = NULL;

    if (ticket_number == 0)
        return gradients + segment->count * ID_BYTES;
    if (segment->weights_offset == 0 || ticket_find(session, ticket_number, &ticket) != EMBTIER_OK)
        return gradients;
    return gradients + ticket->segments[number].id_count * sizeof(float);
}

uint64_t region_bytes(const struct session *session, const struct op_submission *submission,
                      uint32_t form, uint32_t segment, const void *copy, const struct table *table)
{
    const uint64_t own = op_segment_bytes(form);

    switch (op_segment_kind(form)) {
    case OP_KIND_SEGMENT:
        return own + plain_bytes(copy, submission->flags, table);
    case OP_KIND_POOL_SEGMENT:
        return own + pool_bytes(copy, table);
    case OP_KIND_PUSH_SEGMENT:
        return own + push_bytes(copy, session, submission->ticket, segment);
    case OP_KIND_NO_SEGMENT:
        break;
    }
    return own;
}
