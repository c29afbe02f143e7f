/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/control/snapshot.h"

#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/version.h"
#include "daemon/control/connection.h"
#include "daemon/control/control_impl.h"
#include "daemon/engine/memory/accounts.h"
#include "daemon/health/health.h"
#include "daemon/jobs/plan/plan_record.h"
#include "daemon/jobs/worker.h"
#include "store/database/compaction_scheduler.h"
#include "store/store.h"

void snapshot_collect(const struct control *control, metric_sink *sink, void *context)
{
    struct worker_stats jobs;
    uint32_t transports[TRANSPORT_KINDS];

    worker_stats(control->worker, &jobs);
    sink(context, METRIC_sessions, "", (double)control_sessions(control));
    control_count_transports(control, transports);
    for (uint32_t t = 0; t < TRANSPORT_KINDS; t++)
        sink(context, METRIC_transport_sessions, transport_word(t), transports[t]);
    sink(context, METRIC_session_arena_bytes, "",
         (double)accounts_used(control->parts->accounts, ACCOUNT_ARENA_BYTES));
    sink(context, METRIC_jobs, "waiting", jobs.waiting);
    sink(context, METRIC_jobs, "running", jobs.running);
    metrics_collect(control->parts, sink, context);
}

static void add_figure(void *context, enum metric_id id, const char *label_value, double value)
{
    struct snapshot *const snapshot = context;
    struct snapshot_figure *const figure = &snapshot->figures[snapshot->count++];

    assert(snapshot->count <= METRICS_MOST);
    figure->id = id;
    figure->value = value;
    snprintf(figure->label_value, sizeof(figure->label_value), "%s", label_value);
}

PRINTF_LIKE(2, 3)
static void add_reason(struct snapshot *snapshot, const char *format, ...)
{
    struct snapshot_reason *const reason = &snapshot->reasons[snapshot->reason_count++];
    va_list values;

    assert(snapshot->reason_count <= SNAPSHOT_REASONS_MAX);
    va_start(values, format);
    vsnprintf(reason->text, sizeof(reason->text), format, values);
    va_end(values);
}

static double read_figure(const void *context, const char *name, const char *label_value)
{
    const struct snapshot *const snapshot = context;
    double sum = 0;
    bool is_there = false;

    for (size_t i = 0; i < snapshot->count; i++) {
        const struct snapshot_figure *const figure = &snapshot->figures[i];

        if (strcmp(metric_descriptions[figure->id].name, name) != 0 ||
            (label_value && strcmp(figure->label_value, label_value) != 0))
            continue;
        sum += figure->value;
        is_there = true;
    }
    return is_there ? sum : (double)NAN;
}

static void note_rule(void *context, const struct health_rule *rule, const char *why)
{
    if (rule->blocks_updates)
        add_reason(context, "%s: %s", rule->name, why);
}

enum health snapshot_check_health(const struct snapshot *snapshot, health_found_fn *found,
                                  void *context)
{
    const struct health_figures figures = { read_figure, snapshot,
                                            (double)snapshot->uptime_ms / 1e3 };

    return health_check(&figures, found, context);
}

/* The server is ready while it takes requests of each kind. */
void snapshot_find_reasons(struct snapshot *snapshot, bool stops)
{
    snapshot->reason_count = 0;
    if (stops)
        add_reason(snapshot, "the server is stopping");
    (void)snapshot_check_health(snapshot, note_rule, snapshot);
}

/* Returns the last two parts of a path: the folders above them are nobody's business. */
static const char *end_of(const char *path)
{
    const char *end = strrchr(path, '/');

    while (end && end > path && end[-1] != '/')
        end--;
    return end ? end : path;
}

struct work_progress snapshot_database_progress(const struct compaction_view *view)
{
    return (struct work_progress){ view->done_bytes, view->total_bytes, view->has_remaining,
                                   view->remaining_ms };
}

static void take_database(struct snapshot *snapshot, const struct compaction_view *view,
                          const char *path)
{
    const struct work_progress progress = snapshot_database_progress(view);
    struct snapshot_database *const database = &snapshot->databases[snapshot->database_count];

    work_progress_add(&snapshot->compaction, &progress);
    if (snapshot->database_count == SNAPSHOT_DATABASES_MAX)
        return;
    database->view = *view;
    snprintf(database->name, sizeof(database->name), "%s", end_of(path));
    snapshot->database_count++;
}

static void take_databases(const struct control *control, struct snapshot *snapshot)
{
    struct compaction_scheduler *const scheduler = store_compaction(control->parts->store);
    struct compaction_view views[SNAPSHOT_DATABASES_MAX];
    uint32_t count;

    snapshot->database_count = 0;
    snapshot->compaction = (struct work_progress){ 0 };
    for (uint32_t first = 0;; first += count) {
        count = compaction_scheduler_list(scheduler, first, SNAPSHOT_DATABASES_MAX, views);
        if (count == 0)
            break;
        for (uint32_t i = 0; i < count; i++)
            take_database(snapshot, &views[i], compaction_scheduler_path(scheduler, first + i));
    }
}

static void take_snapshot(struct control *control, struct snapshot *snapshot)
{
    snapshot->count = 0;
    snapshot_collect(control, add_figure, snapshot);
    metrics_latencies(control->parts, &snapshot->latencies);
    take_databases(control, snapshot);
    snapshot->session_count =
        control_take_sessions(control, snapshot->sessions, SNAPSHOT_SESSIONS_MAX);
    snapshot->uptime_ms =
        (clock_now_ns(&clock_monotonic) - control->parts->started_ns) / UINT64_C(1000000);
    snapshot_find_reasons(snapshot, control->stop_wanted || control->stopping);
    snapshot->plan = plan_record_get(control->parts->plan_record);
    add_figure(snapshot, METRIC_build_info, EMBTIER_PROJECT_VERSION, 1);
    add_figure(snapshot, METRIC_ready, "", snapshot->reason_count == 0);
    add_figure(snapshot, METRIC_uptime_seconds, "", (double)snapshot->uptime_ms / 1e3);
    snapshot->done(snapshot, true);
}

static void drop_snapshot(struct control *control, struct snapshot *snapshot)
{
    (void)control;
    snapshot->done(snapshot, false);
}

MESSAGE_HANDLER(take_mail, take_snapshot, control, struct snapshot, message)
MESSAGE_HANDLER(drop_mail, drop_snapshot, control, struct snapshot, message)
static const struct message_kind snapshot_kind = { .take = take_mail, .drop = drop_mail };

void snapshot_send(struct control *control, struct snapshot *snapshot)
{
    snapshot->message.kind = &snapshot_kind;
    control_send(control, &snapshot->message);
}
