/* SPDX-License-Identifier: Apache-2.0 */
/* compaction_run_job.h: the job that waits until all databases that are due have compacted. */
#ifndef EMBTIER_DAEMON_JOBS_COMPACTION_COMPACTION_RUN_JOB_H
#define EMBTIER_DAEMON_JOBS_COMPACTION_COMPACTION_RUN_JOB_H

#include "daemon/jobs/job.h"

/* CompactionRun. */
job_make_fn compaction_run_job_new;

#endif
