/* SPDX-License-Identifier: Apache-2.0 */
/* Begins a push: checks it against its tables and its ticket, and takes memory. */
#include <float.h>
#include <math.h>

#include "daemon/engine/memory/request_memory.h"
#include "daemon/engine/ops/push/push_impl.h"
#include "daemon/engine/ops/segment_copies.h"
#include "daemon/engine/sessions/client_bytes.h"
#include "daemon/engine/tables/table.h"
#include "proto/op_fields.h"

/* False: a push of rows, which makes its ticket itself. */
static bool has_ticket(const struct push_beginning *b)
{
    return b->submission->ticket != 0;
}

static enum embtier_err find_ticket(const struct push_beginning *b, uint64_t number,
                                    bool is_prefetch, struct ticket **ret_ticket)
{
    struct ticket *ticket = NULL;
    enum embtier_err err = ticket_find(b->session, number, &ticket);

    if (err == EMBTIER_OK &&
        IS_BAD(CHECK_PUSH_TICKET_KIND, ticket_is_prefetch(ticket) != is_prefetch))
        err = EMBTIER_NO_TICKET;
    if (err != EMBTIER_OK)
        return refuse(b->refusal, err, UINT32_MAX, number, b->rules->ticket_ns / 1000000);
    *ret_ticket = ticket;
    return EMBTIER_OK;
}

/* Checks the submission, copies the segments, and finds the tickets. */
static enum embtier_err copy_segments(struct push_beginning *b)
{
    const struct op_submission *const submission = b->submission;
    struct segment_sums sums;

    TRY(check_fields(submission, op_form_of(submission), b->refusal));
    if (IS_BAD(CHECK_PUSH_STEP, submission->step == 0 || submission->step > OPTIMIZER_STEP_MAX))
        return refuse(b->refusal, EMBTIER_INVALID, UINT32_MAX, submission->step,
                      OPTIMIZER_STEP_MAX);
    TRY(segment_copies_take(b->rules, b->session, submission, op_form_of(submission), 0, &sums,
                            b->refusal));
    if (submission->prefetch != 0)
        TRY(find_ticket(b, submission->prefetch, true, &b->prefetch));
    if (!has_ticket(b))
        return EMBTIER_OK;
    TRY(find_ticket(b, submission->ticket, false, &b->ticket));
    if (IS_BAD(CHECK_PUSH_TICKET_SEGMENTS, submission->segment_count != b->ticket->segment_count))
        return refuse(b->refusal, EMBTIER_SHAPE, UINT32_MAX, submission->segment_count,
                      b->ticket->segment_count);
    return EMBTIER_OK;
}

static enum embtier_err check_rates(const struct push_beginning *b)
{
    for (uint32_t s = 0; s < b->submission->segment_count; s++)
        if (IS_BAD(CHECK_PUSH_LEARNING_RATE,
                   !(fabs(b->segments[s].learning_rate) <= (double)FLT_MAX)))
            return refuse(b->refusal, EMBTIER_INVALID, s, 0, 0);
    return EMBTIER_OK;
}

/* Checks the segment against the ticket's. */
static enum embtier_err check_against_ticket(const struct push_beginning *b, uint32_t s)
{
    const struct op_push_segment *const wire = &b->segments[s];
    const struct ticket_segment *const segment = &b->ticket->segments[s];
    const struct ticket_group *const group = &b->ticket->groups[segment->group];

    if (IS_BAD(CHECK_PUSH_TICKET_TABLE, wire->table != group->table))
        return refuse(b->refusal, EMBTIER_MISMATCH, s, wire->table >> 32, group->table >> 32);
    if (IS_BAD(CHECK_PUSH_TICKET_BAGS, wire->count != segment->bag_count))
        return refuse(b->refusal, EMBTIER_SHAPE, s, wire->count, segment->bag_count);
    if (wire->weights_offset == 0)
        return EMBTIER_OK;
    if (IS_BAD(CHECK_PUSH_WEIGHTS_OF_MAX, segment->mode == EMBTIER_POOL_MAX))
        return refuse(b->refusal, EMBTIER_UNSUPPORTED, s, segment->mode, 0);
    if (IS_BAD(CHECK_PUSH_WEIGHTS_IN_REGION,
               !in_region(b->session, wire->weights_offset,
                          (uint64_t)segment->id_count * sizeof(float), OP_NUMBER_ALIGN)))
        return refuse(b->refusal, EMBTIER_OFFSET_RANGE, s, wire->weights_offset,
                      b->session->channel.region_bytes);
    return EMBTIER_OK;
}

