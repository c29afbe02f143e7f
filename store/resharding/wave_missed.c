/* SPDX-License-Identifier: Apache-2.0 */
#include "store/resharding/wave_missed.h"

#include <stdlib.h>

#include "base/macros.h"

static bool grow(struct wave_missed *missed)
{
    const uint32_t capacity = MIN(2 * missed->capacity + 64, WAVE_MISSED_MAX);
    struct missed_row *rows;

    if (missed->count < missed->capacity)
        return true;
    if (missed->count == WAVE_MISSED_MAX)
        return false;
    rows = realloc(missed->rows, capacity * sizeof(*rows));
    if (!rows)
        return false;
    missed->rows = rows;
    missed->capacity = capacity;
    return true;
}

bool wave_missed_add(struct wave_missed *missed, const struct missed_row *row)
{
    if (!grow(missed))
        return false;
    missed->rows[missed->count++] = *row;
    return true;
}

uint32_t wave_missed_alike(const struct wave_missed *missed, uint32_t most)
{
    const struct missed_row *const last = &missed->rows[missed->count - 1];
    uint32_t alike = 0;

    while (alike < MIN(missed->count, most) && (last - alike)->target == last->target &&
           (last - alike)->logged == last->logged)
        alike++;
    return alike;
}

void wave_missed_clear(struct wave_missed *missed)
{
    free(missed->rows);
}
