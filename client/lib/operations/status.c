/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "base/latency.h"
#include "client/lib/connection.h"

/* Keeps the reply, because the strings point into it. */
struct embtier_status {
    Embtier__Reply *reply;
    size_t count;
    size_t latency_count;
    struct embtier_latency *latencies; /* malloced */
    struct embtier_metric metrics[];
};
DEFINE_CLEANUP(struct embtier_status, embtier_status_free)

/* Leaves out those whose ranges are not those of the bounds. */
static enum embtier_err read_latencies(struct embtier *server, const Embtier__StatusReply *wire,
                                       struct embtier_status *status)
{
    status->latencies = calloc(wire->n_latencies + 1, sizeof(*status->latencies));
    if (!status->latencies)
        return err_set(&server->message, EMBTIER_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < wire->n_latencies; i++) {
        const Embtier__Latency *const from = wire->latencies[i];
        struct embtier_latency *const to = &status->latencies[status->latency_count];

        if (wire->n_bounds == 0 || from->n_counts != wire->n_bounds + 1)
            continue;
        *to = (struct embtier_latency){ .op = from->op,
                                        .transport = from->transport,
                                        .requests =
                                            latency_count(from->counts, (uint32_t)from->n_counts),
                                        .seconds = from->seconds,
                                        .bound_count = wire->n_bounds,
                                        .bounds = wire->bounds,
                                        .counts = from->counts };
        status->latency_count++;
    }
    return EMBTIER_OK;
}

enum embtier_err embtier_status(struct embtier *server, struct embtier_status **ret_status)
{
    _cleanup_(reply_freep) Embtier__Reply *reply = NULL;
    Embtier__Request request = EMBTIER__REQUEST__INIT;
    Embtier__Status body = EMBTIER__STATUS__INIT;
    _cleanup_(embtier_status_freep) struct embtier_status *status = NULL;

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
    TRY(read_latencies(server, reply->status, status));
    status->reply = TAKE(reply);
    *ret_status = TAKE(status);
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

size_t embtier_status_latency_count(const struct embtier_status *status)
{
    return status->latency_count;
}

const struct embtier_latency *embtier_status_latency_at(const struct embtier_status *status,
                                                        size_t index)
{
    return index < status->latency_count ? &status->latencies[index] : NULL;
}

void embtier_status_free(struct embtier_status *status)
{
    if (!status)
        return;
    reply_free(status->reply);
    free(status->latencies);
    free(status);
}
