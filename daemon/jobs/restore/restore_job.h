/* SPDX-License-Identifier: Apache-2.0 */
/* restore_job.h: the job that restores tables of a checkpoint for a client. */
#ifndef EMBTIER_DAEMON_JOBS_RESTORE_RESTORE_JOB_H
#define EMBTIER_DAEMON_JOBS_RESTORE_RESTORE_JOB_H

#include "daemon/jobs/job.h"

/* CheckpointRestore. TOO_LARGE: too many tables are named. NO_TABLE: a name that no
 * table can have. */
job_make_fn restore_job_new;

#endif
