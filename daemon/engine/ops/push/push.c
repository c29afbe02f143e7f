/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/engine/ops/op.h"
#include "daemon/engine/ops/push/push_impl.h"

#include <math.h>
#include <string.h>

#include "daemon/engine/memory/request_memory.h"
#include "daemon/engine/sessions/client_bytes.h"
#include "daemon/engine/tables/table.h"
#include "daemon/engine/turns/cost.h"
#include "kernels/cpu/reduce/reduce.h"

const float push_zeros[EMBTIER_DIM_MAX];

_Static_assert(offsetof(struct push_wave, request) == 0, "a wave begins with its request");

/* ---- Beginning ---- */

struct ticket_part push_part_of(const void *context, uint32_t s)
{
    const struct push_beginning *const b = context;

    return (struct ticket_part){ .table = b->rules->segment_tables[s],
                                 .mode = EMBTIER_POOL_SUM,
                                 .id_count = b->segments[s].count,
                                 .bag_count = b->segments[s].count };
}

void push_note_table(struct push_beginning *b, uint32_t segment, struct table *table)
{
    b->rules->segment_tables[segment] = table;
    b->entered = segment + 1;
}

static uint64_t groups_place(uint32_t segment_count)
{
    return align_up(sizeof(struct push) + segment_count * sizeof(struct push_segment), CACHE_LINE);
}

static uint64_t first_wave_place(const struct ticket *ticket)
{
    return align_up(groups_place(ticket->segment_count) +
                        ticket->group_count * sizeof(struct push_group),
                    CACHE_LINE);
}

static uint64_t wave_bytes(const struct request_rules *rules, uint32_t slices, uint32_t rows)
{
    return request_block_bytes(rules, sizeof(struct push_wave), slices, rows);
}

/* Lays down the segments, and the tables of the groups. */
static void note_segments(const struct push_beginning *b, struct push *push)
{
    uint8_t *const region = b->session->channel.region;

    for (uint32_t s = 0; s < push->segment_count; s++) {
        const struct op_push_segment *const wire = &b->segments[s];
        struct table *const table = b->rules->segment_tables[s];

        push->segments[s] = (struct push_segment){
            .table = table,
            .gradients = wire->gradients_offset ? (float *)(region + wire->gradients_offset) : NULL,
            .weight_gradients =
                wire->weights_offset ? (float *)(region + wire->weights_offset) : NULL,
            .ids_offset = wire->ids_offset,
            .count = wire->count,
        };
        push->groups[push->ticket->segments[s].group].table = table;
    }
}

enum embtier_err push_new(const struct push_beginning *b, struct push **ret_push)
{
    const struct request_rules *const rules = b->rules;
    const struct ticket *const ticket = b->ticket;
    const uint64_t wave_at = first_wave_place(ticket);
    uint32_t slices = PUSH_WAVE_SLICES;
    uint32_t rows = PUSH_WAVE_ROWS;
    uint64_t ids = 0;
    uint64_t bytes;
    struct push *push;

    for (uint32_t g = 0; g < ticket->group_count; g++)
        ids += ticket->groups[g].id_count;
    bytes = wave_at; /* in a group, a push that waits has no wave, and the leader has large ones */
    if (!b->member) {
        slices = MIN(slices, ticket->group_count);
        rows = (uint32_t)MIN((uint64_t)rows, ids);
        bytes += wave_bytes(rules, slices, rows);
    }
    if (bytes > request_memory_largest(rules->memory))
        return refuse(b->refusal, EMBTIER_TOO_LARGE, UINT32_MAX, ids, 0);
    push = request_memory_for(rules, b->session, bytes,
                              b->member ? REQUEST_MEMORY_WAITS : REQUEST_MEMORY_ENDS);
    if (!push)
        return EMBTIER_AGAIN;
    memset(push, 0, wave_at);
    push->session = b->session;
    push->number = b->number;
    push->segment_count = ticket->segment_count;
    push->segments = (struct push_segment *)(push + 1);
    push->groups = (struct push_group *)((uint8_t *)push + groups_place(ticket->segment_count));
    push->ticket = b->ticket;
    push->prefetch = b->prefetch;
    push->op = b->op;
    push->row_op = b->row_op;
    push->member = b->member;
    push->stage = PUSH_IDS;
    push->wave_rows = rows;
    push->wave_slices = slices;
    push->refusal.segment = UINT32_MAX;
    push->failed = PUSH_NONE_FAILED;
    push->block_bytes = bytes;
    push->has_tables = true;
    waves_init(&push->waves, b->member ? NULL : (uint8_t *)push + wave_at);
    note_segments(b, push);
    *ret_push = push;
    return EMBTIER_OK;
}

