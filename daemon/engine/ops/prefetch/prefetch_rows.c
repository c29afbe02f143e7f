/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of prefetches on their lanes: pins them, and unpins them when the prefetch is over. See
 * prefetch.h. */
#include "daemon/engine/ops/prefetch/prefetch_rows.h"

#include <assert.h>

#include "daemon/engine/ops/push/push.h"
#include "daemon/engine/tables/row_routes.h"
#include "daemon/engine/tables/tables.h"
#include "daemon/engine/turns/cost.h"

static struct ticket_group *group_of(const struct request *request, uint32_t segment)
{
    const struct push_wave *const wave = push_wave_of(request);

    return &wave->push->ticket->groups[wave->slices[segment].group];
}

/* Notes that the row of a ref is pinned. */
static void note_pin(const struct request *request, uint32_t segment, uint32_t position)
{
    const struct push_slice *const slice = &push_wave_of(request)->slices[segment];

    group_of(request, segment)->pinned[slice->first_run + position] = 1;
}

static enum row_pin pin_row(struct rows *rows, const struct part *part, uint32_t segment,
                            const struct row_ref *ref)
{
    const struct table *const table = part->request->segments[segment].table;
    const void *row;
    enum row_pin pin;

    if (!group_of(part->request, segment)->takes_pins)
        return home_find(rows, table, ref, 1, 0, &row) == 0 ? ROW_UNPINNED : ROW_NOT_CACHED;
    pin = home_pin_one(rows, table, ref);
    if (pin == ROW_PINNED)
        note_pin(part->request, segment, ref->position);
    return pin;
}

/* True if the row stays, or needs no pin to. */
static bool is_kept(enum row_pin pin)
{
    return pin == ROW_PINNED || pin == ROW_UNPINNED;
}

static uint32_t prefetch_chunk(struct rows *rows, struct part *part, const struct row_ref *refs,
                               uint32_t count)
{
    const struct table *const table = part->request->segments[part->segment].table;
    uint64_t here[ROWS_CHUNK / 64], pinned[ROWS_CHUNK / 64];
    const void *places[ROWS_CHUNK];
    const bool takes_pins = group_of(part->request, part->segment)->takes_pins;
    uint32_t missed = 0;

    counter_add(&rows->counts.prefetched_rows, count);
    if (takes_pins)
        home_pin(rows, table, refs, count, here, pinned);
    else
        (void)home_find(rows, table, refs, count, 0, places);
    for (uint32_t i = 0; i < count; i++) {
        if (takes_pins && (pinned[i / 64] >> i % 64 & 1))
            note_pin(part->request, part->segment, refs[i].position);
        if (takes_pins ? !(here[i / 64] >> i % 64 & 1) : !places[i])
            rows->chunk_missed[missed++] = i;
    }
    return missed;
}

/* Handles a row that cannot be pinned at present. */
static enum outcome prefetch_refused(struct rows *rows, struct part *part, uint32_t segment,
                                     const struct row_ref *ref)
{
    if (rows->in_epoch) { /* there may be room after the epoch */
        counter_add(&rows->counts.held_rows, 1);
        return OUTCOME_RETRY;
    }
    rows_ref_fail(rows, part, segment, ref->id, EMBTIER_PINS_FULL);
    return OUTCOME_REFUSED;
}

static enum outcome prefetch_cached(struct rows *rows, struct part *part, uint32_t segment,
                                    const struct row_ref *ref)
{
    switch (pin_row(rows, part, segment, ref)) {
    case ROW_PINNED:
    case ROW_UNPINNED:
        return OUTCOME_DONE;
    case ROW_NOT_CACHED:
        return OUTCOME_MISSED;
    case ROW_NOT_PINNED:
        break;
    }
    return prefetch_refused(rows, part, segment, ref);
}

/* Puts a queued row into its home, clean, and pins it there. If it is not to be pinned, it does no
 * harm that there is no room: it is read when it is needed. */
