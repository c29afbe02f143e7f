/* SPDX-License-Identifier: Apache-2.0 */
/* table_move_job.h: the job that moves a table to another home while requests go on. */
#ifndef EMBTIER_DAEMON_JOBS_TABLE_TABLE_MOVE_JOB_H
#define EMBTIER_DAEMON_JOBS_TABLE_TABLE_MOVE_JOB_H

#include "daemon/jobs/job.h"

/* TableMove. The errors of tables_check_move(). */
job_make_fn table_move_job_new;

#endif
