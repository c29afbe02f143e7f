/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs as clients see them: the list of those that wait or run, and cancelling one. */
#include <stdlib.h>
#include <unistd.h>

#include "daemon/connection.h"
#include "daemon/control_impl.h"
#include "daemon/worker.h"
#include "proto/frame.h"

/* Borrows the item. */
static void fill_job(void *item, void *wire)
{
    struct job_info *const info = item;
    Embtier__Job *const job = wire;

    embtier__job__init(job);
    job->id = info->id;
    job->kind = (char *)(uintptr_t)info->kind;
    job->what = info->what;
    job->uid = (uint32_t)info->uid;
    job->pid = (uint64_t)info->pid;
    job->is_own = info->is_own;
    job->runs = info->runs;
    job->age_ms = info->age_ms;
    job->done = info->progress.done;
    job->total = info->progress.total;
    if (info->progress.unit)
        job->unit = (char *)(uintptr_t)info->progress.unit;
}

static void reply_jobs(struct control *control, struct connection *connection, uint32_t id,
                       struct job_info *infos, uint32_t count, bool more)
{
    const struct page page = { .items = infos,
                               .item_bytes = sizeof(*infos),
                               .wire_bytes = sizeof(Embtier__Job),
                               .fill = fill_job,
                               .count = count,
                               .more = more };
    Embtier__JobListReply body = EMBTIER__JOB_LIST_REPLY__INIT;
    Embtier__Reply message = EMBTIER__REPLY__INIT;
    _cleanup_(freep) void **pointers = control_new_page(control, connection, id, &page);

    if (!pointers)
        return;
    body.n_jobs = count;
    body.jobs = (Embtier__Job **)pointers;
    body.more = more;
    message.id = id;
    message.last = true;
    message.body_case = EMBTIER__REPLY__BODY_JOB_LIST;
    message.job_list = &body;
    control_reply(control, connection, &message);
}

static void handle_list(struct control *control, struct connection *connection, uint32_t id,
                        const Embtier__JobList *wire)
{
    struct job_info *infos = NULL;
    bool more = false;
    uint32_t count = 0;
    const enum embtier_err err =
        worker_list(control->worker, wire ? wire->after : 0, control_page(wire ? wire->most : 0),
                    &infos, &count, &more);

    if (err != EMBTIER_OK)
        control_reply_error(control, connection, id, err, &(struct err_msg){ { 0 } });
    else
        reply_jobs(control, connection, id, infos, count, more);
    free(infos);
}

static void handle_cancel(struct control *control, struct connection *connection, uint32_t id,
                          uint64_t job_id)
{
    const bool may_all = connection->peer_uid == 0 || connection->peer_uid == geteuid();
    Embtier__Reply message = EMBTIER__REPLY__INIT;
    Embtier__Job job = EMBTIER__JOB__INIT;
    struct err_msg msg = { { 0 } };
    bool waited = false;
    const enum embtier_err err =
        worker_cancel(control->worker, job_id, connection->peer_uid, may_all, &waited, &msg);

    if (err != EMBTIER_OK) {
        control_reply_error(control, connection, id, err, &msg);
        return;
    }
    job.id = job_id;
    job.runs = !waited;
    message.id = id;
    message.last = true;
    message.body_case = EMBTIER__REPLY__BODY_JOB;
    message.job = &job;
    control_reply(control, connection, &message);
}

void control_handle_jobs(struct control *control, struct connection *connection,
                         const Embtier__Request *request)
{
    if (request->body_case == EMBTIER__REQUEST__BODY_JOB_LIST)
        handle_list(control, connection, request->id, request->job_list);
    else
        handle_cancel(control, connection, request->id, request->job_cancel->id);
}
