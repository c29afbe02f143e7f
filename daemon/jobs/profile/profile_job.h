/* SPDX-License-Identifier: Apache-2.0 */
/* profile_job.h: jobs that start, stop and read the profile of the running server. They wait for
 * lanes. */
#ifndef EMBTIER_DAEMON_JOBS_PROFILE_PROFILE_JOB_H
#define EMBTIER_DAEMON_JOBS_PROFILE_PROFILE_JOB_H

#include "daemon/jobs/job.h"

/* ProfileStart, ProfileStop, ProfileRead. Errors when they run: profiles.h. */
job_make_fn profile_start_job_new;
job_make_fn profile_stop_job_new;
job_make_fn profile_read_job_new;

#endif
