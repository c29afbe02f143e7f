/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "client/lib/connection.h"
#include "client/lib/reply_pages.h"

struct embtier_job_list {
    struct reply_pages pages; /* strings point into them */
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
        .user = wire->user,
    };
}

static enum embtier_err read_pages(struct embtier *server, struct reply_pages *pages,
                                   size_t *ret_count)
{
    Embtier__Request request = EMBTIER__REQUEST__INIT;
    Embtier__JobList body = EMBTIER__JOB_LIST__INIT;
    const Embtier__JobListReply *page;
    size_t count = 0;

    request.body_case = EMBTIER__REQUEST__BODY_JOB_LIST;
    request.job_list = &body;
    do {
        Embtier__Reply *reply = NULL;

        TRY(connection_call(server, &request, NULL, NULL, &reply));
        TRY(reply_pages_add(server, pages, &reply));
        if (pages->replies[pages->count - 1]->body_case != EMBTIER__REPLY__BODY_JOB_LIST)
            return err_set(&server->message, EMBTIER_PROTOCOL,
                           "the server did not answer with jobs");
        page = pages->replies[pages->count - 1]->job_list;
        count += page->n_jobs;
        if (page->more)
            TRY(reply_pages_go_on(server, page->n_jobs ? page->jobs[page->n_jobs - 1]->id : 0,
                                  &body.after));
    } while (page->more);
    *ret_count = count;
    return EMBTIER_OK;
}

static enum embtier_err list_new(struct embtier *server, struct reply_pages *pages, size_t count,
                                 struct embtier_job_list **ret_list)
{
    struct embtier_job_list *const list = calloc(1, sizeof(*list) + count * sizeof(list->jobs[0]));

    if (!list)
        return err_set(&server->message, EMBTIER_NO_MEMORY, "out of memory");
    for (size_t p = 0; p < pages->count; p++)
        for (size_t i = 0; i < pages->replies[p]->job_list->n_jobs; i++)
            list->jobs[list->count++] = describe(pages->replies[p]->job_list->jobs[i]);
    list->pages = *pages;
    *pages = (struct reply_pages){ 0 };
    *ret_list = list;
    return EMBTIER_OK;
}

enum embtier_err embtier_job_list(struct embtier *server, struct embtier_job_list **ret_list)
{
    _cleanup_(reply_pages_clear) struct reply_pages pages = { 0 };
    size_t count = 0;

    TRY(read_pages(server, &pages, &count));
    return list_new(server, &pages, count, ret_list);
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
    reply_pages_clear(&list->pages);
    free(list);
}

enum embtier_err embtier_job_cancel(struct embtier *server, uint64_t id, int *ret_runs)
{
    _cleanup_(reply_freep) Embtier__Reply *reply = NULL;
    Embtier__Request request = EMBTIER__REQUEST__INIT;
    Embtier__JobCancel body = EMBTIER__JOB_CANCEL__INIT;

    if (id == 0) /* the protocol does not have it */
        return err_set(&server->message, EMBTIER_NOT_FOUND,
                       "there is no job 0; jobs are numbered from 1");
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
