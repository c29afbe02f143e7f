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

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "daemon/engine/mail/inbox.h"
#include "daemon/engine/sessions/accounts.h"
#include "daemon/engine/tables/tables.h"
#include "daemon/jobs/checkpoint/checkpoints.h"
#include "daemon/jobs/restore/restore.h"
#include "daemon/jobs/transfer/load.h"
#include "daemon/jobs/transfer/scan.h"

struct worker; /* all of them */

#define WORKER_THREADS 16

enum job_kind {
    JOB_TABLE_CREATE,
    JOB_TABLE_FILL, /* the same of an eager table */
    JOB_TABLE_DROP,
    JOB_CHECKPOINT_CREATE,
    JOB_CHECKPOINT_VERIFY,
    JOB_CHECKPOINT_DELETE,
    JOB_CHECKPOINT_RESTORE,
    JOB_CHECKPOINT_LIST,
    JOB_CHECKPOINT_SHOW,
    JOB_SCAN_OPEN,
    JOB_SCAN_NEXT,
    JOB_SCAN_CLOSE,
    JOB_LOAD_OPEN,
    JOB_LOAD_ROWS,
    JOB_LOAD_END,
    JOB_LOAD_CLOSE,
};

struct job_progress {
    uint64_t done;
    uint64_t total;
    const char *unit; /* a constant; NULL: nothing was told yet */
};

enum job_state { JOB_NEW, JOB_WAITING, JOB_RUNNING, JOB_ENDED };

struct job {
    struct message done_message;     /* MESSAGE_JOB_DONE */
    struct message progress_message; /* MESSAGE_JOB_PROGRESS; in the inbox while `told` */
    enum job_kind kind;
    uid_t uid; /* whose, as told by whoever submits it, with the process */
    pid_t pid;
    bool is_step; /* of a transfer, whose id, age and progress these are: not the worker's */
    uint64_t id;  /* the worker's from here on; counts up */
    struct job *next, **link; /* of those that wait, or of those that run; locked, as are */
    enum job_state state;
    bool has_begun;    /* and runs, or waits for the next turn of its user */
    uint64_t round;    /* when it is its user's turn */
    uint64_t since_ns; /* it waits, or has begun */

    struct table_spec
        spec; /* TABLE_CREATE, TABLE_FILL; TABLE_DROP, of SCAN_… and LOAD_…: the name */
    bool if_not_exists;
    struct checkpoint_order order; /* CHECKPOINT_CREATE */
    uint64_t checkpoint_id; /* CHECKPOINT_VERIFY, _DELETE, _SHOW; _LIST: those after it, … */
    uint32_t page;          /* … this many of them; _SHOW: tables from this one on */
    struct restore_order restore; /* CHECKPOINT_RESTORE */
    struct scan_order scan_order; /* SCAN_OPEN */
    void *dest; /* SCAN_NEXT: in the owner's arena, which is there until the job is done */
    uint64_t bytes;
    struct load_order load_order; /* LOAD_OPEN */
    struct load_batch load_batch; /* LOAD_ROWS: what is left, in the owner's arena too */
    void *owner;             /* the connection; NULL: the server's own, of which nobody is told */
    struct account *account; /* whoever is told gives one of @row back to it, and closes it; NULL */
    enum account_row row;
    uint32_t request_id;

    struct job_progress moved;    /* by the steps before it, of a step */
    struct job_progress progress; /* under the worker's lock: job_progress() */
    _Atomic bool told;
    _Atomic uint32_t stop; /* enum embtier_err: why it is to be given up */
    uint64_t reported_ns;  /* worker */

    /* Result, once done. */
    enum embtier_err err;
    struct err_msg msg;
    struct table_info info;            /* of a table, or */
    struct checkpoint_info checkpoint; /* of a checkpoint, or */
    struct checkpoint_tables tables;   /* with it: of CHECKPOINT_SHOW and _CREATE; or */
    struct checkpoint_page listed;     /* of CHECKPOINT_LIST, or */
    struct restored_tables restored;   /* of tables; whoever frees the job frees them; or */
    struct scan_filled filled;         /* of SCAN_NEXT */
    struct scan *scan; /* of SCAN_OPEN; given to SCAN_NEXT, and to SCAN_CLOSE, which frees it */
    struct load *load; /* so is it; LOAD_END frees it too */
    struct worker *worker;
};

MUST_CHECK enum embtier_err worker_new(struct tables *tables, struct checkpoints *checkpoints,
                                       void (*send)(void *owner, struct message *message),
                                       void *owner, struct worker **ret_worker,
                                       struct err_msg *msg);
/* Runs what is queued to its end (tables_stop() makes that soon). */
void worker_free(struct worker *worker);
DEFINE_CLEANUP(struct worker, worker_free)

/* Frees it with what it has. */
void job_free(struct job *job);
/* Its owner's, which therefore must stay until it is done. */
static inline bool job_uses_arena(const struct job *job)
{
    return job->kind == JOB_SCAN_NEXT || job->kind == JOB_LOAD_ROWS;
}

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
    char what[EMBTIER_TABLE_NAME_MAX + 1]; /* a table, or a checkpoint's number; or "" */
    uid_t uid;
    pid_t pid;
    bool is_own; /* the server's */
    bool runs;   /* else it waits */
    uint64_t age_ms;
    struct job_progress progress;
};
/* PERMISSION: the job is another user's. */
enum embtier_err job_refuse_cancel(uint64_t id, struct err_msg *msg);
/* The kind, as in struct job_info. */
const char *job_kind_word(enum job_kind kind);
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
