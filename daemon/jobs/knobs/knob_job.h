/* SPDX-License-Identifier: Apache-2.0 */
/* knob_job.h: lists knobs, and sets one (knobs.h). */
#ifndef EMBTIER_DAEMON_JOBS_KNOBS_KNOB_JOB_H
#define EMBTIER_DAEMON_JOBS_KNOBS_KNOB_JOB_H

#include "base/err.h"
#include "daemon/jobs/job.h"

/* For clients' requests (job_make_fn). */
MUST_CHECK enum embtier_err knob_list_job_new(const struct job_request *request,
                                              struct job **ret_job, struct err_msg *msg);
MUST_CHECK enum embtier_err knob_set_job_new(const struct job_request *request,
                                             struct job **ret_job, struct err_msg *msg);

#endif
