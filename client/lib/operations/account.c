/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "client/lib/connection.h"
#include "client/lib/reply_pages.h"

struct embtier_account_list {
    struct reply_pages pages; /* names point into them */
    size_t count;
    struct embtier_account accounts[];
};

/* Returns the user's place in the list. */
static uint64_t number_of(const Embtier__Account *wire)
{
    return wire->number > 0 ? wire->number : wire->uid;
}

static enum embtier_err read_pages(struct embtier *server, struct reply_pages *pages,
                                   size_t *ret_count)
{
    Embtier__Request request = EMBTIER__REQUEST__INIT;
    Embtier__AccountList body = EMBTIER__ACCOUNT_LIST__INIT;
    const Embtier__AccountListReply *page;
    size_t count = 0;

    request.body_case = EMBTIER__REQUEST__BODY_ACCOUNT_LIST;
    request.account_list = &body;
    do {
        Embtier__Reply *reply = NULL;

        TRY(connection_call(server, &request, NULL, NULL, &reply));
        TRY(reply_pages_add(server, pages, &reply));
        if (pages->replies[pages->count - 1]->body_case != EMBTIER__REPLY__BODY_ACCOUNT_LIST)
            return err_set(&server->message, EMBTIER_PROTOCOL,
                           "the server did not answer with accounts");
        page = pages->replies[pages->count - 1]->account_list;
        for (size_t i = 0; i < page->n_accounts; i++)
            count += page->accounts[i]->n_amounts;
        if (page->more)
            TRY(reply_pages_go_on(
                server,
                page->n_accounts ? UINT64_C(1) + number_of(page->accounts[page->n_accounts - 1])
                                 : 0,
                &body.from));
    } while (page->more);
    *ret_count = count;
    return EMBTIER_OK;
}

static void describe(struct embtier_account_list *list, const Embtier__Account *wire)
{
    for (size_t i = 0; i < wire->n_amounts; i++) {
        const Embtier__Amount *const amount = wire->amounts[i];

        list->accounts[list->count++] = (struct embtier_account){
            .uid = wire->uid,
            .name = amount->name,
            .what = amount->what,
            .is_bytes = amount->is_bytes,
            .used = amount->used,
            .most = amount->most,
            .user = wire->user,
        };
    }
}

enum embtier_err embtier_account_list(struct embtier *server,
                                      struct embtier_account_list **ret_list)
{
    _cleanup_(reply_pages_clear) struct reply_pages pages = { 0 };
    struct embtier_account_list *list;
    size_t count = 0;

    TRY(read_pages(server, &pages, &count));
    list = calloc(1, sizeof(*list) + count * sizeof(list->accounts[0]));
    if (!list)
        return err_set(&server->message, EMBTIER_NO_MEMORY, "out of memory");
    for (size_t p = 0; p < pages.count; p++)
        for (size_t i = 0; i < pages.replies[p]->account_list->n_accounts; i++)
            describe(list, pages.replies[p]->account_list->accounts[i]);
    list->pages = pages;
    pages = (struct reply_pages){ 0 };
    *ret_list = list;
    return EMBTIER_OK;
}

size_t embtier_account_list_count(const struct embtier_account_list *list)
{
    return list->count;
}

const struct embtier_account *embtier_account_list_at(const struct embtier_account_list *list,
                                                      size_t index)
{
    return index < list->count ? &list->accounts[index] : NULL;
}

void embtier_account_list_free(struct embtier_account_list *list)
{
    if (!list)
        return;
    reply_pages_clear(&list->pages);
    free(list);
}
