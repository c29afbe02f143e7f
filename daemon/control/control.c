/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/control/control.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/text_escape.h"
#include "config/config_memory.h"
#include "daemon/control/connection.h"
#include "daemon/control/control_impl.h"
#include "daemon/control/signals.h"
#include "daemon/control/socket_path.h"
#include "daemon/engine/lane/lane.h"
#include "daemon/engine/memory/request_memory.h"
#include "daemon/engine/ops/group.h"
#include "daemon/engine/sessions/accounts.h"
#include "daemon/engine/sessions/session.h"
#include "daemon/jobs/checkpoint/checkpoints.h"
#include "daemon/jobs/worker.h"
#include "daemon/transport/shm/session_maker.h"
#include "proto/frame.h"
#include "store/store.h"

#define LISTEN_BACKLOG 1024
#define EVENTS_MAX     64
#define TICK_MS        1000
/* Lines about clients that are logged between two ticks. */
#define WARNINGS_MAX 20

/* ---- Mail from lanes and the worker ---- */

static void send_mail(void *owner, struct message *message)
{
    struct control *const control = owner;
    const uint64_t one = 1;

    inbox_push(&control->inbox, message);
    if (write(control->mail_fd, &one, sizeof(one)) < 0 && errno != EAGAIN)
        log_error("control thread cannot be woken", "why=%s", LOG_QUOTED(strerror(errno)));
}

/* ---- Connections ---- */

static void connection_link(struct control *control, struct connection *connection)
{
    connection->next = control->connections;
    if (connection->next)
        connection->next->link = &connection->next;
    connection->link = &control->connections;
    control->connections = connection;
    control->connection_count++;
}

static void connection_unlink(struct control *control, struct connection *connection)
{
    *connection->link = connection->next;
    if (connection->next)
        connection->next->link = connection->link;
    control->connection_count--;
}

/* Frees the closed connections that neither a session nor a job needs any more. Only between rounds
 * of the loop: until then anybody may still hold a pointer to one, and sees that it is closed. */
static void sweep_connections(struct control *control)
{
    struct connection *next;

    for (struct connection *c = control->connections; c; c = next) {
        next = c->next;
        if (c->fd >= 0 || c->unread_fd >= 0 || c->making || c->session || c->job || c->is_ready)
            continue;
        connection_unlink(control, c);
        connection_free(c);
    }
    control->sweep = false;
}

bool control_may_warn(struct control *control)
{
    if (control->warnings++ < WARNINGS_MAX)
        return true;
    control->warnings_kept++;
    return false;
}

static void tell_warnings(struct control *control)
{
    if (control->warnings_kept > 0)
        log_warn("more clients were refused or dropped", "count=%u", control->warnings_kept);
    control->warnings = control->warnings_kept = 0;
}

/* What a closed connection has is given back. */
static void let_go(struct control *control, struct connection *connection)
{
    const enum embtier_err err = connection->closed_why;

    if (connection->job)
        worker_give_up(control->worker, connection->job,
                       err == EMBTIER_SHUTDOWN ? err : EMBTIER_DISCONNECTED);
    if (connection->making)
        session_maker_give_up(connection->making);
    control_close_transfers(control, connection);
    if (connection->session && !connection->session_detached) {
        struct session *const session = connection->session;

        connection->session_detached = true;
        /* Else it is there, and may still be answered: what it asked for is finished. */
        if (err == EMBTIER_OK || err == EMBTIER_DISCONNECTED)
            atomic_store_explicit(&session->gone, true, memory_order_relaxed);
        session_close_notice(session, err == EMBTIER_OK ? EMBTIER_DISCONNECTED : err);
        lane_send(control->parts->lanes[session->home], &session->detach_message);
    }
}

static void shut(struct control *control, int *fd)
{
    if (*fd >= 0)
        epoll_ctl(control->epoll_fd, EPOLL_CTL_DEL, *fd, NULL);
    closep(fd);
    *fd = -1;
}

