/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint_delete_job.h: deletes a checkpoint. */
#ifndef EMBTIER_DAEMON_JOBS_CHECKPOINT_JOBS_CHECKPOINT_DELETE_JOB_H
#define EMBTIER_DAEMON_JOBS_CHECKPOINT_JOBS_CHECKPOINT_DELETE_JOB_H

#include "daemon/jobs/job.h"

/* CheckpointDelete. */
job_make_fn checkpoint_delete_job_new;

#endif
