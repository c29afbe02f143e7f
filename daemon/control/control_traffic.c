/* SPDX-License-Identifier: Apache-2.0 */
/* Traffic of clients: one request of each at a time, and its replies. */
#include <stdlib.h>
#include <sys/epoll.h>

#include "base/clock.h"
#include "daemon/control/connection.h"
#include "daemon/control/control_impl.h"
#include "proto/frame.h"

/* ---- Replies ---- */

/* Sends a reply. False: it could not be sent, and the client was dropped. */
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
    control_close(control, connection, err, msg.text[0] ? msg.text : err_text(err));
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

/* ---- Requests ---- */

/* True if a request of the client may be handled: none is under way, and no answer is unread. */
static bool is_open_to_requests(const struct connection *connection)
{
    return connection->fd >= 0 && !connection->making && connection->awaited == 0 &&
           !connection->job && !connection_has_unsent(connection);
}

/* Asks epoll for input if it would be looked at, and for output while there is some. */
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

void control_add_ready(struct control *control, struct connection *connection)
{
    if (connection->is_ready)
        return;
    connection->is_ready = true;
    connection->next_ready = control->ready;
    control->ready = connection;
}

/* Takes one request. AGAIN: none has come as a whole, or it must wait. */
static enum embtier_err take_request(struct control *control, struct connection *connection,
                                     Embtier__Request **ret_request, struct err_msg *msg)
{
    Embtier__Request *request = NULL;
    const uint8_t *payload;
    uint32_t bytes;

    TRY(frame_reader_next(&connection->reader, &payload, &bytes, msg));
    connection->heard_ns = clock_now_ns(&clock_monotonic);
    TRY(frame_decode_request(payload, bytes, &request, msg));
    if (control_must_wait(control, connection, request)) {
        embtier__request__free_unpacked(request, NULL);
        return EMBTIER_AGAIN;
    }
    frame_reader_next_done(&connection->reader);
    connection_received(connection);
    *ret_request = request;
    return EMBTIER_OK;
}

/* Handles one request, if there is one. */
static void handle_one(struct control *control, struct connection *connection)
{
    struct err_msg msg = { { 0 } };
    Embtier__Request *request = NULL;
    const uint8_t *payload;
    uint32_t bytes;
    const enum embtier_err err = take_request(control, connection, &request, &msg);

    if (err == EMBTIER_AGAIN)
        return;
    if (err != EMBTIER_OK) {
        if (control_reply_error(control, connection, 0, err, &msg))
            control_close(control, connection, err, msg.text);
        return;
    }
    /* A request that came with it waits until other clients have had their turn. */
    if (frame_reader_next(&connection->reader, &payload, &bytes, &msg) != EMBTIER_AGAIN)
        control_add_ready(control, connection);
    control_handle(control, connection, request);
    embtier__request__free_unpacked(request, NULL);
}

void control_serve_ready(struct control *control)
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

void control_on_client_event(struct control *control, struct connection *connection,
                             uint32_t events)
{
    struct err_msg msg = { { 0 } };
    enum embtier_err err = EMBTIER_OK;

    if (connection->lent_fd >= 0 && (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)))
        control_end_lending(control, connection);
    if (connection->fd < 0)
        return;
    if (events & EPOLLOUT) {
        err = connection_flush(connection, &msg);
        if (err == EMBTIER_OK && is_open_to_requests(connection))
            control_add_ready(control, connection); /* it came before the answer was read */
        if (err == EMBTIER_OK)
            control_watch(control, connection);
    }
    if (err == EMBTIER_OK && (events & EPOLLIN)) {
        if (!is_open_to_requests(connection) || connection->is_ready)
            return; /* it is read when that is over */
        err = connection_receive(connection, &msg);
        if (err == EMBTIER_OK)
            control_add_ready(control, connection);
    } else if (err == EMBTIER_OK && (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR))) {
        err = EMBTIER_DISCONNECTED;
    }
    if (err != EMBTIER_OK)
        control_close(control, connection, err, msg.text[0] ? msg.text : err_text(err));
}
