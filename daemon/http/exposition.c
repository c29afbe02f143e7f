/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/http/exposition.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "daemon/control/snapshot.h"
#include "daemon/engine/sessions/latencies.h"
#include "daemon/http/page.h"
#include "daemon/http/table_top.h"

#define OPENMETRICS "application/openmetrics-text"
/* Integers below this are written as such. */
#define EXACT_MAX 9007199254740992.0

const char *exposition_type(enum exposition_format format)
{
    return format == EXPOSITION_OPENMETRICS ? OPENMETRICS "; version=1.0.0; charset=utf-8"
                                            : "text/plain; version=0.0.4; charset=utf-8";
}

enum exposition_format exposition_accepted(const char *accept)
{
    return accept && strcasestr(accept, OPENMETRICS) ? EXPOSITION_OPENMETRICS : EXPOSITION_TEXT;
}

/* Writes @text with a backslash before each backslash, end of line and, if @quotes, quote. */
static void add_escaped(struct page *page, const char *text, bool quotes)
{
    const char *const special = quotes ? "\\\n\"" : "\\\n";

    while (*text != '\0') {
        const size_t plain = strcspn(text, special);

        page_add(page, text, plain);
        text += plain;
        if (*text == '\0')
            return;
        page_printf(page, "\\%c", *text == '\n' ? 'n' : *text);
        text++;
    }
}

static const char *unit_of(const char *name)
{
    static const char *const units[] = { "bytes", "seconds" };
    const size_t length = strlen(name);

    for (size_t i = 0; i < ARRAY_LEN(units); i++) {
        const size_t bytes = strlen(units[i]);

        if (length > bytes && name[length - bytes - 1] == '_' &&
            strcmp(name + length - bytes, units[i]) == 0)
            return units[i];
    }
    return NULL;
}

void exposition_head(struct page *page, enum exposition_format format,
                     const struct metric_description *metric)
{
    const bool is_open = format == EXPOSITION_OPENMETRICS;
    static const char *const types[] = {
        [METRIC_KIND_GAUGE] = "gauge",
        [METRIC_KIND_COUNTER] = "counter",
        [METRIC_KIND_HISTOGRAM] = "histogram",
    };
    const char *const end = metric->kind == METRIC_KIND_COUNTER && !is_open ? "_total" : "";
    const char *const unit = is_open ? unit_of(metric->name) : NULL;

    page_printf(page, "# HELP embtier_%s%s ", metric->name, end);
    add_escaped(page, metric->help, is_open);
    page_printf(page, "\n# TYPE embtier_%s%s %s\n", metric->name, end, types[metric->kind]);
    if (unit)
        page_printf(page, "# UNIT embtier_%s %s\n", metric->name, unit);
}

static void add_value(struct page *page, double value)
{
    if (isnan(value))
        page_printf(page, "NaN");
    else if (isinf(value))
        page_printf(page, "%sInf", value > 0 ? "+" : "-");
    else if (value == floor(value) && fabs(value) < EXACT_MAX)
        page_printf(page, "%.0f", value);
    else
        page_printf(page, "%.*g", DBL_DIG, value);
}

void exposition_sample(struct page *page, const struct metric_description *metric,
                       const char *label_value, double value)
{
    page_printf(page, "embtier_%s%s", metric->name,
                metric->kind == METRIC_KIND_COUNTER ? "_total" : "");
    if (metric->label[0] != '\0') {
        page_printf(page, "{%s=\"", metric->label);
        add_escaped(page, label_value, true);
        page_printf(page, "\"}");
    }
    page_printf(page, " ");
    add_value(page, value);
    page_printf(page, "\n");
}

/* Writes a metric with its figures, which may stand anywhere among all. */
static void add_metric(struct page *page, enum exposition_format format, enum metric_id id,
                       const struct snapshot_figure *figures, size_t count)
{
    const struct metric_description *const metric = &metric_descriptions[id];
    bool has_head = false;

    for (size_t i = 0; i < count; i++) {
        if (figures[i].id != id)
            continue;
        if (!has_head)
            exposition_head(page, format, metric);
        has_head = true;
        exposition_sample(page, metric, figures[i].label_value, figures[i].value);
    }
}

static void add_tables(struct page *page, enum exposition_format format,
                       const struct table_top *top)
{
    uint32_t count;
    const struct table_top_row *const rows = table_top_rows(top, &count);

    for (size_t f = 0; f < TABLE_FIGURE_COUNT; f++) {
        const struct metric_description *const metric =
            &metric_descriptions[table_figure_metrics[f]];

        exposition_head(page, format, metric);
        for (uint32_t i = 0; i < count; i++)
            exposition_sample(page, metric, rows[i].name, rows[i].figures[f]);
        exposition_sample(page, metric, TABLE_TOP_OTHER, table_top_other(top)[f]);
    }
}

/* ---- Histograms ---- */

static void add_series_line(struct page *page, const char *name, const char *end,
                            const struct latency_series *series, double value)
{
    page_printf(page, "embtier_%s%s{op=\"%s\",transport=\"%s\"} ", name, end, series->op,
                series->transport);
    add_value(page, value);
    page_printf(page, "\n");
}

/* Prometheus gets octaves, not halves of them, so a series has 25 buckets. */
static void add_series(struct page *page, const char *name, const struct latency_series *series)
{
    const struct latency *const latency = series->latency;
    uint64_t count = 0;

    for (uint32_t r = 0; r < LATENCY_RANGES; r++) {
        count += latency->counts[r];
        if (r % 2 == 1)
            continue;
        page_printf(page, "embtier_%s_bucket{op=\"%s\",transport=\"%s\",le=\"", name, series->op,
                    series->transport);
        add_value(page, r < LATENCY_BOUNDS ? (double)latency_bound_ns(r) / 1e9 : (double)INFINITY);
        page_printf(page, "\"} %" PRIu64 "\n", count);
    }
    add_series_line(page, name, "_sum", series, (double)latency->ns / 1e9);
    add_series_line(page, name, "_count", series, (double)count);
}

static void add_latencies(struct page *page, enum exposition_format format,
                          const struct latencies *latencies)
{
    const struct metric_description *const metric = &metric_descriptions[METRIC_request_seconds];
    struct latency_series series;
    uint32_t place = 0;

    exposition_head(page, format, metric);
    while (latencies_next(latencies, &place, &series))
        add_series(page, metric->name, &series);
}

void exposition_write(struct page *page, enum exposition_format format,
                      const struct snapshot_figure *figures, size_t count,
                      const struct latencies *latencies, const struct table_top *top)
{
    for (enum metric_id id = 0; id < METRIC_COUNT; id++)
        add_metric(page, format, id, figures, count);
    if (latencies)
        add_latencies(page, format, latencies);
    if (top)
        add_tables(page, format, top);
    if (format == EXPOSITION_OPENMETRICS)
        page_printf(page, "# EOF\n");
}
