/* SPDX-License-Identifier: Apache-2.0 */
/* load_job.h: the jobs of an import (load.h): each of its requests is one. While a job has the load
 * nobody else does; it is taken back when the job is done. */
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
    struct load_batch batch; /* ROWS: what is left, in the owner's arena */
    struct table_info info;  /* the result of END */
    struct account *account; /* in which the load counts until the job is freed; or NULL */
};

extern const struct job_kind load_open_job, load_rows_job, load_end_job, load_close_job;

/* Opens a load, which the job has then. NULL: no memory, as for the others. */
struct job *load_job_open(const struct load_order *order);
/* Adds @batch, of as many turns as it needs. @total: the rows that will come, for the list. */
struct job *load_job_rows(struct load *load, const struct load_batch *batch, uint64_t total);
/* Will end or close a load, and is made before there is one: that must not fail. */
struct job *load_job_last(void);
/* Has such a job publish @load, or close it; and makes it as new, after it was withdrawn. */
void load_job_end(struct job *job, struct load *load);
void load_job_close(struct job *job, struct load *load);
void load_job_reset(struct job *job);
/* The load counts in @account, which the job closes, until it is freed. */
void load_job_count(struct job *job, struct account *account);
/* The load that the job has; NULL: none, or it is no job of an import. */
struct load *load_job_take(struct job *job);
/* Answers that no row was taken. */
void answer_load_over(const struct job_client *client);

#endif
