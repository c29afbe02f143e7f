/* SPDX-License-Identifier: Apache-2.0 */
/* wave_missed.h: rows of a wave that a target did not take when they were written, because it took
 * none for too long. The source has them. They are copied again when the target takes rows.
 * Thread: any, with the wave's lock. */
#ifndef EMBTIER_STORE_RESHARDING_WAVE_MISSED_H
#define EMBTIER_STORE_RESHARDING_WAVE_MISSED_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "store/database/row_format.h"

#define WAVE_MISSED_MAX (UINT32_C(256) << 10) /* 4 MiB; with more, copying starts over */

struct missed_row {
    struct row_key key;
    uint16_t target;
    bool logged;
};
static_assert(sizeof(struct missed_row) == 16, "WAVE_MISSED_MAX counts on it");

struct wave_missed {
    struct missed_row *rows; /* in any order, some of them several times */
    uint32_t count, capacity;
};

/* False: there are too many, or there is no memory. */
MUST_CHECK bool wave_missed_add(struct wave_missed *missed, const struct missed_row *row);
/* Returns how many of the last rows, at most @most, are of one database. */
uint32_t wave_missed_alike(const struct wave_missed *missed, uint32_t most);
void wave_missed_clear(struct wave_missed *missed);

#endif
