/* SPDX-License-Identifier: Apache-2.0 */
#include "client/lib/session/opening.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/net/loopback.h"
#include "base/paths.h"
#include "base/text/text_escape.h"
#include "client/lib/connection.h"
#include "client/lib/session/retry.h"
#include "client/lib/session/token_file.h"
#include "client/transport/shm/shared_memory.h"

#define NS_PER_MS UINT64_C(1000000)
/* An address that does not answer keeps the next ones waiting for so long, if the caller has set no
 * limit. */
#define TURN_MS_MAX 10000

static enum embtier_err check_hello(const struct embtier *server, const Embtier__Reply *reply,
                                    bool is_rpc, uint32_t fd_count, struct err_msg *msg)
{
    if (reply->body_case != EMBTIER__REPLY__BODY_HELLO)
        return err_set(msg, EMBTIER_PROTOCOL, "the server did not answer the hello");
    if (reply->hello->protocol != PROTOCOL_VERSION)
        return err_set(msg, EMBTIER_VERSION, "the server speaks protocol %u, this library %d",
                       reply->hello->protocol, PROTOCOL_VERSION);
    if (server->arena_bytes == 0)
        return EMBTIER_OK;
    if (reply->hello->arena_bytes == 0)
        return err_set(msg, EMBTIER_PROTOCOL, "the server gave no arena of %" PRIu64 " bytes",
                       server->arena_bytes);
    if (is_rpc)
        return EMBTIER_OK;
    if (fd_count != CONTROL_FDS_MAX)
        return err_set(msg, EMBTIER_PROTOCOL, "%u descriptors came with the hello, expected %d",
                       fd_count, CONTROL_FDS_MAX);
    return EMBTIER_OK;
}

/* A missing directory is no error here: connecting reports it. */
static enum embtier_err check_directory(const char *socket_path, struct err_msg *msg)
{
    _cleanup_(freep) char *directory = NULL;
    enum embtier_err err;

    TRY(path_directory(socket_path, &directory, msg));
    err = users_directory_check(directory, msg);
    return err == EMBTIER_NOT_FOUND ? EMBTIER_OK : err;
}

void opened_init(struct opened *opened, uint32_t timeout_ms)
{
    *opened = (struct opened){ .channel = NULL };
    control_socket_init(&opened->socket, timeout_ms);
}

void opened_close(struct opened *opened)
{
    control_socket_close(&opened->socket);
    client_channel_free(TAKE(opened->channel));
}

/* True if others can read what goes to that address and comes from there. */
static bool is_in_clear(const struct address *address, const struct control_socket *socket)
{
    return address->kind == ADDRESS_TCP && !peer_is_loopback(rpc_connection_fd(socket->rpc));
}

static void keep_facts(const Embtier__HelloReply *hello, bool went_in_clear,
                       struct server_facts *facts)
{
    facts->max_batch_rows = hello->max_batch_rows;
    snprintf(facts->config_file, sizeof(facts->config_file), "%s", hello->config_file);
    snprintf(facts->user, sizeof(facts->user), "%s", hello->user);
    if (hello->secret.len == 0)
        return;
    facts->key = (struct session_key){ .session = hello->session,
                                       .secret_bytes = hello->secret.len,
                                       .went_in_clear = went_in_clear };
    memcpy(facts->key.secret, hello->secret.data, hello->secret.len);
}

/* A new session needs as much as the old one was given, whose batches have their places in it. */
static uint64_t arena_bytes_of(const struct embtier *server)
{
    return server->channel && server->addresses->count > 1 ? server->channel->region_bytes
                                                           : server->arena_bytes;
}

/* A token that has gone over a network in clear is no secret any more, whatever the server says. */
static enum embtier_err check_secrecy(const struct address *address,
                                      const struct control_socket *socket, struct token *token,
                                      struct err_msg *msg)
{
    if (token->text[0] == '\0' || !is_in_clear(address, socket))
        return EMBTIER_OK;
    explicit_bzero(token, sizeof(*token));
    return err_set(msg, EMBTIER_PERMISSION,
                   "a token is not sent to %s, where others can read it: connect with "
                   "tls://",
                   ADDRESS_SHOWN(address));
}

/* The key goes to whichever address comes next: another one of the list may be the same server's. A
 * server that does not know it ignores it. But others must not learn it there. */
static void name_old_session(const struct session_key *key, bool goes_in_clear,
                             Embtier__SessionKey *wire, Embtier__Hello *hello)
{
    if (key->session == 0 || (goes_in_clear && !key->went_in_clear))
        return;
    wire->session = key->session;
    wire->secret.data = (uint8_t *)(uintptr_t)key->secret;
    wire->secret.len = key->secret_bytes;
    hello->replaces = wire;
}

