/* SPDX-License-Identifier: Apache-2.0 */
/* figures_json.h: a server's figures as JSON. `embtier stats` has them from a reply of the server,
 * and /status.json from the server itself.
 *
 * Each function returns NULL when out of memory. Thread: any. */
#ifndef EMBTIER_BASE_JSON_FIGURES_JSON_H
#define EMBTIER_BASE_JSON_FIGURES_JSON_H

#include <stddef.h>
#include <stdint.h>

struct json_t;
struct work_progress;

/* One value of a metric. */
struct figure_view {
    const char *name;
    const char *label; /* "": none */
    const char *label_value;
    double value;
};
typedef struct figure_view figure_at_fn(const void *context, size_t index);

/* The times of one operation's requests over one transport (base/latency.h). */
struct latency_view {
    const char *op, *transport;
    double seconds; /* of all together */
    const uint64_t *counts;
    const double *bounds;
    uint32_t bound_count;
};

/* Makes an integer if @value is one, and null if it is infinite or NaN. */
struct json_t *figures_json_number(double value);
/* Makes {NAME: value, or {LABEL VALUE: value}}. */
struct json_t *figures_json_metrics(figure_at_fn *at, const void *context, size_t count);
/* Makes {TIER: share of the rows of GET that it served, or null}. */
struct json_t *figures_json_hit_rates(figure_at_fn *at, const void *context, size_t count);
/* Makes {done_bytes, total_bytes, remaining_s: or null}. */
struct json_t *figures_json_progress(const struct work_progress *progress);
/* Makes {op, transport, requests, seconds, p50_seconds, p99_seconds}. */
struct json_t *figures_json_latency(const struct latency_view *view);

#endif