/* The same of a client's socket. One that it shut down and did not close stays, and the connection
 * with it, while descriptors are in there: its user may not have more of them on the way than
 * sessions have. No event tells when they are received or gone; on_tick() looks. */
static void shut_socket(struct control *control, struct connection *connection, int *fd)
{
    if (*fd < 0 || control->stopping || !connection_may_have_fds(connection, *fd) ||
        epoll_ctl(control->epoll_fd, EPOLL_CTL_DEL, *fd, NULL) != 0) {
        shut(control, fd);
        return;
    }
    connection->unread_fd = TAKE_FD(*fd);
    connection_shut_down(connection->unread_fd);
    if (control_may_warn(control))
        log_warn("a client that hung up has not received its descriptors, and counts until it has",
                 "session=%" PRIu64 " pid=%d uid=%u", connection->number, (int)connection->peer_pid,
                 (unsigned)connection->peer_uid);
}

/* True: the other end is closed, and not only shut down, so what was on its way is about to go. */
static bool is_closed(int fd)
{
    struct pollfd at = { .fd = fd };

    return poll(&at, 1, 0) > 0 && (at.revents & POLLHUP);
}

static void end_unread(struct control *control, struct connection *connection)
{
    closep(&connection->unread_fd);
    connection->unread_fd = -1;
    control->sweep = true;
}

/* A client that is dropped, and has not hung up, may still read answers in its arena. It is told of
 * the end, and the arena counts for its user until it closes the socket too. False: it has. */
static bool lend_arena(struct control *control, struct connection *connection)
{
    struct epoll_event event = { .events = EPOLLRDHUP, .data.ptr = connection };

    if (!connection->session || shutdown(connection->fd, SHUT_WR) != 0 ||
        epoll_ctl(control->epoll_fd, EPOLL_CTL_MOD, connection->fd, &event) != 0)
        return false;
    connection->lent_fd = TAKE_FD(connection->fd);
    return true;
}

/* The client hung up too, or the server stops. */
static void end_lending(struct control *control, struct connection *connection)
{
    shut_socket(control, connection, &connection->lent_fd);
    shut(control, &connection->process_fd);
    if (connection->session_is_gone)
        control_session_gone(control, connection->session);
    control->sweep = true;
}

static void connection_close(struct control *control, struct connection *connection,
                             enum embtier_err err, const char *why)
{
    const bool was_dropped =
        err != EMBTIER_OK && err != EMBTIER_DISCONNECTED && err != EMBTIER_SHUTDOWN;

    if (connection->fd < 0)
        return;
    if (!was_dropped)
        log_debug("client gone", "session=%" PRIu64 " pid=%d", connection->number,
                  (int)connection->peer_pid);
    else if (control_may_warn(control))
        log_warn("client dropped", "session=%" PRIu64 " pid=%d uid=%u err=%s why=%s",
                 connection->number, (int)connection->peer_pid, (unsigned)connection->peer_uid,
                 err_name(err), LOG_QUOTED(why));
    if (!was_dropped || !lend_arena(control, connection)) {
        shut(control, &connection->process_fd);
        if (is_closed(connection->fd))
            shut(control, &connection->fd);
        else
            shut_socket(control, connection, &connection->fd);
    }
    connection_forget(connection);
    connection->closed_why = err;
    let_go(control, connection);
    control->sweep = true;
}

/* Sends a reply; a client that cannot be sent to is dropped. False then. */
static bool reply(struct control *control, struct connection *connection,
                  const Embtier__Reply *message, const int *fds, uint32_t fd_count)
{
    struct err_msg msg = { { 0 } };
    enum embtier_err err;

    if (embtier__reply__get_packed_size(message) > FRAME_BYTES_MAX) {
        err_write(&msg, "the answer is longer than a message can be");
        control_reply_error(control, connection, message->id, EMBTIER_TOO_LARGE, &msg);
        return connection->fd >= 0;
    }
    err = connection_reply(connection, message, fds, fd_count, &msg);
    if (err == EMBTIER_OK) {
        if (connection->fd >= 0)
            control_watch(control, connection);
        return true;
    }
    connection_close(control, connection, err, msg.text[0] ? msg.text : err_text(err));
    return false;
}