void push_leave_tables(struct push *push)
{
    for (uint32_t s = 0; s < push->segment_count; s++)
        table_leave(push->segments[s].table);
    push->has_tables = false;
}

void push_free(const struct request_rules *rules, struct push *push, uint64_t ticket)
{
    if (push->has_tables)
        push_leave_tables(push);
    if (push->waves.count == 0) /* it may queue for one */
        request_memory_forget(rules, push->session);
    waves_give(&push->waves, rules->memory);
    if (push->refusal.err != EMBTIER_DISCONNECTED && !push->is_answered)
        request_answer(rules, push->session, push->number, &push->refusal, push->hit_rows, ticket);
    request_memory_give(rules->memory, push);
}

/* ---- Ids of a push of rows ---- */

static enum embtier_err take_some_ids(struct push *push, uint32_t count, struct refusal *refusal)
{
    const struct push_segment *const segment = &push->segments[push->segment];
    const struct ticket_segment *const of = &push->ticket->segments[push->segment];
    struct ticket_group *const group = &push->ticket->groups[of->group];
    const volatile uint64_t *const ids =
        (const volatile uint64_t *)(push->session->channel.region + segment->ids_offset);
    const uint64_t rows = segment->table->spec.rows;
    const uint64_t last = rows == EMBTIER_UNBOUNDED ? UINT64_MAX : rows - 1;

    for (uint32_t i = push->id; i < push->id + count; i++) {
        const uint32_t at = of->first_position + i;
        const uint64_t id = ids[i];

        if (UNLIKELY(IS_BAD(CHECK_PUSH_ID, id > last)))
            return refuse(refusal, EMBTIER_ID_RANGE, push->segment, id, rows);
        group->offsets[at] = at;
        group->pairs[at] = (struct cast_pair){ id, at, at };
        if (!IS_COPIED(COPY_PUSH_IDS))
            copy_again(&group->pairs[at].row, &ids[i], sizeof(ids[i]));
    }
    push->id += count;
    return EMBTIER_OK;
}

static void spend(uint64_t *left, uint64_t cost)
{
    *left -= MIN(*left, cost);
}

enum embtier_err push_take_ids(struct push *push, uint64_t *cost, struct refusal *ret_refusal)
{
    for (; push->segment < push->segment_count; push->segment++, push->id = 0) {
        const uint32_t left = push->segments[push->segment].count - push->id;
        const uint32_t count = (uint32_t)MIN((uint64_t)left, *cost / LANE_COST_ID);

        if (*cost == 0)
            return EMBTIER_AGAIN;
        TRY(take_some_ids(push, count, ret_refusal));
        spend(cost, (uint64_t)count * LANE_COST_ID);
        if (count < left)
            return EMBTIER_AGAIN;
        spend(cost, LANE_COST_SEGMENT); /* a segment without ids is work, too */
    }
    push->segment = 0;
    return EMBTIER_OK;
}

/* ---- Numbers ---- */

/* Returns the place of the first number that is not finite. The last one, if there is none any
 * more: the client may have changed it meanwhile. */
static uint64_t find_nonfinite(const float *numbers, uint64_t count)
{
    uint64_t i = 0;

    while (i + 1 < count && isfinite(numbers[i]))
        i++;
    return i;
}

