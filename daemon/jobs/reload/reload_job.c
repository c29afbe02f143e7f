/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/jobs/reload/reload_job.h"

#include <stdlib.h>

#include "base/macros.h"
#include "daemon/access/access.h"
#include "daemon/jobs/answer.h"
#include "daemon/jobs/reload/reload.h"
#include "proto/control.pb-c.h"

struct reload_job {
    struct job job;
    bool is_own;
    struct access_stats access; /* after it */
};

static struct reload_job *of(const struct job *job)
{
    return CONTAINER_OF(job, struct reload_job, job);
}

/* The log has the error already, so the server's own job needs no other answer. */
static enum embtier_err run(struct job *job, const struct job_parts *parts,
                            const struct progress_sink *progress, struct err_msg *msg)
{
    const enum embtier_err err = reloads_run(parts->reloads, msg);

    (void)progress;
    access_stats(parts->access, &of(job)->access);
    return of(job)->is_own ? EMBTIER_OK : err;
}

static enum embtier_err reply(struct job *job, const struct job_client *client, struct err_msg *msg)
{
    Embtier__Reloaded body = EMBTIER__RELOADED__INIT;
    Embtier__Reply message = EMBTIER__REPLY__INIT;

    (void)msg;
    body.users = (uint32_t)of(job)->access.users;
    message.body_case = EMBTIER__REPLY__BODY_RELOADED;
    message.reloaded = &body;
    answer(client, &message);
    return EMBTIER_OK;
}

static void free_job(struct job *job)
{
    free(of(job));
}

static const struct job_kind reload_kind = {
    .word = "reload",
    .line = LINE_LOOKS,
    .run = run,
    .reply = reply,
    .free = free_job,
};

static struct reload_job *new_job(bool is_own)
{
    struct reload_job *const reload = calloc(1, sizeof(*reload));

    if (!reload)
        return NULL;
    reload->job.kind = &reload_kind;
    reload->is_own = is_own;
    return reload;
}

enum embtier_err reload_job_new(const struct job_request *request, struct job **ret_job,
                                struct err_msg *msg)
{
    struct reload_job *const reload = new_job(false);

    (void)request;
    (void)msg;
    if (!reload)
        return EMBTIER_NO_MEMORY;
    *ret_job = &reload->job;
    return EMBTIER_OK;
}

bool reload_job_is_own(const struct job *job)
{
    return job->kind == &reload_kind && of(job)->is_own;
}

struct job *reload_job_own(void)
{
    struct reload_job *const reload = new_job(true);

    return reload ? &reload->job : NULL;
}
