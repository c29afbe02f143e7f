/* SPDX-License-Identifier: Apache-2.0 */
/* reload_job.h: reloads files of the server (reload.h). */
#ifndef EMBTIER_DAEMON_JOBS_RELOAD_RELOAD_JOB_H
#define EMBTIER_DAEMON_JOBS_RELOAD_RELOAD_JOB_H

#include "base/err.h"
#include "daemon/jobs/job.h"

/* For a client's request (job_make_fn). */
MUST_CHECK enum embtier_err reload_job_new(const struct job_request *request, struct job **ret_job,
                                           struct err_msg *msg);
/* For a signal: the log alone tells what came of it. NULL: out of memory. */
MUST_CHECK struct job *reload_job_own(void);
bool reload_job_is_own(const struct job *job);

#endif
