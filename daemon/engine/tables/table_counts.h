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
    uint64_t timed_lookups; /* `lookups` after the last piece that was timed */
    uint64_t ns;            /* estimate of the time of so many */
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

/* Counts a piece of @rows lookups, which took @ns. The lookups since the last one that was timed
 * are taken to have lasted as long. So the estimate never becomes less. */
static inline void table_counts_timed(struct table_counts *counts, uint64_t ns, uint64_t rows)
{
    const uint64_t since = counts->lookups - counts->timed_lookups;

    if (rows == 0)
        return;
    counter_add(&counts->ns, (uint64_t)((double)ns * (double)since / (double)rows));
    counts->timed_lookups = counts->lookups;
}

/* Ends a piece after @rows lookups. */
static inline void table_counts_end(struct table_counts *counts, uint64_t begin_ns, uint64_t rows)
{
    counter_add(&counts->lookups, rows);
    if (begin_ns != 0)
        table_counts_timed(counts, clock_since(clock_now_ns(&clock_monotonic), begin_ns), rows);
}

#endif
