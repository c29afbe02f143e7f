/* SPDX-License-Identifier: Apache-2.0 */
/* Handles control messages, which have been checked (proto/frame.h) before they get here. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log/log.h"
#include "base/version.h"
#include "daemon/control/connection.h"
#include "daemon/control/control_impl.h"
#include "daemon/control/snapshot.h"
#include "daemon/engine/ops/groups/group.h"
#include "daemon/engine/sessions/session.h"
#include "daemon/engine/tables/table.h"
#include "daemon/engine/tables/tables.h"
#include "daemon/jobs/table/table_answer.h"
#include "daemon/jobs/worker.h"
#include "proto/frame.h"
#include "store/store.h"
#include "tiers/arena/arena.h"

static void handle_open(struct control *control, struct connection *connection, uint32_t id,
                        const Embtier__TableOpen *open)
{
    struct err_msg msg = { { 0 } };
    struct table_info info;
    const struct control_client client = control_client(control, connection, id);
    enum embtier_err err = tables_find(control->parts->tables, open->name, &info, &msg);

    if (err == EMBTIER_OK && info.state == TABLE_CREATING)
        err = err_set(&msg, EMBTIER_BUSY, "table '%s' is still being created: try again later",
                      open->name);
    else if (err == EMBTIER_OK && open->dim != 0 && open->dim != info.spec.dim)
        err = err_set(&msg, EMBTIER_MISMATCH,
                      "table '%s' has dim %" PRIu32 ", not %" PRIu32
                      ": open it with its own dim, or with none",
                      open->name, info.spec.dim, open->dim);
    else if (err == EMBTIER_OK && open->dtype != 0 && open->dtype != (uint32_t)info.spec.dtype)
        err = err_set(&msg, EMBTIER_MISMATCH,
                      "table '%s' has dtype %s, not %s: open it with its own dtype, or with none",
                      open->name, dtype_word(info.spec.dtype),
                      dtype_word((int)open->dtype) ? dtype_word((int)open->dtype) : "another");
    if (err != EMBTIER_OK) {
        control_reply_error(control, connection, id, err, &msg);
        return;
    }
    control_add_rates(control, &info);
    answer_table(&client.client, &info);
}

/* ---- Groups ---- */

static void reply_group(struct control *control, struct connection *connection, uint32_t id,
                        enum embtier_err err, const struct group_joined *group,
                        const struct err_msg *msg)
{
    Embtier__GroupInfo body = EMBTIER__GROUP_INFO__INIT;
    Embtier__Reply message = EMBTIER__REPLY__INIT;

    if (err != EMBTIER_OK) {
        control_reply_error(control, connection, id, err, msg);
        return;
    }
    body.handle = group->handle;
    body.step = group->step;
    body.joined = group->members;
    message.id = id;
    message.last = true;
    message.body_case = EMBTIER__REPLY__BODY_GROUP;
    message.group = &body;
    control_reply(control, connection, &message);
}

static void handle_join(struct control *control, struct connection *connection, uint32_t id,
                        const Embtier__GroupJoin *wire)
{
    const struct group_join join = { .name = wire->name,
                                     .user = connection->user,
                                     .size = wire->size,
                                     .member = wire->member,
                                     .step = wire->step };
    struct group_joined joined;
    struct err_msg msg = { { 0 } };
    enum embtier_err err;

    if (!connection->session)
        err = err_set(&msg, EMBTIER_INVALID,
                      "this connection has no arena, so it cannot join a group: connect with "
                      "arena_bytes above 0");
    else
        err = groups_join(control->parts->groups, connection->session, &join, &joined, &msg);
    reply_group(control, connection, id, err, &joined, &msg);
}

static void handle_leave(struct control *control, struct connection *connection, uint32_t id,
                         const Embtier__GroupLeave *wire)
{
    struct group_joined left;
    struct err_msg msg = { { 0 } };
    enum embtier_err err;

    if (!connection->session)
        err = err_set(&msg, EMBTIER_NO_GROUP, "this connection has no arena, so it is in no group");
    else
        err = groups_leave(control->parts->groups, connection->session, wire->handle, &left, &msg);
    reply_group(control, connection, id, err, &left, &msg);
}

