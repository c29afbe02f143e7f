/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/jobs/checkpoint/jobs/checkpoint_verify_job.h"

#include <stdlib.h>

#include "base/macros.h"
#include "daemon/jobs/checkpoint/checkpoints.h"
#include "daemon/jobs/checkpoint/jobs/checkpoint_answer.h"
#include "proto/control.pb-c.h"

struct checkpoint_verify_job {
    struct job job;
    uint64_t id;
    struct checkpoint_info info; /* the result */
};

static struct checkpoint_verify_job *of(const struct job *job)
{
    return CONTAINER_OF(job, struct checkpoint_verify_job, job);
}

static enum embtier_err run(struct job *job, const struct job_parts *parts,
                            const struct progress_sink *progress, struct err_msg *msg)
{
    struct checkpoint_verify_job *const verify = of(job);

    return checkpoints_verify(parts->checkpoints, verify->id, progress, &verify->info, msg);
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

static const struct job_kind verify_kind = {
    .word = "checkpoint verify",
    .line = LINE_VERIFIES,
    .stops = true,
    .run = run,
    .reply = reply,
    .free = free_job,
};

enum embtier_err checkpoint_verify_job_new(const struct job_request *request, struct job **ret_job,
                                           struct err_msg *msg)
{
    struct checkpoint_verify_job *const verify = calloc(1, sizeof(*verify));

    (void)msg;
    if (!verify)
        return EMBTIER_NO_MEMORY;
    verify->job.kind = &verify_kind;
    verify->id = request->wire->checkpoint_verify->id;
    job_set_checkpoint(&verify->job, verify->id);
    *ret_job = &verify->job;
    return EMBTIER_OK;
}
