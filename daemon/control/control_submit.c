/* SPDX-License-Identifier: Apache-2.0 */
/* Makes jobs from clients' requests, and the server's own jobs; submits and answers them. Only its
 * kind knows how a job works (job.h). */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log/log.h"
#include "daemon/access/access.h"
#include "daemon/control/connection.h"
#include "daemon/control/control_impl.h"
#include "daemon/control/process/notify.h"
#include "daemon/engine/sessions/session.h"
#include "daemon/engine/sessions/tsan.h"
#include "daemon/jobs/checkpoint/checkpoints.h"
#include "daemon/jobs/checkpoint/jobs/checkpoint_create_job.h"
#include "daemon/jobs/checkpoint/jobs/checkpoint_look_job.h"
#include "daemon/jobs/checkpoint/jobs/checkpoint_one_job.h"
#include "daemon/jobs/compaction/compaction_run_job.h"
#include "daemon/jobs/knobs/knob_job.h"
#include "daemon/jobs/profile/profile_job.h"
#include "daemon/jobs/reload/reload_job.h"
#include "daemon/jobs/reshard/reshard_job.h"
#include "daemon/jobs/restore/restore_job.h"
#include "daemon/jobs/table/table_create_job.h"
#include "daemon/jobs/table/table_drop_job.h"
#include "daemon/jobs/table/table_move_job.h"
#include "daemon/jobs/worker.h"

/* Requests that are one job each. Exports and imports also need the connection's state
 * (control_transfers.c). */
static job_make_fn *const makers[] = {
    [EMBTIER__REQUEST__BODY_TABLE_CREATE] = table_create_job_new,
    [EMBTIER__REQUEST__BODY_TABLE_DROP] = table_drop_job_new,
    [EMBTIER__REQUEST__BODY_TABLE_MOVE] = table_move_job_new,
    [EMBTIER__REQUEST__BODY_CHECKPOINT_CREATE] = checkpoint_create_job_new,
    [EMBTIER__REQUEST__BODY_CHECKPOINT_LIST] = checkpoint_list_job_new,
    [EMBTIER__REQUEST__BODY_CHECKPOINT_SHOW] = checkpoint_show_job_new,
    [EMBTIER__REQUEST__BODY_CHECKPOINT_VERIFY] = checkpoint_verify_job_new,
    [EMBTIER__REQUEST__BODY_CHECKPOINT_DELETE] = checkpoint_delete_job_new,
    [EMBTIER__REQUEST__BODY_CHECKPOINT_RESTORE] = restore_job_new,
    [EMBTIER__REQUEST__BODY_PROFILE_START] = profile_start_job_new,
    [EMBTIER__REQUEST__BODY_PROFILE_STOP] = profile_stop_job_new,
    [EMBTIER__REQUEST__BODY_PROFILE_READ] = profile_read_job_new,
    [EMBTIER__REQUEST__BODY_RELOAD] = reload_job_new,
    [EMBTIER__REQUEST__BODY_COMPACTION_RUN] = compaction_run_job_new,
    [EMBTIER__REQUEST__BODY_RESHARD] = reshard_job_new,
    [EMBTIER__REQUEST__BODY_KNOB_LIST] = knob_list_job_new,
    [EMBTIER__REQUEST__BODY_KNOB_SET] = knob_set_job_new,
};

static void send_answer(const struct job_client *client, const Embtier__Reply *reply)
{
    const struct control_client *const to = CONTAINER_OF(client, struct control_client, client);

    control_reply(to->control, to->connection, reply);
}

struct control_client control_client(struct control *control, struct connection *connection,
                                     uint32_t id)
{
    return (struct control_client){
        .client = { .request_id = id, .knows_pages = connection->knows_pages, .send = send_answer },
        .control = control,
        .connection = connection,
    };
}

bool control_request_job(struct control *control, struct connection *connection,
                         const Embtier__Request *request)
{
    struct err_msg refusal = { { 0 } }, msg = { { 0 } };
    const bool is_full = control_check_role(control, connection, request, &refusal) == EMBTIER_OK;
    const struct job_request from = { .wire = request,
                                      .uid = connection->peer_uid,
                                      .user = access_member_name(connection->member),
                                      .session = connection->session,
                                      .refusal = is_full ? NULL : &refusal,
                                      .parts = &control->job_parts };
    const size_t which = (size_t)request->body_case;
    struct job *job = NULL;
    enum embtier_err err;

    if (which >= ARRAY_LEN(makers) || !makers[which])
        return false;
    err = makers[which](&from, &job, &msg);
    if (err == EMBTIER_OK)
        control_submit_job(control, connection, request->id, job);
    else
        control_reply_error(control, connection, request->id, err, &msg);
    return true;
}

