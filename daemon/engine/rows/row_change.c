/* SPDX-License-Identifier: Apache-2.0 */
/* Places for rows that a SET or a push has changed: in the cache, or else in the write queue. */
#include "daemon/engine/rows/rows.h"

#include <assert.h>

bool rows_place_logged(struct rows *rows, struct table *table, uint64_t hash, uint64_t id,
                       const void *row)
{
    const struct row_ref ref = { .hash = hash, .id = id };
    const void *const bytes[] = { row };
    uint32_t refused;

    if (!rows_log_row(rows, table, hash, id, row))
        return false;
    /* The row may miss the cache: the write queue has it. */
    refused = home_insert(rows, table, &ref, 1, bytes, NULL, &refused);
    return true;
}

/* Puts a dirty row that is not cached into the cache or, if refused, into the write queue. False:
 * neither has room. */
static bool place_dirty(struct rows *rows, struct table *table, uint64_t hash, uint64_t id,
                        const void *row)
{
    const struct row_ref ref = { .hash = hash, .id = id };
    const void *const bytes[] = { row };
    const uint64_t dirty = 1;
    uint32_t refused;

    if (home_insert(rows, table, &ref, 1, bytes, &dirty, &refused) == 0)
        return true;
    if (rows->in_epoch) { /* the row is newer than those that the queue may take */
        counter_add(&rows->counts.held_rows, 1);
        return false;
    }
    return write_queue_put(rows->write_queue, table, hash, id, row);
}

uint32_t rows_change(struct rows *rows, const struct table *table, const struct row_ref *refs,
                     uint32_t count, void **ret_rows)
{
    return table->logged ? home_change_through(rows, table, refs, count, ret_rows)
                         : home_change(rows, table, refs, count, ret_rows);
}

uint32_t rows_find(struct rows *rows, const struct table *table, const struct row_ref *refs,
                   uint32_t count, void **ret_rows)
{
    return home_find(rows, table, refs, count, 0, (const void **)ret_rows);
}

void rows_log(struct rows *rows, struct part *part, struct table *table, const struct row_ref *refs,
              void *const *changed, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        /* rows_change_room() found room. A row that is not logged must not be acknowledged, so a
         * build without asserts would refuse it. */
        if (changed[i] && !rows_log_row(rows, table, refs[i].hash, refs[i].id, changed[i])) {
            assert(false);
            request_fail(part->request, EMBTIER_BUSY, UINT32_MAX, refs[i].id);
        }
        rows_log_note(rows, part);
    }
}

enum embtier_err rows_change_room(struct rows *rows, const struct table *table, uint32_t *ret_count)
{
    if (table->logged)
        return rows_log_room(rows, table, ret_count);
    *ret_count = UINT32_MAX;
    if (!rows->in_epoch)
        return EMBTIER_OK;
    *ret_count = write_queue_room(rows->write_queue, table); /* each may be an old row */
    counter_add(&rows->counts.held_rows, *ret_count == 0);
    return EMBTIER_OK;
}

enum outcome rows_place(struct rows *rows, struct part *part, uint32_t segment,
                        const struct row_ref *ref)
{
    struct table *const table = part->request->segments[segment].table;
    enum embtier_err err;

    if (table->logged) {
        if (!rows_place_logged(rows, table, ref->hash, ref->id, rows->scratch_row))
            return OUTCOME_RETRY;
        rows_log_note(rows, part);
        return OUTCOME_DONE;
    }
    if (place_dirty(rows, table, ref->hash, ref->id, rows->scratch_row))
        return OUTCOME_DONE;
    err = write_queue_refusal(rows->write_queue, table);
    if (err == EMBTIER_OK)
        return OUTCOME_RETRY;
    rows_ref_fail(rows, part, segment, ref->id, err);
    return OUTCOME_REFUSED;
}

enum outcome rows_read_to_change(struct rows *rows, struct part *part, uint32_t segment,
                                 struct row_ref *ref)
{
    struct table *const table = part->request->segments[segment].table;
    enum embtier_err err;

    if (!rows->parked.first)
        return rows_read(rows, part, table, ref);
    err = write_queue_refusal(rows->write_queue, table); /* the row would find no place either */
    if (err == EMBTIER_OK)
        return OUTCOME_RETRY;
    rows_ref_fail(rows, part, segment, ref->id, err);
    return OUTCOME_REFUSED;
}
