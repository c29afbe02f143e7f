/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions of connections, from the hello until their memory is freed; session_maker.h makes and
 * frees that. A connection waits until its session is made: no request of it is handled meanwhile,
 * as during a job. */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log/log.h"
#include "base/text/text_escape.h"
#include "base/version.h"
#include "daemon/access/access.h"
#include "daemon/control/connection.h"
#include "daemon/control/control_impl.h"
#include "daemon/engine/lane/lane.h"
#include "daemon/engine/memory/accounts.h"
#include "daemon/engine/ops/groups/group.h"
#include "daemon/engine/sessions/session.h"
#include "daemon/jobs/job.h"
#include "daemon/jobs/knobs/knobs.h"
#include "daemon/transport/session_maker.h"
#include "daemon/transport/transport.h"
#include "proto/frame.h"

/* ---- Hello ---- */

/* Request numbers wrap at 2^32, and a request's slot is its number modulo the slots. So only a
 * power of two gives neighbours different slots there, too. */
static uint32_t slots_of(uint32_t wanted)
{
    uint32_t slots = 1;

    while (slots < wanted && slots < OP_SLOTS_MAX)
        slots *= 2;
    return slots;
}

static struct channel_spec spec_of(const struct control *control, const Embtier__Hello *hello)
{
    return (struct channel_spec){
        .region_bytes = hello->arena_bytes,
        .slot_count = hello->slot_count ? slots_of(hello->slot_count) : OP_SLOTS_DEFAULT,
        .max_batch_rows = control->parts->config->socket.max_batch_rows,
    };
}

static enum embtier_err check_version(const struct connection *connection,
                                      const Embtier__Hello *hello, struct err_msg *msg)
{
    if (connection->said_hello)
        return err_set(msg, EMBTIER_PROTOCOL, "the client said hello twice");
    if (hello->protocol_min > PROTOCOL_VERSION || hello->protocol_max < PROTOCOL_VERSION)
        return err_set(msg, EMBTIER_VERSION,
                       "this server speaks protocol %d, the client %" PRIu32 " to %" PRIu32,
                       PROTOCOL_VERSION, hello->protocol_min, hello->protocol_max);
    return EMBTIER_OK;
}

static enum embtier_err check_arena(const struct control *control,
                                    const struct connection *connection,
                                    const Embtier__Hello *hello, struct err_msg *msg)
{
    const uint64_t most_bytes = knobs_limit(control->parts->knobs, KNOB_MAX_ARENA_BYTES);
    const struct channel_spec spec = spec_of(control, hello);
    uint64_t users_bytes, user_limit;
    uint64_t bytes;
    enum account_answer answer;

    if (hello->arena_bytes == 0)
        return EMBTIER_OK;
    if (hello->slot_count > OP_SLOTS_MAX)
        return err_set(msg, EMBTIER_TOO_LARGE, "%" PRIu32 " requests in flight, allowed: 1 to %d",
                       hello->slot_count, OP_SLOTS_MAX);
    if (hello->arena_bytes > most_bytes)
        return err_set(msg, EMBTIER_TOO_LARGE,
                       "an arena of %" PRIu64 " bytes is over socket.max_arena_bytes %" PRIu64,
                       hello->arena_bytes, most_bytes);
    bytes = connection->transport->counted_bytes(&spec);
    users_bytes = account_has(connection->account, ACCOUNT_ARENA_BYTES);
    answer = account_ask(connection->account, ACCOUNT_ARENA_BYTES, bytes);
    if (answer == ACCOUNT_USER_HAS)
        return err_set(
            msg, EMBTIER_BUSY,
            "the arenas of your user's clients have %" PRIu64 " bytes and %" PRIu64
            " more would exceed the %" PRIu64
            " that one user may have%s (%s): ask for less (arena_bytes)",
            users_bytes, bytes, account_part(connection->account, ACCOUNT_ARENA_BYTES),
            account_rule(connection->account, ACCOUNT_ARENA_BYTES),
            account_key(connection->account, ACCOUNT_ARENA_BYTES, "socket.max_user_arena_bytes"));
    if (answer != ACCOUNT_TAKEN)
        return err_set(
            msg, EMBTIER_BUSY,
            "all clients' arenas have %" PRIu64 " bytes and %" PRIu64
            " more would exceed socket.max_total_arena_bytes %" PRIu64,
            accounts_used(control->parts->accounts, ACCOUNT_ARENA_BYTES), bytes,
            accounts_limit_of(control->parts->accounts, ACCOUNT_ARENA_BYTES, &user_limit));
    return EMBTIER_OK;
}

