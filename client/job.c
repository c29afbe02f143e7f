/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "client/connection.h"

/* The reply is kept: words point into it. */
struct embtier_job_list {
    Embtier__Reply *reply;
    size_t count;
    struct embtier_job jobs[];
};

static struct embtier_job describe(const Embtier__Job *wire)
{
    return (struct embtier_job){
        .id = wire->id,
        .kind = wire->kind,
        .what = wire->what,
        .uid = wire->uid,
        .pid = wire->pid,
        .is_own = wire->is_own,
        .runs = wire->runs,
        .age_ms = wire->age_ms,
        .done = wire->done,
        .total = wire->total,
        .unit = wire->unit,
    };
}

enum embtier_err embtier_job_list(struct embtier *server, struct embtier_job_list **ret_list)
{
    _cleanup_(reply_freep) Embtier__Reply *reply = NULL;
    Embtier__Request request = EMBTIER__REQUEST__INIT;
    Embtier__JobList body = EMBTIER__JOB_LIST__INIT;
    struct embtier_job_list *list;

    request.body_case = EMBTIER__REQUEST__BODY_JOB_LIST;
    request.job_list = &body;
    TRY(connection_call(server, &request, NULL, NULL, &reply));
    if (reply->body_case != EMBTIER__REPLY__BODY_JOB_LIST)
        return err_set(&server->message, EMBTIER_PROTOCOL, "the server did not answer with jobs");
    list = calloc(1, sizeof(*list) + reply->job_list->n_jobs * sizeof(list->jobs[0]));
    if (!list)
        return err_set(&server->message, EMBTIER_NO_MEMORY, "out of memory");
    list->count = reply->job_list->n_jobs;
    for (size_t i = 0; i < list->count; i++)
        list->jobs[i] = describe(reply->job_list->jobs[i]);
    list->reply = TAKE(reply);
    *ret_list = list;
    return EMBTIER_OK;
}

size_t embtier_job_list_count(const struct embtier_job_list *list)
{
    return list->count;
}

const struct embtier_job *embtier_job_list_at(const struct embtier_job_list *list, size_t index)
{
    return index < list->count ? &list->jobs[index] : NULL;
}

void embtier_job_list_free(struct embtier_job_list *list)
{
    if (!list)
        return;
    reply_free(list->reply);
    free(list);
}

enum embtier_err embtier_job_cancel(struct embtier *server, uint64_t id, int *ret_runs)
{
    _cleanup_(reply_freep) Embtier__Reply *reply = NULL;
    Embtier__Request request = EMBTIER__REQUEST__INIT;
    Embtier__JobCancel body = EMBTIER__JOB_CANCEL__INIT;

    if (id == 0) /* which the protocol does not have */
        return err_set(&server->message, EMBTIER_NOT_FOUND,
                       "there is no job 0; they are numbered from 1");
    body.id = id;
    request.body_case = EMBTIER__REQUEST__BODY_JOB_CANCEL;
    request.job_cancel = &body;
    TRY(connection_call(server, &request, NULL, NULL, &reply));
    if (reply->body_case != EMBTIER__REPLY__BODY_JOB)
        return err_set(&server->message, EMBTIER_PROTOCOL, "the server did not answer with a job");
    if (ret_runs)
        *ret_runs = reply->job->runs;
    return EMBTIER_OK;
}
