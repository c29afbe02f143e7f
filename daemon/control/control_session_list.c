/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions as administrators see them: lists clients that have said hello, and ends one. Further
 * connections of a session are no sessions of their own here. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/counter.h"
#include "daemon/access/access.h"
#include "daemon/control/connection.h"
#include "daemon/control/control_impl.h"
#include "daemon/control/snapshot.h"
#include "daemon/engine/sessions/session.h"
#include "daemon/transport/transport.h"
#include "proto/frame.h"

/* ---- Transports ---- */

enum transport_kind control_transport_of(const struct connection *connection)
{
    const struct transport_peer *const peer = connection->peer;

    if (!peer)
        return TRANSPORT_SHM;
    if (peer->is_encrypted)
        return TRANSPORT_TLS;
    return peer->address.text[0] == '\0' ? TRANSPORT_UNIX_RPC : TRANSPORT_TCP;
}

static bool is_listed(const struct connection *connection)
{
    return connection->fd >= 0 && connection->said_hello && !connection->first;
}

void control_count_transports(const struct control *control, uint32_t ret_counts[TRANSPORT_KINDS])
{
    for (uint32_t t = 0; t < TRANSPORT_KINDS; t++)
        ret_counts[t] = 0;
    for (const struct connection *c = control->connections; c; c = c->next)
        if (is_listed(c))
            ret_counts[control_transport_of(c)]++;
}

/* ---- A snapshot ---- */

static struct snapshot_session session_of(const struct connection *connection)
{
    const struct session *const session = connection->session;
    struct snapshot_session taken = {
        .number = connection->number,
        .age_ms = clock_since(clock_now_ns(&clock_monotonic), connection->since_ns) / 1000000,
        .arena_bytes = connection->counted_bytes,
        .connections = 1 + connection->further,
        .transport = transport_word(control_transport_of(connection)),
    };

    if (!session)
        return taken;
    taken.requests = counter_get(&session->counts.requests);
    taken.rows = counter_get(&session->counts.rows);
    taken.in_flight = session_under_way(session);
    taken.tickets = (uint32_t)counter_get(&session->counts.tickets);
    return taken;
}

uint32_t control_take_sessions(const struct control *control, struct snapshot_session *ret_sessions,
                               uint32_t most)
{
    uint32_t count = 0;

    for (const struct connection *c = control->connections; c; c = c->next) {
        struct snapshot_session session;
        uint32_t least = 0;

        if (!is_listed(c))
            continue;
        session = session_of(c);
        if (count < most) {
            ret_sessions[count++] = session;
            continue;
        }
        for (uint32_t i = 1; i < count; i++)
            if (ret_sessions[i].rows < ret_sessions[least].rows)
                least = i;
        if (ret_sessions[least].rows < session.rows)
            ret_sessions[least] = session;
    }
    return count;
}

/* ---- The list ---- */

struct listed {
    const struct connection *connection;
    bool is_own;
};

/* Borrows from the connection. */
static void fill_session(void *item, void *wire)
{
    const struct listed *const listed = item;
    const struct connection *const c = listed->connection;
    const struct session *const session = c->session;
    Embtier__Session *const out = wire;

    embtier__session__init(out);
    out->number = c->number;
    out->user = (char *)(uintptr_t)access_member_name(c->member);
    out->uid = (uint32_t)c->peer_uid;
    out->pid = (uint64_t)c->peer_pid;
    if (c->peer)
        out->address = c->peer->address.text;
    out->transport = (char *)(uintptr_t)transport_word(control_transport_of(c));
    out->client = (char *)(uintptr_t)c->client;
    out->age_ms = clock_since(clock_now_ns(&clock_monotonic), c->since_ns) / 1000000;
    out->connections = 1 + c->further;
    out->arena_bytes = c->counted_bytes;
    out->is_own = listed->is_own;
    if (!session)
        return;
    out->requests = counter_get(&session->counts.requests);
    out->rows = counter_get(&session->counts.rows);
    out->in_flight = session_under_way(session);
    out->tickets = (uint32_t)counter_get(&session->counts.tickets);
}

static int compare_numbers(const void *a, const void *b)
{
    const uint64_t x = ((const struct listed *)a)->connection->number;
    const uint64_t y = ((const struct listed *)b)->connection->number;

    return (x > y) - (x < y);
}

