/* SPDX-License-Identifier: Apache-2.0 */
#include "store/database/compaction_pace.h"

#include "base/macros.h"

/* From the first of these on, the limit is so many times higher. */
static const struct {
    double nearest;
    uint64_t factor;
} steps[] = { { 1.0 / 2, 4 }, { 1.0 / 3, 2 } };

static bool is_quiet(struct compaction_pace *pace, uint64_t rows, uint64_t now_ns)
{
    if (pace->rows_since_ns == 0 || rows != pace->rows) {
        pace->rows = rows;
        pace->rows_since_ns = now_ns;
    }
    return now_ns - pace->rows_since_ns >= COMPACTION_QUIET_NS;
}

uint64_t compaction_pace(struct compaction_pace *pace, uint64_t limit,
                         const struct compaction_strain *strain, uint64_t now_ns,
                         enum compaction_pace_reason *ret_reason)
{
    const bool quiet = is_quiet(pace, strain->rows, now_ns);

    *ret_reason = limit == 0          ? COMPACTION_PACE_NONE
                  : strain->is_paused ? COMPACTION_PACE_SPACE
                  : strain->is_near   ? COMPACTION_PACE_NEAR
                  : quiet             ? COMPACTION_PACE_QUIET
                                      : COMPACTION_PACE_HOLDS;
    if (*ret_reason != COMPACTION_PACE_HOLDS)
        return 0;
    for (uint32_t i = 0; i < ARRAY_LEN(steps); i++) {
        if (strain->nearest < steps[i].nearest)
            continue;
        *ret_reason = COMPACTION_PACE_BEHIND;
        return limit * steps[i].factor;
    }
    return limit;
}
