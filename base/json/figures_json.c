/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json/figures_json.h"

#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/latency.h"
#include "base/work_progress.h"

/* Integers below this are exact. */
#define EXACT_MAX 9007199254740992.0

json_t *figures_json_number(double value)
{
    if (!isfinite(value))
        return json_null();
    return value == floor(value) && fabs(value) < EXACT_MAX ? json_integer((json_int_t)value)
                                                            : json_real(value);
}

static bool add_figure(json_t *metrics, const struct figure_view *figure)
{
    json_t *by_label;

    if (figure->label[0] == '\0')
        return json_object_set_new(metrics, figure->name, figures_json_number(figure->value)) == 0;
    by_label = json_object_get(metrics, figure->name);
    if (!by_label) {
        by_label = json_object();
        if (json_object_set_new(metrics, figure->name, by_label) != 0)
            return false;
    }
    return json_object_set_new(by_label, figure->label_value, figures_json_number(figure->value)) ==
           0;
}

json_t *figures_json_metrics(figure_at_fn *at, const void *context, size_t count)
{
    json_t *const metrics = json_object();

    for (size_t i = 0; metrics && i < count; i++) {
        const struct figure_view figure = at(context, i);

        if (!add_figure(metrics, &figure)) {
            json_decref(metrics);
            return NULL;
        }
    }
    return metrics;
}

/* Rows of GET that a tier, an array, SSD or nothing served, by the name of the source. */
static double lookups_of(figure_at_fn *at, const void *context, size_t count, const char *source)
{
    double rows = 0;

    for (size_t i = 0; i < count; i++) {
        const struct figure_view figure = at(context, i);

        if (strcmp(figure.name, "lookup_rows") == 0 &&
            (!source || strcmp(figure.label_value, source) == 0))
            rows += figure.value;
    }
    return rows;
}

json_t *figures_json_hit_rates(figure_at_fn *at, const void *context, size_t count)
{
    json_t *const rates = json_object();
    const double all = lookups_of(at, context, count, NULL);

    for (size_t i = 0; rates && i < count; i++) {
        const struct figure_view figure = at(context, i);

        if (strcmp(figure.name, "cache_hit_rows") == 0 &&
            json_object_set_new(
                rates, figure.label_value,
                figures_json_number(all > 0
                                        ? lookups_of(at, context, count, figure.label_value) / all
                                        : (double)NAN)) != 0) {
            json_decref(rates);
            return NULL;
        }
    }
    return rates;
}

json_t *figures_json_progress(const struct work_progress *progress)
{
    return json_pack("{s:o, s:o, s:o}", "done_bytes",
                     figures_json_number((double)progress->done_bytes), "total_bytes",
                     figures_json_number((double)progress->total_bytes), "remaining_s",
                     figures_json_number(work_progress_remaining_s(progress)));
}

json_t *figures_json_latency(const struct latency_view *view)
{
    const uint64_t requests = latency_count(view->counts, view->bound_count + 1);

    return json_pack(
        "{s:s, s:s, s:o, s:o, s:o, s:o}", "op", view->op, "transport", view->transport, "requests",
        figures_json_number((double)requests), "seconds", figures_json_number(view->seconds),
        "p50_seconds",
        figures_json_number(latency_quantile(view->counts, view->bounds, view->bound_count, 0.5)),
        "p99_seconds",
        figures_json_number(latency_quantile(view->counts, view->bounds, view->bound_count, 0.99)));
}