/* Notes the segment's table, checks the segment against it, and that all its parts lie in the
 * region. */
static enum embtier_err take_segment(void *context, uint32_t s, struct table *table)
{
    struct push_beginning *const b = context;
    const struct op_push_segment *const wire = &b->segments[s];

    push_note_table(b, s, table);
    TRY(request_admit_change(b->rules, s, table,
                             has_ticket(b) ? b->ticket->segments[s].id_count : wire->count,
                             b->refusal));
    if (IS_BAD(CHECK_PUSH_OPTIMIZER, table->spec.optimizer == EMBTIER_OPTIMIZER_NONE))
        return refuse(b->refusal, EMBTIER_UNSUPPORTED, s, table->spec.optimizer, 0);
    if (IS_BAD(CHECK_PUSH_DIM, wire->dim != table->spec.dim))
        return refuse(b->refusal, EMBTIER_SHAPE, s, wire->dim, table->spec.dim);
    if (IS_BAD(CHECK_PUSH_GRADIENTS_IN_REGION,
               !(has_ticket(b) && wire->gradients_offset == 0) &&
                   !in_region(b->session, wire->gradients_offset,
                              (uint64_t)wire->count * wire->dim * sizeof(float), OP_NUMBER_ALIGN)))
        return refuse(b->refusal, EMBTIER_OFFSET_RANGE, s, wire->gradients_offset,
                      b->session->channel.region_bytes);
    return has_ticket(b)
               ? check_against_ticket(b, s)
               : segment_ids_check(b->session, s, wire->ids_offset, wire->count, b->refusal);
}

/* Enters and checks all segments. A push of rows gets its ticket. */
static enum embtier_err enter_segments(struct push_beginning *b)
{
    const struct op_submission *const submission = b->submission;

    TRY(segment_copies_enter(b->rules, b->session, submission, op_form_of(submission), take_segment,
                             b, b->refusal));
    if (has_ticket(b))
        return EMBTIER_OK;
    return ticket_new(b->rules, b->session, TICKET_OF_BAGS, submission->segment_count, push_part_of,
                      b, &b->ticket, b->refusal);
}

/* Fills in the groups' settings for a whole table. */
static enum embtier_err fill_in(const struct push_beginning *b, struct push *push)
{
    for (uint32_t s = 0; s < push->segment_count; s++) {
        const struct op_push_segment *const wire = &b->segments[s];
        struct push_group *const group = &push->groups[push->ticket->segments[s].group];

        if (group->optimizer.step == 0) { /* not prepared yet: steps count from 1 */
            group->learning_rate = wire->learning_rate;
            optimizer_prepare(&group->table->spec, wire->learning_rate, b->submission->step,
                              &group->optimizer);
        } else if (IS_BAD(CHECK_PUSH_SAME_RATE, group->learning_rate < wire->learning_rate ||
                                                    group->learning_rate > wire->learning_rate)) {
            return refuse(b->refusal, EMBTIER_INVALID, s, 0, 0);
        }
        group->has_gradients |= wire->gradients_offset != 0;
        group->has_weight_gradients |= wire->weights_offset != 0;
    }
    return EMBTIER_OK;
}

/* Takes memory for a push that has passed the other checks. */
static enum embtier_err make_push(const struct push_beginning *b, struct push **ret_push)
{
    enum embtier_err err;

    TRY(push_new(b, ret_push));
    if (has_ticket(b))
        push_set_stage(*ret_push, PUSH_NUMBERS);
    err = fill_in(b, *ret_push);
    if (err != EMBTIER_OK)
        request_memory_give(b->rules->memory, *ret_push);
    return err;
}

enum embtier_err push_begin(const struct request_rules *rules, struct session *session,
                            uint32_t number, const struct op_submission *submission,
                            struct group_member *member, struct push **ret_push,
                            struct refusal *ret_refusal)
{
    struct push_beginning b = { .rules = rules,
                                .session = session,
                                .number = number,
                                .submission = submission,
                                .op = &op_push,
                                .row_op = &row_op_push,
                                .member = member,
                                .segments = (const struct op_push_segment *)rules->scratch,
                                .refusal = ret_refusal };
    enum embtier_err err;

    TRY(copy_segments(&b));
    TRY(check_rates(&b));
    err = enter_segments(&b);
    if (err == EMBTIER_OK)
        err = make_push(&b, ret_push);
    if (err != EMBTIER_OK) {
        if (!has_ticket(&b) && b.ticket)
            ticket_free(rules, b.ticket);
        segment_tables_leave(rules, b.entered);
    }
    return err;
}
