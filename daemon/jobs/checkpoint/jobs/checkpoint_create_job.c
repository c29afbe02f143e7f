/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/jobs/checkpoint/jobs/checkpoint_create_job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "daemon/jobs/checkpoint/checkpoints.h"
#include "daemon/jobs/checkpoint/jobs/checkpoint_answer.h"
#include "proto/control.pb-c.h"

struct checkpoint_create_job {
    struct job job;
    struct checkpoint_order order;
    struct checkpoint_info info; /* the result, as are the tables */
    struct checkpoint_tables tables;
};

static struct checkpoint_create_job *of(const struct job *job)
{
    return CONTAINER_OF(job, struct checkpoint_create_job, job);
}

/* A client also gets the names of the tables. */
static enum embtier_err run(struct job *job, const struct job_parts *parts,
                            const struct progress_sink *progress, struct err_msg *msg)
{
    struct checkpoint_create_job *const create = of(job);

    TRY(checkpoints_make(parts->checkpoints, &create->order, progress, &create->info, msg));
    if (!job->owner)
        return EMBTIER_OK;
    return checkpoints_show(parts->checkpoints, create->info.id, 0, &create->info, &create->tables,
                            msg);
}

static enum embtier_err reply(struct job *job, const struct job_client *client, struct err_msg *msg)
{
    struct checkpoint_create_job *const create = of(job);

    (void)msg;
    answer_checkpoint(client, &create->info, create->tables.names ? &create->tables : NULL);
    return EMBTIER_OK;
}

static void free_job(struct job *job)
{
    checkpoint_tables_clear(&of(job)->tables);
    free(of(job));
}

static const struct job_kind create_kind = {
    .word = "checkpoint create",
    .line = LINE_CHECKPOINTS,
    .run = run,
    .reply = reply,
    .free = free_job,
};

enum embtier_err checkpoint_create_job_new(const struct job_request *request, struct job **ret_job,
                                           struct err_msg *msg)
{
    const Embtier__CheckpointCreate *const wire = request->wire->checkpoint_create;
    struct checkpoint_create_job *const create = calloc(1, sizeof(*create));

    (void)msg;
    if (!create)
        return EMBTIER_NO_MEMORY;
    create->job.kind = &create_kind;
    create->order.has_step = wire->step_given_case == EMBTIER__CHECKPOINT_CREATE__STEP_GIVEN_STEP;
    create->order.step = create->order.has_step ? wire->step : 0;
    create->order.keep = wire->keep;
    create->order.automatic = wire->automatic;
    create->order.promised = true; /* an export may be about to read it */
    create->order.uid = request->uid;
    (void)snprintf(create->order.user, sizeof(create->order.user), "%s", request->user);
    strncpy(create->order.metadata, wire->metadata, sizeof(create->order.metadata) - 1);
    *ret_job = &create->job;
    return EMBTIER_OK;
}

struct job *checkpoint_create_job_own(void)
{
    struct checkpoint_create_job *const create = calloc(1, sizeof(*create));

    if (!create)
        return NULL;
    create->job.kind = &create_kind;
    create->order.automatic = true;
    return &create->job;
}