bool control_reply(struct control *control, struct connection *connection,
                   const Embtier__Reply *message)
{
    return reply(control, connection, message, NULL, 0);
}

bool control_reply_fds(struct control *control, struct connection *connection,
                       const Embtier__Reply *message, const int *fds, uint32_t fd_count)
{
    return reply(control, connection, message, fds, fd_count);
}

bool control_reply_error(struct control *control, struct connection *connection, uint32_t id,
                         enum embtier_err err, const struct err_msg *msg)
{
    Embtier__Error error = EMBTIER__ERROR__INIT;
    Embtier__Reply message = EMBTIER__REPLY__INIT;

    error.err = (uint32_t)err;
    error.message = (char *)(uintptr_t)(msg->text[0] ? msg->text : err_text(err));
    message.id = id;
    message.last = true;
    message.body_case = EMBTIER__REPLY__BODY_ERROR;
    message.error = &error;
    return reply(control, connection, &message, NULL, 0);
}

/* A request of the client may be handled: none is under way, and no answer unread. */
static bool is_open_to_requests(const struct connection *connection)
{
    return connection->fd >= 0 && !connection->making && !connection->job &&
           !connection_has_unsent(connection);
}

/* Asks epoll for what can happen: input if it would be looked at, output while there is some. */
void control_watch(struct control *control, struct connection *connection)
{
    struct epoll_event event = { .data.ptr = connection };

    event.events = (is_open_to_requests(connection) ? EPOLLIN : 0) | EPOLLRDHUP |
                   (connection_has_unsent(connection) ? EPOLLOUT : 0);
    if (event.events == connection->watched)
        return;
    connection->watched = event.events;
    epoll_ctl(control->epoll_fd, EPOLL_CTL_MOD, connection->fd, &event);
}

static void ready_add(struct control *control, struct connection *connection)
{
    if (connection->is_ready)
        return;
    connection->is_ready = true;
    connection->next_ready = control->ready;
    control->ready = connection;
}

/* Handles one request, if a whole one has come. */
static void handle_one(struct control *control, struct connection *connection)
{
    struct err_msg msg = { { 0 } };
    Embtier__Request *request = NULL;
    const uint8_t *payload;
    uint32_t bytes;
    enum embtier_err err = frame_reader_next(&connection->reader, &payload, &bytes, &msg);

    if (err == EMBTIER_AGAIN)
        return;
    connection->heard_ns = clock_now_ns(&clock_monotonic);
    if (err == EMBTIER_OK) {
        err = frame_decode_request(payload, bytes, &request, &msg);
        frame_reader_next_done(&connection->reader);
    }
    if (err != EMBTIER_OK) {
        if (control_reply_error(control, connection, 0, err, &msg))
            connection_close(control, connection, err, msg.text);
        return;
    }
    connection_received(connection);
    /* What came with it waits until others had their turn. */
    if (frame_reader_next(&connection->reader, &payload, &bytes, &msg) != EMBTIER_AGAIN)
        ready_add(control, connection);
    control_handle(control, connection, request);
    embtier__request__free_unpacked(request, NULL);
}

/* One request of each that has some: who sends many at a time gets no more than who sends one. */
static void serve_ready(struct control *control)
{
    struct connection *next = TAKE(control->ready);

    while (next) {
        struct connection *const connection = next;

        next = connection->next_ready;
        connection->is_ready = false;
        if (is_open_to_requests(connection))
            handle_one(control, connection);
        if (connection->fd >= 0)
            control_watch(control, connection);
        else
            control->sweep = true;
    }
}

