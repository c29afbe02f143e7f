/* SPDX-License-Identifier: Apache-2.0 */
/* worker.h: jobs, which are what may take long, and the threads that run them, so that the control
 * thread stays free.
 *
 * Each kind of job stands in one line, and each line has its threads, all made at the start: so a
 * checkpoint never waits for a table that is filled, nor a drop for an export. What reads
 * directories or records is a job too, however short: the control thread waits for no disk. Within
 * a line users take turns, however many jobs each has waiting, and where a line has several threads
 * one user has all but one of them at most. A client says how many rows it wants exported or
 * imported: a turn does some (transfer_piece.h), and the rest of an import waits for the next. Jobs
 * that make or drop a table of the same name run one after the other, in the order they came. A job
 * that waits is withdrawn, and does nothing then; one that runs is asked to stop, if its kind can.
 */
#ifndef EMBTIER_DAEMON_JOBS_WORKER_H
#define EMBTIER_DAEMON_JOBS_WORKER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "daemon/engine/memory/accounts.h"
#include "daemon/jobs/job.h"

struct checkpoints;
struct message;
struct tables;
struct worker; /* all of them */

#define WORKER_THREADS 16

MUST_CHECK enum embtier_err worker_new(struct tables *tables, struct checkpoints *checkpoints,
                                       void (*send)(void *owner, struct message *message),
                                       void *owner, struct worker **ret_worker,
                                       struct err_msg *msg);
/* Runs what is queued to its end (tables_stop() makes that soon). */
void worker_free(struct worker *worker);
DEFINE_CLEANUP(struct worker, worker_free)

/* A user's jobs of the long kinds that may wait; one more is BUSY. */
#define JOBS_WAITING_MOST 128

/* Borrows @job until MESSAGE_JOB_DONE. BUSY: too many of this user wait; it is not taken. Never of
 * a job without an owner. */
MUST_CHECK enum embtier_err worker_submit(struct worker *worker, struct job *job,
                                          struct err_msg *msg);
/* The last that it told, all of one report. Any thread, of a job that was submitted. */
struct job_progress job_progress(struct job *job);

/* Nobody wants it any more, since @why: its client has gone (DISCONNECTED), it is CANCELLED. One
 * that waits is done, with that error; one that runs stops soon if its kind can, and else goes on.
 */
void worker_give_up(struct worker *worker, struct job *job, enum embtier_err why);
/* The same of the job with this id, CANCELLED, if it is @uid's or @uid may end anybody's.
 * NOT_FOUND; PERMISSION; INVALID: it runs, and is of a kind that goes on. @ret_waited: it has done
 * nothing. */
MUST_CHECK enum embtier_err worker_cancel(struct worker *worker, uint64_t id, uid_t uid,
                                          bool may_all, bool *ret_waited, struct err_msg *msg);

struct job_info {
    uint64_t id;
    const char *kind;                      /* a constant: "table drop" */
    char what[EMBTIER_TABLE_NAME_MAX + 1]; /* as struct job has it */
    uid_t uid;
    pid_t pid;
    bool is_own; /* the server's */
    bool runs;   /* else it waits */
    uint64_t age_ms;
    struct job_progress progress;
};
/* PERMISSION: the job is another user's. */
enum embtier_err job_refuse_cancel(uint64_t id, struct err_msg *msg);
/* Of all that wait or run and have an id above @after, @most, oldest first: a malloced array; and
 * whether there are more. */
MUST_CHECK enum embtier_err worker_list(struct worker *worker, uint64_t after, uint32_t most,
                                        struct job_info **ret_infos, uint32_t *ret_count,
                                        bool *ret_more);

struct worker_stats {
    uint32_t waiting;
    uint32_t running;
};
void worker_stats(struct worker *worker, struct worker_stats *ret_stats);

#endif
