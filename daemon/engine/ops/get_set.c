/* SPDX-License-Identifier: Apache-2.0 */
/* GET and SET: copy rows unchanged to the client, and from it. */
#include <string.h>

#include "daemon/engine/ops/get_set.h"
#include "daemon/engine/ops/op_table.h"
#include "daemon/engine/ops/segments.h"
#include "daemon/engine/tables/table_counts.h"
#include "proto/op_fields.h"

static uint8_t *row_at(const struct request_segment *segment, const struct row_ref *ref)
{
    return segment->rows + (uint64_t)ref->position * segment->row_bytes;
}

static enum outcome get_cached(struct rows *rows, struct part *part, uint32_t segment,
                               const struct row_ref *ref)
{
    const struct request_segment *const to = &part->request->segments[segment];
    uint32_t missed;

    if (home_get(rows, to->table, ref, 1, to->rows, to->row_bytes, to->row_bytes, &missed) > 0)
        return OUTCOME_MISSED;
    part->hit_rows++;
    return OUTCOME_DONE;
}

static enum outcome get_queued(struct rows *rows, struct part *part, uint32_t segment,
                               const struct row_ref *ref, const void *row)
{
    const struct request_segment *const to = &part->request->segments[segment];

    memcpy(row_at(to, ref), row, to->row_bytes);
    counter_add(&rows->counts.queued_get_rows, 1);
    counter_add(&table_counts_of(to->table, rows->lane)->missed, 1);
    part->hit_rows++;
    return OUTCOME_DONE;
}

static uint32_t get_chunk(struct rows *rows, struct part *part, const struct row_ref *refs,
                          uint32_t count)
{
    const struct request_segment *const to = &part->request->segments[part->segment];
    struct table_counts *const counts = table_counts_of(to->table, rows->lane);
    const uint64_t begin_ns = table_counts_begin(counts);
    uint32_t missed;

    counter_add(&rows->counts.get_rows, count);
    missed = home_get(rows, to->table, refs, count, to->rows, to->row_bytes, to->row_bytes,
                      rows->chunk_missed);
    counter_add(&rows->counts.missed_rows, missed);
    table_counts_end(counts, begin_ns, count);
    return missed;
}

static uint64_t get_read(struct rows *rows, const struct part *part, uint32_t segment,
                         const struct row_ref *ref, void *row)
{
    const struct request_segment *const to = &part->request->segments[segment];

    (void)rows;
    memcpy(row_at(to, ref), row, to->row_bytes);
    return 0;
}

static void get_placed(struct rows *rows, struct part *part, uint32_t index,
                       const struct row_ref *row, bool was_stored)
{
    (void)part;
    (void)index;
    (void)row;
    counter_add(was_stored ? &rows->counts.stored_get_rows : &rows->counts.initial_get_rows, 1);
}

const struct row_op row_op_get = {
    .looks_up = true,
    .chunk = get_chunk,
    .cached = get_cached,
    .queued = get_queued,
    .read = get_read,
    .placed = get_placed,
};

/* Changes a row of a logged table, and has it written. */
static enum outcome set_cached_logged(struct rows *rows, struct part *part, uint32_t segment,
                                      const struct row_ref *ref)
{
    const struct request_segment *const from = &part->request->segments[segment];
    void *row;

    if (home_change_through(rows, from->table, ref, 1, &row) > 0)
        return OUTCOME_MISSED;
    memcpy(row, row_at(from, ref), from->row_bytes);
    rows_log(rows, part, from->table, ref, &row, 1);
    home_changed(rows, from->table, ref, 1, &row);
    return OUTCOME_DONE;
}

static enum outcome set_cached(struct rows *rows, struct part *part, uint32_t segment,
                               const struct row_ref *ref)
{
    const struct request_segment *const from = &part->request->segments[segment];
    uint32_t missed;

    if (from->table->logged)
        return set_cached_logged(rows, part, segment, ref);
    return home_set(rows, from->table, ref, 1, from->rows, from->row_bytes, from->row_bytes,
                    &missed) > 0
               ? OUTCOME_MISSED
               : OUTCOME_DONE;
}

