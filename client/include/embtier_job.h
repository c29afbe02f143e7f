/* SPDX-License-Identifier: Apache-2.0 */
/* embtier_job.h: jobs, the server's long work (embtier.h). */
#ifndef EMBTIER_JOB_H
#define EMBTIER_JOB_H

#include <stddef.h>
#include <stdint.h>

#include "embtier_common.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A piece of long work: making all rows of a table, a restore, drop or checkpoint, or a step of an
 * export or import. A job runs or waits for its turn. It waits for others of its kind, in which
 * users take turns, and for jobs that make or drop a table of the same name. */
struct embtier_job {
    uint64_t id;      /* counts up, from the server's start */
    const char *kind; /* "table drop" */
    const char *what; /* a table, or a checkpoint's number; or "" */
    uint32_t uid;     /* of the user that asked for it */
    uint64_t pid;
    int is_own; /* nonzero: the server's own, without a client */
    int runs;   /* zero: it waits, and has done nothing */
    uint64_t age_ms;
    uint64_t done; /* of total; 0 and 0: nothing is known yet */
    uint64_t total;
    const char *unit; /* "rows" */
    const char *user; /* of the server's access file; "": the Unix user @uid */
};
struct embtier_job_list;
/* Lists the jobs of all users, oldest first. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_job_list(struct embtier *server, struct embtier_job_list **ret_list);
EMBTIER_PUBLIC size_t embtier_job_list_count(const struct embtier_job_list *list);
/* Borrowed from the list. */
EMBTIER_PUBLIC const struct embtier_job *embtier_job_list_at(const struct embtier_job_list *list,
                                                             size_t index);
EMBTIER_PUBLIC void embtier_job_list_free(struct embtier_job_list *list);
/* Cancels a job. A waiting one is removed; a running one stops soon, unless it has just ended. It
 * undoes its work, but a move of buckets and a compaction keep what is done. *@ret_runs is nonzero
 * if it ran; @ret_runs may be NULL. The client that asked for the job gets CANCELLED. A user can
 * cancel its own jobs; root and the server's user can cancel all. NOT_FOUND; PERMISSION; INVALID:
 * it runs and is of a kind that cannot be stopped, such as a drop or a checkpoint. An import or
 * export keeps one number from begin to end; a cancelled one ends with the step in progress. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err embtier_job_cancel(struct embtier *server,
                                                                      uint64_t id, int *ret_runs);

#ifdef __cplusplus
}
#endif
#endif
