/* SPDX-License-Identifier: Apache-2.0 */
/* What each control message does. Messages have been checked (proto/frame.h) before they get here.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "daemon/control/connection.h"
#include "daemon/control/control_impl.h"
#include "daemon/control/metrics.h"
#include "daemon/engine/ops/group.h"
#include "daemon/engine/sessions/accounts.h"
#include "daemon/engine/sessions/session.h"
#include "daemon/engine/sessions/tsan.h"
#include "daemon/engine/tables/table.h"
#include "daemon/engine/tables/tables.h"
#include "daemon/jobs/checkpoint/checkpoints.h"
#include "daemon/jobs/worker.h"
#include "daemon/version.h"
#include "proto/frame.h"
#include "proto/table_spec_wire.h"
#include "store/store.h"
#include "tiers/arena.h"

/* ---- Tables ---- */

void control_fill_table(const struct table_info *info, Embtier__TableSpec *spec,
                        Embtier__TableInfo *ret_table)
{
    embtier__table_info__init(ret_table);
    embtier__table_spec__init(spec);
    table_spec_to_wire(&info->spec, spec);
    ret_table->handle = info->handle;
    ret_table->table_id = info->table_id;
    ret_table->spec = spec;
    ret_table->weight_bytes = table_spec_weight_bytes(&info->spec);
    ret_table->state_bytes = table_spec_state_bytes(&info->spec);
    ret_table->state = (char *)(uintptr_t)table_state_word(info->state);
    ret_table->updated_rows = info->updated_rows;
    ret_table->flush_bytes = info->written.flush_bytes;
    ret_table->compaction_bytes = info->written.compaction_bytes;
}

void control_reply_table(struct control *control, struct connection *connection, uint32_t id,
                         const struct table_info *info)
{
    Embtier__TableSpec spec;
    Embtier__TableInfo table;
    Embtier__Reply message = EMBTIER__REPLY__INIT;

    control_fill_table(info, &spec, &table);
    message.id = id;
    message.last = true;
    message.body_case = EMBTIER__REPLY__BODY_TABLE;
    message.table = &table;
    control_reply(control, connection, &message);
}

static void handle_open(struct control *control, struct connection *connection, uint32_t id,
                        const Embtier__TableOpen *open)
{
    struct err_msg msg = { { 0 } };
    struct table_info info;
    enum embtier_err err = tables_find(control->parts->tables, open->name, &info, &msg);

    if (err == EMBTIER_OK && info.state == TABLE_CREATING)
        err = err_set(&msg, EMBTIER_BUSY, "table '%s' is still being created", open->name);
    else if (err == EMBTIER_OK && open->dim != 0 && open->dim != info.spec.dim)
        err = err_set(&msg, EMBTIER_MISMATCH, "table '%s' has dim %" PRIu32 ", not %" PRIu32,
                      open->name, info.spec.dim, open->dim);
    else if (err == EMBTIER_OK && open->dtype != 0 && open->dtype != (uint32_t)info.spec.dtype)
        err = err_set(&msg, EMBTIER_MISMATCH, "table '%s' has dtype %s", open->name,
                      dtype_word(info.spec.dtype));
    if (err != EMBTIER_OK)
        control_reply_error(control, connection, id, err, &msg);
    else
        control_reply_table(control, connection, id, &info);
}

/* ---- Jobs ---- */

static bool is_transfer(enum job_kind kind)
{
    return kind >= JOB_SCAN_OPEN && kind <= JOB_LOAD_CLOSE;
}

void control_submit_job(struct control *control, struct connection *connection, uint32_t id,
                        struct job *job)
{
    struct err_msg msg = { { 0 } };
    enum embtier_err err;

    job->done_message.kind = MESSAGE_JOB_DONE;
    job->progress_message.kind = MESSAGE_JOB_PROGRESS;
    job->owner = connection;
    job->request_id = id;
    if (connection) {
        job->uid = connection->peer_uid;
        job->pid = connection->peer_pid;
        connection->job = job;
        if (job_uses_arena(job))
            TSAN_ACQUIRE(connection->session->control);
        control_watch(control, connection);
    }
    err = worker_submit(control->worker, job, &msg); /* from here on it may be under way */
    if (err == EMBTIER_OK)
        return;
    job->err = err;
    job->msg = msg;
    control->send(control, &job->done_message);
}

struct job *control_new_job(struct control *control, struct connection *connection, uint32_t id,
                            enum job_kind kind)
{
    struct job *const job = calloc(1, sizeof(*job));

    if (!job)
        control_reply_error(control, connection, id, EMBTIER_NO_MEMORY, &(struct err_msg){ { 0 } });
    else
        job->kind = kind;
    return job;
}

