/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/jobs/plan/plan_end_job.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log/log.h"
#include "base/macros.h"
#include "daemon/jobs/answer.h"
#include "proto/control.pb-c.h"

struct plan_end_job {
    struct job job;
    struct plan_record *record;
    struct plan_state state;
};

static struct plan_end_job *of(const struct job *job)
{
    return CONTAINER_OF(job, struct plan_end_job, job);
}

static enum embtier_err run(struct job *job, const struct job_parts *parts,
                            const struct progress_sink *progress, struct err_msg *msg)
{
    struct plan_end_job *const end = of(job);

    (void)parts;
    (void)progress;
    end->state.applied_ms = clock_wall_ms();
    TRY(plan_record_set(end->record, &end->state, msg));
    log_info("a placement plan is in force", "generation=%" PRIu64 " hash=%016" PRIx64,
             end->state.generation, end->state.hash);
    return EMBTIER_OK;
}

void answer_plan(const struct job_client *client, const struct plan_state *state,
                 const struct plan_applying *applying)
{
    Embtier__Plan body = EMBTIER__PLAN__INIT;
    Embtier__Reply message = EMBTIER__REPLY__INIT;

    body.generation = state->generation;
    body.hash = state->hash;
    body.applied_ms = state->applied_ms;
    body.tables = state->tables;
    body.applying_pid = (uint64_t)applying->pid;
    body.applying_generation = applying->generation;
    message.body_case = EMBTIER__REPLY__BODY_PLAN;
    message.plan = &body;
    answer(client, &message);
}

static enum embtier_err reply(struct job *job, const struct job_client *client, struct err_msg *msg)
{
    (void)msg;
    answer_plan(client, &of(job)->state, &(struct plan_applying){ .pid = 0 });
    return EMBTIER_OK;
}

static void free_job(struct job *job)
{
    free(of(job));
}

static const struct job_kind end_kind = {
    .word = "plan end",
    .line = LINE_TABLES,
    .run = run,
    .reply = reply,
    .free = free_job,
};

enum embtier_err plan_end_job_new(struct plan_record *record, const struct plan_state *state,
                                  struct job **ret_job)
{
    struct plan_end_job *const end = calloc(1, sizeof(*end));

    if (!end)
        return EMBTIER_NO_MEMORY;
    end->job.kind = &end_kind;
    end->record = record;
    end->state = *state;
    *ret_job = &end->job;
    return EMBTIER_OK;
}
