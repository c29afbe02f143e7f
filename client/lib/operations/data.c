/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "client/lib/connection.h"

struct embtier_data_list {
    Embtier__Reply *reply; /* strings point into it */
    struct embtier_data_order order;
    size_t count;
    struct embtier_data_directory directories[];
};

static struct embtier_data_directory describe(const Embtier__DataDirectory *wire)
{
    return (struct embtier_data_directory){
        .number = wire->number,
        .path = wire->path,
        .shards = wire->shards,
        .buckets = wire->buckets,
        .stored_bytes = wire->stored_bytes,
        .free_bytes = wire->free_bytes,
        .capacity_bytes = wire->capacity_bytes,
        .device = wire->device,
    };
}

static enum embtier_err call(struct embtier *server, Embtier__Reshard *body,
                             embtier_progress_fn *progress, void *context,
                             struct embtier_data_list **ret_list)
{
    _cleanup_(reply_freep) Embtier__Reply *reply = NULL;
    Embtier__Request request = EMBTIER__REQUEST__INIT;
    const Embtier__ReshardReply *told;
    struct embtier_data_list *list;

    request.body_case = EMBTIER__REQUEST__BODY_RESHARD;
    request.reshard = body;
    TRY(connection_call(server, &request, progress, context, &reply));
    if (reply->body_case != EMBTIER__REPLY__BODY_RESHARD)
        return err_set(&server->message, EMBTIER_PROTOCOL,
                       "the server did not answer about its data directories");
    told = reply->reshard;
    if (told->n_directories == 0)
        return err_set(&server->message, EMBTIER_UNSUPPORTED,
                       "the server is older, and tells nothing about its data directories");
    list = calloc(1, sizeof(*list) + told->n_directories * sizeof(list->directories[0]));
    if (!list)
        return err_set(&server->message, EMBTIER_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < told->n_directories; i++)
        list->directories[list->count++] = describe(told->directories[i]);
    list->order = (struct embtier_data_order){ .adds = told->adds,
                                               .removes = told->removes,
                                               .runs = told->runs,
                                               .moved = told->moved,
                                               .total = told->total };
    list->reply = TAKE(reply);
    *ret_list = list;
    return EMBTIER_OK;
}

enum embtier_err embtier_data_list(struct embtier *server, struct embtier_data_list **ret_list)
{
    Embtier__Reshard body = EMBTIER__RESHARD__INIT;

    return call(server, &body, NULL, NULL, ret_list);
}

enum embtier_err embtier_data_add(struct embtier *server, const char *path, uint64_t rate_bytes,
                                  embtier_progress_fn *progress, void *context,
                                  struct embtier_data_list **ret_list)
{
    Embtier__Reshard body = EMBTIER__RESHARD__INIT;

    if (path[0] == '\0')
        return err_set(&server->message, EMBTIER_INVALID, "no directory; allowed: a path");
    body.add = (char *)path;
    body.rate_bytes = rate_bytes;
    return call(server, &body, progress, context, ret_list);
}

enum embtier_err embtier_data_remove(struct embtier *server, const char *path,
                                     int deletes_checkpoints, uint64_t rate_bytes,
                                     embtier_progress_fn *progress, void *context,
                                     struct embtier_data_list **ret_list)
{
    Embtier__Reshard body = EMBTIER__RESHARD__INIT;

    if (path[0] == '\0')
        return err_set(&server->message, EMBTIER_INVALID, "no directory; allowed: a path");
    body.remove = (char *)path;
    body.rate_bytes = rate_bytes;
    body.deletes_checkpoints = deletes_checkpoints != 0;
    return call(server, &body, progress, context, ret_list);
}

size_t embtier_data_list_count(const struct embtier_data_list *list)
{
    return list->count;
}

const struct embtier_data_directory *embtier_data_list_at(const struct embtier_data_list *list,
                                                          size_t index)
{
    return index < list->count ? &list->directories[index] : NULL;
}

const struct embtier_data_order *embtier_data_list_order(const struct embtier_data_list *list)
{
    return &list->order;
}

void embtier_data_list_free(struct embtier_data_list *list)
{
    if (!list)
        return;
    reply_freep(&list->reply);
    free(list);
}
