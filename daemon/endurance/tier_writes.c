/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/endurance/tier_writes.h"

#include "base/clock.h"
#include "base/host/host.h"

static uint64_t read_waiting(const struct host *host)
{
    uint64_t dirty, writing;

    return host_field(host, "Dirty", &dirty, "/proc/meminfo") &&
                   host_field(host, "Writeback", &writing, "/proc/meminfo") &&
                   dirty < UINT64_MAX / KIB / 2 && writing < UINT64_MAX / KIB / 2
               ? (dirty + writing) * KIB
               : UINT64_MAX;
}

/* The order never makes bytes seem written: pages that become dirty meanwhile may only wait, and
 * those that are dropped meanwhile do not wait, and are dropped. */
bool tier_counts_read(const struct host *host, struct tier_counts *ret_counts)
{
    struct tier_counts counts = { 0 };

    if (!host_field(host, "write_bytes", &counts.dirtied_bytes, "/proc/self/io"))
        return false;
    counts.waiting_bytes = read_waiting(host);
    if (!host_field(host, "cancelled_write_bytes", &counts.dropped_bytes, "/proc/self/io"))
        return false;
    *ret_counts = counts;
    return true;
}

/* Returns the lowest in all spans, or 0 before there are enough. */
static uint64_t lowest_of_all(const struct tier_writes *writes)
{
    uint64_t lowest = UINT64_MAX;

    if (writes->span_count < TIER_WRITES_SPANS)
        return 0;
    for (uint32_t i = 0; i < TIER_WRITES_SPANS; i++)
        lowest = MIN(lowest, writes->lowest[i]);
    return lowest;
}

/* A clock that is set moves on by one span. */
static void note(struct tier_writes *writes, uint64_t bytes, uint64_t now_ms)
{
    const uint64_t span = now_ms / TIER_WRITES_SPAN_MS;
    uint64_t *lowest;

    if (writes->span_count == 0 || span != writes->span) {
        writes->lowest[writes->span_count++ % TIER_WRITES_SPANS] = bytes;
        writes->span = span;
    }
    lowest = &writes->lowest[(writes->span_count - 1) % TIER_WRITES_SPANS];
    *lowest = MIN(*lowest, bytes);
}

void tier_writes_add(struct tier_writes *writes, const struct tier_counts *counts,
                     uint64_t server_bytes, uint64_t now_ms)
{
    const uint64_t kept = clock_since(counts->dirtied_bytes, counts->dropped_bytes);
    const uint64_t bytes = clock_since(kept, server_bytes);

    note(writes, bytes, now_ms);
    writes->bytes = MAX(writes->bytes, lowest_of_all(writes));
    writes->bytes = MAX(writes->bytes, clock_since(bytes, counts->waiting_bytes));
}
