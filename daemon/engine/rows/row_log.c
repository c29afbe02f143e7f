/* SPDX-License-Identifier: Apache-2.0 */
/* Logged tables: an update is in the store before it is answered.
 *
 * A row that changes goes to the write queue at once, in the same turn, and is clean in the cache:
 * until it is written the queue has it, then SSD. So such a row may leave the cache at any time,
 * and what is said of rows in the queue (write_queue.h) holds for it. A part that has changed rows
 * ends when the queue has passed the last of them, on this lane; the request when all its parts
 * have. Parts wait in one list, in the order of their places in the queue.
 *
 * No cached row is changed before there is room for it in the queue, so that an optimizer does not
 * run twice for it; what is computed from a row that was read, and finds no room, is thrown away.
 * While the store takes no writes, parts that wait are refused with its error, and so are new ones;
 * the rows they have changed stay in the queue and are written when it does. */
#include "daemon/engine/rows/rows.h"

enum embtier_err rows_log_room(const struct rows *rows, const struct table *table,
                               uint32_t *ret_count)
{
    const enum embtier_err err = write_queue_failure(rows->write_queue);

    *ret_count = err == EMBTIER_OK ? write_queue_room(rows->write_queue, table) : 0;
    return err;
}

bool rows_log_row(struct rows *rows, struct table *table, uint64_t hash, uint64_t id,
                  const void *row)
{
    if (!write_queue_put(rows->write_queue, table, hash, id, row))
        return false;
    rows->counts.logged_rows++;
    return true;
}

void rows_log_note(const struct rows *rows, struct part *part)
{
    part->log_mark = write_queue_mark(rows->write_queue);
}

bool rows_log_holds(struct rows *rows, struct part *part)
{
    enum embtier_err err;

    if (part->log_mark == 0 || write_queue_passed(rows->write_queue, part->log_mark))
        return false;
    err = write_queue_failure(rows->write_queue);
    if (err != EMBTIER_OK) {
        request_fail(part->request, err, UINT32_MAX, 0);
        return false;
    }
    /* Later than need be, if others have put rows behind its own, but in the list's order. */
    rows_log_note(rows, part);
    part->next = NULL;
    if (rows->logging)
        rows->last_logging->next = part;
    else
        rows->logging = part;
    rows->last_logging = part;
    return true;
}

void rows_log_on_written(struct rows *rows)
{
    const enum embtier_err err = write_queue_failure(rows->write_queue);

    while (rows->logging) {
        struct part *const part = rows->logging;

        if (!write_queue_passed(rows->write_queue, part->log_mark)) {
            if (err == EMBTIER_OK)
                return;
            request_fail(part->request, err, UINT32_MAX, 0);
        }
        rows->logging = part->next;
        part->log_mark = 0;
        rows_part_finished(rows, part);
    }
}
