/* SPDX-License-Identifier: Apache-2.0 */
/* scan_job.h: the jobs of an export (scan.h). Each of its requests is one job. Only the job uses
 * the scan while it has it; the connection takes it back when the job is done. */
#ifndef EMBTIER_DAEMON_JOBS_TRANSFER_SCAN_JOB_H
#define EMBTIER_DAEMON_JOBS_TRANSFER_SCAN_JOB_H

#include "daemon/jobs/job.h"
#include "daemon/jobs/transfer/scan.h"

struct account;

struct scan_job {
    struct job job;
    struct scan *scan;       /* from or for its connection */
    struct scan_order order; /* OPEN */
    void *dest;              /* NEXT: in the owner's arena, which stays until the job is done */
    uint64_t bytes;
    struct scan_filled filled; /* the result of NEXT */
    struct account *account;   /* in which the scan counts until the job is freed; or NULL */
};

extern const struct job_kind scan_open_job, scan_next_job, scan_close_job;

/* Makes a job that opens a scan and then has it. NULL: no memory, as for the next two. */
struct job *scan_job_open(const struct scan_order *order);
/* Makes a job that fills @bytes at @dest. */
struct job *scan_job_next(struct scan *scan, void *dest, uint64_t bytes);
/* Makes the final job of a scan. It is made before the scan, so that a close cannot fail for lack
 * of memory. */
struct job *scan_job_final(void);
/* Makes the final job close @scan. scan_job_reset() prepares a withdrawn one for reuse. */
void scan_job_close(struct job *job, struct scan *scan);
void scan_job_reset(struct job *job);
/* Counts the scan in @account until the job is freed, which closes @account. */
void scan_job_count(struct job *job, struct account *account);
/* Takes the scan that the job, one of an export, has. NULL: it has none. */
struct scan *scan_job_take(struct job *job);
/* Answers that there are no more rows. */
void answer_scan_over(const struct job_client *client);

#endif