/* Finds a place for a row of which the client gives all bytes, or all but the optimizer's state.
 * The client may change its rows while they are copied. It then stores a mixture, which is its own
 * affair. The row is copied once and whole, and no later decision looks at it. */
static enum outcome set_place(struct rows *rows, struct part *part, uint32_t segment,
                              const struct row_ref *ref)
{
    const struct request_segment *const from = &part->request->segments[segment];

    memcpy(rows->scratch_row, row_at(from, ref), from->row_bytes);
    return rows_place(rows, part, segment, ref);
}

static bool set_is_whole(const struct part *part, uint32_t segment)
{
    const struct request_segment *const from = &part->request->segments[segment];

    return from->row_bytes == from->table->row_bytes;
}

static enum outcome set_queued(struct rows *rows, struct part *part, uint32_t segment,
                               const struct row_ref *ref, const void *row)
{
    const struct table *const table = part->request->segments[segment].table;

    if (!set_is_whole(part, segment))
        memcpy(rows->scratch_row + table->weight_bytes, (const uint8_t *)row + table->weight_bytes,
               table->state_bytes);
    return set_place(rows, part, segment, ref);
}

/* Where the optimizer's state stays, it has to be read first. */
static enum outcome set_stored(struct rows *rows, struct part *part, uint32_t segment,
                               const struct row_ref *ref)
{
    return set_is_whole(part, segment) ? set_place(rows, part, segment, ref) : OUTCOME_MISSED;
}

/* As row_cache_set(), for a logged table: cached rows are changed and written. */
static uint32_t set_logged(struct rows *rows, struct part *part, const struct row_ref *refs,
                           uint32_t count)
{
    const struct request_segment *const from = &part->request->segments[part->segment];
    void **const found = rows->chunk_rows;
    uint32_t missed = 0;

    (void)rows_change(rows, from->table, refs, count, found);
    for (uint32_t i = 0; i < count; i++) {
        if (found[i])
            memcpy(found[i], row_at(from, &refs[i]), from->row_bytes);
        else
            rows->chunk_missed[missed++] = i;
    }
    rows_log(rows, part, from->table, refs, found, count);
    home_changed(rows, from->table, refs, count, found);
    return missed;
}

static uint32_t set_chunk(struct rows *rows, struct part *part, const struct row_ref *refs,
                          uint32_t count)
{
    const struct request_segment *const from = &part->request->segments[part->segment];

    const uint32_t missed = from->table->logged
                                ? set_logged(rows, part, refs, count)
                                : home_set(rows, from->table, refs, count, from->rows,
                                           from->row_bytes, from->row_bytes, rows->chunk_missed);

    counter_add(&rows->counts.set_rows, count);
    counter_add(&rows->counts.missed_rows, missed);
    return missed;
}

static uint64_t set_read(struct rows *rows, const struct part *part, uint32_t segment,
                         const struct row_ref *ref, void *row)
{
    const struct request_segment *const from = &part->request->segments[segment];

    (void)rows;
    memcpy(row, row_at(from, ref), from->row_bytes);
    return 0;
}

static const struct row_op row_op_set = {
    .changes = true,
    .places = true,
    .chunk = set_chunk,
    .cached = set_cached,
    .queued = set_queued,
    .stored = set_stored,
    .read = set_read,
};

const struct op op_get = {
    .name = "GET",
    .form = op_form_of,
    .row_op = &row_op_get,
    .begin = segments_begin,
    .turn = segments_turn,
    .done = segments_done,
};

const struct op op_set = {
    .name = "SET",
    .form = op_form_of,
    .row_op = &row_op_set,
    .begin = segments_begin,
    .turn = segments_turn,
    .done = segments_done,
};
