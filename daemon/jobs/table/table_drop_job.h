/* SPDX-License-Identifier: Apache-2.0 */
/* table_drop_job.h: the job that drops a table and waits until its rows are gone. */
#ifndef EMBTIER_DAEMON_JOBS_TABLE_TABLE_DROP_JOB_H
#define EMBTIER_DAEMON_JOBS_TABLE_TABLE_DROP_JOB_H

#include "daemon/jobs/job.h"

/* TableDrop. NO_TABLE. */
job_make_fn table_drop_job_new;

#endif