static void handle_create(struct control *control, struct connection *connection, uint32_t id,
                          const Embtier__TableCreate *create)
{
    struct err_msg msg = { { 0 } };
    struct job *const job = calloc(1, sizeof(*job));
    enum embtier_err err = EMBTIER_NO_MEMORY;

    if (job)
        err = table_spec_from_wire(create->spec, &job->spec, &msg);
    if (err != EMBTIER_OK) {
        free(job);
        control_reply_error(control, connection, id, err, &msg);
        return;
    }
    job->kind = job->spec.eager ? JOB_TABLE_FILL : JOB_TABLE_CREATE;
    job->if_not_exists = create->if_not_exists;
    control_submit_job(control, connection, id, job);
}

static void handle_drop(struct control *control, struct connection *connection, uint32_t id,
                        const Embtier__TableDrop *drop)
{
    struct err_msg msg = { { 0 } };
    struct table_info info;
    struct job *job = NULL;
    enum embtier_err err = tables_find(control->parts->tables, drop->name, &info, &msg);

    if (err == EMBTIER_OK) {
        job = calloc(1, sizeof(*job));
        if (!job)
            err = EMBTIER_NO_MEMORY;
    }
    if (err != EMBTIER_OK) {
        control_reply_error(control, connection, id, err, &msg);
        return;
    }
    job->kind = JOB_TABLE_DROP;
    job->spec = info.spec;
    control_submit_job(control, connection, id, job);
}

void control_tell_progress(struct control *control, struct connection *connection)
{
    struct job *const job = connection->job;
    const struct job_progress told = job_progress(job);
    Embtier__Progress progress = EMBTIER__PROGRESS__INIT;
    Embtier__Reply message = EMBTIER__REPLY__INIT;

    if (connection->fd < 0 || connection_has_unsent(connection))
        return;
    progress.done = told.done;
    progress.total = told.total;
    if (told.unit)
        progress.unit = (char *)(uintptr_t)told.unit;
    message.id = job->request_id;
    message.body_case = EMBTIER__REPLY__BODY_PROGRESS;
    message.progress = &progress;
    control_reply(control, connection, &message);
}

void control_job_progress(struct control *control, struct job *job)
{
    atomic_store(&job->told, false);
    if (job->owner)
        control_tell_progress(control, job->owner);
}

void control_forget_job(struct job *job)
{
    if (job->account) {
        account_give(job->account, job->row, 1);
        account_close(job->account);
    }
    job_free(job);
}

/* Of the server's own jobs no other can fail. One that was cancelled, or that never began, is due
 * again after another interval. */
static void tell_no_checkpoint(struct control *control, const struct job *job)
{
    if (job->err == EMBTIER_CANCELLED)
        log_warn("a checkpoint of the server's own was cancelled, another one will be due",
                 "interval_seconds=%u", control->parts->config->checkpoints.interval_seconds);
    else
        log_error("no checkpoint could be made: a crash goes back to the newest that there is",
                  "err=%s why=%s", err_name(job->err), LOG_QUOTED(job->msg.text));
    checkpoints_not_tried(control->parts->checkpoints);
}

void control_job_done(struct control *control, struct job *job)
{
    struct connection *const connection = job->owner;

    if (!connection) {
        if (job->err != EMBTIER_OK)
            tell_no_checkpoint(control, job);
        control_forget_job(job);
        return;
    }
    if (job_uses_arena(job))
        TSAN_RELEASE(connection->session->control);
    control_transfer_done(connection, job);
    if (connection->fd >= 0) {
        if (job->err != EMBTIER_OK)
            control_reply_error(control, connection, job->request_id, job->err, &job->msg);
        else if (is_transfer(job->kind))
            control_reply_transfer(control, connection, job);
        else if (job->kind == JOB_TABLE_CREATE || job->kind == JOB_TABLE_FILL ||
                 job->kind == JOB_TABLE_DROP)
            control_reply_table(control, connection, job->request_id, &job->info);
        else if (job->kind == JOB_CHECKPOINT_RESTORE)
            control_reply_restored(control, connection, job);
        else
            control_reply_checkpoints(control, connection, job);
    }
    connection->job = NULL;
    connection->heard_ns = clock_now_ns(&clock_monotonic);
    control_job_over(connection, job);
}

/* ---- Checkpoints ---- */

void control_checkpoint(struct control *control)
{
    struct job *const job = calloc(1, sizeof(*job));

    if (!job) {
        log_error("no checkpoint: out of memory", "seconds=%u",
                  control->parts->config->checkpoints.interval_seconds);
        checkpoints_not_tried(control->parts->checkpoints);
        return;
    }
    job->kind = JOB_CHECKPOINT_CREATE;
    job->order.automatic = true;
    control_submit_job(control, NULL, 0, job);
}