enum embtier_err push_check_numbers(struct push *push, uint64_t *cost, struct refusal *ret_refusal)
{
    for (; push->segment < push->segment_count; push->segment++, push->checked = 0) {
        struct push_segment *const segment = &push->segments[push->segment];
        const uint32_t dim = segment->table->spec.dim;
        const float *const numbers = segment->gradients + push->checked;
        const uint64_t left = (uint64_t)segment->count * dim - push->checked;
        uint64_t count;
        float greatest;

        if (*cost == 0)
            return EMBTIER_AGAIN;
        count = MIN(left, *cost * LANE_COST_BYTES / sizeof(float));
        if (push->checked == 0)
            spend(cost, LANE_COST_SEGMENT);
        if (segment->table->spec.allows_nonfinite)
            continue;
        /* No gradient times a weight that is not finite is finite: not even 0. The refusal names no
         * bag: the value is the limit. */
        if (IS_BAD(CHECK_PUSH_WEIGHTS_FINITE, push->ticket->segments[push->segment].has_nonfinite))
            return refuse(ret_refusal, EMBTIER_NONFINITE, push->segment, segment->count,
                          segment->count);
        if (!segment->gradients)
            continue;
        greatest = reduce_greatest(numbers, count);
        if (IS_BAD(CHECK_PUSH_FINITE, !isfinite(greatest)))
            return refuse(ret_refusal, EMBTIER_NONFINITE, push->segment,
                          (push->checked + find_nonfinite(numbers, count)) / dim, segment->count);
        segment->greatest = MAX(segment->greatest, greatest);
        push->checked += count;
        spend(cost, div_round_up(count * sizeof(float), LANE_COST_BYTES));
        if (count < left)
            return EMBTIER_AGAIN;
    }
    push->segment = 0;
    return EMBTIER_OK;
}

/* ---- Waves ---- */

uint64_t push_prepare(struct push *push)
{
    uint64_t cost = 0;

    for (uint32_t g = 0; g < push->ticket->group_count; g++) {
        const struct ticket_group *const group = &push->ticket->groups[g];

        for (uint32_t i = 0; group->bag_places && i < group->segment_count; i++) {
            const struct ticket_segment *const of = &push->ticket->segments[group->order[i]];
            const float *const gradients = push->segments[group->order[i]].gradients;

            for (uint32_t b = 0; b < of->bag_count; b++)
                group->bag_places[of->first_bag + b] =
                    gradients ? gradients + (size_t)b * group->dim : push_zeros;
            cost += of->bag_count / 4;
        }
    }
    return cost;
}

/* Returns the ids of all rows of @group together; in a step, the members' ids. */
static uint64_t pairs_of(const struct push *push, const struct ticket_group *group)
{
    uint64_t pairs = 0;

    if (!push->joint)
        return group->id_count;
    for (uint32_t i = 0; i < group->segment_count; i++)
        pairs += push->joint->sources[group->order[i]].group->id_count;
    return pairs;
}

static enum embtier_err refuse_run(const struct push *push, uint32_t g, uint32_t run,
                                   struct refusal *refusal)
{
    const struct ticket_group *const group = &push_runs(push)->groups[g];

    if (push->joint)
        return refuse(refusal, EMBTIER_TOO_LARGE, UINT32_MAX,
                      push_group_of(push, g)->table->table_id, OP_LIMIT_OF_UPDATE);
    return refuse(
        refusal, EMBTIER_TOO_LARGE, ticket_segment_of(group, group->pairs[group->starts[run]].bag),
        push_run_pairs(push_runs(push), group, run, 1), PUSH_ROW_NUMBERS_MAX / group->dim);
}

enum embtier_err push_check_runs(const struct push *push, uint64_t *cost,
                                 struct refusal *ret_refusal)
{
    const struct ticket *const runs = push_runs(push);

    for (uint32_t g = 0; g < runs->group_count; g++) {
        const struct ticket_group *const group = &runs->groups[g];
        const uint64_t most = PUSH_ROW_NUMBERS_MAX / group->dim;

        if (pairs_of(push, group) <= most)
            continue;
        *cost += div_round_up(group->id_count * sizeof(*group->starts), LANE_COST_BYTES);
        for (uint32_t run = 0; run < group->run_count; run++)
            if (push_run_pairs(push_runs(push), group, run, 1) > most)
                return refuse_run(push, g, run, ret_refusal);
    }
    return EMBTIER_OK;
}

