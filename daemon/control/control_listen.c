/* SPDX-License-Identifier: Apache-2.0 */
/* The server's socket: listening, and accepting or refusing clients. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log/log.h"
#include "config/config.h"
#include "daemon/control/connection.h"
#include "daemon/control/control_impl.h"
#include "daemon/engine/memory/accounts.h"
#include "daemon/transport/listen/handed_socket.h"
#include "daemon/transport/listen/listener.h"
#include "daemon/transport/transport.h"
#include "proto/frame.h"

#define ACCEPTS_PER_EVENT 1024

enum embtier_err control_listen(struct control *control, struct err_msg *msg)
{
    const struct config *const config = control->parts->config;
    struct address address = { .kind = ADDRESS_UNIX };
    int handed_fd;

    TRY(handed_socket_find(config->socket.path, &handed_fd, msg));
    if (handed_fd >= 0)
        return listener_take(config->socket.path, handed_fd, &control->listener, msg);
    if (strlen(config->socket.path) > ADDRESS_PATH_MAX)
        return err_set(msg, EMBTIER_TOO_LARGE, "socket %s: longer than %d bytes",
                       config->socket.path, ADDRESS_PATH_MAX);
    strcpy(address.path, config->socket.path);
    return listener_open(&address, (mode_t)config->socket.mode, false, &control->listener, msg);
}

void control_stop_listening(struct control *control)
{
    listener_close(&control->listener);
}

/* A client that was accepted: by this thread, or by a thread of the peer's transport. */
struct newcomer {
    int fd;
    struct transport_peer *peer; /* or NULL */
    const struct transport *transport;
};

/* Tells the client why, if there is room for that, and closes the socket. */
static void refuse_client(const struct newcomer *newcomer, enum embtier_err err,
                          const struct err_msg *msg)
{
    Embtier__Error error = EMBTIER__ERROR__INIT;
    Embtier__Reply message = EMBTIER__REPLY__INIT;
    _cleanup_(freep) uint8_t *bytes = NULL;
    size_t count;

    error.err = (uint32_t)err;
    error.message = (char *)(uintptr_t)(msg->text[0] ? msg->text : err_text(err));
    message.last = true;
    message.body_case = EMBTIER__REPLY__BODY_ERROR;
    message.error = &error;
    if (frame_encode_reply(&message, &bytes, &count) == EMBTIER_OK)
        (void)!send(newcomer->fd, bytes, count, MSG_NOSIGNAL | MSG_DONTWAIT);
    close(newcomer->fd);
    if (newcomer->peer)
        transport_forget(newcomer->peer);
}

uint64_t control_sessions(const struct control *control)
{
    return accounts_used(control->parts->accounts, ACCOUNT_SESSIONS) + control->released_count;
}

static uint64_t sessions_most(const struct control *control)
{
    uint64_t user;

    return accounts_limit_of(control->parts->accounts, ACCOUNT_SESSIONS, &user);
}

enum embtier_err control_check_sessions(const struct control *control, struct err_msg *msg)
{
    const uint64_t most = sessions_most(control);

    if (control_sessions(control) < most)
        return EMBTIER_OK;
    return err_set(msg, EMBTIER_BUSY,
                   "all users together have %" PRIu64
                   " sessions, the limit (socket.max_sessions): try again "
                   "when some have ended",
                   most);
}

/* A stranger's hello is checked later. */
static bool is_stranger(const struct newcomer *newcomer)
{
    return newcomer->peer && newcomer->peer->uid == (uid_t)-1;
}

static void accept_one(struct control *control, const struct newcomer *newcomer)
{
    struct connection *connection = NULL;
    struct epoll_event event = { .events = EPOLLIN | EPOLLRDHUP };
    struct err_msg msg = { { 0 } };
    enum embtier_err err;
    uid_t uid = (uid_t)-1;

    if (!is_stranger(newcomer) && control_check_sessions(control, &msg) != EMBTIER_OK) {
        if (control_may_warn(control))
            log_warn("client refused: too many sessions", "limit=%" PRIu64, sessions_most(control));
        refuse_client(newcomer, EMBTIER_BUSY, &msg);
        return;
    }
    err = connection_new(newcomer->fd, newcomer->peer, control->parts->accounts, &connection, &uid);
    if (err != EMBTIER_OK) {
        const uint64_t part = accounts_part(control->parts->accounts, uid, ACCOUNT_SESSIONS);

        if (control_may_warn(control))
            log_warn(err == EMBTIER_BUSY ? "client refused: too many sessions of one user"
                                         : "client refused: out of memory",
                     "%s limit=%" PRIu64,
                     PEER_ORIGIN(newcomer->peer ? newcomer->peer->address.text : "", 0, uid), part);
        if (err == EMBTIER_BUSY)
            (void)err_set(&msg, err,
                          "your user may have at most %" PRIu64
                          " sessions now (socket.max_user_sessions): close some, or try again when "
                          "others have ended",
                          part);
        refuse_client(newcomer, err, &msg);
        return;
    }
    if (newcomer->peer && !connection_is_stranger(connection))
        transport_greet(newcomer->peer);
    connection->number = ++control->last_number;
    connection->transport = newcomer->transport;
    connection->since_ns = clock_now_ns(&clock_monotonic);
    control_link(control, connection);
    event.data.ptr = connection;
    connection->watched = event.events;
    if (epoll_ctl(control->epoll_fd, EPOLL_CTL_ADD, newcomer->fd, &event) != 0)
        control_close(control, connection, EMBTIER_NO_MEMORY, strerror(errno));
    else if (!newcomer->peer)
        control_watch_process(control, connection);
}

void control_peer_arrived(struct control *control, struct transport_peer *peer)
{
    const struct newcomer newcomer = { .fd = peer->fd, .peer = peer, .transport = peer->transport };
    const struct err_msg msg = { { 0 } };

    if (control->stopping)
        refuse_client(&newcomer, EMBTIER_SHUTDOWN, &msg);
    else
        accept_one(control, &newcomer);
}

void control_on_listen_event(struct control *control)
{
    for (uint32_t i = 0; i < ACCEPTS_PER_EVENT; i++) {
        const int fd = accept4(control->listener.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (fd >= 0) {
            accept_one(control,
                       &(struct newcomer){ .fd = fd, .transport = control->parts->transport });
            continue;
        }
        if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
            /* The socket would stay readable and this loop would spin: look again with
             * the next tick. */
            log_warn("clients cannot be accepted at the moment", "why=%s",
                     LOG_QUOTED(strerror(errno)));
            epoll_ctl(control->epoll_fd, EPOLL_CTL_DEL, control->listener.fd, NULL);
            control->listen_paused = true;
        }
        if (errno != EINTR && errno != ECONNABORTED)
            return;
    }
}

void control_listen_again(struct control *control)
{
    struct epoll_event event = { .events = EPOLLIN, .data.ptr = &control->listener };

    if (control->listen_paused && control->listener.fd >= 0)
        control->listen_paused =
            epoll_ctl(control->epoll_fd, EPOLL_CTL_ADD, control->listener.fd, &event) != 0;
}
