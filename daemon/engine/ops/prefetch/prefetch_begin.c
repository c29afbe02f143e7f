/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/engine/ops/prefetch/prefetch.h"

#include "daemon/engine/ops/prefetch/prefetch_rows.h"
#include "daemon/engine/ops/push/push_impl.h"
#include "daemon/engine/ops/segment_copies.h"
#include "daemon/engine/sessions/client_bytes.h"
#include "proto/op_fields.h"

static enum embtier_err take_segment(void *context, uint32_t s, struct table *table)
{
    struct push_beginning *const b = context;
    const struct op_push_segment *const wire = &b->segments[s];

    push_note_table(b, s, table);
    return segment_ids_check(b->session, s, wire->ids_offset, wire->count, b->refusal);
}

/* Enters all segments, makes the ticket, and takes memory. */
static enum embtier_err make(struct push_beginning *b, uint32_t form, struct push **ret_prefetch)
{
    const struct op_submission *const submission = b->submission;

    TRY(segment_copies_enter(b->rules, b->session, submission, form, take_segment, b, b->refusal));
    TRY(ticket_new(b->rules, b->session, TICKET_OF_PREFETCH, submission->segment_count,
                   push_part_of, b, &b->ticket, b->refusal));
    TRY(push_new(b, ret_prefetch));
    for (uint32_t g = 0; g < b->ticket->group_count; g++)
        (*ret_prefetch)->groups[g].has_gradients = true; /* waves leave out rows that have none */
    return EMBTIER_OK;
}

enum embtier_err prefetch_begin(const struct request_rules *rules, struct session *session,
                                uint32_t number, const struct op_submission *submission,
                                struct push **ret_prefetch, struct refusal *ret_refusal)
{
    struct push_beginning b = { .rules = rules,
                                .session = session,
                                .number = number,
                                .submission = submission,
                                .op = &op_prefetch,
                                .row_op = &row_op_pin,
                                .segments = (const struct op_push_segment *)rules->scratch,
                                .refusal = ret_refusal };
    const uint32_t form = op_form_of(submission);
    struct segment_sums sums;
    enum embtier_err err;

    TRY(check_fields(submission, form, ret_refusal));
    TRY(segment_copies_take(rules, session, submission, form, 0, &sums, ret_refusal));
    err = make(&b, form, ret_prefetch);
    if (err != EMBTIER_OK) {
        if (b.ticket)
            ticket_free(rules, b.ticket);
        segment_tables_leave(rules, b.entered);
    }
    return err;
}
