/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "client/lib/connection.h"

static enum embtier_err call(struct embtier *server, uint32_t shards, uint64_t rate_bytes,
                             embtier_progress_fn *progress, void *context,
                             struct embtier_reshard *ret_reshard)
{
    _cleanup_(reply_freep) Embtier__Reply *reply = NULL;
    Embtier__Request request = EMBTIER__REQUEST__INIT;
    Embtier__Reshard body = EMBTIER__RESHARD__INIT;

    body.shards = shards;
    body.rate_bytes = rate_bytes;
    request.body_case = EMBTIER__REQUEST__BODY_RESHARD;
    request.reshard = &body;
    TRY(connection_call(server, &request, progress, context, &reply));
    if (reply->body_case != EMBTIER__REPLY__BODY_RESHARD)
        return err_set(&server->message, EMBTIER_PROTOCOL,
                       "the server did not answer about its shards");
    *ret_reshard = (struct embtier_reshard){ .shards = reply->reshard->shards,
                                             .runs = reply->reshard->runs,
                                             .wanted = reply->reshard->wanted,
                                             .moved = reply->reshard->moved,
                                             .total = reply->reshard->total };
    return EMBTIER_OK;
}

enum embtier_err embtier_reshard_show(struct embtier *server, struct embtier_reshard *ret_reshard)
{
    return call(server, 0, 0, NULL, NULL, ret_reshard);
}

enum embtier_err embtier_reshard_run(struct embtier *server, uint32_t shards, uint64_t rate_bytes,
                                     embtier_progress_fn *progress, void *context,
                                     struct embtier_reshard *ret_reshard)
{
    if (shards == 0)
        return err_set(&server->message, EMBTIER_INVALID, "0 shards; allowed: at least 1");
    return call(server, shards, rate_bytes, progress, context, ret_reshard);
}
