/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/control/snapshot.h"

#include <assert.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/version.h"
#include "daemon/control/connection.h"
#include "daemon/control/control_impl.h"
#include "daemon/engine/memory/accounts.h"
#include "daemon/jobs/plan/plan_record.h"
#include "daemon/jobs/worker.h"
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
    if (id == METRIC_write_error)
        snapshot->write_err = (enum embtier_err)value;
    if (id == METRIC_store_room_bytes)
        snapshot->room_bytes = value;
}

static void add_reason(struct snapshot *snapshot, bool holds, const char *reason)
{
    if (!holds)
        return;
    assert(snapshot->reason_count < SNAPSHOT_REASONS_MAX);
    snapshot->reasons[snapshot->reason_count++] = reason;
}

/* The server is ready while it takes requests of each kind. A full disk refuses updates, and is a
 * reason too. */
static void find_reasons(const struct control *control, struct snapshot *snapshot)
{
    const struct store *const store = control->parts->store;

    add_reason(snapshot, control->stop_wanted || control->stopping, "the server is stopping");
    add_reason(snapshot, snapshot->write_err != EMBTIER_OK,
               "rows cannot be written to SSD; they are kept, and the write is retried");
    add_reason(snapshot, store_replay_refusal(store) != EMBTIER_OK,
               "updates of replay tables are refused until a first checkpoint succeeds");
    add_reason(snapshot, snapshot->room_bytes == 0,
               "updates are refused: SSD has no room for rows");
}

static void take_snapshot(struct control *control, struct snapshot *snapshot)
{
    snapshot->count = 0;
    snapshot->reason_count = 0;
    snapshot->write_err = EMBTIER_OK;
    snapshot_collect(control, add_figure, snapshot);
    metrics_latencies(control->parts, &snapshot->latencies);
    find_reasons(control, snapshot);
    snapshot->uptime_ms =
        (clock_now_ns(&clock_monotonic) - control->parts->started_ns) / UINT64_C(1000000);
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
