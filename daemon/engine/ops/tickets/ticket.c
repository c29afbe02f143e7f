/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/engine/ops/tickets/ticket.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/counter.h"
#include "daemon/engine/memory/ticket_memory.h"
#include "daemon/engine/sessions/client_bytes.h"
#include "daemon/engine/tables/table.h"
#include "kernels/cpu/reduce/reduce.h"

/* ---- Making ---- */

/* A table's mark while a ticket is made: its group's number from 1, and these bits. */
enum {
    MARK_SCALED = 1,
    MARK_SHARED = 2, /* several segments name it */
    MARK_MAX = 4,
    MARK_BITS = 3,
};

struct plan {
    const struct request_rules *rules;
    enum ticket_kind kind;
    uint32_t count;
    struct ticket_part (*part_of)(const void *context, uint32_t s);
    const void *context;
    uint32_t group_count;
};

static uint32_t *mark_of(const struct plan *plan, const struct ticket_part *part)
{
    return &plan->rules->table_marks[part->table->index];
}

static enum embtier_err mark_tables(struct plan *plan, struct refusal *refusal)
{
    for (uint32_t s = 0; s < plan->count; s++) {
        const struct ticket_part part = plan->part_of(plan->context, s);
        const bool is_max = part.mode == EMBTIER_POOL_MAX;
        uint32_t *const mark = mark_of(plan, &part);

        if (*mark == 0)
            *mark = ++plan->group_count << MARK_BITS | (is_max ? MARK_MAX : 0);
        else if (!(*mark & MARK_MAX) == is_max)
            return refuse(refusal, EMBTIER_UNSUPPORTED, s, part.mode, 0);
        else
            *mark |= MARK_SHARED;
        if (part.is_weighted || part.mode == EMBTIER_POOL_MEAN)
            *mark |= MARK_SCALED;
    }
    return EMBTIER_OK;
}

static void unmark_tables(const struct plan *plan)
{
    for (uint32_t s = 0; s < plan->count; s++) {
        const struct ticket_part part = plan->part_of(plan->context, s);

        *mark_of(plan, &part) = 0;
    }
}

/* Returns the bytes of a part in its group's arrays, without rounding up to cache lines. */
static uint64_t array_bytes(const struct plan *plan, const struct ticket_part *part, uint32_t mark)
{
    const uint64_t ids = part->id_count;
    const uint64_t bags = part->bag_count;
    uint64_t bytes = ids * (sizeof(struct cast_pair) + sizeof(uint32_t)) + bags * sizeof(uint32_t);

    if (plan->kind == TICKET_OF_PREFETCH)
        bytes += ids;
    if (plan->kind == TICKET_OF_STEP)
        bytes += ids * sizeof(struct cast_pair);
    if (mark & MARK_SCALED)
        bytes += ids * sizeof(float);
    if (mark & MARK_MAX)
        bytes += bags * part->table->spec.dim * sizeof(uint32_t);
    if (mark & MARK_SHARED)
        bytes += bags * sizeof(const float *);
    return bytes;
}

#define ARRAYS_PER_GROUP 8

/* Moves @place past an array, to the next cache line. Returns the array. */
static void *carve(uint8_t **place, uint64_t bytes)
{
    uint8_t *const array = *place;

    *place += align_up(bytes, CACHE_LINE);
    return array;
}

static uint64_t lanes_bytes(const struct plan *plan)
{
    return plan->kind == TICKET_OF_PREFETCH ? plan->rules->lane_count * sizeof(struct ticket_lane)
                                            : 0;
}

static uint64_t sources_bytes(const struct plan *plan)
{
    return plan->kind == TICKET_OF_STEP ? plan->count * sizeof(struct ticket_source) : 0;
}

static uint64_t head_bytes(const struct plan *plan)
{
    return align_up(sizeof(struct ticket), CACHE_LINE) +
           align_up(plan->count * sizeof(struct ticket_segment), CACHE_LINE) +
           align_up(plan->count * sizeof(uint32_t), CACHE_LINE) +
           align_up(plan->group_count * sizeof(struct ticket_group), CACHE_LINE) +
           align_up(lanes_bytes(plan), CACHE_LINE) + align_up(sources_bytes(plan), CACHE_LINE);
}