static void on_connection_event(struct control *control, struct connection *connection,
                                uint32_t events)
{
    struct err_msg msg = { { 0 } };
    enum embtier_err err = EMBTIER_OK;

    if (connection->lent_fd >= 0 && (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)))
        end_lending(control, connection);
    if (connection->fd < 0)
        return;
    if (events & EPOLLOUT) {
        err = connection_flush(connection, &msg);
        if (err == EMBTIER_OK && is_open_to_requests(connection))
            ready_add(control, connection); /* what came before the answer was read */
        if (err == EMBTIER_OK)
            control_watch(control, connection);
    }
    if (err == EMBTIER_OK && (events & EPOLLIN)) {
        if (!is_open_to_requests(connection) || connection->is_ready)
            return; /* more of it when that is over */
        err = connection_receive(connection, &msg);
        if (err == EMBTIER_OK)
            ready_add(control, connection);
    } else if (err == EMBTIER_OK && (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR))) {
        err = EMBTIER_DISCONNECTED;
    }
    if (err != EMBTIER_OK)
        connection_close(control, connection, err, msg.text[0] ? msg.text : err_text(err));
}

/* ---- Processes ---- */

/* Its address marks that event among those of the connection itself. */
static void *process_mark(struct connection *connection)
{
    return &connection->process_ended;
}

_Static_assert(offsetof(struct connection, process_ended) % _Alignof(struct connection) != 0,
               "no connection has such an address");

static struct connection *process_connection(void *mark)
{
    return CONTAINER_OF(mark, struct connection, process_ended);
}

/* Events of processes have an odd address in place of the connection's. */
static bool is_process_mark(const void *who)
{
    return (uintptr_t)who % _Alignof(struct connection) != 0;
}

/* A child that the client forked keeps the socket open; what the client had is let go all the same.
 */
static void watch_process(struct control *control, struct connection *connection)
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
    log_warn("a client's process cannot be watched: if it ends while a child of it lives on, what "
             "it has is kept until the child ends",
             "pid=%d", (int)connection->peer_pid);
}

/* What the client sent before it ended has been received by now, and is served first. */
static void close_ended(struct control *control)
{
    control->has_ended = false;
    for (struct connection *c = control->connections; c; c = c->next) {
        if (c->process_ended && c->lent_fd >= 0)
            end_lending(control, c);
        if (!c->process_ended || c->fd < 0)
            continue;
        if (c->is_ready)
            control->has_ended = true;
        else
            connection_close(control, c, EMBTIER_DISCONNECTED, "its process has ended");
    }
}

/* Tells why, if there is room for that, and closes the socket. */
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
        refuse_client(
            fd,
            err_set(&msg, EMBTIER_BUSY,
                    "all users have %u sessions, and more cannot be (socket.max_sessions): "
                    "try again when some have ended",
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
                          "your user may have no more than %" PRIu64
                          " sessions just now (socket.max_user_sessions): close some, or try again "
                          "when others have ended",
                          part);
        refuse_client(fd, err, &msg);
        return;
    }
    connection->number = ++control->last_number;
    connection->since_ns = clock_now_ns(&clock_monotonic);
    connection_link(control, connection);
    event.data.ptr = connection;
    connection->watched = event.events;
    if (epoll_ctl(control->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0)
        connection_close(control, connection, EMBTIER_NO_MEMORY, strerror(errno));
    else
        watch_process(control, connection);
}

static void on_listen_event(struct control *control)
{
    for (uint32_t i = 0; i < LISTEN_BACKLOG; i++) {
        const int fd = accept4(control->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (fd >= 0) {
            accept_one(control, fd);
            continue;
        }
        if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
            /* Connections would stay readable and this loop would spin: look again with the next
             * tick. */
            log_warn("clients cannot be accepted for now", "why=%s", LOG_QUOTED(strerror(errno)));
            epoll_ctl(control->epoll_fd, EPOLL_CTL_DEL, control->listen_fd, NULL);
            control->listen_paused = true;
        }
        if (errno != EINTR && errno != ECONNABORTED)
            return;
    }
}

