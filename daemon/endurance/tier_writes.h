/* SPDX-License-Identifier: Apache-2.0 */
/* tier_writes.h: bytes that files of tiers cost SSD, by what the kernel counts for the process.
 *
 * The kernel counts a page when it becomes dirty. It writes the page half a minute later, and
 * counts it apart if the process drops it before that, as a tier does that shrinks. So a byte
 * counts here once it is known to be written: when the whole page cache has fewer bytes that wait,
 * or when it was not dropped for longer than pages wait. The kernel's counts also hold what the
 * server writes to its other files, which is subtracted.
 *
 * Bytes are too few where the server deletes a log or another file before the kernel wrote it: the
 * kernel takes them for dropped, and the server counts them as written. RocksDB syncs table files,
 * so these are mostly young logs.
 *
 * Plain values. Thread: the owner's. */
#ifndef EMBTIER_DAEMON_ENDURANCE_TIER_WRITES_H
#define EMBTIER_DAEMON_ENDURANCE_TIER_WRITES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/macros.h"

struct host;

/* All but one are full: together longer than the kernel's default of 35 seconds. */
#define TIER_WRITES_SPAN_MS UINT64_C(5000)
#define TIER_WRITES_SPANS   9

struct tier_counts {
    uint64_t dirtied_bytes; /* of the process, ever */
    uint64_t dropped_bytes; /* of these, dropped before they were written */
    uint64_t waiting_bytes; /* in the page cache, of all processes; UINT64_MAX: not known */
};
/* Returns false where the kernel does not count. */
MUST_CHECK bool tier_counts_read(const struct host *host, struct tier_counts *ret_counts);

struct tier_writes {
    uint64_t bytes;                     /* never falls */
    uint64_t lowest[TIER_WRITES_SPANS]; /* bytes less those dropped, in each span of time */
    uint64_t span;                      /* the last one's number */
    uint32_t span_count;                /* since the begin */
};
/* Takes counts, and what the server wrote to other files, read after them. */
void tier_writes_add(struct tier_writes *writes, const struct tier_counts *counts,
                     uint64_t server_bytes, uint64_t now_ms);

#endif
