/* SPDX-License-Identifier: Apache-2.0 */
/* A trivial operation, to show how little one takes: this file, and a row of the table
 * (OP_OF_TESTS). For each id it writes 64 bits that depend on all bytes of the row. */
#include "tests/unit/engine/ops/op_checksum.h"

#include <string.h>

#include "daemon/engine/ops/segments.h"
#include "proto/op_fields.h"

static void checksum(const struct part *part, uint32_t segment, const struct row_ref *ref,
                     const void *row)
{
    const struct request_segment *const to = &part->request->segments[segment];
    const uint64_t sum = op_checksum_of(row, to->table->row_bytes);

    memcpy(to->rows + (uint64_t)ref->position * sizeof(sum), &sum, sizeof(sum));
}

static uint32_t chunk(struct rows *rows, struct part *part, const struct row_ref *refs,
                      uint32_t count)
{
    const struct table *const table = part->request->segments[part->segment].table;
    uint32_t missed = 0;

    (void)rows_find(rows, table, refs, count, rows->chunk_rows);
    for (uint32_t i = 0; i < count; i++) {
        if (rows->chunk_rows[i])
            checksum(part, part->segment, &refs[i], rows->chunk_rows[i]);
        else
            rows->chunk_missed[missed++] = i;
    }
    return missed;
}

static enum outcome cached(struct rows *rows, struct part *part, uint32_t segment,
                           const struct row_ref *ref)
{
    void *row;

    if (rows_find(rows, part->request->segments[segment].table, ref, 1, &row) > 0)
        return OUTCOME_MISSED;
    checksum(part, segment, ref, row);
    return OUTCOME_DONE;
}

static enum outcome queued(struct rows *rows, struct part *part, uint32_t segment,
                           const struct row_ref *ref, const void *row)
{
    (void)rows;
    checksum(part, segment, ref, row);
    return OUTCOME_DONE;
}

static uint64_t read_row(struct rows *rows, const struct part *part, uint32_t segment,
                         const struct row_ref *ref, void *row)
{
    (void)rows;
    checksum(part, segment, ref, row);
    return 0;
}

static const struct row_op row_op_checksum = {
    .looks_up = true,
    .chunk = chunk,
    .cached = cached,
    .queued = queued,
    .read = read_row,
};

/* The operation uses the fields of a GET. */
static uint32_t form(const struct op_submission *submission)
{
    (void)submission;
    return OP_FORM_GET;
}

static uint32_t place_bytes(const struct table *table, bool with_state)
{
    (void)table;
    (void)with_state;
    return sizeof(uint64_t);
}

extern const struct op op_checksum;
const struct op op_checksum = {
    .name = "CHECKSUM",
    .form = form,
    .row_op = &row_op_checksum,
    .place_bytes = place_bytes,
    .begin = segments_begin,
    .turn = segments_turn,
    .done = segments_done,
};
