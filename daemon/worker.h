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
#include "daemon/tables.h"

struct worker;

enum job_kind {
    JOB_TABLE_CREATE,
    JOB_TABLE_DROP,
    JOB_CHECKPOINT_CREATE,
    JOB_CHECKPOINT_VERIFY,
    JOB_CHECKPOINT_DELETE,
    JOB_CHECKPOINT_RESTORE,
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
    void *owner; /* the connection; NULL: the server's own, of which nobody is told */
    uint32_t request_id;

    /* Progress, any thread; `unit` is a constant. */
    _Atomic uint64_t done;
    _Atomic uint64_t total;
    _Atomic(const char *) unit;
    _Atomic bool told;
    uint64_t reported_ns; /* worker */

    /* Result, once done. */
    enum embtier_err err;
    struct err_msg msg;
    struct table_info info;            /* of a table, or */
    struct checkpoint_info checkpoint; /* of a checkpoint, or */
    struct restored_tables restored;   /* of tables; whoever frees the job frees them */
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

/* Borrows @job until MESSAGE_JOB_DONE. */
void worker_submit(struct worker *worker, struct job *job);

#endif
