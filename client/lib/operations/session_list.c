/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "client/lib/connection.h"
#include "client/lib/reply_pages.h"

struct embtier_session_list {
    struct reply_pages pages; /* strings point into them */
    size_t count;
    struct embtier_session sessions[];
};

static struct embtier_session describe(const Embtier__Session *wire)
{
    return (struct embtier_session){
        .number = wire->number,
        .user = wire->user,
        .uid = wire->uid,
        .pid = wire->pid,
        .address = wire->address,
        .transport = wire->transport,
        .client = wire->client,
        .age_ms = wire->age_ms,
        .connections = wire->connections,
        .arena_bytes = wire->arena_bytes,
        .requests = wire->requests,
        .rows = wire->rows,
        .in_flight = wire->in_flight,
        .tickets = wire->tickets,
        .is_own = wire->is_own,
    };
}

static enum embtier_err read_pages(struct embtier *server, struct reply_pages *pages,
                                   size_t *ret_count)
{
    Embtier__Request request = EMBTIER__REQUEST__INIT;
    Embtier__SessionList body = EMBTIER__SESSION_LIST__INIT;
    const Embtier__SessionListReply *page;
    size_t count = 0;

    request.body_case = EMBTIER__REQUEST__BODY_SESSION_LIST;
    request.session_list = &body;
    do {
        Embtier__Reply *reply = NULL;

        TRY(connection_call(server, &request, NULL, NULL, &reply));
        TRY(reply_pages_add(server, pages, &reply));
        if (pages->replies[pages->count - 1]->body_case != EMBTIER__REPLY__BODY_SESSION_LIST)
            return err_set(&server->message, EMBTIER_PROTOCOL,
                           "the server did not answer with sessions");
        page = pages->replies[pages->count - 1]->session_list;
        count += page->n_sessions;
        if (page->more)
            TRY(reply_pages_go_on(
                server, page->n_sessions ? page->sessions[page->n_sessions - 1]->number : 0,
                &body.after));
    } while (page->more);
    *ret_count = count;
    return EMBTIER_OK;
}

enum embtier_err embtier_session_list(struct embtier *server,
                                      struct embtier_session_list **ret_list)
{
    _cleanup_(reply_pages_clear) struct reply_pages pages = { 0 };
    struct embtier_session_list *list;
    size_t count = 0;

    TRY(read_pages(server, &pages, &count));
    list = calloc(1, sizeof(*list) + count * sizeof(list->sessions[0]));
    if (!list)
        return err_set(&server->message, EMBTIER_NO_MEMORY, "out of memory");
    for (size_t p = 0; p < pages.count; p++)
        for (size_t i = 0; i < pages.replies[p]->session_list->n_sessions; i++)
            list->sessions[list->count++] = describe(pages.replies[p]->session_list->sessions[i]);
    list->pages = pages;
    pages = (struct reply_pages){ 0 };
    *ret_list = list;
    return EMBTIER_OK;
}

size_t embtier_session_list_count(const struct embtier_session_list *list)
{
    return list->count;
}

const struct embtier_session *embtier_session_list_at(const struct embtier_session_list *list,
                                                      size_t index)
{
    return index < list->count ? &list->sessions[index] : NULL;
}

void embtier_session_list_free(struct embtier_session_list *list)
{
    if (!list)
        return;
    reply_pages_clear(&list->pages);
    free(list);
}

enum embtier_err embtier_session_end(struct embtier *server, uint64_t number)
{
    _cleanup_(reply_freep) Embtier__Reply *reply = NULL;
    Embtier__Request request = EMBTIER__REQUEST__INIT;
    Embtier__SessionEnd body = EMBTIER__SESSION_END__INIT;

    if (number == 0) /* the protocol does not have it */
        return err_set(&server->message, EMBTIER_NOT_FOUND,
                       "there is no session 0; sessions are numbered from 1");
    body.number = number;
    request.body_case = EMBTIER__REQUEST__BODY_SESSION_END;
    request.session_end = &body;
    TRY(connection_call(server, &request, NULL, NULL, &reply));
    if (reply->body_case != EMBTIER__REPLY__BODY_SESSION)
        return err_set(&server->message, EMBTIER_PROTOCOL,
                       "the server did not answer with a session");
    return EMBTIER_OK;
}