static uint64_t ticket_bytes(const struct plan *plan)
{
    uint64_t bytes =
        head_bytes(plan) + plan->group_count * (uint64_t)ARRAYS_PER_GROUP * 2 * CACHE_LINE;

    for (uint32_t s = 0; s < plan->count; s++) {
        const struct ticket_part part = plan->part_of(plan->context, s);

        bytes += array_bytes(plan, &part, *mark_of(plan, &part));
    }
    return bytes;
}

/* Fills in the segments, and counts their ids and bags in the groups. */
static void add_parts(const struct plan *plan, struct ticket *ticket)
{
    for (uint32_t s = 0; s < plan->count; s++) {
        const struct ticket_part part = plan->part_of(plan->context, s);
        const uint32_t number = (*mark_of(plan, &part) >> MARK_BITS) - 1;
        struct ticket_group *const group = &ticket->groups[number];

        group->table = table_handle(part.table);
        group->dim = part.table->spec.dim;
        ticket->segments[s] = (struct ticket_segment){
            .group = number,
            .mode = part.mode,
            .id_count = part.id_count,
            .bag_count = part.bag_count,
            .first_position = group->id_count,
            .first_bag = group->bag_count,
            .greatest_weight = part.is_weighted ? 0.0f : 1.0f,
        };
        if (plan->kind == TICKET_OF_STEP)
            ticket->sources[s] = part.source;
        group->id_count += part.id_count;
        group->bag_count += part.bag_count;
        group->segment_count++;
        group->segments_left++;
    }
}

static void lay_out_group(struct ticket_group *group, uint32_t mark, uint32_t **order,
                          uint8_t **place)
{
    const uint64_t ids = group->id_count;
    const uint64_t bags = group->bag_count;

    group->message.kind = &message_cast;
    group->order = *order;
    *order += group->segment_count;
    group->segment_count = 0; /* counted again as the segments are put there */
    group->pairs = carve(place, ids * sizeof(*group->pairs));
    if (mark & MARK_SHARED)
        group->bag_places = carve(place, bags * sizeof(*group->bag_places));
    group->starts = carve(place, (ids + 1) * sizeof(*group->starts));
    if (mark & MARK_SCALED)
        group->scales = carve(place, ids * sizeof(*group->scales));
    group->offsets = carve(place, (bags + 1) * sizeof(*group->offsets));
    if (mark & MARK_MAX)
        group->winners = carve(place, bags * group->dim * sizeof(*group->winners));
    group->offsets[bags] = group->id_count;
    if (group->ticket->kind == TICKET_OF_PREFETCH) {
        group->pinned = carve(place, ids);
        memset(group->pinned, 0, ids);
    }
    if (group->ticket->kind == TICKET_OF_STEP)
        group->scratch = carve(place, ids * sizeof(*group->scratch));
}

static void lay_out_groups(const struct plan *plan, struct ticket *ticket, uint32_t *order,
                           uint8_t *place)
{
    for (uint32_t s = 0; s < plan->count; s++) {
        const struct ticket_part part = plan->part_of(plan->context, s);
        struct ticket_group *const group = ticket_group_of(ticket, s);

        if (!group->ticket) {
            group->ticket = ticket;
            lay_out_group(group, *mark_of(plan, &part), &order, &place);
        }
        ((uint32_t *)group->order)[group->segment_count++] = s;
    }
}

static void lay_out_lanes(const struct plan *plan, struct ticket *ticket, struct ticket_lane *lanes)
{
    ticket->lanes = lanes;
    for (uint32_t i = 0; i < plan->rules->lane_count; i++)
        lanes[i] = (struct ticket_lane){ .message.kind = &message_unpin, .ticket = ticket };
}

static enum embtier_err make(const struct plan *plan, struct session *session,
                             struct ticket **ret_ticket, struct refusal *refusal)
{
    struct ticket_memory *const memory = plan->rules->ticket_memory;
    const uint64_t bytes = ticket_bytes(plan);
    uint64_t quota = 0;
    uint8_t *place = ticket_memory_take(memory, &session->ticket_share, bytes, &quota);
    struct ticket *ticket;
    uint32_t *order;

