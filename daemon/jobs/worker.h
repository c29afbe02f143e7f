/* SPDX-License-Identifier: Apache-2.0 */
/* worker.h: jobs that may take long, and the threads that run them, so that the control thread
 * stays free.
 *
 * Each kind of job belongs to one line. Each line has its own threads, all made at the start, so a
 * checkpoint never waits for a table fill, nor a drop for an export. Work that reads directories or
 * records is a job too, however short, because the control thread waits for no disk.
 *
 * Within a line users take turns, however many jobs each has waiting. In a line with several
 * threads, one user has at most all but one of them. A client chooses how many rows it exports or
 * imports, so one turn moves only some of them (transfer_piece.h). The rest of an import waits for
 * the next turn.
 *
 * Jobs that make, move or drop a table of the same name run one after the other, each user's in
 * the order they came. A waiting job can be withdrawn, and then does nothing. A running job is
 * asked to stop, if its kind can. */
#ifndef EMBTIER_DAEMON_JOBS_WORKER_H
#define EMBTIER_DAEMON_JOBS_WORKER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "daemon/engine/memory/accounts.h"
#include "daemon/jobs/job.h"

struct message;
struct worker; /* all lines and their threads */

#define WORKER_THREADS 22

MUST_CHECK enum embtier_err worker_new(const struct job_parts *parts,
                                       void (*send)(void *owner, struct message *message),
                                       void *owner, struct worker **ret_worker,
                                       struct err_msg *msg);
/* Runs all queued jobs to their end first (tables_stop() makes that soon). */
void worker_free(struct worker *worker);
DEFINE_CLEANUP(struct worker, worker_free)

/* Most jobs of the long kinds that a user may have waiting; one more is BUSY. */
#define JOBS_WAITING_MOST 128

/* Borrows @job until done_message. BUSY: too many jobs of this user wait; @job is not taken.
 * Never refuses a job without an owner. */
MUST_CHECK enum embtier_err worker_submit(struct worker *worker, struct job *job,
                                          struct err_msg *msg);
/* Returns the progress that the job last reported, never a mix of two reports. Any thread; the job
 * must have been submitted. */
struct job_progress job_progress(struct job *job);

/* Gives up a job that no client wants any more. @why: DISCONNECTED (its client has gone) or
 * CANCELLED. A waiting job ends with that error. A running one stops soon if its kind can, else it
 * goes on. */
void worker_give_up(struct worker *worker, struct job *job, enum embtier_err why);
/* Gives up the job with this id as CANCELLED, if it is @user's or @may_all is set. NOT_FOUND;
 * PERMISSION; INVALID: its kind cannot be cancelled any more. @ret_waited: it has done nothing. */
MUST_CHECK enum embtier_err worker_cancel(struct worker *worker, uint64_t id, uint64_t user,
                                          bool may_all, bool *ret_waited, struct err_msg *msg);

struct job_info {
    uint64_t id;
    const char *kind;                      /* a constant: "table drop" */
    char what[EMBTIER_TABLE_NAME_MAX + 1]; /* as in struct job */
    uint64_t user;
    uid_t uid;
    pid_t pid;
    bool is_own; /* the server's own */
    bool runs;   /* else it waits */
    uint64_t age_ms;
    struct job_progress progress;
};
/* Compares ids, for qsort() and bsearch(). */
int job_info_compare(const void *a, const void *b);
/* Returns PERMISSION, with its text: the job is another user's. */
enum embtier_err job_refuse_cancel(uint64_t id, struct err_msg *msg);
/* Lists jobs that wait or run and have ids above @after, oldest first and at most @most, as a
 * malloced array. @ret_more: there are more. */
MUST_CHECK enum embtier_err worker_list(struct worker *worker, uint64_t after, uint32_t most,
                                        struct job_info **ret_infos, uint32_t *ret_count,
                                        bool *ret_more);

struct worker_stats {
    uint32_t waiting;
    uint32_t running;
};
void worker_stats(struct worker *worker, struct worker_stats *ret_stats);

#endif