/* Only a user is told the limits. */
static enum embtier_err check_hello(struct control *control, struct connection *connection,
                                    const Embtier__Hello *hello, struct err_msg *msg)
{
    TRY(check_version(connection, hello, msg));
    TRY(control_identify(control, connection, hello, msg));
    if (hello->joins)
        return control_join(control, connection, hello->joins, msg);
    TRY(check_arena(control, connection, hello, msg));
    return session_secret_make(&connection->secret, msg);
}

/* ---- Making ---- */

/* Tells the transport that the client is about to learn of its channel. Returns the number of
 * descriptors that go along. */
static uint32_t announce(const struct connection *connection, int ret_fds[TRANSPORT_FDS_MAX])
{
    if (!connection->first)
        return connection->transport->announce(connection->channel, ret_fds);
    assert(connection->transport->join); /* control_join() has looked */
    connection->transport->join(connection->first->channel, connection->peer);
    return 0;
}

/* A further connection gets no secret, as it has that of its session. */
static void reply_hello(struct control *control, struct connection *connection, uint32_t id)
{
    const struct connection *const first = connection->first ? connection->first : connection;
    const struct session *const session = first->session;
    int fds[TRANSPORT_FDS_MAX];
    Embtier__HelloReply body = EMBTIER__HELLO_REPLY__INIT;
    Embtier__Reply message = EMBTIER__REPLY__INIT;

    connection->said_hello = true;
    free(TAKE(connection->peer_gids));
    body.user = (char *)(uintptr_t)access_member_name(connection->member);
    body.role = (uint32_t)access_member_role(connection->member);
    body.protocol = PROTOCOL_VERSION;
    body.server_version = (char *)(uintptr_t)EMBTIER_PROJECT_VERSION;
    body.session = first->number;
    body.secret.data = connection->secret.bytes;
    body.secret.len = connection->first ? 0 : sizeof(connection->secret.bytes);
    body.connections_max = session && connection->transport->join ? CONTROL_CONNECTIONS_MAX : 0;
    body.max_batch_rows = control->parts->config->socket.max_batch_rows;
    body.config_file = control->config_file;
    body.narrow_ids = true;
    message.id = id;
    message.last = true;
    message.body_case = EMBTIER__REPLY__BODY_HELLO;
    message.hello = &body;
    if (!session) {
        control_reply(control, connection, &message);
        return;
    }
    body.arena_bytes = session->channel.region_bytes;
    body.slot_count = session->channel.slot_count;
    control_reply_fds(control, connection, &message, fds, announce(connection, fds));
}

static void refuse_hello(struct control *control, struct connection *connection, uint32_t id,
                         enum embtier_err err, const struct err_msg *msg)
{
    if (connection->peer && !connection->peer->is_greeted) {
        control_leave(control, connection);
        connection_be_stranger(connection);
    }
    if (control_may_warn(control))
        log_warn("hello refused", "session=%" PRIu64 " %s err=%s why=%s", connection->number,
                 CONNECTION_ORIGIN(connection), err_name(err), LOG_QUOTED(msg->text));
    control_reply_error(control, connection, id, err, msg);
}

/* Counts the session's bytes, and has it made. */
static enum embtier_err order_session(struct control *control, struct connection *connection,
                                      uint32_t id, const Embtier__Hello *hello)
{
    struct session_order *const order = calloc(1, sizeof(*order));

    if (!order)
        return EMBTIER_NO_MEMORY;
    order->made_message.kind = &message_session_made;
    order->owner = connection;
    order->request_id = id;
    order->user = connection->user;
    order->id = connection->number;
    order->transport = connection->transport;
    order->spec = spec_of(control, hello);
    order->spec.peer = connection->peer;
    order->lane_count = control->parts->lane_count;
    connection->counted_bytes = order->transport->counted_bytes(&order->spec);
    account_add(connection->account, ACCOUNT_ARENA_BYTES, connection->counted_bytes);
    assert(!connection->making && !connection->session);
    connection->making = order;
    control_watch(control, connection);
    session_maker_make(control->maker, order);
    return EMBTIER_OK;
}

static void note_client(struct connection *connection, const char *client)
{
    size_t written;

    (void)text_escape(TEXT_MIXED, client, strlen(client), connection->client,
                      sizeof(connection->client), &written);
}

