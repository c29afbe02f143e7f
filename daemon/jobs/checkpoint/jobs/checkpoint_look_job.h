/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint_look_job.h: the jobs that list checkpoints and show one. Both are short, but they read
 * SSD, and the control thread waits for no disk. */
#ifndef EMBTIER_DAEMON_JOBS_CHECKPOINT_JOBS_CHECKPOINT_LOOK_JOB_H
#define EMBTIER_DAEMON_JOBS_CHECKPOINT_JOBS_CHECKPOINT_LOOK_JOB_H

#include "daemon/jobs/job.h"

/* CheckpointList. */
job_make_fn checkpoint_list_job_new;
/* CheckpointShow. */
job_make_fn checkpoint_show_job_new;

#endif
