/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of pushes on their lanes: updates or tries rows where they lie in the cache, or on their way
 * from SSD or to it. See push.h. */
#include <string.h>

#include "daemon/engine/ops/push/push.h"
#include "daemon/engine/turns/cost.h"

static uint32_t note_missed(struct rows *rows, uint32_t missed_count)
{
    uint32_t missed = 0;

    for (uint32_t i = 0; missed < missed_count; i++)
        if (!rows->chunk_rows[i])
            rows->chunk_missed[missed++] = i;
    return missed_count;
}

static uint32_t push_chunk(struct rows *rows, struct part *part, const struct row_ref *refs,
                           uint32_t count)
{
    const struct request *const request = part->request;
    struct table *const table = request->segments[part->segment].table;
    const uint32_t missed_count = rows_change(rows, table, refs, count, rows->chunk_rows);

    counter_add(&rows->counts.pushed_rows, count);
    counter_add(&rows->counts.missed_rows, missed_count);
    push_update(request, part->segment, refs, rows->chunk_rows, count, rows->gradients);
    if (table->logged)
        rows_log(rows, part, table, refs, rows->chunk_rows, count);
    (void)note_missed(rows, missed_count);
    home_changed(rows, table, refs, count, rows->chunk_rows);
    return missed_count;
}

static uint32_t try_chunk(struct rows *rows, struct part *part, const struct row_ref *refs,
                          uint32_t count)
{
    const struct request *const request = part->request;
    const struct table *const table = request->segments[part->segment].table;
    const uint32_t missed_count = rows_find(rows, table, refs, count, rows->chunk_rows);

    push_update(request, part->segment, refs, rows->chunk_rows, count, rows->gradients);
    return note_missed(rows, missed_count);
}

static uint64_t gradient_cost(const struct part *part, uint32_t segment)
{
    return LANE_COST_ID +
           part->request->segments[segment].table->spec.dim * sizeof(float) / LANE_COST_BYTES;
}

/* Updates, or tries, a row that is not cached, where it is on its way. Returns the cost. */
static uint64_t push_row(struct rows *rows, const struct part *part, uint32_t segment,
                         const struct row_ref *ref, void *row)
{
    push_update(part->request, segment, ref, &row, 1, rows->gradients);
    return gradient_cost(part, segment) * push_pair_count(part->request, segment, ref->position, 1);
}

/* Returns how many of @count rows have @most pairs together; at least one. */
static uint32_t rows_that_fit(const struct part *part, const struct row_ref *refs, uint32_t count,
                              uint64_t most, uint64_t *ret_pairs)
{
    uint64_t sum = push_pair_count(part->request, part->segment, refs[0].position, 1);
    uint32_t rows = 1;

    for (; rows < count; rows++) {
        const uint64_t more = push_pair_count(part->request, part->segment, refs[rows].position, 1);

        if (sum + more > most)
            break;
        sum += more;
    }
    *ret_pairs = sum;
    return rows;
}

/* Returns how many of the part's next @count refs have gradients that cost no more than @most
 * together. */
static uint32_t push_limit(const struct part *part, uint32_t count, uint64_t most, uint64_t *work)
{
    const struct row_ref *const refs = part->refs + part->next_ref;
    const uint64_t cost = gradient_cost(part, part->segment);
    /* Positions ascend; with one lane, which has all rows, by 1. */
    const bool are_neighbours = refs[count - 1].position - refs[0].position == count - 1;
    uint64_t pairs = 0;

    if (are_neighbours)
        pairs = push_pair_count(part->request, part->segment, refs[0].position, count);
    if (!are_neighbours || pairs * cost > most)
        count = rows_that_fit(part, refs, count, most / cost, &pairs);
    *work = MAX(*work, pairs * cost);
    return count;
}

static enum outcome push_cached(struct rows *rows, struct part *part, uint32_t segment,
                                const struct row_ref *ref)
{
    struct table *const table = part->request->segments[segment].table;
    void *row;

    if (rows_change(rows, table, ref, 1, &row) > 0)
        return OUTCOME_MISSED;
    push_row(rows, part, segment, ref, row);
    if (table->logged)
        rows_log(rows, part, table, ref, &row, 1);
    home_changed(rows, table, ref, 1, &row);
    return OUTCOME_DONE;
}

/* A result that finds no place is computed again later, from the row as it is then. */
static enum outcome push_queued(struct rows *rows, struct part *part, uint32_t segment,
                                const struct row_ref *ref, const void *row)
{
    memcpy(rows->scratch_row, row, part->request->segments[segment].table->row_bytes);
    push_row(rows, part, segment, ref, rows->scratch_row);
    return rows_place(rows, part, segment, ref);
}

static enum outcome try_cached(struct rows *rows, struct part *part, uint32_t segment,
                               const struct row_ref *ref)
{
    void *row;

    if (rows_find(rows, part->request->segments[segment].table, ref, 1, &row) > 0)
        return OUTCOME_MISSED;
    push_row(rows, part, segment, ref, row);
    return OUTCOME_DONE;
}

/* A trial works on a copy, so that the queued row stays as it is. */
static enum outcome try_queued(struct rows *rows, struct part *part, uint32_t segment,
                               const struct row_ref *ref, const void *row)
{
    push_row(rows, part, segment, ref, (void *)(uintptr_t)row);
    return OUTCOME_DONE;
}

const struct row_op row_op_push = {
    .changes = true,
    .is_whole = true,
    .places = true,
    .chunk = push_chunk,
    .limit = push_limit,
    .cached = push_cached,
    .queued = push_queued,
    .read = push_row,
};

const struct row_op row_op_try = {
    .is_whole = true,
    .chunk = try_chunk,
    .limit = push_limit,
    .cached = try_cached,
    .queued = try_queued,
    .read = push_row,
};
