/* SPDX-License-Identifier: Apache-2.0 */
/* worker.h: a thread for what may take long, so that the control thread stays free. Jobs of one
 * worker run one at a time in the order they came. There are two: one for what changes tables and
 * checkpoints, one for what only reads them. */
#ifndef EMBTIER_DAEMON_WORKER_H
#define EMBTIER_DAEMON_WORKER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "daemon/checkpoints.h"
#include "daemon/inbox.h"
#include "daemon/load.h"
#include "daemon/scan.h"
#include "daemon/tables.h"

struct worker;

enum job_kind {
    JOB_TABLE_CREATE,
    JOB_TABLE_DROP,
    JOB_CHECKPOINT_CREATE,
    JOB_CHECKPOINT_VERIFY,
    JOB_CHECKPOINT_DELETE,
    JOB_CHECKPOINT_RESTORE,
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

struct job {
    struct message done_message;     /* MESSAGE_JOB_DONE */
    struct message progress_message; /* MESSAGE_JOB_PROGRESS; in the inbox while `told` */
    struct job *next;
    enum job_kind kind;
    struct table_spec spec; /* TABLE_CREATE; TABLE_DROP: the name */
    bool if_not_exists;
    struct checkpoint_order order; /* CHECKPOINT_CREATE */
    uint64_t checkpoint_id;        /* CHECKPOINT_VERIFY, CHECKPOINT_DELETE */
    struct restore_order restore;  /* CHECKPOINT_RESTORE */
    struct scan_order scan_order;  /* SCAN_OPEN */
    void *dest; /* SCAN_NEXT: in the owner's arena, which is there until the job is done */
    uint64_t bytes;
    struct load_order load_order; /* LOAD_OPEN */
    struct load_batch load_batch; /* LOAD_ROWS: in the owner's arena too */
    void *owner; /* the connection; NULL: the server's own, of which nobody is told */
    uint32_t request_id;

    struct job_progress progress; /* under the worker's lock: job_progress() */
    _Atomic bool told;
    _Atomic bool gone;    /* the client */
    uint64_t reported_ns; /* worker */

    /* Result, once done. */
    enum embtier_err err;
    struct err_msg msg;
    struct table_info info;            /* of a table, or */
    struct checkpoint_info checkpoint; /* of a checkpoint, or */
    struct restored_tables restored;   /* of tables; whoever frees the job frees them; or */
    struct scan_filled filled;         /* of SCAN_NEXT */
    struct scan *scan; /* of SCAN_OPEN; given to SCAN_NEXT, and to SCAN_CLOSE, which frees it */
    struct load *load; /* so is it; LOAD_END frees it too */
    struct worker *worker;
};

MUST_CHECK enum embtier_err worker_new(struct tables *tables, struct checkpoints *checkpoints,
                                       void (*send)(void *owner, struct message *message),
                                       void *owner, bool in_background, struct worker **ret_worker,
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

/* Borrows @job until MESSAGE_JOB_DONE. */
void worker_submit(struct worker *worker, struct job *job);
/* The last that it told, all of one report. Any thread, of a job that was submitted. */
struct job_progress job_progress(struct job *job);

#endif
