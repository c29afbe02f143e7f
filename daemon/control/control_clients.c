/* SPDX-License-Identifier: Apache-2.0 */
/* Clients of the control thread: their life, and their end, which gives back all that they had. */
#include <assert.h>
#include <inttypes.h>
#include <poll.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log/log.h"
#include "daemon/access/access.h"
#include "daemon/control/connection.h"
#include "daemon/control/control_impl.h"
#include "daemon/engine/lane/lane.h"
#include "daemon/engine/sessions/session.h"
#include "daemon/jobs/worker.h"
#include "daemon/transport/session_maker.h"

/* Most lines about clients that are logged between two ticks. */
#define WARNINGS_MAX 20

void control_link(struct control *control, struct connection *connection)
{
    connection->next = control->connections;
    if (connection->next)
        connection->next->link = &connection->next;
    connection->link = &control->connections;
    control->connections = connection;
}

static void connection_unlink(struct connection *connection)
{
    *connection->link = connection->next;
    if (connection->next)
        connection->next->link = connection->link;
}

/* Frees connections that are over. True: one of them was joined to another, which may be over now
 * too. */
static bool free_ended(struct control *control)
{
    struct connection *next;
    bool was_joined = false;
    uint64_t number;

    for (struct connection *c = control->connections; c; c = next) {
        next = c->next;
        if (c->fd >= 0 || c->unread_fd >= 0 || c->making || c->session || c->job || c->is_ready ||
            control_is_joined(c))
            continue;
        was_joined = was_joined || c->first;
        control_leave_session(c);
        connection_unlink(c);
        control_leave(control, c);
        number = c->number;
        connection_free(c);
        control_end_waits(control, number);
    }
    return was_joined;
}

void control_sweep(struct control *control)
{
    while (free_ended(control))
        continue;
    control->sweep = false;
}

bool control_may_warn(struct control *control)
{
    if (control->warnings++ < WARNINGS_MAX)
        return true;
    control->warnings_kept++;
    return false;
}

void control_tell_warnings(struct control *control)
{
    if (control->warnings_kept > 0)
        log_warn("more clients were refused or dropped", "count=%u", control->warnings_kept);
    control->warnings = control->warnings_kept = 0;
}

/* ---- The end of a client ---- */

void control_let_go(struct control *control, struct connection *connection)
{
    const enum embtier_err err = connection->closed_why;

    if (connection->job)
        worker_give_up(control->worker, connection->job,
                       err == EMBTIER_SHUTDOWN ? err : EMBTIER_DISCONNECTED);
    if (connection->making)
        session_maker_give_up(connection->making);
    control_end_applying(control, connection);
    control_close_transfers(control, connection);
    if (connection->session && !connection->session_detached) {
        struct session *const session = connection->session;

        connection->session_detached = true;
        /* A client that is still there may read answers, so its requests are finished. */
        if (err == EMBTIER_OK || err == EMBTIER_DISCONNECTED)
            atomic_store_explicit(&session->gone, true, memory_order_relaxed);
        session->channel.ops->hang_up(&session->channel,
                                      err == EMBTIER_OK ? EMBTIER_DISCONNECTED : err);
        lane_detach(control->parts->lanes[session->home], session);
    }
}

static void shut(struct control *control, int *fd)
{
    if (*fd >= 0)
        epoll_ctl(control->epoll_fd, EPOLL_CTL_DEL, *fd, NULL);
    closep(fd);
    *fd = -1;
}

/* Closes a client's socket. If the client shut it down and did not close it, it stays, with its
 * connection, while descriptors are in it. Else the user could have more of them on the way than
 * its sessions have. No event tells when they are received or gone; on_tick() looks. */
static void shut_socket(struct control *control, struct connection *connection, int *fd)
{
    if (*fd < 0 || control->stopping || !connection_may_have_fds(connection, *fd) ||
        epoll_ctl(control->epoll_fd, EPOLL_CTL_DEL, *fd, NULL) != 0) {
        shut(control, fd);
        return;
    }
    assert(connection->unread_fd < 0);
    connection->unread_fd = TAKE_FD(*fd);
    connection_shut_down(connection->unread_fd);
    if (control_may_warn(control))
        log_warn("a client hung up before it received its descriptors; its session counts until it "
                 "has them",
                 "session=%" PRIu64 " %s user=%s", connection->number,
                 CONNECTION_ORIGIN(connection), access_member_name(connection->member));
}

/* True if the other end is closed, and not only shut down: descriptors on their way are
 * about to go. */
static bool is_closed(int fd)
{
    struct pollfd at = { .fd = fd };

    return poll(&at, 1, 0) > 0 && (at.revents & POLLHUP);
}

void control_end_unread(struct control *control, struct connection *connection)
{
    closep(&connection->unread_fd);
    connection->unread_fd = -1;
    control->sweep = true;
}

/* Lends a dropped client its arena, if it has not hung up: it may still read answers there. It is
 * told of the end, and the arena counts for its user until it closes the socket too. False: it has
 * hung up. */
static bool lend_arena(struct control *control, struct connection *connection)
{
    struct epoll_event event = { .events = EPOLLRDHUP, .data.ptr = connection };

    if (!connection->session || shutdown(connection->fd, SHUT_WR) != 0 ||
        epoll_ctl(control->epoll_fd, EPOLL_CTL_MOD, connection->fd, &event) != 0)
        return false;
    assert(connection->lent_fd < 0);
    connection->lent_fd = TAKE_FD(connection->fd);
    return true;
}

