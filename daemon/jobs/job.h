/* SPDX-License-Identifier: Apache-2.0 */
/* job.h: one job, as the worker and the control thread see it.
 *
 * Each kind of job has its own struct, which embeds struct job, and one constant struct job_kind
 * with the functions that know that struct. The control thread makes a job from a client's request.
 * The worker runs it; then it answers its client and is freed. */
#ifndef EMBTIER_DAEMON_JOBS_JOB_H
#define EMBTIER_DAEMON_JOBS_JOB_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/spec/table_spec.h"
#include "daemon/engine/mail/inbox.h"

struct access;
struct checkpoints;
struct job;
struct job_client;
struct knobs;
struct profiles;
struct progress_sink;
struct reloads;
struct session;
struct store;
struct tables;
struct worker;
struct Embtier__Request;

/* The worker's lines: queues with their own threads. */
enum job_line {
    LINE_TABLES,      /* short work on tables */
    LINE_CHECKPOINTS, /* makes and deletes checkpoints; one at a time anyway */
    LINE_FILLS,       /* writes all rows of tables, which takes hours for large ones */
    LINE_DROPS,       /* waits for requests and compactions */
    LINE_MOVES,       /* moves rows to other homes, slowly */
    LINE_LOADS,       /* writes some rows of an import */
    LINE_ENDS,        /* ends imports; may make a checkpoint */
    LINE_SCANS,       /* reads some rows of an export */
    LINE_VERIFIES,    /* verifies checkpoints, which may take hours too */
    LINE_LOOKS,       /* reads a few small files */
    LINE_KNOBS,       /* changes values in force; waits for rows that leave a tier */
    LINE_COMPACTIONS, /* waits until shards have compacted, which may take hours */
    LINE_RESHARDS,    /* moves buckets to other shards, which may take hours too */
    LINE_COUNT
};

/* The parts of the server that jobs work on. Each kind takes those that it needs. */
struct job_parts {
    struct tables *tables;
    struct checkpoints *checkpoints;
    struct profiles *profiles;
    struct access *access;
    struct reloads *reloads;
    struct store *store;
    struct knobs *knobs;
};

/* Exports and imports are several jobs each: one opens it, some move rows, a final one ends it. */
enum job_transfer { TRANSFER_NONE, TRANSFER_EXPORT, TRANSFER_IMPORT };

struct job_kind {
    const char *word; /* "table drop" */
    enum job_line line;
    bool stays;                 /* is never withdrawn, because it gives back a user's resources */
    bool stops;                 /* can stop between two steps when no client wants it any more */
    bool uses_arena;            /* uses its owner's arena, which must stay until the job is done */
    enum job_transfer transfer; /* a job of this kind is part of one */
    bool publishes; /* is final, and its result stays: a client that cancels too late is told so */

    /* Returns the name of the @i-th table that the job makes, moves or drops; NULL: there are no
     * more. Locked. May be NULL: the kind does that to none. */
    const char *(*table)(const struct job *job, uint32_t i);
    /* Runs on any thread of its line. */
    enum embtier_err (*run)(struct job *job, const struct job_parts *parts,
                            const struct progress_sink *progress, struct err_msg *msg);
    /* True if the job goes on in its user's next turn. Called after a successful run. May be NULL:
     * it never goes on. */
    bool (*has_more)(const struct job *job);
    /* Control thread. Answers @client (answer.h) after successful runs. If it returns an error, the
     * client gets that error instead. */
    enum embtier_err (*reply)(struct job *job, const struct job_client *client,
                              struct err_msg *msg);
    /* Control thread. Frees the struct that embeds the job, with all it owns. */
    void (*free)(struct job *job);
};

struct job_progress {
    uint64_t done;
    uint64_t total;
    const char *unit; /* a constant; NULL: nothing was reported yet */
};

enum job_state { JOB_NEW, JOB_WAITING, JOB_RUNNING, JOB_ENDED };

struct job {
    const struct job_kind *kind;
    char what[EMBTIER_TABLE_NAME_MAX + 1]; /* for the list: a table, a checkpoint's number, or "" */

    /* Set by the function that submits it. */
    struct message done_message;     /* of a kind of the owner's, as is the next */
    struct message progress_message; /* in the inbox while `told` */
    uint64_t user;                   /* that asked (accounts.h): users take turns */
    uid_t uid;                       /* its id as a Unix user, and its process */
    pid_t pid;
    bool may_all; /* the user may also end what others have begun, and delete what is theirs */
    bool is_step; /* a step of a transfer: its id, age and progress are the transfer's, not the
                     worker's */
    void *owner;  /* the connection; NULL: the server's own job, which has no answer */
    uint32_t request_id;
    struct job_progress moved; /* of a step: by the transfer's earlier steps */

    /* The fields below are the worker's. */
    struct worker *worker;
    uint64_t id;              /* counts up */
    struct job *next, **link; /* of waiting or of running jobs; locked, as are the next four */
    enum job_state state;
    bool has_begun;               /* it runs, or waits for its user's next turn */
    uint64_t round;               /* the round in which it runs */
    uint64_t since_ns;            /* when it began to wait, or to run */
    struct job_progress progress; /* locked; read it with job_progress() */
    _Atomic bool told;
    _Atomic uint32_t stop; /* enum embtier_err: why it must stop */
    uint64_t reported_ns;

    /* The result, once it is done. */
    enum embtier_err err;
    struct err_msg msg;
};

/* A client's request from which a job is made; it has been checked (proto/frame.h). */
struct job_request {
    const struct Embtier__Request *wire;
    uid_t uid;                     /* of the client */
    const char *user;              /* its name in the access file; "": it has none */
    const struct session *session; /* NULL: the client has no shared memory */
    /* Why the client may not make the table that it asks for, but only have one that is there.
     * NULL: it may do all that it asks for. */
    const struct err_msg *refusal;
    const struct job_parts *parts;
};
/* Makes a job from a request; each kind that clients ask for has one. NO_MEMORY, and errors that
 * the control thread can find at once. */
typedef enum embtier_err job_make_fn(const struct job_request *request, struct job **ret_job,
                                     struct err_msg *msg);

/* Returns the user that may end and delete what that job's user may. */
uid_t job_acts_as(const struct job *job);
/* Sets the table that the job is about, for the list of jobs. Ignores a name that is not valid. */
void job_set_table(struct job *job, const char *name);
/* Sets the checkpoint that the job is about; 0: none. */
void job_set_checkpoint(struct job *job, uint64_t id);
/* NULL is allowed. */
void job_free(struct job *job);

#endif