enum update_kind push_kind(const struct push *push)
{
    uint64_t rows = 0;
    uint32_t slices = 0;

    if (push->member)
        return UPDATE_OF_GROUP;
    for (uint32_t g = 0; g < push->ticket->group_count; g++) {
        if (push->ticket->groups[g].run_count == 0 || !push->groups[g].has_gradients)
            continue;
        rows += push->ticket->groups[g].run_count;
        slices++;
    }
    return rows > push->wave_rows || slices > push->wave_slices ? UPDATE_LARGE : UPDATE_SMALL;
}

void push_note_steps(const struct push *push)
{
    for (uint32_t g = 0; g < push_runs(push)->group_count; g++) {
        const struct push_group *const group = push_group_of(push, g);

        if (group->has_gradients && push_runs(push)->groups[g].run_count > 0)
            table_note_step(group->table, group->optimizer.step);
    }
}

struct push_wave *push_free_wave(const struct request_rules *rules, struct push *push)
{
    struct push_wave *const wave = waves_idle(&push->waves);

    return wave ? wave
                : waves_take(&push->waves, rules, push->session,
                             wave_bytes(rules, push->wave_slices, push->wave_rows));
}

void push_end_wave(const struct request_rules *rules, struct push *push, struct push_wave *wave)
{
    if (!wave->is_trial)
        push->hit_rows += atomic_load_explicit(&wave->request.hit_rows, memory_order_relaxed);
    waves_end(&push->waves, rules->memory, wave, !push->is_taken);
}

/* Takes the runs of the next wave. Returns how many. */
static uint32_t take_slices(struct push *push, struct push_wave *wave, uint32_t most)
{
    const uint32_t room = MIN(push->wave_rows, MAX(most, 1u));
    const struct ticket *const ticket = push_runs(push);
    const bool is_trial = push->stage == PUSH_TRYING;
    uint32_t rows = 0;

    wave->slice_count = 0;
    for (; push->group < ticket->group_count; push->group++, push->run = 0) {
        const struct ticket_group *const group = &ticket->groups[push->group];
        const uint32_t left = group->run_count - push->run;
        const uint32_t count = MIN(left, room - rows);
        const struct push_group *const what = push_group_of(push, push->group);

        if (left == 0 || !what->has_gradients || (is_trial && !what->is_tried))
            continue;
        if (count == 0 || wave->slice_count == push->wave_slices)
            break;
        wave->slices[wave->slice_count++] = (struct push_slice){ push->group, push->run, count };
        push->run += count;
        rows += count;
        if (count < left)
            break;
    }
    *(is_trial ? &push->is_tried : &push->is_taken) = push->group == ticket->group_count;
    return rows;
}

void push_take_wave(const struct request_rules *rules, struct push *push, struct push_wave *wave,
                    uint32_t most)
{
    struct request *const request = &wave->request;
    const uint32_t rows = take_slices(push, wave, most);

    request_lay_out(rules, request, sizeof(*wave), wave->slice_count, rows);
    request->session = push->session;
    request->number = push->number;
    wave->push = push;
    wave->is_trial = push->stage == PUSH_TRYING;
    op_own(push->op, request);
    request->row_op = wave->is_trial ? &row_op_try : push->row_op;
    request->is_wave = true;
    for (uint32_t i = 0; i < wave->slice_count; i++) {
        const struct push_slice *const slice = &wave->slices[i];
        const struct ticket_group *const group = &push_runs(push)->groups[slice->group];
        struct table *const table = push_group_of(push, slice->group)->table;

        request->segments[i] = (struct request_segment){
            .table = table,
            .id_count = slice->run_count,
            .row_bytes = table->row_bytes,
        };
        request_put_runs(rules, request, group->pairs, group->starts + slice->first_run);
    }
    request_deal(rules, request);
}