/* Returns the sessions behind @after that the asker may see, by number, malloced; or NULL. */
static struct listed *find_sessions(struct control *control, const struct connection *asker,
                                    uint64_t after, uint32_t *ret_count)
{
    const bool sees_all = control_sees_all(control, asker);
    struct listed *sessions;
    size_t room = 1;
    uint32_t count = 0;

    for (const struct connection *c = control->connections; c; c = c->next)
        room++;
    sessions = calloc(room, sizeof(*sessions));
    for (const struct connection *c = control->connections; sessions && c; c = c->next)
        if (is_listed(c) && c->number > after && (sees_all || c->user == asker->user))
            sessions[count++] = (struct listed){ c, c == asker };
    if (sessions)
        qsort(sessions, count, sizeof(*sessions), compare_numbers);
    *ret_count = count;
    return sessions;
}

static void handle_list(struct control *control, struct connection *connection, uint32_t id,
                        const Embtier__SessionList *wire)
{
    const uint32_t most = control_page(wire ? wire->most : 0);
    uint32_t count = 0;
    _cleanup_(freep) struct listed *sessions =
        find_sessions(control, connection, wire ? wire->after : 0, &count);
    const struct page page = { .items = sessions,
                               .item_bytes = sizeof(*sessions),
                               .wire_bytes = sizeof(Embtier__Session),
                               .fill = fill_session,
                               .count = MIN(count, most),
                               .more = count > most };
    Embtier__SessionListReply body = EMBTIER__SESSION_LIST_REPLY__INIT;
    Embtier__Reply message = EMBTIER__REPLY__INIT;
    _cleanup_(freep) void **pointers = NULL;

    if (!sessions) {
        control_reply_error(control, connection, id, EMBTIER_NO_MEMORY, &(struct err_msg){ { 0 } });
        return;
    }
    pointers = control_new_page(control, connection, id, &page);
    if (!pointers)
        return;
    body.n_sessions = page.count;
    body.sessions = (Embtier__Session **)pointers;
    body.more = page.more;
    message.id = id;
    message.last = true;
    message.body_case = EMBTIER__REPLY__BODY_SESSION_LIST;
    message.session_list = &body;
    control_reply(control, connection, &message);
}

/* ---- The end of one ---- */

/* Finds another client's session that the asker may end. */
static enum embtier_err find_to_end(struct control *control, const struct connection *asker,
                                    uint64_t number, struct connection **ret_connection,
                                    struct err_msg *msg)
{
    struct connection *c = control->connections;

    while (c && !(is_listed(c) && c->number == number))
        c = c->next;
    if (!c)
        return err_set(msg, EMBTIER_NOT_FOUND,
                       "there is no session %" PRIu64 "; `embtier clients` lists them", number);
    if (c == asker)
        return err_set(msg, EMBTIER_INVALID,
                       "session %" PRIu64 " is this client's own: disconnect instead", number);
    if (!control_may_all(control, asker) && c->user != asker->user)
        return err_set(msg, EMBTIER_PERMISSION,
                       "session %" PRIu64
                       " is another user's, which root and the server's user alone may end",
                       number);
    *ret_connection = c;
    return EMBTIER_OK;
}

static void handle_end(struct control *control, struct connection *connection, uint32_t id,
                       uint64_t number)
{
    Embtier__Session session = EMBTIER__SESSION__INIT;
    Embtier__Reply message = EMBTIER__REPLY__INIT;
    struct err_msg msg = { { 0 } };
    struct connection *ended = NULL;
    struct listed listed = { 0 };
    const enum embtier_err err = find_to_end(control, connection, number, &ended, &msg);

    if (err != EMBTIER_OK) {
        control_reply_error(control, connection, id, err, &msg);
        return;
    }
    listed.connection = ended;
    fill_session(&listed, &session);
    control_close(control, ended, EMBTIER_CANCELLED, "an administrator has ended this session");
    message.id = id;
    message.last = true;
    message.body_case = EMBTIER__REPLY__BODY_SESSION;
    message.session = &session;
    control_reply(control, connection, &message);
}

void control_handle_sessions(struct control *control, struct connection *connection,
                             const Embtier__Request *request)
{
    if (request->body_case == EMBTIER__REQUEST__BODY_SESSION_LIST)
        handle_list(control, connection, request->id, request->session_list);
    else
        handle_end(control, connection, request->id, request->session_end->number);
}