    if (!place && quota > 0 && plan->kind != TICKET_OF_STEP) /* which is of several users */
        return refuse_quota(refusal, QUOTA_ticket_bytes, bytes, quota);
    if (!place)
        return refuse(refusal, EMBTIER_TICKETS_FULL, UINT32_MAX, bytes,
                      ticket_memory_largest(memory));
    memset(place, 0, head_bytes(plan));
    ticket = carve(&place, sizeof(*ticket));
    ticket->kind = plan->kind;
    ticket->session = session;
    ticket->home = plan->rules->mailbox;
    ticket->segment_count = plan->count;
    ticket->group_count = plan->group_count;
    ticket->segments = carve(&place, plan->count * sizeof(*ticket->segments));
    order = carve(&place, plan->count * sizeof(*order));
    ticket->groups = carve(&place, plan->group_count * sizeof(*ticket->groups));
    if (plan->kind == TICKET_OF_PREFETCH)
        lay_out_lanes(plan, ticket, carve(&place, lanes_bytes(plan)));
    if (plan->kind == TICKET_OF_STEP)
        ticket->sources = carve(&place, sources_bytes(plan));
    add_parts(plan, ticket);
    lay_out_groups(plan, ticket, order, place);
    *ret_ticket = ticket;
    return EMBTIER_OK;
}

enum embtier_err ticket_new(const struct request_rules *rules, struct session *session,
                            enum ticket_kind kind, uint32_t count,
                            struct ticket_part (*part_of)(const void *context, uint32_t s),
                            const void *context, struct ticket **ret_ticket,
                            struct refusal *ret_refusal)
{
    struct plan plan = {
        .rules = rules, .kind = kind, .count = count, .part_of = part_of, .context = context
    };
    enum embtier_err err = mark_tables(&plan, ret_refusal);

    if (err == EMBTIER_OK)
        err = make(&plan, session, ret_ticket, ret_refusal);
    unmark_tables(&plan);
    return err;
}

void ticket_free(const struct request_rules *rules, struct ticket *ticket)
{
    assert(!ticket->is_issued);
    assert(ticket->casts_left == 0 && ticket->lanes_left == 0);
    ticket_unpinned(rules, ticket);
    ticket_memory_give(rules->ticket_memory, ticket);
}

enum embtier_err ticket_pin(const struct request_rules *rules, struct ticket *ticket,
                            uint64_t bytes, struct refusal *ret_refusal)
{
    uint64_t part = 0, quota = 0;

    assert(ticket->pinned_bytes == 0);
    if (!ticket_memory_pin(rules->ticket_memory, &ticket->session->ticket_share, bytes, &part,
                           &quota))
        return quota > 0 ? refuse_quota(ret_refusal, QUOTA_pinned_bytes, bytes, quota)
                         : refuse(ret_refusal, EMBTIER_PINS_FULL, UINT32_MAX, bytes, part);
    ticket->pinned_bytes = bytes;
    return EMBTIER_OK;
}

void ticket_unpinned(const struct request_rules *rules, struct ticket *ticket)
{
    if (ticket->pinned_bytes > 0)
        ticket_memory_unpin(rules->ticket_memory, &ticket->session->ticket_share,
                            ticket->pinned_bytes);
    ticket->pinned_bytes = 0;
}

/* ---- Pairs ---- */

uint32_t ticket_segment_of(const struct ticket_group *group, uint32_t bag)
{
    const struct ticket_segment *const segments = group->ticket->segments;
    uint32_t low = 0;
    uint32_t high = group->segment_count;

    /* Finds the last segment that begins at or before @bag. Empty segments before it begin there,
     * too. */
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;

        if (segments[group->order[middle]].first_bag <= bag)
            low = middle;
        else
            high = middle;
    }
    return group->order[low];
}

static void note_weights(struct ticket_segment *segment, float greatest)
{
    if (!isfinite(greatest))
        segment->has_nonfinite = true;
    else
        segment->greatest_weight = MAX(segment->greatest_weight, greatest);
}

void ticket_note(struct ticket *ticket, const struct ticket_bags *bags)
{
    const struct ticket_segment *const of = &ticket->segments[bags->segment];
    struct ticket_group *const group = &ticket->groups[of->group];
    const uint32_t *const offsets = bags->offsets;
    const float *const weights = bags->weights;
    const uint32_t first = of->first_position + bags->first_id;
    const uint32_t count = offsets[bags->bag_count];

    for (uint32_t b = 0; b < bags->bag_count; b++) {
        const uint32_t bag = of->first_bag + bags->bag + b;

        if (b > 0 || bags->begun == 0)
            group->offsets[bag] = first + offsets[b];
        for (uint32_t i = offsets[b]; i < offsets[b + 1]; i++)
            group->pairs[first + i] =
                (struct cast_pair){ bags->ids[(size_t)i * bags->id_stride], bag, first + i };
    }
    for (uint32_t i = 0; group->scales && i < count; i++)
        group->scales[first + i] = weights ? weights[i] : 1.0f;
    if (weights)
        note_weights(&ticket->segments[bags->segment], reduce_greatest(weights, count));
}

