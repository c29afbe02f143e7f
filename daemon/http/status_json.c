/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/http/status_json.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/json/figures_json.h"
#include "base/version.h"
#include "daemon/control/snapshot.h"
#include "daemon/http/table_top.h"
#include "store/store.h"
#include "tiers/arena/arena.h"

/* Enough digits that each double is read back as it was. */
#define PRECISION 17

/* ---- Figures ---- */

static struct figure_view figure_at(const void *context, size_t index)
{
    const struct snapshot *const snapshot = context;
    const struct snapshot_figure *const figure = &snapshot->figures[index];
    const struct metric_description *const metric = &metric_descriptions[figure->id];

    return (struct figure_view){ metric->name, metric->label, figure->label_value, figure->value };
}

static json_t *latencies_of(const struct snapshot *snapshot)
{
    json_t *const list = json_array();
    double bounds[LATENCY_BOUNDS];
    struct latency_series series;
    uint32_t place = 0;

    for (uint32_t r = 0; r < LATENCY_BOUNDS; r++)
        bounds[r] = (double)latency_bound_ns(r) / 1e9;
    while (latencies_next(&snapshot->latencies, &place, &series)) {
        const struct latency_view view = { .op = series.op,
                                           .transport = series.transport,
                                           .seconds = (double)series.latency->ns / 1e9,
                                           .counts = series.latency->counts,
                                           .bounds = bounds,
                                           .bound_count = LATENCY_BOUNDS };

        (void)json_array_append_new(list, figures_json_latency(&view));
    }
    return list;
}

/* ---- Other parts ---- */

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
        (void)json_array_append_new(reasons, json_string(snapshot->reasons[i].text));
    return reasons;
}

static json_t *figures_of(const double figures[TABLE_FIGURE_COUNT])
{
    json_t *const object = json_object();

    for (size_t f = 0; f < TABLE_FIGURE_COUNT; f++)
        (void)json_object_set_new(
            object, metric_descriptions[table_figure_metrics[f]].name + strlen("table_"),
            figures_json_number(figures[f]));
    return object;
}

struct warnings {
    json_t *list;
};

static void add_warning(void *context, const struct health_rule *rule, const char *why)
{
    const struct warnings *const warnings = context;

    (void)json_array_append_new(
        warnings->list, json_pack("{s:s, s:s, s:s, s:s}", "name", rule->name, "health",
                                  health_word(rule->health), "why", why, "advice", rule->advice));
}

static json_t *database_of(const struct snapshot_database *database)
{
    static const char *const words[COMPACTION_STATE_COUNT] = {
#define X(name, word, why) [COMPACTION_##name] = word,
        COMPACTION_STATES(X)
#undef X
    };
    const struct compaction_view *const view = &database->view;
    const struct work_progress progress = snapshot_database_progress(view);

    return json_pack("{s:s, s:s, s:I, s:I, s:I, s:b, s:I, s:I, s:o, s:o}", "name", database->name,
                     "state", words[view->state], "pending_bytes", (json_int_t)view->pending_bytes,
                     "level0_files", (json_int_t)view->level0_files, "running",
                     (json_int_t)view->running, "urgent", view->is_urgent, "done_bytes",
                     (json_int_t)view->done_bytes, "total_bytes", (json_int_t)view->total_bytes,
                     "elapsed_s", figures_json_number((double)view->elapsed_ms / 1000),
                     "remaining_s", figures_json_number(work_progress_remaining_s(&progress)));
}

static json_t *databases_of(const struct snapshot *snapshot)
{
    json_t *const list = json_array();

    for (uint32_t i = 0; i < snapshot->database_count; i++)
        (void)json_array_append_new(list, database_of(&snapshot->databases[i]));
    return list;
}

static json_t *sessions_of(const struct snapshot *snapshot)
{
    json_t *const list = json_array();

    for (uint32_t i = 0; i < snapshot->session_count; i++) {
        const struct snapshot_session *const one = &snapshot->sessions[i];

        (void)json_array_append_new(
            list, json_pack("{s:I, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "number",
                            (json_int_t)one->number, "transport", one->transport, "age_ms",
                            (json_int_t)one->age_ms, "connections", (json_int_t)one->connections,
                            "arena_bytes", (json_int_t)one->arena_bytes, "requests",
                            (json_int_t)one->requests, "rows", (json_int_t)one->rows, "in_flight",
                            (json_int_t)one->in_flight, "tickets", (json_int_t)one->tickets));
    }
    return list;
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
    struct warnings warnings = { json_array() };
    const enum health health = snapshot_check_health(snapshot, add_warning, &warnings);
    json_t *const status = json_pack(
        "{s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:I, s:b, s:o, s:o, s:o, s:o, s:o, s:o}", "health",
        health_word(health), "version", EMBTIER_PROJECT_VERSION, "warnings", warnings.list,
        "databases", databases_of(snapshot), "compaction",
        figures_json_progress(&snapshot->compaction), "sessions", sessions_of(snapshot),
        "libraries", libraries(), "uptime_ms", (json_int_t)snapshot->uptime_ms, "ready",
        snapshot->reason_count == 0, "reasons", reasons_of(snapshot), "plan", plan_of(snapshot),
        "metrics", figures_json_metrics(figure_at, snapshot, snapshot->count), "hit_rates",
        figures_json_hit_rates(figure_at, snapshot, snapshot->count), "latencies",
        latencies_of(snapshot), "tables", top ? tables_of(top) : json_null());
    char *const text =
        status ? json_dumps(status, JSON_COMPACT | JSON_REAL_PRECISION(PRECISION)) : NULL;

    json_decref(status);
    return text;
}
