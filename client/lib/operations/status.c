/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "client/lib/connection.h"

/* Keeps the reply, because the strings point into it. */
struct embtier_status {
    Embtier__Reply *reply;
    size_t count;
    struct embtier_metric metrics[];
};

enum embtier_err embtier_status(struct embtier *server, struct embtier_status **ret_status)
{
    _cleanup_(reply_freep) Embtier__Reply *reply = NULL;
    Embtier__Request request = EMBTIER__REQUEST__INIT;
    Embtier__Status body = EMBTIER__STATUS__INIT;
    struct embtier_status *status;

    request.body_case = EMBTIER__REQUEST__BODY_STATUS;
    request.status = &body;
    TRY(connection_call(server, &request, NULL, NULL, &reply));
    if (reply->body_case != EMBTIER__REPLY__BODY_STATUS)
        return err_set(&server->message, EMBTIER_PROTOCOL,
                       "the server did not answer with its status");
    status = calloc(1, sizeof(*status) + reply->status->n_metrics * sizeof(status->metrics[0]));
    if (!status)
        return err_set(&server->message, EMBTIER_NO_MEMORY, "out of memory");
    status->count = reply->status->n_metrics;
    for (size_t i = 0; i < status->count; i++) {
        const Embtier__Metric *wire = reply->status->metrics[i];

        status->metrics[i] = (struct embtier_metric){
            .name = wire->name,
            .help = wire->help,
            .counter = wire->counter,
            .label = wire->label,
            .label_value = wire->label_value,
            .value = wire->value,
        };
    }
    status->reply = TAKE(reply);
    *ret_status = status;
    return EMBTIER_OK;
}

const char *embtier_status_version(const struct embtier_status *status)
{
    return status->reply->status->server_version;
}

uint64_t embtier_status_uptime_ms(const struct embtier_status *status)
{
    return status->reply->status->uptime_ms;
}

size_t embtier_status_library_count(const struct embtier_status *status)
{
    return status->reply->status->n_libraries;
}

const char *embtier_status_library_at(const struct embtier_status *status, size_t index)
{
    return index < embtier_status_library_count(status) ? status->reply->status->libraries[index]
                                                        : NULL;
}

size_t embtier_status_count(const struct embtier_status *status)
{
    return status->count;
}

const struct embtier_metric *embtier_status_at(const struct embtier_status *status, size_t index)
{
    return index < status->count ? &status->metrics[index] : NULL;
}

void embtier_status_free(struct embtier_status *status)
{
    if (!status)
        return;
    reply_free(status->reply);
    free(status);
}