static enum outcome prefetch_queued(struct rows *rows, struct part *part, uint32_t segment,
                                    const struct row_ref *ref, const void *row)
{
    const struct table *const table = part->request->segments[segment].table;
    uint32_t refused;
    const bool is_here = home_insert(rows, table, ref, 1, &row, NULL, &refused) == 0;

    if (!group_of(part->request, segment)->takes_pins)
        return OUTCOME_DONE;
    if (is_here && is_kept(pin_row(rows, part, segment, ref)))
        return OUTCOME_DONE;
    return prefetch_refused(rows, part, segment, ref);
}

/* Pins a row that has come into the cache, if there was room. */
static void prefetch_placed(struct rows *rows, struct part *part, uint32_t index,
                            const struct row_ref *row, bool was_stored)
{
    const uint32_t segment = part_segment_of(part, index);

    (void)was_stored;
    if (group_of(part->request, segment)->takes_pins && !is_kept(pin_row(rows, part, segment, row)))
        rows_ref_fail(rows, part, segment, row->id, EMBTIER_PINS_FULL);
}

const struct row_op row_op_pin = {
    .pins = true,
    .places = true,
    .looks_up = true,
    .chunk = prefetch_chunk,
    .cached = prefetch_cached,
    .queued = prefetch_queued,
    .placed = prefetch_placed,
};

/* ---- Giving pins back ---- */

/* Queues pins to be given back, some per turn. */
static void give_back(struct op_lane *lane, struct ticket_lane *part)
{
    assert(part->group == 0 && part->run == 0);
    part->next = NULL;
    if (lane->unpinning)
        lane->last_unpinning->next = part;
    else
        lane->unpinning = part;
    lane->last_unpinning = part;
}

MESSAGE_KIND(message_unpin, give_back, ops, struct ticket_lane, message)

/* Unpins the pinned rows of this lane among @count runs. */
static void unpin_runs(struct op_lane *lane, const struct ticket_group *group, uint32_t first,
                       uint32_t count)
{
    const struct table *const table = tables_at(lane->rules.tables, (uint16_t)group->table);
    const uint32_t table_id = (uint32_t)(group->table >> 32);
    struct row_ref refs[ROWS_CHUNK];
    uint32_t found = 0;

    /* A drop forgets the rows with their pins, on this lane perhaps already. */
    if (atomic_load_explicit(&table->state, memory_order_relaxed) != TABLE_LIVE ||
        atomic_load_explicit(&table->table_id, memory_order_relaxed) != table_id)
        return;
    for (uint32_t run = first; run < first + count; run++) {
        const uint64_t id = group->pairs[group->starts[run]].row;
        const uint64_t hash = row_hash(lane->rules.hasher, table_id, id);

        if (group->pinned[run] && row_routes_lane(lane->rules.routes, hash) == lane->index)
            refs[found++] = (struct row_ref){ .hash = hash, .id = id };
    }
    home_unpin(lane->rows, table, refs, found);
}

bool pins_turn(struct op_lane *lane)
{
    struct ticket_lane *const part = lane->unpinning;
    const uint64_t most = schedule_turn_cost(lane->schedule, NULL) / LANE_COST_ROW;
    uint64_t rows = 0;

    if (!part)
        return false;
    while (rows < most && part->group < part->ticket->group_count) {
        const struct ticket_group *const group = &part->ticket->groups[part->group];
        const uint32_t count = MIN(group->run_count - part->run, (uint32_t)ROWS_CHUNK);

        unpin_runs(lane, group, part->run, count);
        rows += MAX(count, 1u);
        part->run += count;
        if (part->run == group->run_count) {
            part->group++;
            part->run = 0;
        }
    }
    schedule_charge(lane->schedule, schedule_side_of(lane->schedule, part->ticket->session),
                    rows * LANE_COST_ROW);
    assert(part->group <= part->ticket->group_count);
    if (part->group == part->ticket->group_count) {
        lane->unpinning = part->next;
        part->message.kind = &message_unpinned;
        mailbox_send(part->ticket->home, &part->message);
    }
    return true;
}
