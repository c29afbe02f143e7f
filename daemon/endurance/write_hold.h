/* SPDX-License-Identifier: Apache-2.0 */
/* write_hold.h: keeps the writes to a device within a budget a day, by holding back the rows that
 * the server writes.
 *
 * It begins when the last day's bytes are above the budget, and ends when they are below four
 * fifths of it. Meanwhile the device may take the budget's bytes a second, of all programs. Rows
 * cost more than their bytes, as flushes and compactions write them again later. So the bytes that
 * the device really takes are subtracted from those it may take. While too many are written, rows
 * get a tenth of the rate: the queue behind them goes on, whatever others write.
 *
 * A plain value. Thread: the owner's. */
#ifndef EMBTIER_DAEMON_ENDURANCE_WRITE_HOLD_H
#define EMBTIER_DAEMON_ENDURANCE_WRITE_HOLD_H

#include <stdbool.h>
#include <stdint.h>

/* The part of a limit below which a device is no longer above it. Just above and just below the
 * limit is the same. */
#define WRITE_HOLD_RELEASE 0.8
/* Least bytes of rows a second. */
#define WRITE_HOLD_LEAST_BYTES (64 * 1024)

struct write_hold {
    bool is_held;
    uint64_t seen_ms;
    double balance_bytes; /* that the device may take; negative: it has taken more */
};

struct device_look {
    uint64_t now_ms;
    double budget_bytes;    /* a day; 0: no limit */
    uint64_t day_bytes;     /* of the last day */
    uint64_t written_bytes; /* since the last look */
};
/* Returns the bytes of rows that may be written until the next look; they count while it is held.
 */
uint64_t write_hold_look(struct write_hold *hold, const struct device_look *look);

#endif