/* ---- Messages ---- */

static void on_session_broken(struct control *control, struct session *session)
{
    for (struct connection *c = control->connections; c; c = c->next) {
        if (c->session == session) {
            connection_close(control, c, EMBTIER_PROTOCOL, session->broken_why);
            return;
        }
    }
}

/* With what came in the meantime. */
static void go_on(struct control *control, struct connection *connection)
{
    ready_add(control, connection);
    control_watch(control, connection);
}

static void on_session_made(struct control *control, struct session_order *order)
{
    struct connection *const connection = order->owner;

    control_session_made(control, order);
    if (connection->fd >= 0)
        go_on(control, connection);
    else
        control->sweep = true;
}

static void on_message(struct control *control, struct message *message)
{
    switch (message->kind) {
    case MESSAGE_SESSION_MADE:
        on_session_made(control, CONTAINER_OF(message, struct session_order, made_message));
        break;
    case MESSAGE_SESSION_GONE:
        control_session_gone(control, CONTAINER_OF(message, struct session, gone_message));
        break;
    case MESSAGE_SESSION_FREED:
        control_session_freed(control, CONTAINER_OF(message, struct session, freed_message));
        break;
    case MESSAGE_SESSION_BROKEN:
        on_session_broken(control, CONTAINER_OF(message, struct session, broken_message));
        break;
    case MESSAGE_JOB_PROGRESS:
        control_job_progress(control, CONTAINER_OF(message, struct job, progress_message));
        break;
    case MESSAGE_JOB_DONE: {
        struct job *const job = CONTAINER_OF(message, struct job, done_message);
        struct connection *const connection = job->owner;

        control_job_done(control, job);
        if (!connection) /* the server's own */
            break;
        if (connection->fd < 0) {
            let_go(control, connection); /* of what the job had of it */
            if (connection->session_is_gone)
                control_session_gone(control, connection->session);
            control->sweep = true;
        } else {
            control_close_cancelled(control, connection);
            go_on(control, connection);
        }
        break;
    }
    default:
        log_error("message for another thread", "kind=%d", (int)message->kind);
        break;
    }
}

static void on_mail(struct control *control)
{
    uint64_t count;
    struct message *message;

    if (read(control->mail_fd, &count, sizeof(count)) < 0 && errno != EAGAIN)
        log_error("control thread's event descriptor fails", "why=%s", LOG_QUOTED(strerror(errno)));
    message = inbox_take_all(&control->inbox);
    while (message) {
        struct message *const next = message->next;

        on_message(control, message);
        message = next;
    }
}

static void tell_broken_groups(struct control *control)
{
    struct group_news news;

    groups_take_news(control->parts->groups, &news);
    if (news.count > 0 && control_may_warn(control))
        log_warn("group broken", "group=%s member=%u step=%" PRIu64 " why=%s others=%u",
                 LOG_QUOTED(news.name), news.member, news.step, LOG_QUOTED(err_text(news.why)),
                 news.count - 1);
}

