/* SPDX-License-Identifier: Apache-2.0 */
/* table_counts.h: a lane's counts of the lookups of one table, by GETs and pooled lookups.
 *
 * They are counted by the piece, so a row costs nothing. The clock is read for one piece in
 * TABLE_TIMED_PIECES, as it costs more than a short piece. Thread: the lane counts; any thread
 * reads (base/counter.h). */
#ifndef EMBTIER_DAEMON_ENGINE_TABLES_TABLE_COUNTS_H
#define EMBTIER_DAEMON_ENGINE_TABLES_TABLE_COUNTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/counter.h"
#include "base/macros.h"
#include "daemon/engine/tables/table.h"

#define TABLE_TIMED_PIECES 64

struct table_counts {
    _Alignas(CACHE_LINE) uint64_t lookups; /* rows */
    uint64_t missed; /* of these: the write queue had the row, or a read was begun for it */
    uint64_t read;   /* of these: reads that were begun */
    uint64_t pieces;
    uint64_t timed_rows; /* of the pieces that were timed, and the time that they took */
    uint64_t timed_ns;
};

static inline struct table_counts *table_counts_of(const struct table *table, uint32_t lane)
{
    return &table->counts[lane];
}

/* Counts a lookup for which a read was begun. */
static inline void table_counts_read(struct table_counts *counts)
{
    counter_add(&counts->missed, 1);
    counter_add(&counts->read, 1);
}

/* Begins a piece. Returns its time, or 0 if it is not timed. */
static inline uint64_t table_counts_begin(struct table_counts *counts)
{
    const bool is_timed = counts->pieces % TABLE_TIMED_PIECES == 0;

    counter_add(&counts->pieces, 1);
    return is_timed ? clock_now_ns(&clock_monotonic) : 0;
}

/* Ends it after @rows lookups. */
static inline void table_counts_end(struct table_counts *counts, uint64_t begin_ns, uint64_t rows)
{
    counter_add(&counts->lookups, rows);
    if (begin_ns == 0)
        return;
    counter_add(&counts->timed_rows, rows);
    counter_add(&counts->timed_ns, clock_since(clock_now_ns(&clock_monotonic), begin_ns));
}

#endif
