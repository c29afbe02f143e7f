/* SPDX-License-Identifier: Apache-2.0 */
/* embtier_job.h: jobs, which are work that takes long (embtier.h). */
#ifndef EMBTIER_JOB_H
#define EMBTIER_JOB_H

#include <stddef.h>
#include <stdint.h>

#include "embtier_common.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Work that takes long, such as making all rows of a table, restoring, dropping, checkpoints, and
 * the steps of exports and imports: it waits for its turn, or runs. It waits for others of its
 * kind, in which users take turns, and for those that make or drop a table of the same name. */
struct embtier_job {
    uint64_t id;      /* counts up, from the server's start */
    const char *kind; /* "table drop" */
    const char *what; /* a table, or a checkpoint's number; or "" */
    uint32_t uid;     /* whose */
    uint64_t pid;
    int is_own; /* nonzero: the server's, of no client */
    int runs;   /* zero: it waits, and has done nothing */
    uint64_t age_ms;
    uint64_t done; /* of total; 0 and 0: nothing is known yet */
    uint64_t total;
    const char *unit; /* "rows" */
};
struct embtier_job_list;
/* Those of all users, oldest first. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err
embtier_job_list(struct embtier *server, struct embtier_job_list **ret_list);
EMBTIER_PUBLIC size_t embtier_job_list_count(const struct embtier_job_list *list);
/* Borrowed from the list. */
EMBTIER_PUBLIC const struct embtier_job *embtier_job_list_at(const struct embtier_job_list *list,
                                                             size_t index);
EMBTIER_PUBLIC void embtier_job_list_free(struct embtier_job_list *list);
/* One that waits does nothing any more; one that runs stops soon and takes back what it has done,
 * unless it was just done: *@ret_runs (may be NULL) says which it is. The client that asked gets
 * CANCELLED. A user's own, or by root and the user of the server. NOT_FOUND; PERMISSION; INVALID:
 * it runs, and goes on to its end, as drops and checkpoints do. Imports and exports have one number
 * each from their begin to their end, and end with the step that is under way. */
EMBTIER_PUBLIC EMBTIER_MUST_CHECK enum embtier_err embtier_job_cancel(struct embtier *server,
                                                                      uint64_t id, int *ret_runs);

#ifdef __cplusplus
}
#endif
#endif
