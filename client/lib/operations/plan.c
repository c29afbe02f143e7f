/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "client/lib/connection.h"

/* Sends a request about plans, and reads the answer. @ret_info may be NULL. */
static enum embtier_err call(struct embtier *server, Embtier__Request *request,
                             struct embtier_plan_info *ret_info)
{
    _cleanup_(reply_freep) Embtier__Reply *reply = NULL;

    TRY(connection_call(server, request, NULL, NULL, &reply));
    if (reply->body_case != EMBTIER__REPLY__BODY_PLAN || !reply->plan)
        return err_set(&server->message, EMBTIER_PROTOCOL, "the server did not answer with a plan");
    if (ret_info)
        *ret_info = (struct embtier_plan_info){
            .generation = reply->plan->generation,
            .hash = reply->plan->hash,
            .applied_ms = reply->plan->applied_ms,
            .applying_pid = reply->plan->applying_pid,
            .applying_generation = reply->plan->applying_generation,
            .tables = reply->plan->tables,
        };
    return EMBTIER_OK;
}

enum embtier_err embtier_plan_show(struct embtier *server, struct embtier_plan_info *ret_info)
{
    Embtier__Request request = EMBTIER__REQUEST__INIT;
    Embtier__PlanShow body = EMBTIER__PLAN_SHOW__INIT;

    request.body_case = EMBTIER__REQUEST__BODY_PLAN_SHOW;
    request.plan_show = &body;
    return call(server, &request, ret_info);
}

enum embtier_err embtier_plan_begin(struct embtier *server, uint64_t generation, uint64_t hash,
                                    uint32_t tables, struct embtier_plan_info *ret_info)
{
    Embtier__Request request = EMBTIER__REQUEST__INIT;
    Embtier__PlanBegin body = EMBTIER__PLAN_BEGIN__INIT;

    if (generation == 0) /* the protocol does not have it */
        return err_set(&server->message, EMBTIER_INVALID, "a plan's generation is at least 1");
    body.generation = generation;
    body.hash = hash;
    body.tables = tables;
    request.body_case = EMBTIER__REQUEST__BODY_PLAN_BEGIN;
    request.plan_begin = &body;
    return call(server, &request, ret_info);
}

enum embtier_err embtier_plan_end(struct embtier *server)
{
    Embtier__Request request = EMBTIER__REQUEST__INIT;
    Embtier__PlanEnd body = EMBTIER__PLAN_END__INIT;

    request.body_case = EMBTIER__REQUEST__BODY_PLAN_END;
    request.plan_end = &body;
    return call(server, &request, NULL);
}