/* Sends a hello, with the client's token and what every hello has. */
static enum embtier_err call_hello(const struct embtier *server, const struct address *address,
                                   struct control_socket *socket, Embtier__Hello *hello,
                                   Embtier__Reply **ret_reply, struct err_msg *msg)
{
    Embtier__Request request = EMBTIER__REQUEST__INIT;
    struct token token;
    enum embtier_err err;

    TRY(token_file_find(address->files.token, &token, msg));
    TRY(check_secrecy(address, socket, &token, msg));
    hello->protocol_min = PROTOCOL_VERSION;
    hello->protocol_max = PROTOCOL_VERSION;
    hello->client = server->client_name;
    hello->pages = true;
    hello->token = token.text;
    request.body_case = EMBTIER__REQUEST__BODY_HELLO;
    request.hello = hello;
    err = control_socket_call(socket, &request, NULL, NULL, ret_reply, msg);
    explicit_bzero(&token, sizeof(token));
    return err;
}

static enum embtier_err say_hello(const struct embtier *server, const struct address *address,
                                  struct opened *opened, Embtier__Reply **ret_reply,
                                  struct err_msg *msg)
{
    Embtier__Hello hello = EMBTIER__HELLO__INIT;
    Embtier__SessionKey old = EMBTIER__SESSION_KEY__INIT;

    hello.arena_bytes = arena_bytes_of(server);
    hello.slot_count = server->max_in_flight;
    name_old_session(&server->facts.key, is_in_clear(address, &opened->socket), &old, &hello);
    return call_hello(server, address, &opened->socket, &hello, ret_reply, msg);
}

static enum embtier_err open_channel(const struct embtier *server, const Embtier__HelloReply *hello,
                                     uint64_t arena_bytes_max, struct opened *opened,
                                     struct err_msg *msg)
{
    const uint64_t timeout_ns =
        server->timeout_ms > 0 ? server->timeout_ms * NS_PER_MS : UINT64_MAX;

    if (server->arena_bytes == 0)
        return EMBTIER_OK;
    if (opened->socket.rpc)
        return rpc_channel_open(opened->socket.rpc, hello, arena_bytes_max, timeout_ns,
                                &opened->channel, msg);
    TRY(shared_memory_open(hello, opened->socket.fds, arena_bytes_max, &opened->channel, msg));
    opened->socket.fd_count = 0;
    return EMBTIER_OK;
}

/* Returns the milliseconds until @deadline_ns, at least 1; 0: there is no limit, as for a control
 * socket. */
static uint32_t ms_until(uint64_t deadline_ns)
{
    if (deadline_ns == UINT64_MAX)
        return 0;
    return (uint32_t)MAX(
        div_round_up(clock_since(deadline_ns, clock_now_ns(&clock_monotonic)), NS_PER_MS),
        UINT64_C(1));
}

/* ---- Turns ---- */

/* The time that an address of a round has. */
struct turn {
    uint64_t end_ns;
    uint32_t ms; /* from the turn's begin, as messages tell it; 0: there is no limit */
};

/* Divides the time that is left among the addresses that are left, so that none uses up all of it.
 * The first address's time is told as the caller gave it, without what passed meanwhile. */
static struct turn turn_of(const struct embtier *server, uint64_t deadline_ns, uint32_t left)
{
    const uint64_t now_ns = clock_now_ns(&clock_monotonic);
    const bool is_first = left == server->addresses->count;
    struct turn turn = { .end_ns = UINT64_MAX };

    if (deadline_ns != UINT64_MAX)
        turn.end_ns = now_ns + clock_since(deadline_ns, now_ns) / left;
    else if (left > 1)
        turn.end_ns = now_ns + TURN_MS_MAX * NS_PER_MS;
    turn.ms = is_first && server->timeout_ms > 0 ? MAX(server->timeout_ms / left, 1u)
                                                 : ms_until(turn.end_ns);
    return turn;
}

/* ---- Further connections ---- */

static enum embtier_err say_joining_hello(const struct embtier *server,
                                          const struct address *address,
                                          const Embtier__HelloReply *session,
                                          struct control_socket *socket, struct err_msg *msg)
{
    _cleanup_(reply_freep) Embtier__Reply *reply = NULL;
    Embtier__Hello hello = EMBTIER__HELLO__INIT;
    Embtier__SessionKey key = EMBTIER__SESSION_KEY__INIT;

    key.session = session->session;
    key.secret = session->secret;
    hello.joins = &key;
    TRY(call_hello(server, address, socket, &hello, &reply, msg));
    if (reply->body_case == EMBTIER__REPLY__BODY_HELLO && reply->hello->session == session->session)
        return EMBTIER_OK;
    return err_set(msg, EMBTIER_PROTOCOL, "the server did not let a connection join its session");
}

static enum embtier_err add_connection(const struct embtier *server, uint32_t at,
                                       const Embtier__HelloReply *session, struct turn turn,
                                       struct opened *opened, struct err_msg *msg)
{
    const struct address *const address = &server->addresses->addresses[at];
    struct control_socket socket;
    enum embtier_err err;

