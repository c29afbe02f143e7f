/* SPDX-License-Identifier: Apache-2.0 */
/* A client that has lost its session comes back, and its hello names the old one.
 *
 * Bytes of the old connection may still be on their way. The client was told that the outcome of
 * its last requests is unknown, and it may now look. So the old session is ended first: none of its
 * requests begins any more, and the hello waits until those in lanes are done and its place and
 * memory are given back. So the user has the room for the new session that the old one had, even
 * if that had ended by itself a moment before. */
#include "base/clock.h"
#include "daemon/control/connection.h"
#include "daemon/control/control_impl.h"
#include "daemon/transport/transport.h"

struct connection *control_find_session(struct control *control, const Embtier__SessionKey *key)
{
    for (struct connection *c = control->connections; c; c = c->next)
        if (c->number == key->session && c->said_hello && !c->first)
            return session_secret_is(&c->secret, key->secret.data, key->secret.len) ? c : NULL;
    return NULL;
}

/* True while lanes may be at its requests, or until the next sweep frees it. */
static bool is_about_to_end(const struct connection *connection)
{
    if (connection->session)
        return !connection->session_is_gone;
    return !connection->job && connection->unread_fd < 0;
}

/* True if the memory of a session that has ended is being freed. */
static bool is_being_freed(const struct control *control, const Embtier__SessionKey *key)
{
    for (const struct transport_channel *c = control->released; c; c = c->next_released)
        if (c->connection == key->session)
            return session_secret_is(&c->secret, key->secret.data, key->secret.len);
    return false;
}

bool control_must_wait(struct control *control, struct connection *connection,
                       const Embtier__Request *request)
{
    const Embtier__SessionKey *key;
    struct connection *old;

    if (request->body_case != EMBTIER__REQUEST__BODY_HELLO || connection->said_hello ||
        !request->hello->replaces)
        return false;
    key = request->hello->replaces;
    old = control_find_session(control, key);
    if (old)
        control_close_left(control, old);
    if (!(old && is_about_to_end(old)) && !is_being_freed(control, key))
        return false;
    connection->awaited = key->session;
    connection->awaiting_id = request->id;
    return true;
}

void control_end_waits(struct control *control, uint64_t number)
{
    for (struct connection *c = control->connections; c; c = c->next) {
        if (c->awaited != number || c->fd < 0)
            continue;
        c->awaited = 0;
        c->since_ns = clock_now_ns(&clock_monotonic); /* it has said its hello in time */
        control_add_ready(control, c);
        control_watch(control, c);
    }
}
