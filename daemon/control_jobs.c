/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs as clients see them: the list of those that wait or run, and cancelling one. */
#include <stdlib.h>
#include <unistd.h>

#include "daemon/connection.h"
#include "daemon/control_impl.h"
#include "daemon/worker.h"
#include "proto/frame.h"

/* Borrows @info. */
static void fill_job(struct job_info *info, Embtier__Job *ret_wire)
{
    embtier__job__init(ret_wire);
    ret_wire->id = info->id;
    ret_wire->kind = (char *)(uintptr_t)info->kind;
    ret_wire->what = info->what;
    ret_wire->uid = (uint32_t)info->uid;
    ret_wire->pid = (uint64_t)info->pid;
    ret_wire->is_own = info->is_own;
    ret_wire->runs = info->runs;
    ret_wire->age_ms = info->age_ms;
    ret_wire->done = info->progress.done;
    ret_wire->total = info->progress.total;
    if (info->progress.unit)
        ret_wire->unit = (char *)(uintptr_t)info->progress.unit;
}

static void reply_jobs(struct control *control, struct connection *connection, uint32_t id,
                       struct job_info *infos, uint32_t count, bool more)
{
    Embtier__JobListReply body = EMBTIER__JOB_LIST_REPLY__INIT;
    Embtier__Reply message = EMBTIER__REPLY__INIT;
    Embtier__Job *const jobs = calloc((size_t)count + 1, sizeof(*jobs));
    Embtier__Job **const pointers = calloc((size_t)count + 1, sizeof(*pointers));

    if (jobs && pointers) {
        for (uint32_t i = 0; i < count; i++) {
            fill_job(&infos[i], &jobs[i]);
            pointers[i] = &jobs[i];
        }
        body.n_jobs = count;
        body.jobs = pointers;
        body.more = more;
        message.id = id;
        message.last = true;
        message.body_case = EMBTIER__REPLY__BODY_JOB_LIST;
        message.job_list = &body;
        control_reply(control, connection, &message);
    } else {
        control_reply_error(control, connection, id, EMBTIER_NO_MEMORY, &(struct err_msg){ { 0 } });
    }
    free(pointers);
    free(jobs);
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