static void handle_checkpoint_create(struct control *control, struct connection *connection,
                                     uint32_t id, const Embtier__CheckpointCreate *wire)
{
    struct job *const job = control_new_job(control, connection, id, JOB_CHECKPOINT_CREATE);

    if (!job)
        return;
    job->order.has_step = wire->step_given_case == EMBTIER__CHECKPOINT_CREATE__STEP_GIVEN_STEP;
    job->order.step = job->order.has_step ? wire->step : 0;
    job->order.keep = wire->keep;
    job->order.automatic = wire->automatic;
    job->order.promised = true; /* an export may be about to read it */
    job->order.uid = connection->peer_uid;
    strncpy(job->order.metadata, wire->metadata, sizeof(job->order.metadata) - 1);
    control_submit_job(control, connection, id, job);
}

static void handle_checkpoint_job(struct control *control, struct connection *connection,
                                  uint32_t id, enum job_kind kind, uint64_t checkpoint_id,
                                  uint32_t page)
{
    struct job *const job = control_new_job(control, connection, id, kind);

    if (!job)
        return;
    job->checkpoint_id = checkpoint_id;
    job->page = page;
    control_submit_job(control, connection, id, job);
}

/* Jobs are compared by their names, and their names are listed: no more of them, and no others. */
#define RESTORE_NAMES_MAX 1024

static enum embtier_err copy_restore_order(const Embtier__CheckpointRestore *wire,
                                           struct restore_order *order, struct err_msg *msg)
{
    if (wire->n_tables > RESTORE_NAMES_MAX)
        return err_set(msg, EMBTIER_TOO_LARGE,
                       "%zu tables are named, and at most %d may be: restore the others by another "
                       "call, or all by naming none",
                       wire->n_tables, RESTORE_NAMES_MAX);
    order->id = wire->id;
    order->names = calloc(wire->n_tables + 1, sizeof(*order->names));
    if (!order->names)
        return EMBTIER_NO_MEMORY;
    for (size_t i = 0; i < wire->n_tables; i++) {
        if (!table_name_is_valid(wire->tables[i]))
            return err_set(msg, EMBTIER_NO_TABLE, "checkpoint %" PRIu64 " has no table '%s'",
                           wire->id, wire->tables[i]);
        order->names[i] = strdup(wire->tables[i]);
        if (!order->names[i])
            return EMBTIER_NO_MEMORY;
        order->name_count++;
    }
    if (wire->name[0] != '\0' && !(order->new_name = strdup(wire->name)))
        return EMBTIER_NO_MEMORY;
    return EMBTIER_OK;
}

static void handle_checkpoint_restore(struct control *control, struct connection *connection,
                                      uint32_t id, const Embtier__CheckpointRestore *wire)
{
    struct job *const job = control_new_job(control, connection, id, JOB_CHECKPOINT_RESTORE);
    struct err_msg msg = { { 0 } };
    enum embtier_err err;

    if (!job)
        return;
    err = copy_restore_order(wire, &job->restore, &msg);
    job->restore.uid = connection->peer_uid;
    if (err == EMBTIER_OK) {
        control_submit_job(control, connection, id, job);
        return;
    }
    job_free(job);
    control_reply_error(control, connection, id, err, &msg);
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
                                     .uid = connection->peer_uid,
                                     .size = wire->size,
                                     .member = wire->member,
                                     .step = wire->step };
    struct group_joined joined;
    struct err_msg msg = { { 0 } };
    enum embtier_err err;

    if (!connection->session)
        err = err_set(&msg, EMBTIER_INVALID, "a connection without shared memory joins no group");
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
        err = err_set(&msg, EMBTIER_NO_GROUP, "a connection without shared memory has no group");
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

    if (list->count == list->capacity)
        return;
    metric = &list->metrics[list->count];
    embtier__metric__init(metric);
    strncpy(list->labels[list->count], label_value, sizeof(list->labels[0]) - 1);
    metric->name = (char *)(uintptr_t)description->name;
    metric->help = (char *)(uintptr_t)description->help;
    metric->counter = description->counter;
    metric->label = (char *)(uintptr_t)description->label;
    metric->label_value = list->labels[list->count];
    metric->value = value;
    list->count++;
}

static void reply_status(struct control *control, struct connection *connection, uint32_t id,
                         struct metric_list *list, Embtier__Metric **pointers)
{
    Embtier__StatusReply body = EMBTIER__STATUS_REPLY__INIT;
    Embtier__Reply message = EMBTIER__REPLY__INIT;
    char rocksdb[64];
    char *libraries[] = { rocksdb, (char *)(uintptr_t)arena_library() };
    struct worker_stats jobs;

