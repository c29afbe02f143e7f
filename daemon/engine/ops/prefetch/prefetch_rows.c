/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of prefetches on their lanes: pins them, and unpins them when the prefetch is over. See
 * prefetch.h. */
#include "daemon/engine/ops/prefetch/prefetch_rows.h"

#include <assert.h>

#include "daemon/engine/ops/push/push.h"
#include "daemon/engine/tables/row_routes.h"
#include "daemon/engine/tables/tables.h"
#include "daemon/engine/turns/cost.h"

/* Notes that the row of a ref is pinned. */
static void note_pin(const struct request *request, uint32_t segment, uint32_t position)
{
    const struct push_wave *const wave = push_wave_of(request);
    const struct push_slice *const slice = &wave->slices[segment];

    wave->push->ticket->groups[slice->group].pinned[slice->first_run + position] = 1;
}

static enum row_pin pin_row(struct rows *rows, const struct part *part, uint32_t segment,
                            const struct row_ref *ref)
{
    const enum row_pin pin = home_pin_one(rows, part->request->segments[segment].table, ref);

    if (pin == ROW_PINNED)
        note_pin(part->request, segment, ref->position);
    return pin;
}

static uint32_t prefetch_chunk(struct rows *rows, struct part *part, const struct row_ref *refs,
                               uint32_t count)
{
    const struct table *const table = part->request->segments[part->segment].table;
    uint64_t pinned[ROWS_CHUNK / 64];
    uint32_t missed = 0;

    counter_add(&rows->counts.prefetched_rows, count);
    home_pin(rows, table, refs, count, pinned);
    for (uint32_t i = 0; i < count; i++) {
        if (pinned[i / 64] >> i % 64 & 1)
            note_pin(part->request, part->segment, refs[i].position);
        else
            rows->chunk_missed[missed++] = i;
    }
    return missed;
}

/* Pins a row. A row that is not cached is put into the cache first, if @row is not NULL. */
static enum row_pin prefetch_row(struct rows *rows, const struct part *part, uint32_t segment,
                                 const struct row_ref *ref, const void *row)
{
    const struct table *const table = part->request->segments[segment].table;
    enum row_pin pin = pin_row(rows, part, segment, ref);
    uint32_t refused;

    if (pin != ROW_NOT_CACHED || !row)
        return pin;
    if (home_insert(rows, table, ref, 1, &row, NULL, &refused) > 0)
        return ROW_NOT_PINNED;
    return pin_row(rows, part, segment, ref);
}

/* Serves a ref that was not pinned. */
static enum outcome prefetch_missed(struct rows *rows, struct part *part, uint32_t segment,
                                    struct row_ref *ref)
{
    struct table *const table = part->request->segments[segment].table;
    struct miss *const miss = miss_table_find(rows->misses, table, ref->hash, ref->id);
    const void *const queued =
        miss ? NULL : write_queue_find(rows->write_queue, table->index, ref->hash, ref->id);
    const enum row_pin pin = prefetch_row(rows, part, segment, ref, queued);

    if (pin == ROW_NOT_PINNED && rows->in_epoch) { /* there may be room after the epoch */
        counter_add(&rows->counts.held_rows, 1);
        return OUTCOME_RETRY;
    }
    if (pin == ROW_NOT_PINNED) {
        rows_ref_fail(rows, part, segment, ref->id, EMBTIER_PINS_FULL);
        return OUTCOME_REFUSED;
    }
    if (pin != ROW_NOT_CACHED)
        return OUTCOME_DONE;
    if (!rows_join_read(rows, part, table, ref))
        return rows_read(rows, part, table, ref);
    counter_add(&rows->counts.shared_reads, 1);
    return OUTCOME_DONE;
}

/* Pins a row that has come into the cache, if there was room. */
static void prefetch_placed(struct rows *rows, struct part *part, uint32_t index,
                            const struct row_ref *row, bool was_stored)
{
    const uint32_t segment = part_segment_of(part, index);

    (void)was_stored;
    if (prefetch_row(rows, part, segment, row, NULL) != ROW_PINNED)
        rows_ref_fail(rows, part, segment, row->id, EMBTIER_PINS_FULL);
}

const struct row_op row_op_pin = {
    .pins = true,
    .chunk = prefetch_chunk,
    .missed = prefetch_missed,
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

    if (atomic_load_explicit(&table->table_id, memory_order_relaxed) != table_id)
        return; /* the table was dropped, and its rows with it */
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
