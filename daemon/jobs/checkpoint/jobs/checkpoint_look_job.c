/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/jobs/checkpoint/jobs/checkpoint_look_job.h"

#include <stdlib.h>

#include "base/macros.h"
#include "daemon/jobs/answer.h"
#include "daemon/jobs/checkpoint/checkpoints.h"
#include "daemon/jobs/checkpoint/jobs/checkpoint_answer.h"
#include "proto/control.pb-c.h"

/* ---- List ---- */

struct list_job {
    struct job job;
    uint64_t after; /* list those with greater ids */
    uint32_t most;  /* at most this many */
    struct checkpoint_page listed;
};

static struct list_job *list_of(const struct job *job)
{
    return CONTAINER_OF(job, struct list_job, job);
}

static enum embtier_err run_list(struct job *job, const struct job_parts *parts,
                                 const struct progress_sink *progress, struct err_msg *msg)
{
    struct list_job *const list = list_of(job);

    (void)progress;
    return checkpoints_list(parts->checkpoints, list->after, list->most, &list->listed, msg);
}

static enum embtier_err reply_list(struct job *job, const struct job_client *client,
                                   struct err_msg *msg)
{
    return answer_checkpoints(client, &list_of(job)->listed, msg);
}

static void free_list(struct job *job)
{
    free(list_of(job)->listed.infos);
    free(list_of(job));
}

static const struct job_kind list_kind = {
    .word = "checkpoint list",
    .line = LINE_LOOKS,
    .run = run_list,
    .reply = reply_list,
    .free = free_list,
};

enum embtier_err checkpoint_list_job_new(const struct job_request *request, struct job **ret_job,
                                         struct err_msg *msg)
{
    const Embtier__CheckpointList *const wire = request->wire->checkpoint_list;
    struct list_job *const list = calloc(1, sizeof(*list));

    (void)msg;
    if (!list)
        return EMBTIER_NO_MEMORY;
    list->job.kind = &list_kind;
    list->after = wire ? wire->after : 0;
    list->most = wire ? wire->most : 0;
    job_set_checkpoint(&list->job, list->after);
    *ret_job = &list->job;
    return EMBTIER_OK;
}

/* ---- Show ---- */

struct show_job {
    struct job job;
    uint64_t id;
    uint32_t tables_from; /* name tables from this number on */
    struct checkpoint_info info;
    struct checkpoint_tables tables;
};

static struct show_job *show_of(const struct job *job)
{
    return CONTAINER_OF(job, struct show_job, job);
}

static enum embtier_err run_show(struct job *job, const struct job_parts *parts,
                                 const struct progress_sink *progress, struct err_msg *msg)
{
    struct show_job *const show = show_of(job);

    (void)progress;
    return checkpoints_show(parts->checkpoints, show->id, show->tables_from, &show->info,
                            &show->tables, msg);
}

static enum embtier_err reply_show(struct job *job, const struct job_client *client,
                                   struct err_msg *msg)
{
    struct show_job *const show = show_of(job);

    if (show->tables.more && !client->knows_pages)
        return err_set(msg, EMBTIER_VERSION,
                       "the list of its tables does not fit into one answer, and this version of "
                       "the client cannot ask for the rest: use a newer client");
    answer_checkpoint(client, &show->info, show->tables.names ? &show->tables : NULL);
    return EMBTIER_OK;
}

static void free_show(struct job *job)
{
    checkpoint_tables_clear(&show_of(job)->tables);
    free(show_of(job));
}

static const struct job_kind show_kind = {
    .word = "checkpoint show",
    .line = LINE_LOOKS,
    .run = run_show,
    .reply = reply_show,
    .free = free_show,
};

enum embtier_err checkpoint_show_job_new(const struct job_request *request, struct job **ret_job,
                                         struct err_msg *msg)
{
    const Embtier__CheckpointShow *const wire = request->wire->checkpoint_show;
    struct show_job *const show = calloc(1, sizeof(*show));

    (void)msg;
    if (!show)
        return EMBTIER_NO_MEMORY;
    show->job.kind = &show_kind;
    show->id = wire->id;
    show->tables_from = wire->tables_from;
    job_set_checkpoint(&show->job, show->id);
    *ret_job = &show->job;
    return EMBTIER_OK;
}