/* Divides the scales of a mean by the number of rows in their bag. */
static void divide_scales(const struct ticket_group *group, const struct ticket_segment *segment)
{
    for (uint32_t b = segment->first_bag; b < segment->first_bag + segment->bag_count; b++) {
        const uint32_t end = group->offsets[b + 1];
        const float count = (float)(end - group->offsets[b]);

        for (uint32_t i = group->offsets[b]; i < end; i++)
            group->scales[i] /= count;
    }
}

/* For a step: makes one pair for each run of each member. */
static void take_runs(const struct ticket_group *group)
{
    for (uint32_t i = 0; i < group->segment_count; i++) {
        const uint32_t s = group->order[i];
        const struct ticket_group *const source = group->ticket->sources[s].group;
        struct cast_pair *const pairs = group->pairs + group->ticket->segments[s].first_position;

        for (uint32_t run = 0; run < source->run_count; run++)
            pairs[run] = member_run_pair(source->pairs[source->starts[run]].row,
                                         (struct member_run){ .run = run, .segment = s });
    }
}

void ticket_cast(struct ticket_group *group, struct cast_pair *scratch)
{
    const bool is_step = group->ticket->kind == TICKET_OF_STEP;
    struct cast_pair *sorted;

    if (is_step) {
        scratch = group->scratch;
        take_runs(group);
    }

    for (uint32_t i = 0; i < group->segment_count; i++) {
        const struct ticket_segment *const segment = &group->ticket->segments[group->order[i]];

        if (segment->mode == EMBTIER_POOL_MEAN)
            divide_scales(group, segment);
    }
    sorted = cast_sort(group->pairs, scratch, group->id_count);
    if (is_step)
        group->pairs = sorted;
    else if (sorted != group->pairs)
        memcpy(group->pairs, sorted, group->id_count * sizeof(*sorted));
    group->run_count = cast_runs(group->pairs, group->id_count, group->starts);
}

/* ---- Numbers ---- */

static struct ticket_slot *slot_of(const struct session *session, uint32_t number)
{
    return (struct ticket_slot *)&session->tickets[number % TICKETS_MAX];
}

enum embtier_err ticket_issue(struct ticket *ticket, uint64_t now_ns)
{
    struct session *const session = ticket->session;

    for (uint32_t i = 0; i < TICKETS_MAX; i++) {
        const uint32_t number = ++session->last_ticket;
        struct ticket_slot *const slot = slot_of(session, number);

        if (slot->ticket || number == 0)
            continue;
        slot->ticket = ticket;
        ticket->number = session->id << 32 | number;
        ticket->issued_ns = now_ns;
        assert(!ticket->is_issued && !ticket->is_ended);
        ticket->is_issued = true;
        counter_add(&session->counts.tickets, 1);
        return EMBTIER_OK;
    }
    return EMBTIER_TICKETS_FULL;
}

void ticket_take(struct ticket *ticket)
{
    struct ticket_slot *const slot = slot_of(ticket->session, (uint32_t)ticket->number);

    assert(ticket->is_issued && slot->ticket == ticket);
    slot->ticket = NULL;
    ticket->is_issued = false;
    counter_sub(&ticket->session->counts.tickets, 1);
}

enum embtier_err ticket_find(const struct session *session, uint64_t number,
                             struct ticket **ret_ticket)
{
    const struct ticket_slot *const slot = slot_of(session, (uint32_t)number);

    if (slot->ticket && slot->ticket->number == number) {
        *ret_ticket = slot->ticket;
        return slot->ticket->is_lent ? EMBTIER_TICKET_USED : EMBTIER_OK;
    }
    /* It is another session's ticket, or a number that has not come yet. */
    if (number >> 32 != (uint32_t)session->id || (uint32_t)number == 0 ||
        session->last_ticket - (uint32_t)number > INT32_MAX)
        return EMBTIER_NO_TICKET;
    return slot->expired == (uint32_t)number ? EMBTIER_TICKET_EXPIRED : EMBTIER_TICKET_USED;
}
