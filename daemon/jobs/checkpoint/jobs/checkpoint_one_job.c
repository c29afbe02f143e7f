/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/jobs/checkpoint/jobs/checkpoint_one_job.h"

#include <stdlib.h>

#include "base/macros.h"
#include "daemon/jobs/checkpoint/checkpoints.h"
#include "daemon/jobs/checkpoint/jobs/checkpoint_answer.h"
#include "proto/control.pb-c.h"

struct checkpoint_one_job {
    struct job job;
    uint64_t id;
    struct checkpoint_info info; /* the result */
};

static struct checkpoint_one_job *of(const struct job *job)
{
    return CONTAINER_OF(job, struct checkpoint_one_job, job);
}

static enum embtier_err run_delete(struct job *job, const struct job_parts *parts,
                                   const struct progress_sink *progress, struct err_msg *msg)
{
    struct checkpoint_one_job *const one = of(job);

    return checkpoints_delete(parts->checkpoints, one->id, job_acts_as(job), progress, &one->info,
                              msg);
}

static enum embtier_err run_verify(struct job *job, const struct job_parts *parts,
                                   const struct progress_sink *progress, struct err_msg *msg)
{
    struct checkpoint_one_job *const one = of(job);

    return checkpoints_verify(parts->checkpoints, one->id, progress, &one->info, msg);
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
    .run = run_delete,
    .reply = reply,
    .free = free_job,
};

static const struct job_kind verify_kind = {
    .word = "checkpoint verify",
    .line = LINE_VERIFIES,
    .stops = true,
    .run = run_verify,
    .reply = reply,
    .free = free_job,
};

static enum embtier_err job_new(const struct job_kind *kind, uint64_t id, struct job **ret_job)
{
    struct checkpoint_one_job *const one = calloc(1, sizeof(*one));

    if (!one)
        return EMBTIER_NO_MEMORY;
    one->job.kind = kind;
    one->id = id;
    job_set_checkpoint(&one->job, id);
    *ret_job = &one->job;
    return EMBTIER_OK;
}

enum embtier_err checkpoint_delete_job_new(const struct job_request *request, struct job **ret_job,
                                           struct err_msg *msg)
{
    (void)msg;
    return job_new(&delete_kind, request->wire->checkpoint_delete->id, ret_job);
}

enum embtier_err checkpoint_verify_job_new(const struct job_request *request, struct job **ret_job,
                                           struct err_msg *msg)
{
    (void)msg;
    return job_new(&verify_kind, request->wire->checkpoint_verify->id, ret_job);
}
