/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/jobs/checkpoint/jobs/checkpoint_delete_job.h"

#include <stdlib.h>

#include "base/macros.h"
#include "daemon/jobs/checkpoint/checkpoints.h"
#include "daemon/jobs/checkpoint/jobs/checkpoint_answer.h"
#include "proto/control.pb-c.h"

struct checkpoint_delete_job {
    struct job job;
    uint64_t id;
    struct checkpoint_info info; /* the result */
};

static struct checkpoint_delete_job *of(const struct job *job)
{
    return CONTAINER_OF(job, struct checkpoint_delete_job, job);
}

static enum embtier_err run(struct job *job, const struct job_parts *parts,
                            const struct progress_sink *progress, struct err_msg *msg)
{
    struct checkpoint_delete_job *const delete = of(job);

    return checkpoints_delete(parts->checkpoints, delete->id, job->uid, progress, &delete->info,
                              msg);
}

static enum embtier_err reply(struct job *job, const struct job_client *client, struct err_msg *msg)
{
    (void)msg;
    answer_checkpoint(client, &of(job)->info, NULL);
    return EMBTIER_OK;
}

static void free_job(struct job *job)
{
    free(of(job));
}

static const struct job_kind delete_kind = {
    .word = "checkpoint delete",
    .line = LINE_CHECKPOINTS,
    .run = run,
    .reply = reply,
    .free = free_job,
};

enum embtier_err checkpoint_delete_job_new(const struct job_request *request, struct job **ret_job,
                                           struct err_msg *msg)
{
    struct checkpoint_delete_job *const delete = calloc(1, sizeof(*delete));

    (void)msg;
    if (!delete)
        return EMBTIER_NO_MEMORY;
    delete->job.kind = &delete_kind;
    delete->id = request->wire->checkpoint_delete->id;
    job_set_checkpoint(&delete->job, delete->id);
    *ret_job = &delete->job;
    return EMBTIER_OK;
}