void control_handle_hello(struct control *control, struct connection *connection, uint32_t id,
                          const Embtier__Hello *hello)
{
    struct err_msg msg = { { 0 } };
    enum embtier_err err = check_hello(control, connection, hello, &msg);

    if (err == EMBTIER_OK && hello->arena_bytes > 0 && !connection->first)
        err = order_session(control, connection, id, hello);
    if (err != EMBTIER_OK) {
        refuse_hello(control, connection, id, err, &msg);
        return;
    }
    if (connection->peer)
        transport_greet(connection->peer);
    connection->knows_pages = hello->pages;
    note_client(connection, hello->client);
    log_debug("client connected", "session=%" PRIu64 " %s user=%s client=%s", connection->number,
              CONNECTION_ORIGIN(connection), access_member_name(connection->member),
              LOG_QUOTED(hello->client));
    if (!connection->making)
        reply_hello(control, connection, id);
}

/* Opens the account for the channel, because the connection may go before the memory does. */
static void release(struct control *control, struct connection *connection,
                    struct transport_channel *channel, bool is_abandoned)
{
    channel->connection = connection->number;
    channel->secret = connection->secret;
    channel->next_released = control->released;
    control->released = channel;
    channel->counted_bytes = connection->counted_bytes;
    connection->counted_bytes = 0;
    channel->account = account_open(control->parts->accounts, connection->user);
    assert(channel->account == connection->account); /* it is open, so no memory is needed */
    channel->freed_message.kind = &message_channel_freed;
    control->released_count++;
    session_maker_release(control->maker, channel, is_abandoned);
}

static void attach(struct control *control, struct connection *connection, struct session *session,
                   struct transport_channel *channel)
{
    session->send = control->send;
    session->owner = control;
    session->gone_message.kind = &message_session_gone;
    session->broken_message.kind = &message_session_broken;
    session->transport = control_transport_of(connection);
    session->pid = connection->peer_pid;
    session->uid = connection->peer_uid;
    session->account = session->ticket_share.account = connection->account;
    session->rights = access_member_rights(connection->member);
    connection->session = session;
    connection->channel = channel;
    lane_attach(control->parts->lanes[session->home], session);
}

/* Gives back all that an order without a session has. No client has seen its channel. */
static void end_order(struct control *control, struct connection *connection,
                      struct session_order *order)
{
    if (order->channel) {
        release(control, connection, order->channel, true);
        return;
    }
    account_give(connection->account, ACCOUNT_ARENA_BYTES, connection->counted_bytes);
    connection->counted_bytes = 0;
}

void control_session_made(struct control *control, struct session_order *order)
{
    struct connection *const connection = order->owner;
    struct session *const session = TAKE(order->session);

    assert(connection->making == order && !connection->session);
    connection->making = NULL;
    if (order->err == EMBTIER_OK && connection->fd >= 0) {
        attach(control, connection, session, order->channel);
        reply_hello(control, connection, order->request_id);
    } else {
        session_free(session);
        end_order(control, connection, order);
        if (connection->fd >= 0)
            refuse_hello(control, connection, order->request_id, order->err, &order->msg);
    }
    free(order);
}

void control_tell_making(struct control *control, struct connection *connection, uint32_t id)
{
    Embtier__Progress progress = EMBTIER__PROGRESS__INIT;
    Embtier__Reply message = EMBTIER__REPLY__INIT;

    if (connection->fd < 0 || connection_has_unsent(connection))
        return;
    message.id = id;
    message.body_case = EMBTIER__REPLY__BODY_PROGRESS;
    message.progress = &progress;
    control_reply(control, connection, &message);
}

/* ---- Freeing ---- */

/* True if no client may read the arena any more. Its pages are then freed even if a process kept
 * its descriptor or mapping, because they count for no user any more. But a client that the
 * server's stop ends has its answers there, and no other server counts them. */
static bool is_abandoned(const struct connection *connection)
{
    return connection->process_ended || connection->closed_why != EMBTIER_SHUTDOWN;
}

void control_session_gone(struct control *control, struct session *session)
{
    struct connection *c = control->connections;

    while (c && c->session != session)
        c = c->next;
    if (!c)
        return;
    assert(c->session_detached);
    groups_forget(session);
    c->session_is_gone = c->lent_fd >= 0 || (c->job && c->job->kind->uses_arena);
    if (c->session_is_gone) {
        control_end_waits(control, c->number);
        return;
    }
    c->session = NULL;
    session_free(session);
    release(control, c, TAKE(c->channel), is_abandoned(c));
    control->sweep = true;
}

void control_channel_freed(struct control *control, struct transport_channel *channel)
{
    struct transport_channel **at = &control->released;

    while (*at != channel)
        at = &(*at)->next_released;
    *at = channel->next_released;
    assert(control->released_count > 0);
    control->released_count--;
    account_give(channel->account, ACCOUNT_ARENA_BYTES, channel->counted_bytes);
    account_close(channel->account);
    control_end_waits(control, channel->connection);
    transport_channel_free(channel);
}
