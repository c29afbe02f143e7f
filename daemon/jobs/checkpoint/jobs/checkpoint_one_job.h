/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint_one_job.h: the jobs that delete a checkpoint and verify one. A verify reads every
 * byte, which may take hours. */
#ifndef EMBTIER_DAEMON_JOBS_CHECKPOINT_JOBS_CHECKPOINT_ONE_JOB_H
#define EMBTIER_DAEMON_JOBS_CHECKPOINT_JOBS_CHECKPOINT_ONE_JOB_H

#include "daemon/jobs/job.h"

/* CheckpointDelete. */
job_make_fn checkpoint_delete_job_new;
/* CheckpointVerify. */
job_make_fn checkpoint_verify_job_new;

#endif
