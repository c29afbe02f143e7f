/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/jobs/compaction/compaction_run_job.h"

#include <stdlib.h>

#include "base/macros.h"
#include "daemon/engine/tables/progress.h"
#include "daemon/jobs/answer.h"
#include "proto/control.pb-c.h"
#include "store/database/compaction_scheduler.h"
#include "store/store.h"

struct compaction_run_job {
    struct job job;
    bool is_full;
    uint32_t databases; /* that the server has */
};

static struct compaction_run_job *of(const struct job *job)
{
    return CONTAINER_OF(job, struct compaction_run_job, job);
}

static enum embtier_err tell(void *progress, uint32_t done, uint32_t total, struct err_msg *msg)
{
    return progress_tell(progress, done, total, "MiB", msg);
}

static enum embtier_err run(struct job *job, const struct job_parts *parts,
                            const struct progress_sink *progress, struct err_msg *msg)
{
    struct compaction_scheduler *const scheduler = store_compaction(parts->store);
    struct progress_sink sink = *progress;
    struct compaction_facts facts;

    if (of(job)->is_full)
        TRY(compaction_scheduler_rewrite(scheduler, tell, &sink, msg));
    else
        TRY(compaction_scheduler_catch_up(scheduler, tell, &sink, msg));
    compaction_scheduler_look(scheduler, &facts);
    of(job)->databases = facts.databases;
    return EMBTIER_OK;
}

static enum embtier_err reply(struct job *job, const struct job_client *client, struct err_msg *msg)
{
    Embtier__CompactionReply body = EMBTIER__COMPACTION_REPLY__INIT;
    Embtier__Reply message = EMBTIER__REPLY__INIT;

    (void)msg;
    body.databases = of(job)->databases;
    message.body_case = EMBTIER__REPLY__BODY_COMPACTION;
    message.compaction = &body;
    answer(client, &message);
    return EMBTIER_OK;
}

static void free_job(struct job *job)
{
    free(of(job));
}

static const struct job_kind run_kind = {
    .word = "compaction run",
    .line = LINE_COMPACTIONS,
    .stops = true,
    .run = run,
    .reply = reply,
    .free = free_job,
};

enum embtier_err compaction_run_job_new(const struct job_request *request, struct job **ret_job,
                                        struct err_msg *msg)
{
    struct compaction_run_job *const job = calloc(1, sizeof(*job));

    (void)msg;
    if (!job)
        return EMBTIER_NO_MEMORY;
    job->is_full = request->wire->compaction_run && request->wire->compaction_run->full;
    job->job.kind = &run_kind;
    *ret_job = &job->job;
    return EMBTIER_OK;
}
