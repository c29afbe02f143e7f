/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/http/exposition.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "daemon/control/snapshot.h"
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
    const char *const end = metric->counter && !is_open ? "_total" : "";
    const char *const unit = is_open ? unit_of(metric->name) : NULL;

    page_printf(page, "# HELP embtier_%s%s ", metric->name, end);
    add_escaped(page, metric->help, is_open);
    page_printf(page, "\n# TYPE embtier_%s%s %s\n", metric->name, end,
                metric->counter ? "counter" : "gauge");
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
    page_printf(page, "embtier_%s%s", metric->name, metric->counter ? "_total" : "");
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

void exposition_write(struct page *page, enum exposition_format format,
                      const struct snapshot_figure *figures, size_t count,
                      const struct table_top *top)
{
    for (enum metric_id id = 0; id < METRIC_COUNT; id++)
        add_metric(page, format, id, figures, count);
    if (top)
        add_tables(page, format, top);
    if (format == EXPOSITION_OPENMETRICS)
        page_printf(page, "# EOF\n");
}