    control_socket_init(&socket, ms_until(turn.end_ns));
    socket.told_ms = turn.ms;
    err = control_socket_connect(&socket, address, server->addresses->texts[at], opened->socket.rpc,
                                 server->tls, msg);
    if (err == EMBTIER_OK)
        err = say_joining_hello(server, address, session, &socket, msg);
    if (err == EMBTIER_OK)
        rpc_channel_add(opened->channel, TAKE(socket.rpc));
    control_socket_close(&socket);
    return err;
}

/* An older server, and one that wants fewer, gets fewer. */
static enum embtier_err add_connections(const struct embtier *server, uint32_t at,
                                        const Embtier__HelloReply *session, struct turn turn,
                                        struct opened *opened, struct err_msg *msg)
{
    const uint32_t wanted =
        MIN(server->addresses->addresses[at].connections, session->connections_max);

    if (!opened->channel || !opened->socket.rpc)
        return EMBTIER_OK;
    for (uint32_t i = 1; i < wanted; i++)
        TRY(add_connection(server, at, session, turn, opened, msg));
    return EMBTIER_OK;
}

/* Connects to one address and says hello before the turn's end. */
static enum embtier_err open_at(const struct embtier *server, uint32_t at, struct turn turn,
                                uint64_t arena_bytes_max, struct opened *opened,
                                struct err_msg *msg)
{
    const char *const text = server->addresses->texts[at];
    _cleanup_(reply_freep) Embtier__Reply *reply = NULL;

    opened_init(opened, ms_until(turn.end_ns));
    opened->socket.told_ms = turn.ms;
    if (server->socket_is_users)
        TRY(check_directory(text, msg));
    TRY(control_socket_connect(&opened->socket, &server->addresses->addresses[at], text, NULL,
                               server->tls, msg));
    if (server->socket_is_users)
        TRY(control_socket_check_peer(&opened->socket, text, msg));
    opened->socket.timeout_ms = ms_until(turn.end_ns);
    TRY(say_hello(server, &server->addresses->addresses[at], opened, &reply, msg));
    TRY(check_hello(server, reply, opened->socket.rpc != NULL, opened->socket.fd_count, msg));
    keep_facts(reply->hello, is_in_clear(&server->addresses->addresses[at], &opened->socket),
               &opened->facts);
    TRY(open_channel(server, reply->hello, arena_bytes_max, opened, msg));
    TRY(add_connections(server, at, reply->hello, turn, opened, msg));
    opened->socket.timeout_ms = server->timeout_ms;
    opened->socket.told_ms = server->timeout_ms;
    opened->address = at;
    return EMBTIER_OK;
}

/* ---- A failed round ---- */

/* The reasons of several addresses share one message. */
struct failures {
    enum embtier_err err;
    size_t room; /* for each address and its reason */
    struct err_msg message;
};

/* Returns the part of a message that follows the address in it, if it names that. */
static const char *after_address(const char *message, const struct address *address,
                                 const char *text)
{
    const char *const named = address->path[0] != '\0' ? address->path : text;
    const char *const found = strstr(message, named);

    if (!found)
        return message;
    message = found + strlen(named);
    return message + strspn(message, ": ");
}

/* A reason that is too long loses its end, which gives advice. The error of the round is one that
 * may get better, if any address has such a one. */
static void note(struct failures *failures, const struct address_list *list, uint32_t at,
                 enum embtier_err err, const struct err_msg *reason)
{
    const bool is_first = failures->err == EMBTIER_OK;
    char text[2 * sizeof(reason->text)];
    int length;

    if (is_first || (!retry_may_help(failures->err) && retry_may_help(err)))
        failures->err = err;
    length = snprintf(text, sizeof(text), "%s: %s", list->texts[at],
                      after_address(reason->text, &list->addresses[at], list->texts[at]));
    if ((size_t)length > failures->room)
        memcpy(text + failures->room - 4, " ...", 5);
    err_append(&failures->message, "%s%s", is_first ? ": " : "; ", text);
}

enum embtier_err opening_round(const struct embtier *server, uint64_t arena_bytes_max,
                               struct opened *opened, struct err_msg *msg)
{
    const uint32_t count = server->addresses->count;
    const uint64_t deadline_ns =
        server->timeout_ms > 0 ? clock_now_ns(&clock_monotonic) + server->timeout_ms * NS_PER_MS
                               : UINT64_MAX;
    struct failures failures = { .message = { "no address has a server for this client" } };

    failures.room = (sizeof(msg->text) - strlen(failures.message.text)) / count - strlen("; ");
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t at = (server->address + i) % count;
        struct err_msg reason = { { 0 } };
        const enum embtier_err err = open_at(server, at, turn_of(server, deadline_ns, count - i),
                                             arena_bytes_max, opened, &reason);

        if (err == EMBTIER_OK)
            return EMBTIER_OK;
        opened_close(opened);
        opened_init(opened, 0);
        if (count == 1)
            return err_set(msg, err, "%s", reason.text);
        note(&failures, server->addresses, at, err, &reason);
    }
    return err_set(msg, failures.err, "%s", failures.message.text);
}
