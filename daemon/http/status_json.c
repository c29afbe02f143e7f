/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/http/status_json.h"

#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/version.h"
#include "daemon/control/snapshot.h"
#include "daemon/http/table_top.h"
#include "store/store.h"
#include "tiers/arena/arena.h"

/* Enough digits that each double is read back as it was. */
#define PRECISION 17
/* Integers below this are written as such. */
#define EXACT_MAX 9007199254740992.0

static json_t *number(double value)
{
    if (!isfinite(value))
        return json_null();
    return value == floor(value) && fabs(value) < EXACT_MAX ? json_integer((json_int_t)value)
                                                            : json_real(value);
}

static void add_figure(json_t *metrics, const struct snapshot_figure *figure)
{
    const struct metric_description *const metric = &metric_descriptions[figure->id];
    json_t *values = metrics;

    if (metric->label[0] != '\0') {
        values = json_object_get(metrics, metric->name);
        if (!values) {
            values = json_object();
            (void)json_object_set_new(metrics, metric->name, values);
        }
    }
    (void)json_object_set_new(values, metric->label[0] ? figure->label_value : metric->name,
                              number(figure->value));
}

static json_t *metrics_of(const struct snapshot *snapshot)
{
    json_t *const metrics = json_object();

    for (size_t i = 0; i < snapshot->count; i++)
        add_figure(metrics, &snapshot->figures[i]);
    return metrics;
}

/* The share of rows that each tier served, of all that were looked up in the row cache. */
static json_t *hit_rates_of(const struct snapshot *snapshot)
{
    json_t *const rates = json_object();
    double all = 0;

    for (size_t i = 0; i < snapshot->count; i++)
        if (snapshot->figures[i].id == METRIC_cache_hit_rows ||
            snapshot->figures[i].id == METRIC_cache_miss_rows)
            all += snapshot->figures[i].value;
    for (size_t i = 0; i < snapshot->count; i++)
        if (snapshot->figures[i].id == METRIC_cache_hit_rows)
            (void)json_object_set_new(rates, snapshot->figures[i].label_value,
                                      all > 0 ? number(snapshot->figures[i].value / all)
                                              : json_null());
    return rates;
}

static json_t *plan_of(const struct snapshot *snapshot)
{
    const struct plan_state *const plan = &snapshot->plan;

    return json_pack("{s:I, s:o, s:o}", "generation", (json_int_t)plan->generation, "tables",
                     plan->tables > 0 ? json_integer(plan->tables) : json_null(), "applied_ms",
                     plan->generation > 0 ? json_integer((json_int_t)plan->applied_ms)
                                          : json_null());
}

static json_t *libraries(void)
{
    char rocksdb[64];

    snprintf(rocksdb, sizeof(rocksdb), "rocksdb %s", store_rocksdb_version());
    return json_pack("[s, s]", rocksdb, arena_library());
}

static json_t *reasons_of(const struct snapshot *snapshot)
{
    json_t *const reasons = json_array();

    for (uint32_t i = 0; i < snapshot->reason_count; i++)
        (void)json_array_append_new(reasons, json_string(snapshot->reasons[i]));
    return reasons;
}

static json_t *figures_of(const double figures[TABLE_FIGURE_COUNT])
{
    json_t *const object = json_object();

    for (size_t f = 0; f < TABLE_FIGURE_COUNT; f++)
        (void)json_object_set_new(
            object, metric_descriptions[table_figure_metrics[f]].name + strlen("table_"),
            number(figures[f]));
    return object;
}

/* Makes {"NAME": {"lookup_rows": 1, …}, …, "other": {…}}. */
static json_t *tables_of(const struct table_top *top)
{
    json_t *const tables = json_object();
    uint32_t count;
    const struct table_top_row *const rows = table_top_rows(top, &count);

    for (uint32_t i = 0; i < count; i++)
        (void)json_object_set_new(tables, rows[i].name, figures_of(rows[i].figures));
    (void)json_object_set_new(tables, TABLE_TOP_OTHER, figures_of(table_top_other(top)));
    return tables;
}

char *status_json(const struct snapshot *snapshot, const struct table_top *top)
{
    json_t *const status = json_pack(
        "{s:s, s:o, s:I, s:b, s:o, s:o, s:o, s:o, s:o}", "version", EMBTIER_PROJECT_VERSION,
        "libraries", libraries(), "uptime_ms", (json_int_t)snapshot->uptime_ms, "ready",
        snapshot->reason_count == 0, "reasons", reasons_of(snapshot), "plan", plan_of(snapshot),
        "metrics", metrics_of(snapshot), "hit_rates", hit_rates_of(snapshot), "tables",
        top ? tables_of(top) : json_null());
    char *const text =
        status ? json_dumps(status, JSON_COMPACT | JSON_REAL_PRECISION(PRECISION)) : NULL;

    json_decref(status);
    return text;
}
