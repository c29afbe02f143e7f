/* SPDX-License-Identifier: Apache-2.0 */
/* table_top.h: figures of the tables of most traffic, each, and of all others together.
 *
 * A store may have 65,535 tables, and a series of metrics for each would be too many. So only the
 * tables with the most rows looked up and updated since the start have series of their own.
 *
 * Which tables these are changes, and no counter may go down: Prometheus would take that for a
 * restart, and show a rate that never was. So `other` counts what tables did while they were among
 * the others. A table that comes to the top brings all that it has counted, and what `other` has of
 * it stays there. Rates are exact, and so is the sum of all until the top changes first.
 *
 * Tables are read in three steps, since the tables' lock is held only for a page of them:
 * table_top_begin(), table_top_add() for each page, table_top_end(). Thread: one at a time. */
#ifndef EMBTIER_DAEMON_HTTP_TABLE_TOP_H
#define EMBTIER_DAEMON_HTTP_TABLE_TOP_H

#include <stdint.h>

#include "base/err.h"
#include "base/spec/table_spec.h"
#include "daemon/control/metrics.h"

struct table_info;
struct table_top;

/* The table with this name has no series of its own. */
#define TABLE_TOP_OTHER "other"

/* FIGURE(metric, of struct table_info *table) */
#define TABLE_FIGURES(FIGURE)                                                                      \
    FIGURE(table_lookup_rows, (double)table->lookups.rows)                                         \
    FIGURE(table_missed_rows, (double)table->lookups.missed_rows)                                  \
    FIGURE(table_read_rows, (double)table->lookups.read_rows)                                      \
    FIGURE(table_lookup_seconds, (double)table->lookups.lane_ns / 1e9)                             \
    FIGURE(table_updated_rows, (double)table->updated_rows)                                        \
    FIGURE(table_written_bytes, written_bytes(&table->written))

enum table_figure {
#define FIGURE(metric, value) TABLE_FIGURE_##metric,
    TABLE_FIGURES(FIGURE)
#undef FIGURE
        TABLE_FIGURE_COUNT
};
extern const enum metric_id table_figure_metrics[TABLE_FIGURE_COUNT];

struct table_top_row {
    uint32_t table_id;
    char name[EMBTIER_TABLE_NAME_MAX + 1];
    double traffic;
    double figures[TABLE_FIGURE_COUNT];
};

/* @most may be 0. */
MUST_CHECK enum embtier_err table_top_new(uint32_t most, struct table_top **ret_top);
void table_top_free(struct table_top *top);
DEFINE_CLEANUP(struct table_top, table_top_free)

void table_top_begin(struct table_top *top);
/* Adds tables in the order of their ids. NO_MEMORY: begin again. */
MUST_CHECK enum embtier_err table_top_add(struct table_top *top, const struct table_info *tables,
                                          uint32_t count);
void table_top_end(struct table_top *top);

/* The tables at the top, in the order of their ids. */
const struct table_top_row *table_top_rows(const struct table_top *top, uint32_t *ret_count);
/* The figures of all others. */
const double *table_top_other(const struct table_top *top);

#endif
