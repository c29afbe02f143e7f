/* SPDX-License-Identifier: Apache-2.0 */
/* scan_job.h: the jobs of an export (scan.h): each of its requests is one. While a job has the scan
 * nobody else does; it is taken back when the job is done. */
#ifndef EMBTIER_DAEMON_JOBS_TRANSFER_SCAN_JOB_H
#define EMBTIER_DAEMON_JOBS_TRANSFER_SCAN_JOB_H

#include "daemon/jobs/job.h"
#include "daemon/jobs/transfer/scan.h"

struct account;

struct scan_job {
    struct job job;
    struct scan *scan;       /* from or for its connection */
    struct scan_order order; /* OPEN */
    void *dest;              /* NEXT: in the owner's arena, which is there until the job is done */
    uint64_t bytes;
    struct scan_filled filled; /* its result */
    struct account *account;   /* in which the scan counts until the job is freed; or NULL */
};

extern const struct job_kind scan_open_job, scan_next_job, scan_close_job;

/* Opens a scan, which the job has then. NULL: no memory, as for the others. */
struct job *scan_job_open(const struct scan_order *order);
/* Fills @bytes at @dest. */
struct job *scan_job_next(struct scan *scan, void *dest, uint64_t bytes);
/* Will close a scan, and is made before there is one: that must not fail. */
struct job *scan_job_last(void);
/* Has such a job close @scan; and makes it as new, after it was withdrawn. */
void scan_job_close(struct job *job, struct scan *scan);
void scan_job_reset(struct job *job);
/* The scan counts in @account, which the job closes, until it is freed. */
void scan_job_count(struct job *job, struct account *account);
/* The scan that the job has; NULL: none, or it is no job of an export. */
struct scan *scan_job_take(struct job *job);
/* Answers that there are no more rows. */
void answer_scan_over(const struct job_client *client);

#endif
