/* SPDX-License-Identifier: Apache-2.0 */
/* The server's socket: listening, and accepting or refusing clients. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log/log.h"
#include "config/config.h"
#include "daemon/control/connection.h"
#include "daemon/control/control_impl.h"
#include "daemon/control/process/socket_path.h"
#include "daemon/engine/memory/accounts.h"
#include "proto/frame.h"

#define LISTEN_BACKLOG 1024

enum embtier_err control_listen(struct control *control, struct err_msg *msg)
{
    const char *const path = control->parts->config->socket.path;
    struct sockaddr_un address;
    struct stat status;
    mode_t before;
    int rc;

    TRY(socket_path_address(path, &address, msg));
    TRY(socket_path_clear(path, msg));
    control->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (control->listen_fd < 0)
        return err_set_errno(msg, errno, "cannot make a socket");
    before = umask(0177); /* no other user until the mode is set */
    rc = bind(control->listen_fd, (const struct sockaddr *)&address, sizeof(address));
    umask(before);
    if (rc != 0 || lstat(path, &status) != 0)
        return err_set_errno(msg, errno, "socket %s", path);
    control->has_socket_file = true;
    control->socket_device = status.st_dev;
    control->socket_inode = status.st_ino;
    if (chmod(path, (mode_t)control->parts->config->socket.mode) != 0 ||
        listen(control->listen_fd, LISTEN_BACKLOG) != 0)
        return err_set_errno(msg, errno, "socket %s", path);
    return EMBTIER_OK;
}

void control_stop_listening(struct control *control)
{
    const char *const path = control->parts->config->socket.path;
    struct stat status;

    if (control->has_socket_file && lstat(path, &status) == 0 &&
        status.st_dev == control->socket_device && status.st_ino == control->socket_inode)
        unlink(path);
    control->has_socket_file = false;
    closep(&control->listen_fd); /* only now may its inode be used again */
    control->listen_fd = -1;
}

/* Tells the client why, if there is room for that, and closes the socket. */
static void refuse_client(int fd, enum embtier_err err, const struct err_msg *msg)
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
        (void)!send(fd, bytes, count, MSG_NOSIGNAL | MSG_DONTWAIT);
    close(fd);
}

static void accept_one(struct control *control, int fd)
{
    const struct config *const config = control->parts->config;
    struct connection *connection = NULL;
    struct epoll_event event = { .events = EPOLLIN | EPOLLRDHUP };
    struct err_msg msg = { { 0 } };
    enum embtier_err err;
    uid_t uid = (uid_t)-1;

    if (control->connection_count + control->releasing_count >= config->socket.max_sessions) {
        if (control_may_warn(control))
            log_warn("client refused: too many sessions", "limit=%u", config->socket.max_sessions);
        refuse_client(fd,
                      err_set(&msg, EMBTIER_BUSY,
                              "all users together have %u sessions, the limit "
                              "(socket.max_sessions): try again when some have ended",
                              config->socket.max_sessions),
                      &msg);
        return;
    }
    err = connection_new(fd, control->parts->accounts, &connection, &uid);
    if (err != EMBTIER_OK) {
        const uint64_t part = accounts_part(control->parts->accounts, uid, ACCOUNT_SESSIONS);

        if (control_may_warn(control))
            log_warn(err == EMBTIER_BUSY ? "client refused: too many sessions of one user"
                                         : "client refused: out of memory",
                     "uid=%u limit=%" PRIu64, (unsigned)uid, part);
        if (err == EMBTIER_BUSY)
            (void)err_set(&msg, err,
                          "your user may have at most %" PRIu64
                          " sessions now (socket.max_user_sessions): close some, or try again when "
                          "others have ended",
                          part);
        refuse_client(fd, err, &msg);
        return;
    }
    connection->number = ++control->last_number;
    connection->transport = control->parts->transport;
    connection->since_ns = clock_now_ns(&clock_monotonic);
    control_link(control, connection);
    event.data.ptr = connection;
    connection->watched = event.events;
    if (epoll_ctl(control->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0)
        control_close(control, connection, EMBTIER_NO_MEMORY, strerror(errno));
    else
        control_watch_process(control, connection);
}

void control_on_listen_event(struct control *control)
{
    for (uint32_t i = 0; i < LISTEN_BACKLOG; i++) {
        const int fd = accept4(control->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (fd >= 0) {
            accept_one(control, fd);
            continue;
        }
        if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
            /* The socket would stay readable and this loop would spin: look again with
             * the next tick. */
            log_warn("clients cannot be accepted at the moment", "why=%s",
                     LOG_QUOTED(strerror(errno)));
            epoll_ctl(control->epoll_fd, EPOLL_CTL_DEL, control->listen_fd, NULL);
            control->listen_paused = true;
        }
        if (errno != EINTR && errno != ECONNABORTED)
            return;
    }
}

void control_listen_again(struct control *control)
{
    struct epoll_event event = { .events = EPOLLIN, .data.ptr = &control->listen_fd };

    if (control->listen_paused && control->listen_fd >= 0)
        control->listen_paused =
            epoll_ctl(control->epoll_fd, EPOLL_CTL_ADD, control->listen_fd, &event) != 0;
}
