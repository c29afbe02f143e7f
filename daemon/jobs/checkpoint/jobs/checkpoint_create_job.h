/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint_create_job.h: the job that makes a checkpoint, for a client or for
 * the server itself. */
#ifndef EMBTIER_DAEMON_JOBS_CHECKPOINT_JOBS_CHECKPOINT_CREATE_JOB_H
#define EMBTIER_DAEMON_JOBS_CHECKPOINT_JOBS_CHECKPOINT_CREATE_JOB_H

#include "daemon/jobs/job.h"

/* CheckpointCreate. */
job_make_fn checkpoint_create_job_new;
/* Makes the job for one of the server's own checkpoints. NULL: no memory. */
struct job *checkpoint_create_job_own(void);

#endif
