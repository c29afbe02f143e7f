/* SPDX-License-Identifier: Apache-2.0 */
/* worker.h: one thread for what may take long (creating and dropping tables), so that the control
 * thread stays free. Jobs run one at a time in the order they came. */
#ifndef EMBTIER_DAEMON_WORKER_H
#define EMBTIER_DAEMON_WORKER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "daemon/inbox.h"
#include "daemon/tables.h"

struct worker;

enum job_kind { JOB_TABLE_CREATE, JOB_TABLE_DROP };

struct job {
    struct message done_message;     /* MESSAGE_JOB_DONE */
    struct message progress_message; /* MESSAGE_JOB_PROGRESS; in the inbox while `told` */
    struct job *next;
    enum job_kind kind;
    struct table_spec spec; /* CREATE; DROP: the name */
    bool if_not_exists;
    void *owner; /* the connection */
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
    struct table_info info;
    struct worker *worker;
};

MUST_CHECK enum embtier_err worker_new(struct tables *tables,
                                       void (*send)(void *owner, struct message *message),
                                       void *owner, struct worker **ret_worker,
                                       struct err_msg *msg);
/* Runs what is queued to its end (tables_stop() makes that soon). */
void worker_free(struct worker *worker);
DEFINE_CLEANUP(struct worker, worker_free)

/* Borrows @job until MESSAGE_JOB_DONE. */
void worker_submit(struct worker *worker, struct job *job);

#endif