void control_end_lending(struct control *control, struct connection *connection)
{
    assert(connection->lent_fd >= 0 && connection->session);
    shut_socket(control, connection, &connection->lent_fd);
    shut(control, &connection->process_fd);
    if (connection->session_is_gone)
        control_session_gone(control, connection->session);
    control->sweep = true;
}

/* Tells a client why its session ends, unless it has replies to read first. */
static void say_farewell(struct connection *connection, enum embtier_err err, const char *why)
{
    Embtier__Error error = EMBTIER__ERROR__INIT;
    Embtier__Reply message = EMBTIER__REPLY__INIT;
    struct err_msg ignored;

    if (connection_has_unsent(connection))
        return;
    error.err = (uint32_t)err;
    error.message = (char *)(uintptr_t)(why && why[0] ? why : err_text(err));
    message.last = true;
    message.body_case = EMBTIER__REPLY__BODY_ERROR;
    message.error = &error;
    if (connection_reply(connection, &message, NULL, 0, &ignored) != EMBTIER_OK)
        log_debug("a client was not told why its session ends", "session=%" PRIu64,
                  connection->number);
}

/* @lends: the client may be there, and read its arena. */
static void end_client(struct control *control, struct connection *connection, enum embtier_err err,
                       const char *why, bool lends)
{
    if (!lends || !lend_arena(control, connection)) {
        shut(control, &connection->process_fd);
        if (is_closed(connection->fd))
            shut(control, &connection->fd);
        else
            shut_socket(control, connection, &connection->fd);
    }
    connection_forget(connection);
    connection->closed_why = err;
    control_let_go(control, connection);
    control->sweep = true;
    control_close_joined(control, connection, err, why);
}

/* Shared memory has the number of the reason, which says enough but for a right that is lost, and
 * for an administrator who ended the session. */
static bool is_told_why(const struct connection *connection, enum embtier_err err)
{
    return err == EMBTIER_PERMISSION || err == EMBTIER_CANCELLED ||
           (connection->peer && err != EMBTIER_OK && err != EMBTIER_DISCONNECTED);
}

void control_close(struct control *control, struct connection *connection, enum embtier_err err,
                   const char *why)
{
    const bool was_dropped =
        err != EMBTIER_OK && err != EMBTIER_DISCONNECTED && err != EMBTIER_SHUTDOWN;

    if (connection->fd < 0)
        return;
    if (is_told_why(connection, err))
        say_farewell(connection, err, why);
    if (!was_dropped)
        log_debug("client gone", "session=%" PRIu64 " %s", connection->number,
                  CONNECTION_ORIGIN(connection));
    else if (control_may_warn(control))
        log_warn("client dropped", "session=%" PRIu64 " %s user=%s err=%s why=%s",
                 connection->number, CONNECTION_ORIGIN(connection),
                 access_member_name(connection->member), err_name(err), LOG_QUOTED(why));
    end_client(control, connection, err, why, was_dropped);
}

/* A peer has a region of its own, so nothing is lent to it. */
void control_close_left(struct control *control, struct connection *connection)
{
    if (connection->fd < 0)
        return;
    log_info("a client came back with a new connection; its old session ends",
             "session=%" PRIu64 " %s user=%s", connection->number, CONNECTION_ORIGIN(connection),
             access_member_name(connection->member));
    if (connection->peer)
        connection->peer->is_left = true;
    end_client(control, connection, EMBTIER_DISCONNECTED, NULL, !connection->peer);
}

/* ---- Processes ---- */

/* Returns the address that marks this event among those of the connection itself. */
static void *process_mark(struct connection *connection)
{
    return &connection->process_ended;
}

_Static_assert(offsetof(struct connection, process_ended) % _Alignof(struct connection) != 0,
               "no connection has such an address");

struct connection *control_process_owner(void *mark)
{
    return CONTAINER_OF(mark, struct connection, process_ended);
}

bool control_is_process_mark(const void *tag)
{
    return (uintptr_t)tag % _Alignof(struct connection) != 0;
}

void control_watch_process(struct control *control, struct connection *connection)
{
    struct epoll_event event = { .events = EPOLLIN, .data.ptr = process_mark(connection) };

    if (connection->process_fd >= 0 &&
        epoll_ctl(control->epoll_fd, EPOLL_CTL_ADD, connection->process_fd, &event) == 0)
        return;
    closep(&connection->process_fd);
    connection->process_fd = -1;
    if (control->told_unwatched)
        return;
    control->told_unwatched = true;
    log_warn("a client's process cannot be watched: if it ends and a child of it lives on, its "
             "session is kept until the child ends",
             "pid=%d", (int)connection->peer_pid);
}

void control_close_ended(struct control *control)
{
    control->has_ended = false;
    for (struct connection *c = control->connections; c; c = c->next) {
        if (c->process_ended && c->lent_fd >= 0)
            control_end_lending(control, c);
        if (!c->process_ended || c->fd < 0)
            continue;
        if (c->is_ready)
            control->has_ended = true;
        else
            control_close(control, c, EMBTIER_DISCONNECTED, "its process has ended");
    }
}