    snprintf(rocksdb, sizeof(rocksdb), "rocksdb %s", store_rocksdb_version());
    add_metric(list, METRIC_sessions, "", control->connection_count + control->releasing_count);
    add_metric(list, METRIC_session_arena_bytes, "",
               (double)accounts_used(control->parts->accounts, ACCOUNT_ARENA_BYTES));
    worker_stats(control->worker, &jobs);
    add_metric(list, METRIC_jobs, "waiting", jobs.waiting);
    add_metric(list, METRIC_jobs, "running", jobs.running);
    metrics_collect(control->parts, add_metric, list);
    for (size_t i = 0; i < list->count; i++)
        pointers[i] = &list->metrics[i];
    body.server_version = (char *)(uintptr_t)EMBTIERD_VERSION;
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
    const size_t most = METRIC_COUNT * (TIERS_MAX + 4);
    struct metric_list list = { .capacity = most };
    Embtier__Metric **const pointers = calloc(most, sizeof(*pointers));

    list.metrics = calloc(most, sizeof(*list.metrics));
    list.labels = calloc(most, sizeof(*list.labels));
    if (!pointers || !list.metrics || !list.labels)
        control_reply_error(control, connection, id, EMBTIER_NO_MEMORY, &(struct err_msg){ { 0 } });
    else
        reply_status(control, connection, id, &list, pointers);
    free(list.labels);
    free(list.metrics);
    free(pointers);
}

void control_handle(struct control *control, struct connection *connection,
                    const Embtier__Request *request)
{
    if (!connection->said_hello && request->body_case != EMBTIER__REQUEST__BODY_HELLO) {
        control_reply_error(control, connection, request->id, EMBTIER_PROTOCOL,
                            &(struct err_msg){ "say hello first" });
        return;
    }
    switch (request->body_case) {
    case EMBTIER__REQUEST__BODY_HELLO:
        control_handle_hello(control, connection, request->id, request->hello);
        break;
    case EMBTIER__REQUEST__BODY_TABLE_CREATE:
        handle_create(control, connection, request->id, request->table_create);
        break;
    case EMBTIER__REQUEST__BODY_TABLE_OPEN:
        handle_open(control, connection, request->id, request->table_open);
        break;
    case EMBTIER__REQUEST__BODY_TABLE_LIST:
        control_handle_table_list(control, connection, request->id, request->table_list);
        break;
    case EMBTIER__REQUEST__BODY_TABLE_DROP:
        handle_drop(control, connection, request->id, request->table_drop);
        break;
    case EMBTIER__REQUEST__BODY_CHECKPOINT_CREATE:
        handle_checkpoint_create(control, connection, request->id, request->checkpoint_create);
        break;
    case EMBTIER__REQUEST__BODY_CHECKPOINT_LIST:
        handle_checkpoint_job(control, connection, request->id, JOB_CHECKPOINT_LIST,
                              request->checkpoint_list ? request->checkpoint_list->after : 0,
                              request->checkpoint_list ? request->checkpoint_list->most : 0);
        break;
    case EMBTIER__REQUEST__BODY_CHECKPOINT_SHOW:
        handle_checkpoint_job(control, connection, request->id, JOB_CHECKPOINT_SHOW,
                              request->checkpoint_show->id, request->checkpoint_show->tables_from);
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
    case EMBTIER__REQUEST__BODY_CHECKPOINT_RESTORE:
        handle_checkpoint_restore(control, connection, request->id, request->checkpoint_restore);
        break;
    case EMBTIER__REQUEST__BODY_CHECKPOINT_VERIFY:
        handle_checkpoint_job(control, connection, request->id, JOB_CHECKPOINT_VERIFY,
                              request->checkpoint_verify->id, 0);
        break;
    case EMBTIER__REQUEST__BODY_CHECKPOINT_DELETE:
        handle_checkpoint_job(control, connection, request->id, JOB_CHECKPOINT_DELETE,
                              request->checkpoint_delete->id, 0);
        break;
    case EMBTIER__REQUEST__BODY_ACCOUNT_LIST:
        control_handle_accounts(control, connection, request->id, request->account_list);
        break;
    case EMBTIER__REQUEST__BODY_JOB_LIST:
    case EMBTIER__REQUEST__BODY_JOB_CANCEL:
        control_handle_jobs(control, connection, request);
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
        control_reply_error(control, connection, request->id, EMBTIER_UNSUPPORTED,
                            &(struct err_msg){ "this server does not know the request: it is of an "
                                               "older version than the client" });
        break;
    }
}