static void on_tick(struct control *control)
{
    const uint64_t now_ns = clock_now_ns(&clock_monotonic);
    struct lane_pulse all = { 0 };

    for (uint32_t i = 0; i < control->parts->lane_count; i++) {
        struct lane_pulse one;

        lane_pulse(control->parts->lanes[i], &one);
        all.pressure |= one.pressure;
        all.unwritten_rows += one.unwritten_rows;
        all.unwritten_bytes += one.unwritten_bytes;
    }
    store_set_busy(control->parts->store, all.pressure);
    store_report_unwritten(control->parts->store, all.unwritten_rows, all.unwritten_bytes);
    if (!control->stopping && checkpoints_due(control->parts->checkpoints, now_ns))
        control_checkpoint(control);
    groups_expire(control->parts->groups);
    tell_broken_groups(control);
    tell_warnings(control);
    if (control->listen_paused && control->listen_fd >= 0) {
        struct epoll_event event = { .events = EPOLLIN, .data.ptr = &control->listen_fd };

        control->listen_paused =
            epoll_ctl(control->epoll_fd, EPOLL_CTL_ADD, control->listen_fd, &event) != 0;
    }
    for (struct connection *c = control->connections; c; c = c->next) {
        if (c->unread_fd >= 0 && !connection_may_have_fds(c, c->unread_fd))
            end_unread(control, c);
        if (c->fd >= 0 && !c->said_hello && !c->making &&
            clock_since(now_ns, c->since_ns) > CONNECTION_HELLO_NS)
            connection_close(control, c, EMBTIER_TIMEOUT, "it did not say hello");
        else if (c->fd >= 0 && connection_has_unsent(c) &&
                 clock_since(now_ns, c->sent_ns) > CONNECTION_UNREAD_NS)
            connection_close(control, c, EMBTIER_TIMEOUT, "it does not read its replies");
        else if (c->job) /* which may be behind others' jobs: the client is not to give us up */
            control_tell_progress(control, c);
        else if (c->making)
            control_tell_making(control, c);
        else
            control_expire_transfers(control, c, now_ns);
    }
}

/* ---- The loop ---- */

/* A path that is another server's by now stays. */
static void stop_listening(struct control *control)
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

static void begin_stop(struct control *control)
{
    control->stopping = true;
    stop_listening(control);
    tables_stop(control->parts->tables);
    checkpoints_stop(control->parts->checkpoints);
    groups_stop(control->parts->groups);
    for (struct connection *c = control->connections; c; c = c->next) {
        connection_close(control, c, EMBTIER_SHUTDOWN, "");
        if (c->unread_fd >= 0)
            end_unread(control, c);
        if (c->lent_fd < 0)
            continue;
        c->closed_why = EMBTIER_SHUTDOWN;
        end_lending(control, c);
    }
}

/* The next signal is for server_stop(). */
static bool take_stop(struct control *control, int signal_fd)
{
    if (control->stop_wanted || !signals_take_stop(signal_fd, SIGNAL_STOPS))
        return false;
    epoll_ctl(control->epoll_fd, EPOLL_CTL_DEL, signal_fd, NULL);
    return true;
}

enum embtier_err control_run(struct control *control, int signal_fd, struct err_msg *msg)
{
    struct epoll_event events[EVENTS_MAX];
    struct epoll_event event = { .events = EPOLLIN, .data.ptr = &control->signal_mark };
    uint64_t ticked_ns = clock_now_ns(&clock_monotonic);

    if (epoll_ctl(control->epoll_fd, EPOLL_CTL_ADD, signal_fd, &event) != 0)
        return err_set_errno(msg, errno, "signals cannot be watched");
    while (!control->stopping || control->connections) {
        const int count =
            epoll_wait(control->epoll_fd, events, EVENTS_MAX, control->ready ? 0 : TICK_MS);
        bool mail = false;

        for (int i = 0; i < count; i++) {
            void *const who = events[i].data.ptr;

            if (who == &control->listen_fd)
                on_listen_event(control);
            else if (who == &control->mail_fd)
                mail = true;
            else if (who == &control->signal_mark)
                control->stop_wanted |= take_stop(control, signal_fd);
            else if (is_process_mark(who))
                process_connection(who)->process_ended = control->has_ended = true;
            else
                on_connection_event(control, who, events[i].events);
        }
        serve_ready(control);
        if (control->has_ended)
            close_ended(control);
        /* Mail may free sessions, so it comes when no event of this round is left. */
        if (mail)
            on_mail(control);
        if (control->stop_wanted && !control->stopping)
            begin_stop(control);
        if (clock_now_ns(&clock_monotonic) - ticked_ns > TICK_MS * UINT64_C(1000000)) {
            ticked_ns = clock_now_ns(&clock_monotonic);
            on_tick(control);
        }
        if (control->sweep)
            sweep_connections(control);
    }
    return EMBTIER_OK;
}

/* ---- Making and ending ---- */

