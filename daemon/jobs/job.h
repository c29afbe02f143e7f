/* SPDX-License-Identifier: Apache-2.0 */
/* job.h: one job, as the worker and the control thread see it.
 *
 * Each kind of job has a struct of its own, in which struct job is embedded, and one constant
 * struct job_kind, with the functions that know that struct. A job is made from a client's request,
 * is run by the worker, answers its client and is freed. */
#ifndef EMBTIER_DAEMON_JOBS_JOB_H
#define EMBTIER_DAEMON_JOBS_JOB_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/spec/table_spec.h"
#include "daemon/engine/mail/inbox.h"

struct checkpoints;
struct job;
struct job_client;
struct progress_sink;
struct tables;
struct worker;
struct Embtier__Request;

/* The worker's lines. */
enum job_line {
    LINE_TABLES,      /* what is done in no time */
    LINE_CHECKPOINTS, /* what changes them; one at a time is anyway */
    LINE_FILLS,       /* what writes all rows of tables: for hours, if these are large */
    LINE_DROPS,       /* what waits for requests and compactions */
    LINE_LOADS,       /* some rows of an import */
    LINE_ENDS,        /* of imports: may make a checkpoint */
    LINE_SCANS,       /* some rows of an export */
    LINE_VERIFIES,    /* for hours too */
    LINE_LOOKS,       /* what reads some small files */
    LINE_COUNT
};

/* The parts of the server that jobs work on. */
struct job_parts {
    struct tables *tables;
    struct checkpoints *checkpoints;
};

struct job_kind {
    const char *word; /* "table drop" */
    enum job_line line;
    bool stays;      /* is never withdrawn: it gives back what somebody had */
    bool stops;      /* between two steps, if nobody wants it any more */
    bool uses_arena; /* its owner's, which therefore must stay until it is done */

    /* The table numbered @i of those that it makes or drops; NULL: there are no more. Locked. May
     * be NULL: it makes and drops none. */
    const char *(*table)(const struct job *job, uint32_t i);
    /* Any thread of its line. */
    enum embtier_err (*run)(struct job *job, const struct job_parts *parts,
                            const struct progress_sink *progress, struct err_msg *msg);
    /* After a run that went well: whether the next turn of its user is to go on with it. May be
     * NULL: no. */
    bool (*has_more)(const struct job *job);
    /* Control thread. Answers @client (answer.h), after runs that went well. An error is answered
     * in its place. */
    enum embtier_err (*reply)(struct job *job, const struct job_client *client,
                              struct err_msg *msg);
    /* Control thread. Frees the struct that the job is embedded in, with what it has. */
    void (*free)(struct job *job);
};

struct job_progress {
    uint64_t done;
    uint64_t total;
    const char *unit; /* a constant; NULL: nothing was told yet */
};

enum job_state { JOB_NEW, JOB_WAITING, JOB_RUNNING, JOB_ENDED };

struct job {
    const struct job_kind *kind;
    char what[EMBTIER_TABLE_NAME_MAX + 1]; /* for the list: a table, a checkpoint's number, or "" */

    /* Set by the function that submits it. */
    struct message done_message;     /* MESSAGE_JOB_DONE */
    struct message progress_message; /* MESSAGE_JOB_PROGRESS; in the inbox while `told` */
    uid_t uid;                       /* of the user, and the process that asked */
    pid_t pid;
    bool is_step; /* of a transfer, whose id, age and progress these are: not the worker's */
    void *owner;  /* the connection; NULL: the server's own, of which nobody is told */
    uint32_t request_id;
    struct job_progress moved; /* by the steps before it, of a step */

    /* The worker's from here on. */
    struct worker *worker;
    uint64_t id;              /* counts up */
    struct job *next, **link; /* of those that wait, or of those that run; locked, as are */
    enum job_state state;
    bool has_begun;               /* and runs, or waits for the next turn of its user */
    uint64_t round;               /* when it is its user's turn */
    uint64_t since_ns;            /* it waits, or has begun */
    struct job_progress progress; /* under the worker's lock: job_progress() */
    _Atomic bool told;
    _Atomic uint32_t stop; /* enum embtier_err: why it is to be given up */
    uint64_t reported_ns;

    /* The result, once it is done. */
    enum embtier_err err;
    struct err_msg msg;
};

/* What a job is made from: a client's request, which has been checked (proto/frame.h). */
struct job_request {
    const struct Embtier__Request *wire;
    uid_t uid; /* of the client */
    struct tables *tables;
};
/* Makes a job from a request; each kind that clients ask for has one. NO_MEMORY, and what the
 * control thread can tell already. */
typedef enum embtier_err job_make_fn(const struct job_request *request, struct job **ret_job,
                                     struct err_msg *msg);

/* For the list of jobs: the table that it is about. A name that no table can have is left out. */
void job_set_table(struct job *job, const char *name);
/* The checkpoint that it is about; 0: none. */
void job_set_checkpoint(struct job *job, uint64_t id);
/* NULL is allowed. */
void job_free(struct job *job);

#endif
