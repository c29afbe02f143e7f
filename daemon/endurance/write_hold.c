/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/endurance/write_hold.h"

#include "base/clock.h"
#include "base/macros.h"

#define DAY_S          86400.0
#define SLOW           0.1    /* of the rate, while too much is written */
#define DEBT_SECONDS   3600.0 /* more is forgiven: a compaction may be long */
#define LOOK_SECONDS   10.0   /* longer pauses between looks save nothing up */
#define CREDIT_SECONDS 1.0

static void begin_or_end(struct write_hold *hold, const struct device_look *look)
{
    const double day_bytes = (double)look->day_bytes;

    if (look->budget_bytes <= 0 || day_bytes < WRITE_HOLD_RELEASE * look->budget_bytes) {
        hold->is_held = false;
    } else if (!hold->is_held && day_bytes > look->budget_bytes) {
        hold->is_held = true;
        hold->balance_bytes = 0;
    }
}

uint64_t write_hold_look(struct write_hold *hold, const struct device_look *look)
{
    const double rate = look->budget_bytes / DAY_S;
    const double seconds =
        MIN((double)clock_since(look->now_ms, hold->seen_ms) / 1000, LOOK_SECONDS);
    const bool was_held = hold->is_held;
    double rows;

    hold->seen_ms = look->now_ms;
    begin_or_end(hold, look);
    if (!hold->is_held)
        return 0;
    if (was_held)
        hold->balance_bytes += rate * seconds - (double)look->written_bytes;
    hold->balance_bytes = MAX(hold->balance_bytes, -rate * DEBT_SECONDS);
    hold->balance_bytes = MIN(hold->balance_bytes, rate * CREDIT_SECONDS);
    rows = hold->balance_bytes >= 0 ? rate : rate * SLOW;
    return (uint64_t)(MAX(rows, (double)WRITE_HOLD_LEAST_BYTES) * seconds);
}