/* ---- Status ---- */

struct metric_list {
    Embtier__Metric *metrics;
    char (*labels)[64];
    size_t count;
    size_t capacity;
};

static void add_metric(void *context, enum metric_id id, const char *label_value, double value)
{
    const struct metric_description *const description = &metric_descriptions[id];
    struct metric_list *const list = context;
    Embtier__Metric *metric;

    assert(list->count < list->capacity);
    metric = &list->metrics[list->count];
    embtier__metric__init(metric);
    strncpy(list->labels[list->count], label_value, sizeof(list->labels[0]) - 1);
    metric->name = (char *)(uintptr_t)description->name;
    metric->help = (char *)(uintptr_t)description->help;
    metric->counter = description->kind == METRIC_KIND_COUNTER;
    metric->label = (char *)(uintptr_t)description->label;
    metric->label_value = list->labels[list->count];
    metric->value = value;
    list->count++;
}

/* The reply's messages about latencies, which point into the copy. */
struct latency_list {
    struct latencies latencies;
    double bounds[LATENCY_BOUNDS];
    Embtier__Latency wires[LATENCY_SERIES];
    Embtier__Latency *pointers[LATENCY_SERIES];
};

static void add_latencies(const struct control *control, struct latency_list *list,
                          Embtier__StatusReply *body)
{
    struct latency_series series;
    uint32_t place = 0;

    metrics_latencies(control->parts, &list->latencies);
    for (uint32_t r = 0; r < LATENCY_BOUNDS; r++)
        list->bounds[r] = (double)latency_bound_ns(r) / 1e9;
    body->n_bounds = LATENCY_BOUNDS;
    body->bounds = list->bounds;
    body->latencies = list->pointers;
    while (latencies_next(&list->latencies, &place, &series)) {
        Embtier__Latency *const wire = &list->wires[body->n_latencies];

        embtier__latency__init(wire);
        wire->op = (char *)(uintptr_t)series.op;
        wire->transport = (char *)(uintptr_t)series.transport;
        wire->seconds = (double)series.latency->ns / 1e9;
        wire->n_counts = LATENCY_RANGES;
        wire->counts = (uint64_t *)(uintptr_t)series.latency->counts;
        list->pointers[body->n_latencies++] = wire;
    }
}

static void reply_status(struct control *control, struct connection *connection, uint32_t id,
                         struct metric_list *list, Embtier__Metric **pointers,
                         struct latency_list *latencies)
{
    Embtier__StatusReply body = EMBTIER__STATUS_REPLY__INIT;
    Embtier__Reply message = EMBTIER__REPLY__INIT;
    char rocksdb[64];
    char *libraries[] = { rocksdb, (char *)(uintptr_t)arena_library() };

    snprintf(rocksdb, sizeof(rocksdb), "rocksdb %s", store_rocksdb_version());
    snapshot_collect(control, add_metric, list);
    add_latencies(control, latencies, &body);
    for (size_t i = 0; i < list->count; i++)
        pointers[i] = &list->metrics[i];
    body.server_version = (char *)(uintptr_t)EMBTIER_PROJECT_VERSION;
    body.uptime_ms = (clock_now_ns(&clock_monotonic) - control->parts->started_ns) / 1000000;
    body.n_metrics = list->count;
    body.metrics = pointers;
    body.n_libraries = ARRAY_LEN(libraries);
    body.libraries = libraries;
    message.id = id;
    message.last = true;
    message.body_case = EMBTIER__REPLY__BODY_STATUS;
    message.status = &body;
    control_reply(control, connection, &message);
}

