/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint_verify_job.h: reads every byte of a checkpoint, which may take hours. */
#ifndef EMBTIER_DAEMON_JOBS_CHECKPOINT_JOBS_CHECKPOINT_VERIFY_JOB_H
#define EMBTIER_DAEMON_JOBS_CHECKPOINT_JOBS_CHECKPOINT_VERIFY_JOB_H

#include "daemon/jobs/job.h"

/* CheckpointVerify. */
job_make_fn checkpoint_verify_job_new;

#endif
