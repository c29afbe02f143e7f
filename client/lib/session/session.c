/* SPDX-License-Identifier: Apache-2.0 */
/* Connects, reconnects and disconnects. */
#include "client/lib/connection.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/paths.h"
#include "base/text/text_escape.h"
#include "base/version.h"
#include "client/lib/batch/batch.h"
#include "client/lib/group.h"
#include "client/lib/session/opening.h"
#include "client/lib/session/retry.h"
#include "client/lib/table.h"
#include "proto/shm_ring.h"

/* Longer than most requests that hit the cache, and too short for a sleep and a wake-up to pay. */
#define SPIN_NS_MAX 20000
#define NS_PER_MS   UINT64_C(1000000)

#define CLIENT_NAME_MAX 128 /* the same as in proto/control_check.c */

/* A caller without a connection has no other place to read the reason. */
static _Thread_local struct err_msg connect_message;

const char *embtier_err_name(enum embtier_err err)
{
    return err_name(err);
}

const char *embtier_err_text(enum embtier_err err)
{
    return err_text(err);
}

const char *embtier_message(const struct embtier *server)
{
    return server ? server->message.text : connect_message.text;
}

const char *embtier_version(void)
{
    return EMBTIER_PROJECT_VERSION;
}

/* Returns 0 if there is only one processor: spinning on it would keep the server from answering. */
static uint32_t spin_ns_max(void)
{
    cpu_set_t cpus;

    if (sched_getaffinity(0, sizeof(cpus), &cpus) == 0 && CPU_COUNT(&cpus) < 2)
        return 0;
    return SPIN_NS_MAX;
}

static enum embtier_err read_options(const struct embtier_connect_options *given,
                                     struct embtier_connect_options *ret_options,
                                     struct err_msg *msg)
{
    struct embtier_connect_options options = EMBTIER_CONNECT_OPTIONS_INIT;

    if (given)
        TRY(options_read(given, offsetof(struct embtier_connect_options, client_name), &options,
                         sizeof(options), "connect", "EMBTIER_CONNECT_OPTIONS_INIT", msg));
    if (options.unused != 0)
        return err_set(msg, EMBTIER_INVALID, "unused is %d, must be 0", options.unused);
    if (options.max_in_flight < 1 || options.max_in_flight > OP_SLOTS_MAX)
        return err_set(msg, EMBTIER_INVALID, "max_in_flight is %u, allowed: 1 to %d",
                       options.max_in_flight, OP_SLOTS_MAX);
    if (options.arena_bytes > 0 &&
        options.arena_bytes <= shm_arena_payload_offset(options.max_in_flight))
        return err_set(msg, EMBTIER_INVALID,
                       "arena_bytes is %" PRIu64 ", allowed: 0, or more than %" PRIu64
                       " with max_in_flight %u",
                       options.arena_bytes, shm_arena_payload_offset(options.max_in_flight),
                       options.max_in_flight);
    if (options.client_name && strlen(options.client_name) > CLIENT_NAME_MAX)
        return err_set(msg, EMBTIER_INVALID, "client_name is %zu bytes long, allowed: at most %d",
                       strlen(options.client_name), CLIENT_NAME_MAX);
    *ret_options = options;
    return EMBTIER_OK;
}

/* Escapes the name, because it goes into the server's log. */
static char *clean_name(const char *name)
{
    char *const copy = malloc(CLIENT_NAME_MAX + 1);
    size_t written = 0;

    if (!name)
        name = "libembtier";
    if (copy)
        (void)text_escape(TEXT_MIXED, name, strlen(name), copy, CLIENT_NAME_MAX + 1, &written);
    return copy;
}

static enum embtier_err read_addresses(const char *given, struct address_list **ret_addresses,
                                       struct err_msg *msg)
{
    _cleanup_(freep) char *path = NULL;

    if (given)
        return address_list_parse(given, ret_addresses, msg);
    path = default_socket_path();
    if (!path)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    if (default_socket_is_named())
        return address_list_parse(path, ret_addresses, msg);
    return address_list_of_path(path, ret_addresses, msg);
}

static enum embtier_err keep_options(struct embtier *server,
                                     const struct embtier_connect_options *given,
                                     struct err_msg *msg)
{
    struct embtier_connect_options options = EMBTIER_CONNECT_OPTIONS_INIT;

    TRY(read_options(given, &options, msg));
    TRY(read_addresses(options.socket_path, &server->addresses, msg));
    server->socket_is_users = !options.socket_path && default_socket_is_users();
    server->client_name = clean_name(options.client_name);
    if (!server->client_name)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    server->arena_bytes = options.arena_bytes;
    server->max_in_flight = options.max_in_flight;
    server->timeout_ms = options.timeout_ms;
    server->reconnect_ms = options.reconnect_ms;
    server->request_timeout_ms = options.request_timeout_ms;
    server->retries_reads = options.retry_reads != 0;
    return EMBTIER_OK;
}

/* Takes over what a hello brought. The connection has no open socket and no channel. */
static void take_opened(struct embtier *server, struct opened *opened)
{
    server->socket = opened->socket;
    control_socket_init(&opened->socket, 0);
    server->channel = TAKE(opened->channel);
    server->facts = opened->facts;
    server->address = opened->address;
    server->session_number++;
    if (!server->channel)
        return;
    /* To look for answers on a connection takes a call of the system. */
    server->spin_ns_max = server->channel->ops->look ? 0 : spin_ns_max();
    server->spin_ns = server->spin_ns_max;
}

