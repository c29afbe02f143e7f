/* SPDX-License-Identifier: Apache-2.0 */
/* plan_end_job.h: the job that puts a plan in force, once its tables have been moved. */
#ifndef EMBTIER_DAEMON_JOBS_PLAN_PLAN_END_JOB_H
#define EMBTIER_DAEMON_JOBS_PLAN_PLAN_END_JOB_H

#include "daemon/jobs/job.h"
#include "daemon/jobs/plan/plan_record.h"

struct job_client;

/* @record is borrowed for the job's life. The job fills in applied_ms. NO_MEMORY. */
MUST_CHECK enum embtier_err plan_end_job_new(struct plan_record *record,
                                             const struct plan_state *state, struct job **ret_job);

/* The client that applies a plan. */
struct plan_applying {
    pid_t pid; /* 0: none does */
    uint64_t generation;
};
/* Answers with the plan in force, and with the one that is being applied. */
void answer_plan(const struct job_client *client, const struct plan_state *state,
                 const struct plan_applying *applying);

#endif