static enum embtier_err listen_on(struct control *control, struct err_msg *msg)
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
        return err_set_errno(msg, errno, "socket");
    before = umask(0177); /* nobody else until the mode is what the config says */
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

/* The rows that this thread changes. */
static void limit_accounts(const struct server_parts *parts)
{
    const struct config *const config = parts->config;

    accounts_limit(parts->accounts, ACCOUNT_SESSIONS, config->socket.max_sessions,
                   config->socket.max_user_sessions);
    accounts_limit(parts->accounts, ACCOUNT_ARENA_BYTES, config->socket.max_total_arena_bytes,
                   config->socket.max_user_arena_bytes);
    accounts_limit(parts->accounts, ACCOUNT_ANSWER_BYTES, ANSWER_BYTES, 0);
    accounts_limit(parts->accounts, ACCOUNT_SCANS, control_scans_most(config), 0);
    accounts_limit(parts->accounts, ACCOUNT_LOADS, CONTROL_LOADS_MAX, 0);
}

/* As clients may be told of it, malloced; "" if there is none that can be. NULL: out of memory. */
static char *config_file_of(const struct config *config)
{
    _cleanup_(freep) char *path = config->source ? realpath(config->source, NULL) : NULL;
    const bool can_be =
        path && strlen(path) <= CONFIG_FILE_BYTES_MAX && text_is_plain(path, strlen(path));

    return strdup(can_be ? path : "");
}

enum embtier_err control_new(const struct server_parts *parts, struct control **ret_control,
                             struct err_msg *msg)
{
    _cleanup_(control_freep) struct control *control = calloc(1, sizeof(*control));
    struct epoll_event event = { .events = EPOLLIN };

    if (!control)
        return err_set(msg, EMBTIER_NO_MEMORY, "control: out of memory");
    control->listen_fd = -1;
    control->parts = parts;
    control->send = send_mail;
    control->config_file = config_file_of(parts->config);
    if (!control->config_file)
        return err_set(msg, EMBTIER_NO_MEMORY, "control: out of memory");
    control->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    control->mail_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (control->epoll_fd < 0 || control->mail_fd < 0)
        return err_set_errno(msg, errno, "control: event descriptors");
    limit_accounts(parts);
    TRY(worker_new(parts->tables, parts->checkpoints, send_mail, control, &control->worker, msg));
    TRY(session_maker_new(send_mail, control, &control->maker, msg));
    TRY(listen_on(control, msg));
    event.data.ptr = &control->mail_fd;
    if (epoll_ctl(control->epoll_fd, EPOLL_CTL_ADD, control->mail_fd, &event) != 0)
        return err_set_errno(msg, errno, "control: epoll");
    event.data.ptr = &control->listen_fd;
    if (epoll_ctl(control->epoll_fd, EPOLL_CTL_ADD, control->listen_fd, &event) != 0)
        return err_set_errno(msg, errno, "control: epoll");
    *ret_control = TAKE(control);
    return EMBTIER_OK;
}

/* What came when nobody listened any more: jobs of the server's own, and memory of sessions. */
static void free_rest(struct control *control)
{
    struct message *message = inbox_take_all(&control->inbox);

    while (message) {
        struct message *const next = message->next;

        if (message->kind == MESSAGE_JOB_DONE)
            job_free(CONTAINER_OF(message, struct job, done_message));
        else if (message->kind == MESSAGE_SESSION_FREED)
            control_session_freed(control, CONTAINER_OF(message, struct session, freed_message));
        message = next;
    }
}

void control_end_jobs(struct control *control)
{
    if (!control)
        return;
    worker_free(TAKE(control->worker));
    session_maker_free(TAKE(control->maker));
    free_rest(control);
}

void control_free(struct control *control)
{
    if (!control)
        return;
    control_end_jobs(control);
    stop_listening(control);
    closep(&control->mail_fd);
    closep(&control->epoll_fd);
    free(control->config_file);
    free(control);
}
