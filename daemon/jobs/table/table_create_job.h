/* SPDX-License-Identifier: Apache-2.0 */
/* table_create_job.h: the job that makes a table. For an eager table it writes all rows, which may
 * take hours. */
#ifndef EMBTIER_DAEMON_JOBS_TABLE_TABLE_CREATE_JOB_H
#define EMBTIER_DAEMON_JOBS_TABLE_TABLE_CREATE_JOB_H

#include "daemon/jobs/job.h"

/* TableCreate. INVALID: the spec is not valid. */
job_make_fn table_create_job_new;

#endif