static void handle_status(struct control *control, struct connection *connection, uint32_t id)
{
    const size_t most = METRICS_MOST;
    struct metric_list list = { .capacity = most };
    Embtier__Metric **const pointers = calloc(most, sizeof(*pointers));
    struct latency_list *const latencies = calloc(1, sizeof(*latencies));

    list.metrics = calloc(most, sizeof(*list.metrics));
    list.labels = calloc(most, sizeof(*list.labels));
    if (!pointers || !latencies || !list.metrics || !list.labels)
        control_reply_error(control, connection, id, EMBTIER_NO_MEMORY, &(struct err_msg){ { 0 } });
    else
        reply_status(control, connection, id, &list, pointers, latencies);
    free(list.labels);
    free(list.metrics);
    free(latencies);
    free(pointers);
}

void control_handle(struct control *control, struct connection *connection,
                    const Embtier__Request *request)
{
    if (!connection->said_hello && request->body_case != EMBTIER__REQUEST__BODY_HELLO) {
        control_reply_error(control, connection, request->id, EMBTIER_PROTOCOL,
                            &(struct err_msg){ "the client must say hello first" });
        return;
    }
    if (connection->first) {
        control_reply_error(control, connection, request->id, EMBTIER_PROTOCOL,
                            &(struct err_msg){ "calls go over the session's first connection" });
        return;
    }
    if (request->body_case != EMBTIER__REQUEST__BODY__NOT_SET &&
        !control_may(control, connection, request))
        return;
    switch (request->body_case) {
    case EMBTIER__REQUEST__BODY_HELLO:
        control_handle_hello(control, connection, request->id, request->hello);
        break;
    case EMBTIER__REQUEST__BODY_TABLE_OPEN:
        handle_open(control, connection, request->id, request->table_open);
        break;
    case EMBTIER__REQUEST__BODY_TABLE_LIST:
        control_handle_table_list(control, connection, request->id, request->table_list);
        break;
    case EMBTIER__REQUEST__BODY_SCAN_OPEN:
    case EMBTIER__REQUEST__BODY_SCAN_NEXT:
    case EMBTIER__REQUEST__BODY_SCAN_CLOSE:
    case EMBTIER__REQUEST__BODY_LOAD_OPEN:
    case EMBTIER__REQUEST__BODY_LOAD_ROWS:
    case EMBTIER__REQUEST__BODY_LOAD_END:
    case EMBTIER__REQUEST__BODY_LOAD_CLOSE:
        control_handle_transfer(control, connection, request);
        break;
    case EMBTIER__REQUEST__BODY_ACCOUNT_LIST:
        control_handle_accounts(control, connection, request->id, request->account_list);
        break;
    case EMBTIER__REQUEST__BODY_SESSION_LIST:
    case EMBTIER__REQUEST__BODY_SESSION_END:
        control_handle_sessions(control, connection, request);
        break;
    case EMBTIER__REQUEST__BODY_JOB_LIST:
    case EMBTIER__REQUEST__BODY_JOB_CANCEL:
        control_handle_jobs(control, connection, request);
        break;
    case EMBTIER__REQUEST__BODY_PLAN_BEGIN:
    case EMBTIER__REQUEST__BODY_PLAN_END:
    case EMBTIER__REQUEST__BODY_PLAN_SHOW:
        control_handle_plan(control, connection, request);
        break;
    case EMBTIER__REQUEST__BODY_COMPACTION_SHOW:
    case EMBTIER__REQUEST__BODY_COMPACTION_SET:
        control_handle_compaction(control, connection, request);
        break;
    case EMBTIER__REQUEST__BODY_GROUP_LEAVE:
        handle_leave(control, connection, request->id, request->group_leave);
        break;
    case EMBTIER__REQUEST__BODY_GROUP_JOIN:
        handle_join(control, connection, request->id, request->group_join);
        break;
    case EMBTIER__REQUEST__BODY_STATUS:
        handle_status(control, connection, request->id);
        break;
    default:
        if (control_request_job(control, connection, request))
            break;
        control_reply_error(
            control, connection, request->id, EMBTIER_UNSUPPORTED,
            &(struct err_msg){
                "this server does not know the request: its version is older than the client's" });
        break;
    }
}
