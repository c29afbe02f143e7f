/* SPDX-License-Identifier: Apache-2.0 */
#include "client/lib/connection.h"

const char *embtier_user(const struct embtier *server)
{
    return server->facts.user;
}

enum embtier_err embtier_reload(struct embtier *server, uint32_t *ret_users)
{
    _cleanup_(reply_freep) Embtier__Reply *reply = NULL;
    Embtier__Request request = EMBTIER__REQUEST__INIT;
    Embtier__Reload body = EMBTIER__RELOAD__INIT;

    request.body_case = EMBTIER__REQUEST__BODY_RELOAD;
    request.reload = &body;
    TRY(connection_call(server, &request, NULL, NULL, &reply));
    if (reply->body_case != EMBTIER__REPLY__BODY_RELOADED)
        return err_set(&server->message, EMBTIER_PROTOCOL,
                       "the server did not answer that it has reloaded");
    if (ret_users)
        *ret_users = reply->reloaded->users;
    return EMBTIER_OK;
}
