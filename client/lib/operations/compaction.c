/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "client/lib/connection.h"
#include "client/lib/reply_pages.h"

struct embtier_compaction_list {
    struct reply_pages pages; /* strings point into them */
    struct embtier_compaction facts;
    size_t count;
    struct embtier_compaction_database databases[];
};

static struct embtier_compaction facts_of(const Embtier__CompactionReply *wire)
{
    return (struct embtier_compaction){
        .databases = wire->databases,
        .parallel = wire->parallel,
        .is_put_off = wire->is_deferred,
        .is_busy = wire->is_busy,
        .lacks_space = wire->lacks_space,
        .is_in_hours = wire->is_in_hours,
        .minutes_to_hours = wire->minutes_to_hours,
        .hours = wire->hours,
        .limit_bytes = wire->limit_bytes,
        .limit_now_bytes = wire->limit_now_bytes,
        .limit_state = wire->limit_state,
        .limit_why = wire->limit_why,
    };
}

static struct embtier_compaction_database describe(const Embtier__CompactionDatabase *wire)
{
    return (struct embtier_compaction_database){
        .path = wire->path,
        .state = wire->state,
        .why = wire->why,
        .is_urgent = wire->is_urgent,
        .level0_files = wire->level0_files,
        .pending_bytes = wire->pending_bytes,
        .running = wire->running,
        .done_bytes = wire->done_bytes,
        .total_bytes = wire->total_bytes,
        .elapsed_ms = wire->elapsed_ms,
        .has_remaining = wire->has_remaining,
        .remaining_ms = wire->remaining_ms,
    };
}

static enum embtier_err no_answer(struct embtier *server)
{
    return err_set(&server->message, EMBTIER_PROTOCOL,
                   "the server did not answer about compaction");
}

static const Embtier__CompactionReply *last_page(const struct reply_pages *pages)
{
    const Embtier__Reply *const reply = pages->replies[pages->count - 1];

    return reply->body_case == EMBTIER__REPLY__BODY_COMPACTION ? reply->compaction : NULL;
}

static enum embtier_err read_pages(struct embtier *server, struct reply_pages *pages)
{
    Embtier__Request request = EMBTIER__REQUEST__INIT;
    Embtier__CompactionShow body = EMBTIER__COMPACTION_SHOW__INIT;
    const Embtier__CompactionReply *page;

    request.body_case = EMBTIER__REQUEST__BODY_COMPACTION_SHOW;
    request.compaction_show = &body;
    do {
        Embtier__Reply *reply = NULL;

        TRY(connection_call(server, &request, NULL, NULL, &reply));
        TRY(reply_pages_add(server, pages, &reply));
        page = last_page(pages);
        if (!page)
            return no_answer(server);
        if (page->more)
            TRY(reply_pages_go_on(server, body.first + page->n_list, &body.first));
    } while (page->more);
    return EMBTIER_OK;
}

enum embtier_err embtier_compaction_show(struct embtier *server,
                                         struct embtier_compaction_list **ret_list)
{
    _cleanup_(reply_pages_clear) struct reply_pages pages = { 0 };
    struct embtier_compaction_list *list;
    size_t count = 0;

    TRY(read_pages(server, &pages));
    for (size_t p = 0; p < pages.count; p++)
        count += pages.replies[p]->compaction->n_list;
    list = calloc(1, sizeof(*list) + count * sizeof(list->databases[0]));
    if (!list)
        return err_set(&server->message, EMBTIER_NO_MEMORY, "out of memory");
    for (size_t p = 0; p < pages.count; p++)
        for (size_t i = 0; i < pages.replies[p]->compaction->n_list; i++)
            list->databases[list->count++] = describe(pages.replies[p]->compaction->list[i]);
    list->facts = facts_of(last_page(&pages));
    list->pages = pages;
    pages = (struct reply_pages){ 0 };
    *ret_list = list;
    return EMBTIER_OK;
}

const struct embtier_compaction *
embtier_compaction_facts(const struct embtier_compaction_list *list)
{
    return &list->facts;
}

size_t embtier_compaction_list_count(const struct embtier_compaction_list *list)
{
    return list->count;
}

const struct embtier_compaction_database *
embtier_compaction_list_at(const struct embtier_compaction_list *list, size_t index)
{
    return index < list->count ? &list->databases[index] : NULL;
}

void embtier_compaction_list_free(struct embtier_compaction_list *list)
{
    if (!list)
        return;
    reply_pages_clear(&list->pages);
    free(list);
}

static enum embtier_err call(struct embtier *server, Embtier__Request *request,
                             embtier_progress_fn *progress, void *context)
{
    _cleanup_(reply_freep) Embtier__Reply *reply = NULL;

    TRY(connection_call(server, request, progress, context, &reply));
    return reply->body_case == EMBTIER__REPLY__BODY_COMPACTION ? EMBTIER_OK : no_answer(server);
}

static enum embtier_err set(struct embtier *server, uint32_t deferral, const char *hours)
{
    Embtier__Request request = EMBTIER__REQUEST__INIT;
    Embtier__CompactionSet body = EMBTIER__COMPACTION_SET__INIT;

    body.deferral = deferral;
    body.hours = (char *)(uintptr_t)hours;
    request.body_case = EMBTIER__REQUEST__BODY_COMPACTION_SET;
    request.compaction_set = &body;
    return call(server, &request, NULL, NULL);
}

enum embtier_err embtier_compaction_put_off(struct embtier *server, int put_off)
{
    return set(server, put_off ? 1 : 2, "");
}

enum embtier_err embtier_compaction_set_hours(struct embtier *server, const char *hours)
{
    return set(server, 0, hours && hours[0] != '\0' ? hours : "00:00-24:00");
}

static enum embtier_err run(struct embtier *server, bool full, embtier_progress_fn *progress,
                            void *context)
{
    Embtier__Request request = EMBTIER__REQUEST__INIT;
    Embtier__CompactionRun body = EMBTIER__COMPACTION_RUN__INIT;

    body.full = full;
    request.body_case = EMBTIER__REQUEST__BODY_COMPACTION_RUN;
    request.compaction_run = &body;
    return call(server, &request, progress, context);
}

enum embtier_err embtier_compaction_run(struct embtier *server, embtier_progress_fn *progress,
                                        void *context)
{
    return run(server, false, progress, context);
}

enum embtier_err embtier_compaction_rewrite(struct embtier *server, embtier_progress_fn *progress,
                                            void *context)
{
    return run(server, true, progress, context);
}
