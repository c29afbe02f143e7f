/* SPDX-License-Identifier: Apache-2.0 */
#include "client/lib/connection.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/text/text_escape.h"

enum embtier_err connection_is_over(struct embtier *server)
{
    return err_set(&server->message, EMBTIER_DISCONNECTED, "connection to embtierd lost: %s",
                   server->over_reason.text);
}

void connection_end(struct embtier *server, const char *reason)
{
    struct err_msg text = { { 0 } };

    if (server->over)
        return;
    snprintf(text.text, sizeof(text.text), "%s", reason); /* may be over_reason */
    server->over_reason = text;
    server->over = true;
    server->fail_requests(server);
    control_socket_close(&server->socket);
}

/* Returns true if the server has said why over another connection of the session. */
static bool is_told_elsewhere(const struct embtier *server, struct err_msg *ret_told)
{
    struct client_channel *const channel = server->channel;
    enum embtier_err ended;

    if (server->over || server->socket.was_told_why || !channel || !channel->ops->look)
        return false;
    channel->ops->look(channel);
    ended = channel->ops->ended(channel, ret_told);
    return ended != EMBTIER_OK && ended != EMBTIER_DISCONNECTED;
}

/* Ends the connection because of the control socket, which failed with @reason. */
static void end_with_socket(struct embtier *server, const char *reason)
{
    struct err_msg told = { { 0 } };

    connection_end(server, is_told_elsewhere(server, &told) ? told.text : reason);
}

void connection_check(struct embtier *server)
{
    struct err_msg reason = { { 0 } }, channels_reason = { { 0 } };
    enum embtier_err ended = EMBTIER_OK;

    if (server->over)
        return;
    server->checked_ns = clock_now_ns(&clock_monotonic);
    /* Asked first, as the server says farewell before it ends the channel. */
    if (server->channel)
        ended = server->channel->ops->ended(server->channel, &channels_reason);
    if (control_socket_check(&server->socket, &reason) != EMBTIER_OK)
        end_with_socket(server, reason.text);
    else if (ended)
        connection_end(server, channels_reason.text);
}

static enum embtier_err call_once(struct embtier *server, Embtier__Request *request,
                                  embtier_progress_fn *progress, void *progress_context,
                                  Embtier__Reply **ret_reply)
{
    enum embtier_err err;

    if (server->over)
        return connection_is_over(server);
    err = control_socket_call(&server->socket, request, progress, progress_context, ret_reply,
                              &server->message);
    if (err && server->socket.over) {
        const bool has_ended = err == EMBTIER_DISCONNECTED || server->socket.was_told_why;

        end_with_socket(server, server->message.text);
        if (has_ended)
            return connection_is_over(server);
    }
    return err;
}

/* True for calls that change nothing on the server and name nothing of the old session. */
static bool only_reads(const Embtier__Request *request)
{
    switch (request->body_case) {
    case EMBTIER__REQUEST__BODY_TABLE_OPEN:
    case EMBTIER__REQUEST__BODY_TABLE_LIST:
    case EMBTIER__REQUEST__BODY_STATUS:
    case EMBTIER__REQUEST__BODY_CHECKPOINT_LIST:
    case EMBTIER__REQUEST__BODY_CHECKPOINT_SHOW:
    case EMBTIER__REQUEST__BODY_ACCOUNT_LIST:
    case EMBTIER__REQUEST__BODY_JOB_LIST:
    case EMBTIER__REQUEST__BODY_PLAN_SHOW:
    case EMBTIER__REQUEST__BODY_COMPACTION_SHOW:
    case EMBTIER__REQUEST__BODY_SESSION_LIST:
    case EMBTIER__REQUEST__BODY_KNOB_LIST:
        return true;
    default:
        return false;
    }
}

enum embtier_err connection_call(struct embtier *server, Embtier__Request *request,
                                 embtier_progress_fn *progress, void *progress_context,
                                 Embtier__Reply **ret_reply)
{
    const enum embtier_err err = call_once(server, request, progress, progress_context, ret_reply);

    if (err != EMBTIER_DISCONNECTED || !server->retries_reads || !only_reads(request))
        return err;
    TRY(embtier_reconnect(server));
    return call_once(server, request, progress, progress_context, ret_reply);
}

static enum embtier_err ended_by(struct embtier *server, enum embtier_err err)
{
    if (err != EMBTIER_OK)
        connection_end(server, server->message.text);
    return err;
}

static enum embtier_err put(struct embtier *server, uint64_t offset, uint64_t bytes, bool are_ids)
{
    const struct client_channel_ops *const ops = server->channel->ops;

    if (!ops->put)
        return EMBTIER_OK;
    if (server->over)
        return connection_is_over(server);
    return ended_by(server, ops->put(server->channel, offset, bytes, are_ids, &server->message));
}

enum embtier_err connection_put(struct embtier *server, uint64_t offset, uint64_t bytes)
{
    return put(server, offset, bytes, false);
}

enum embtier_err connection_put_ids(struct embtier *server, uint64_t offset, uint64_t count)
{
    return put(server, offset, count * sizeof(uint64_t), true);
}

enum embtier_err connection_get(struct embtier *server, uint64_t offset, uint64_t bytes)
{
    const struct client_channel_ops *const ops = server->channel->ops;

    if (!ops->get)
        return EMBTIER_OK;
    if (server->over)
        return connection_is_over(server);
    return ended_by(server, ops->get(server->channel, offset, bytes, &server->message));
}

const char *server_key_text(struct server_key_text *buffer, const struct embtier *server,
                            const char *key)
{
    const char *const file = server->facts.config_file;

    snprintf(buffer->text, sizeof(buffer->text), "%s%s%s", key, file[0] ? " in " : "", file);
    return buffer->text;
}

enum embtier_err options_read(const void *given, size_t least, void *options, size_t bytes,
                              const char *what, const char *init, struct err_msg *msg)
{
    size_t struct_bytes = 0;

    if (given)
        memcpy(&struct_bytes, given, sizeof(struct_bytes));
    if (!given || struct_bytes < least || struct_bytes > bytes ||
        struct_bytes % sizeof(uint64_t) != 0)
        return err_set(msg, EMBTIER_INVALID,
                       "%s options: struct_bytes matches no version that this library knows; "
                       "initialise with %s",
                       what, init);
    memcpy(options, given, struct_bytes);
    return EMBTIER_OK;
}