/* Batches keep their places if a later session, at another address, is of another kind. So they
 * begin behind what a channel of any kind has for itself. */
static uint64_t payload_offset(const struct embtier *server)
{
    if (server->addresses->count == 1)
        return server->channel->payload;
    return MAX(server->channel->payload, shm_arena_payload_offset(server->channel->slot_count));
}

static enum embtier_err make_arena(struct embtier *server, struct err_msg *msg)
{
    server->slots = calloc(server->channel->slot_count, sizeof(struct embtier_batch *));
    if (!server->slots || arena_alloc_new(payload_offset(server), server->channel->region_bytes,
                                          &server->alloc) != EMBTIER_OK)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    return EMBTIER_OK;
}

static enum embtier_err connect_server(const struct embtier_connect_options *given,
                                       struct embtier **ret_server, struct err_msg *msg)
{
    _cleanup_(embtier_disconnectp) struct embtier *server = calloc(1, sizeof(*server));
    _cleanup_(opened_close) struct opened opened;

    opened_init(&opened, 0);
    if (!server)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    server->fail_requests = requests_fail;
    control_socket_init(&server->socket, 0);
    TRY(keep_options(server, given, msg));
    TRY(tls_contexts_new(&server->tls, msg));
    TRY(opening_round(server, UINT64_MAX, &opened, msg));
    take_opened(server, &opened);
    if (server->channel)
        TRY(make_arena(server, msg));
    *ret_server = TAKE(server);
    return EMBTIER_OK;
}

enum embtier_err embtier_connect(const struct embtier_connect_options *options,
                                 struct embtier **ret_server)
{
    connect_message.text[0] = '\0';
    return connect_server(options, ret_server, &connect_message);
}

void embtier_disconnect(struct embtier *server)
{
    if (!server)
        return;
    batches_free(server);
    groups_free(server);
    tables_free(server);
    arena_alloc_free(server->alloc);
    control_socket_close(&server->socket);
    client_channel_free(server->channel);
    tls_contexts_free(server->tls);
    free(server->slots);
    address_list_free(server->addresses);
    free(server->client_name);
    free(server);
}

/* The new arena must have the old one's shape, because batches keep their places in it. */
static enum embtier_err check_same_shape(const struct client_channel *old,
                                         const struct client_channel *fresh, struct err_msg *msg)
{
    if (fresh->slot_count != old->slot_count || fresh->region_bytes < old->region_bytes)
        return err_set(msg, EMBTIER_MISMATCH,
                       "the server now gives %u slots and %" PRIu64 " bytes, before %u and %" PRIu64
                       "; connect again",
                       fresh->slot_count, fresh->region_bytes, old->slot_count, old->region_bytes);
    return EMBTIER_OK;
}

/* The new session replaces the old one only when all of it is ready. On failure nothing of the old
 * one changes. The new arena is mapped at the old one's address, after the ids and rows of all
 * batches were copied into it. So pointers that the user holds stay valid. */
static enum embtier_err adopt_session(struct embtier *server, struct opened *fresh,
                                      struct err_msg *msg)
{
    if (server->channel) {
        TRY(check_same_shape(server->channel, fresh->channel, msg));
        for (const struct embtier_batch *batch = server->batches; batch; batch = batch->next)
            memcpy(fresh->channel->region + batch->block->offset,
                   connection_bytes(server, batch->block->offset), batch->block->bytes);
        TRY(client_channel_take_place(fresh->channel, server->channel, msg));
        client_channel_free(server->channel);
    }
    for (struct embtier_batch *batch = server->batches; batch; batch = batch->next)
        batch_lose_ticket(batch); /* tickets were the old session's, like memberships */
    groups_end(server);
    control_socket_close(&server->socket);
    take_opened(server, fresh);
    server->tail = 0; /* the slots have been empty since the old session ended */
    server->over = false;
    return EMBTIER_OK;
}

static enum embtier_err replace_session(struct embtier *server)
{
    _cleanup_(opened_close) struct opened fresh;
    enum embtier_err err;

    opened_init(&fresh, 0);
    TRY(opening_round(server, server->channel ? server->channel->region_bytes : UINT64_MAX, &fresh,
                      &server->message));
    err = tables_reopen(server, &fresh.socket, &server->message);
    if (!err)
        err = adopt_session(server, &fresh, &server->message);
    tables_reopened(server, err == EMBTIER_OK);
    return err;
}

/* A retry_fn. */
static enum embtier_err attempt(void *context)
{
    struct embtier *const server = context;
    const enum embtier_err err = replace_session(server);

    server->reconnect_reason = server->message;
    return err;
}

enum embtier_err embtier_reconnect_within(struct embtier *server, uint32_t timeout_ms)
{
    enum embtier_err err;

    connection_check(server);
    if (!server->over)
        return EMBTIER_OK;
    err = retry_run(&server->retry, &retry_outside_system, timeout_ms, attempt, server);
    if (err)
        server->message = server->reconnect_reason; /* perhaps of an attempt of an earlier call */
    return err;
}

enum embtier_err embtier_reconnect(struct embtier *server)
{
    return embtier_reconnect_within(server, server->reconnect_ms);
}

uint64_t embtier_session_number(const struct embtier *server)
{
    return server->session_number;
}