void control_submit_job(struct control *control, struct connection *connection, uint32_t id,
                        struct job *job)
{
    struct err_msg msg = { { 0 } };
    enum embtier_err err;

    job->done_message.kind = &message_job_done;
    job->progress_message.kind = &message_job_progress;
    job->owner = connection;
    job->request_id = id;
    if (connection) {
        job->user = connection->user;
        job->may_all = control_may_all(control, connection);
        job->uid = connection->peer_uid;
        job->pid = connection->peer_pid;
        assert(!connection->job);
        connection->job = job;
        if (job->kind->uses_arena)
            TSAN_ACQUIRE(&connection->session->channel);
        control_watch(control, connection);
    }
    err = worker_submit(control->worker, job, &msg); /* it may run from here on */
    if (err == EMBTIER_OK)
        return;
    job->err = err;
    job->msg = msg;
    control->send(control, &job->done_message);
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

static uint64_t interval_seconds(const struct control *control)
{
    return checkpoints_interval_ns(control->parts->checkpoints) / UINT64_C(1000000000);
}

/* Logs that one of the server's own checkpoints was not made. Its other jobs, a reload and a move
 * of buckets, log their own ends. One that was cancelled, or never began, is due again after
 * another interval. */
static void tell_no_checkpoint(struct control *control, const struct job *job)
{
    if (job->err == EMBTIER_CANCELLED)
        log_warn("a checkpoint of the server's own was cancelled; the next one is made after the "
                 "interval",
                 "interval_seconds=%" PRIu64, interval_seconds(control));
    else
        log_error("checkpoint failed; a crash would restore the newest existing one",
                  "err=%s why=%s", err_name(job->err), LOG_QUOTED(job->msg.text));
    checkpoints_not_tried(control->parts->checkpoints);
}

static void answer_job(struct control *control, struct connection *connection, struct job *job)
{
    const struct control_client client = control_client(control, connection, job->request_id);
    struct err_msg msg = job->msg;
    enum embtier_err err = job->err;

    if (err == EMBTIER_OK) {
        msg = (struct err_msg){ { 0 } };
        err = job->kind->reply(job, &client.client, &msg);
    }
    if (err != EMBTIER_OK)
        control_reply_error(control, connection, job->request_id, err, &msg);
}

/* A reload that has begun logs its own failure (reload.c). A service manager must not hear that a
 * server is ready which stops. */
static void end_reload(struct control *control, const struct job *job)
{
    if (job->err != EMBTIER_OK)
        log_warn("not reloaded: what was in force before stays; send SIGHUP again", "why=%s",
                 LOG_QUOTED(job->msg.text));
    assert(control->reloads > 0);
    control->reloads--;
    if (control->reloads == 0 && !control->stopping)
        notify_ready();
}

void control_job_done(struct control *control, struct job *job)
{
    struct connection *const connection = job->owner;

    if (!connection) {
        if (reload_job_is_own(job))
            end_reload(control, job);
        else if (job->err != EMBTIER_OK && !reshard_job_is_own(job))
            tell_no_checkpoint(control, job);
        job_free(job);
        return;
    }
    assert(connection->job == job);
    control_plan_job_done(control, job);
    if (job->kind->uses_arena)
        TSAN_RELEASE(&connection->session->channel);
    if (connection->fd >= 0)
        answer_job(control, connection, job);
    control_transfer_done(connection, job);
    connection->job = NULL;
    connection->heard_ns = clock_now_ns(&clock_monotonic);
    control_job_over(connection, job);
}

void control_reshard(struct control *control)
{
    struct job *const job = reshard_job_own();

    if (job)
        control_submit_job(control, NULL, 0, job);
    else
        log_warn("a job that moved buckets is not continued before the next start: out of memory",
                 "%s", "");
}

void control_checkpoint(struct control *control)
{
    struct job *const job = checkpoint_create_job_own();

    if (!job) {
        log_error("checkpoint failed: out of memory", "seconds=%" PRIu64,
                  interval_seconds(control));
        checkpoints_not_tried(control->parts->checkpoints);
        return;
    }
    control_submit_job(control, NULL, 0, job);
}
