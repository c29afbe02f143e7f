/* SPDX-License-Identifier: Apache-2.0 */
/* Logged tables: an update is in the store before it is answered.
 *
 * A row that changes goes to the write queue at once, in the same turn, and is clean in the cache.
 * Until it is written the queue has it, then SSD. So such a row may leave the cache at any time,
 * and the rules for rows in the queue (write_queue.h) hold for it. A part that has changed rows
 * ends when the queue has passed the last of them, on this lane. The request ends when all its
 * parts have. Parts wait in one list, in the order of their places in the queue.
 *
 * No cached row is changed before the queue has room for it, so that an optimizer does not run
 * twice for it. A result computed from a row that was read is thrown away if it finds no room.
 * While the store takes no writes, waiting parts and new ones are refused with its error. The rows
 * that they have changed stay in the queue, and are written when the store takes them again. */
#include "daemon/engine/rows/rows.h"

#include <assert.h>

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
    counter_add(&rows->counts.logged_rows, 1);
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
    /* The mark is later than need be if others have put rows behind the part's own, but it keeps
     * the list in order. */
    rows_log_note(rows, part);
    assert(!rows->logging || rows->last_logging->log_mark <= part->log_mark);
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

        assert(part->log_mark > 0);
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
