/* SPDX-License-Identifier: Apache-2.0 */
/* exposition.h: metrics as Prometheus reads them.
 *
 * Names are those of METRIC_TABLE with `embtier_` in front, and `_total` behind a counter's.
 * Formats: Prometheus text 0.0.4, and OpenMetrics 1.0, which leaves `_total` out of a family's
 * name, names the unit, and ends with a line of its own. Thread: any. */
#ifndef EMBTIER_DAEMON_HTTP_EXPOSITION_H
#define EMBTIER_DAEMON_HTTP_EXPOSITION_H

#include <stddef.h>

#include "daemon/control/metrics.h"

struct latencies;
struct page;
struct snapshot_figure;
struct table_top;

enum exposition_format {
    EXPOSITION_TEXT,
    EXPOSITION_OPENMETRICS,
};

/* Returns the format's value of Content-Type. */
const char *exposition_type(enum exposition_format format);
/* Returns the format that the value of Accept asks for; NULL: there is none. */
enum exposition_format exposition_accepted(const char *accept);

/* Begins a metric. */
void exposition_head(struct page *page, enum exposition_format format,
                     const struct metric_description *metric);
/* Adds a sample to it. */
void exposition_sample(struct page *page, const struct metric_description *metric,
                       const char *label_value, double value);

/* Writes all metrics that have figures. @latencies and @top may be NULL. */
void exposition_write(struct page *page, enum exposition_format format,
                      const struct snapshot_figure *figures, size_t count,
                      const struct latencies *latencies, const struct table_top *top);

#endif
