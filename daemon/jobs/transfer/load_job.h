/* SPDX-License-Identifier: Apache-2.0 */
/* load_job.h: the jobs of an import (load.h). Each of its requests is one job. Only the job uses
 * the load while it has it; the connection takes it back when the job is done. */
#ifndef EMBTIER_DAEMON_JOBS_TRANSFER_LOAD_JOB_H
#define EMBTIER_DAEMON_JOBS_TRANSFER_LOAD_JOB_H

#include "daemon/engine/tables/tables.h"
#include "daemon/jobs/job.h"
#include "daemon/jobs/transfer/load.h"

struct account;

struct load_job {
    struct job job;
    struct load *load;       /* from or for its connection */
    struct load_order order; /* OPEN */
    struct load_batch batch; /* ROWS: the rows that are left, in the owner's arena */
    struct table_info info;  /* the result of END */
    struct account *account; /* in which the load counts until the job is freed; or NULL */
};

extern const struct job_kind load_open_job, load_rows_job, load_end_job, load_close_job;

/* Makes a job that opens a load and then has it. NULL: no memory, as for the next two. */
struct job *load_job_open(const struct load_order *order);
/* Makes a job that adds @batch, in as many turns as it needs. @total: the rows that will come, for
 * the list of jobs. */
struct job *load_job_rows(struct load *load, const struct load_batch *batch, uint64_t total);
/* Makes the final job of a load. It is made before the load, so that an end cannot fail for lack of
 * memory. */
struct job *load_job_final(void);
/* Makes the final job publish or close @load. load_job_reset() prepares a withdrawn one for
 * reuse. */
void load_job_end(struct job *job, struct load *load);
void load_job_close(struct job *job, struct load *load);
void load_job_reset(struct job *job);
/* Counts the load in @account until the job is freed, which closes @account. */
void load_job_count(struct job *job, struct account *account);
/* Takes the load that the job, one of an import, has. NULL: it has none. */
struct load *load_job_take(struct job *job);
/* Answers that no row was taken. */
void answer_load_over(const struct job_client *client);

#endif
