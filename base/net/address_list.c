/* SPDX-License-Identifier: Apache-2.0 */
#include "base/net/address_list.h"

#include <stdlib.h>
#include <string.h>

#include "base/text/text_escape.h"

static enum embtier_err list_new(const char *text, struct address_list **ret_list,
                                 struct err_msg *msg)
{
    struct address_list *const list = calloc(1, sizeof(*list));

    if (!list)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    list->copy = strdup(text);
    *ret_list = list;
    return list->copy ? EMBTIER_OK : err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
}

static enum embtier_err add(struct address_list *list, const char *entry, const char *whole,
                            struct err_msg *msg)
{
    if (list->count == ADDRESS_LIST_MAX)
        return err_set(msg, EMBTIER_INVALID, "more than %d addresses: %s", ADDRESS_LIST_MAX,
                       TEXT_SHOWN(whole));
    if (entry[0] == '\0' && strchr(whole, ','))
        return err_set(msg, EMBTIER_INVALID,
                       "address %u is empty: %s; expected addresses with one comma between two",
                       list->count + 1, TEXT_SHOWN(whole));
    TRY(address_parse(entry, &list->addresses[list->count], msg));
    list->texts[list->count++] = entry;
    return EMBTIER_OK;
}

enum embtier_err address_list_parse(const char *text, struct address_list **ret_list,
                                    struct err_msg *msg)
{
    _cleanup_(address_list_freep) struct address_list *list = NULL;
    char *rest;

    TRY(list_new(text, &list, msg));
    rest = list->copy;
    while (rest) {
        const char *const entry = strsep(&rest, ",");

        TRY(add(list, entry, text, msg));
    }
    *ret_list = TAKE(list);
    return EMBTIER_OK;
}

enum embtier_err address_list_of_path(const char *path, struct address_list **ret_list,
                                      struct err_msg *msg)
{
    _cleanup_(address_list_freep) struct address_list *list = NULL;

    TRY(list_new(path, &list, msg));
    TRY(address_parse(list->copy, &list->addresses[0], msg));
    list->texts[0] = list->copy;
    list->count = 1;
    *ret_list = TAKE(list);
    return EMBTIER_OK;
}

void address_list_free(struct address_list *list)
{
    if (!list)
        return;
    free(list->copy);
    free(list);
}
