/* SPDX-License-Identifier: Apache-2.0 */
/* Further connections of a session, which carry requests beside the first one.
 *
 * To this thread each is a client without a channel, and counts as one: in its user's sessions, in
 * all of them, in descriptors. It lives as long as the session, whatever ends first: lanes send
 * answers to its loop until the session is gone. */
#include <assert.h>
#include <inttypes.h>

#include "base/log/log.h"
#include "daemon/access/access.h"
#include "daemon/control/connection.h"
#include "daemon/control/control_impl.h"
#include "daemon/transport/transport.h"

/* True if both connections are of one client, as far as the server can tell. The secret shows the
 * rest. A session that nobody can listen to must not go on where others can. */
static bool is_of_same_client(const struct connection *a, const struct connection *b)
{
    return a->transport == b->transport && a->member == b->member && a->user == b->user &&
           a->peer->is_encrypted == b->peer->is_encrypted;
}

static bool has_open_session(const struct connection *connection)
{
    return connection->fd >= 0 && connection->session && !connection->session_detached;
}

enum embtier_err control_join(struct control *control, struct connection *connection,
                              const Embtier__SessionKey *key, struct err_msg *msg)
{
    struct connection *const first = control_find_session(control, key);

    if (!first || !has_open_session(first) || !connection->transport->join ||
        !is_of_same_client(first, connection))
        return err_set(msg, EMBTIER_PERMISSION,
                       "no session of this client has that number and secret");
    if (first->further + 1 >= CONTROL_CONNECTIONS_MAX)
        return err_set(msg, EMBTIER_BUSY,
                       "the session has %d connections, and may have no more: ask for fewer",
                       CONTROL_CONNECTIONS_MAX);
    connection->first = first;
    first->further++;
    log_debug("a session has a further connection", "session=%" PRIu64 " connection=%" PRIu64,
              first->number, connection->number);
    return EMBTIER_OK;
}

static bool is_left(const struct connection *connection)
{
    return connection->peer && connection->peer->is_left;
}

/* A stream that still sends holds the region, which counts for nobody once the session is over. The
 * first connection alone keeps its session until its client has read why that ends, unless the
 * client has gone. */
static void let_region_go(struct control *control, const struct connection *first,
                          enum embtier_err err)
{
    for (struct connection *c = control->connections; c; c = c->next)
        if (c->first == first || (c == first && err == EMBTIER_DISCONNECTED))
            c->peer->is_left = true;
}

void control_close_joined(struct control *control, struct connection *connection,
                          enum embtier_err err, const char *why)
{
    const struct connection *const first = connection->first ? connection->first : connection;

    if (!connection->first && connection->further == 0)
        return;
    for (struct connection *c = control->connections; c; c = c->next) {
        if (c->fd < 0 || (c != first && c->first != first))
            continue;
        if (is_left(connection))
            control_close_left(control, c);
        else
            control_close(control, c, err, why);
    }
    if (err != EMBTIER_SHUTDOWN)
        let_region_go(control, first, err);
}

void control_leave_session(struct connection *connection)
{
    if (!connection->first)
        return;
    assert(connection->first->further > 0);
    connection->first->further--;
    connection->first = NULL;
}
