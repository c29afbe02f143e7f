/* SPDX-License-Identifier: Apache-2.0 */
/* reshard_job.h: the job that moves buckets to another number of shards, and the one that tells how
 * they lie. */
#ifndef EMBTIER_DAEMON_JOBS_RESHARD_RESHARD_JOB_H
#define EMBTIER_DAEMON_JOBS_RESHARD_RESHARD_JOB_H

#include "daemon/jobs/job.h"

/* Reshard. BUSY: buckets are being moved already. */
job_make_fn reshard_job_new;
/* Returns the server's own job, which goes on with one that a stop or a crash cut short, if there
 * is one; NULL: out of memory. */
struct job *reshard_job_own(void);
bool reshard_job_is_own(const struct job *job);

#endif
