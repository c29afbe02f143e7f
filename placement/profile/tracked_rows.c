/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/profile/tracked_rows.h"

#include <assert.h>
#include <stdlib.h>
#include <sys/random.h>

#define SLOTS_MIN 64

void tracked_rows_init(struct tracked_rows *rows, uint32_t slots_max, uint64_t seed)
{
    assert(slots_max >= SLOTS_MIN && (slots_max & (slots_max - 1)) == 0);
    *rows = (struct tracked_rows){ .slots_max = slots_max, .seed = seed };
    if (getrandom(&rows->slot_key, sizeof(rows->slot_key), GRND_NONBLOCK) < 0)
        rows->slot_key = (uintptr_t)rows;
}

void tracked_rows_clear(struct tracked_rows *rows)
{
    free(rows->slots);
    rows->slots = NULL;
    rows->slot_count = 0;
    rows->row_count = 0;
}

/* Returns the row's slot, or the free slot where it would go. */
static struct tracked_row *slot_of(const struct tracked_rows *rows, uint64_t row)
{
    const uint32_t mask = rows->slot_count - 1;
    uint32_t at = (uint32_t)tracked_rows_hash(rows->slot_key, row) & mask;

    while (rows->slots[at].lookups > 0 && rows->slots[at].row != row)
        at = (at + 1) & mask;
    return &rows->slots[at];
}

struct tracked_row *tracked_rows_find(const struct tracked_rows *rows, uint64_t row)
{
    struct tracked_row *slot;

    if (rows->row_count == 0)
        return NULL;
    slot = slot_of(rows, row);
    return slot->lookups > 0 ? slot : NULL;
}

/* Moves the rows that @keep accepts (NULL: all) into @slot_count new slots. */
static enum embtier_err rebuild(struct tracked_rows *rows, uint32_t slot_count,
                                tracked_rows_keep_fn keep, const void *context)
{
    struct tracked_row *const old = rows->slots;
    const uint32_t old_count = rows->slot_count;
    struct tracked_row *const slots = calloc(slot_count, sizeof(*slots));

    if (!slots)
        return EMBTIER_NO_MEMORY;
    rows->slots = slots;
    rows->slot_count = slot_count;
    rows->row_count = 0;
    for (uint32_t i = 0; i < old_count; i++) {
        if (old[i].lookups == 0 || (keep && !keep(&old[i], context)))
            continue;
        *slot_of(rows, old[i].row) = old[i];
        rows->row_count++;
    }
    free(old);
    return EMBTIER_OK;
}

enum embtier_err tracked_rows_insert(struct tracked_rows *rows, const struct tracked_row *row)
{
    if (rows->row_count >= tracked_rows_max(rows))
        return EMBTIER_TOO_LARGE;
    if (rows->row_count >= rows->slot_count / 4 * 3)
        TRY(rebuild(rows, rows->slot_count == 0 ? SLOTS_MIN : rows->slot_count * 2, NULL, NULL));
    *slot_of(rows, row->row) = *row;
    rows->row_count++;
    return EMBTIER_OK;
}

enum embtier_err tracked_rows_filter(struct tracked_rows *rows, tracked_rows_keep_fn keep,
                                     const void *context)
{
    return rows->slot_count == 0 ? EMBTIER_OK : rebuild(rows, rows->slot_count, keep, context);
}
