/* SPDX-License-Identifier: Apache-2.0 */
#include "client/transport/control_socket.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "client/transport/connect.h"

#define NS_PER_MS UINT64_C(1000000)
#define FOREVER   UINT64_MAX

void reply_free(Embtier__Reply *reply)
{
    if (reply)
        embtier__reply__free_unpacked(reply, NULL);
}

void control_socket_init(struct control_socket *sock, uint32_t timeout_ms)
{
    *sock = (struct control_socket){ .fd = -1, .timeout_ms = timeout_ms, .told_ms = timeout_ms };
    frame_reader_init(&sock->reader, FRAME_BYTES_MAX);
}

static void close_fds(struct control_socket *sock)
{
    for (uint32_t i = 0; i < sock->fd_count; i++)
        closep(&sock->fds[i]);
    sock->fd_count = 0;
}

void control_socket_close(struct control_socket *sock)
{
    close_fds(sock);
    rpc_connection_free(TAKE(sock->rpc));
    closep(&sock->fd);
    sock->fd = -1;
    frame_reader_done(&sock->reader);
}

static uint64_t deadline_of(const struct control_socket *sock)
{
    if (sock->timeout_ms == 0)
        return FOREVER;
    return clock_now_ns(&clock_monotonic) + sock->timeout_ms * NS_PER_MS;
}

/* Waits for one of @events or the end of the connection. TIMEOUT. */
static enum embtier_err wait_for(struct control_socket *sock, short events, uint64_t deadline_ns,
                                 struct err_msg *msg)
{
    struct pollfd poll_fd = { .fd = sock->fd, .events = events };

    for (;;) {
        const uint64_t now_ns = clock_now_ns(&clock_monotonic);
        int wait_ms = -1;
        int ready;

        if (deadline_ns != FOREVER) {
            const uint64_t left_ns = now_ns < deadline_ns ? deadline_ns - now_ns : 0;

            wait_ms = (int)MIN(div_round_up(left_ns, NS_PER_MS), (uint64_t)INT32_MAX);
        }
        ready = sock->rpc ? rpc_connection_wait(sock->rpc, wait_ms) : poll(&poll_fd, 1, wait_ms);
        if (ready > 0)
            return EMBTIER_OK;
        if (ready == 0)
            return err_set(msg, EMBTIER_TIMEOUT, "no answer from the server within %u ms",
                           sock->told_ms);
        if (errno != EINTR)
            return err_set_errno(msg, errno, "cannot wait for the server");
    }
}

enum embtier_err control_socket_connect(struct control_socket *sock, const struct address *address,
                                        const char *text, const struct rpc_connection *beside,
                                        struct tls_contexts *contexts, struct err_msg *msg)
{
    assert(sock->fd < 0 && !sock->rpc);
    if (address->kind == ADDRESS_UNIX)
        return connect_stream(address, text, deadline_of(sock), &sock->fd, msg);
    return rpc_connection_new(address, text, beside, contexts, deadline_of(sock), &sock->rpc, msg);
}

enum embtier_err control_socket_check_peer(const struct control_socket *sock, const char *path,
                                           struct err_msg *msg)
{
    struct ucred peer;
    socklen_t bytes = sizeof(peer);

    if (getsockopt(sock->fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0)
        return err_set_errno(msg, errno, "cannot find out the user of the server on %s", path);
    if (peer.uid == geteuid() || peer.uid == 0)
        return EMBTIER_OK;
    return err_set(msg, EMBTIER_PERMISSION,
                   "the server on %s belongs to user %u, and neither to this user nor to root; if "
                   "that is intended, name its socket (EMBTIER_SOCKET, the option --address)",
                   path, (unsigned)peer.uid);
}

static enum embtier_err lost(struct err_msg *msg)
{
    return err_set(msg, EMBTIER_DISCONNECTED, "the server closed the connection");
}

static enum embtier_err send_bytes(struct control_socket *sock, const uint8_t *bytes, size_t count,
                                   uint64_t deadline_ns, struct err_msg *msg)
{
    while (count > 0) {
        const ssize_t sent = send(sock->fd, bytes, count, MSG_NOSIGNAL);

        if (sent >= 0) {
            bytes += sent;
            count -= (size_t)sent;
        } else if (errno == EPIPE || errno == ECONNRESET) {
            return lost(msg);
        } else if (errno == EAGAIN) {
            TRY(wait_for(sock, POLLOUT, deadline_ns, msg));
        } else if (errno != EINTR) {
            return err_set_errno(msg, errno, "cannot send to the server");
        }
    }
    return EMBTIER_OK;
}

/* Keeps the descriptors that came with a message. Too many of them is a protocol violation; none is
 * leaked. */
static enum embtier_err keep_fds(struct control_socket *sock, struct msghdr *message,
                                 struct err_msg *msg)
{
    bool too_many = message->msg_flags & MSG_CTRUNC;

    for (struct cmsghdr *part = CMSG_FIRSTHDR(message); part; part = CMSG_NXTHDR(message, part)) {
        const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);

        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t i = 0; i < count; i++) {
            int fd;

            memcpy(&fd, CMSG_DATA(part) + i * sizeof(fd), sizeof(fd));
            if (sock->fd_count < CONTROL_FDS_MAX) {
                sock->fds[sock->fd_count++] = fd;
            } else {
                close(fd);
                too_many = true;
            }
        }
    }
    if (!too_many)
        return EMBTIER_OK;
    close_fds(sock);
    return err_set(msg, EMBTIER_PROTOCOL, "the server sent more than %d descriptors",
                   CONTROL_FDS_MAX);
}

/* Receives the bytes that have arrived. AGAIN: none have. DISCONNECTED: the end. */
static enum embtier_err receive_bytes(struct control_socket *sock, struct err_msg *msg)
{
    union {
        char bytes[CMSG_SPACE(CONTROL_FDS_MAX * sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec space;
    struct msghdr message = { .msg_iov = &space,
                              .msg_iovlen = 1,
                              .msg_control = control.bytes,
                              .msg_controllen = sizeof(control.bytes) };
    uint8_t *bytes;
    ssize_t count;

    if (sock->rpc)
        return rpc_connection_receive(sock->rpc, msg);
    TRY(frame_reader_space(&sock->reader, &bytes, &space.iov_len));
    space.iov_base = bytes;
    do
        count = recvmsg(sock->fd, &message, MSG_CMSG_CLOEXEC);
    while (count < 0 && errno == EINTR);
    if (count < 0 && errno == EAGAIN)
        return EMBTIER_AGAIN;
    if (count == 0 || (count < 0 && errno == ECONNRESET))
        return lost(msg);
    if (count < 0)
        return err_set_errno(msg, errno, "cannot read from the server");
    TRY(keep_fds(sock, &message, msg));
    frame_reader_added(&sock->reader, (size_t)count);
    return EMBTIER_OK;
}

/* Decodes the next reply among the bytes received so far; AGAIN. */
static enum embtier_err next_reply(struct control_socket *sock, Embtier__Reply **ret_reply,
                                   struct err_msg *msg)
{
    struct frame_reader *const reader =
        sock->rpc ? rpc_connection_replies(sock->rpc) : &sock->reader;
    const uint8_t *payload;
    uint32_t bytes;
    enum embtier_err err;

    TRY(frame_reader_next(reader, &payload, &bytes, msg));
    err = frame_decode_reply(payload, bytes, ret_reply, msg);
    frame_reader_next_done(reader);
    return err;
}

static enum embtier_err receive_reply(struct control_socket *sock, uint64_t deadline_ns,
                                      Embtier__Reply **ret_reply, struct err_msg *msg)
{
    for (;;) {
        enum embtier_err err = next_reply(sock, ret_reply, msg);

        if (err != EMBTIER_AGAIN)
            return err;
        err = receive_bytes(sock, msg);
        if (err == EMBTIER_AGAIN)
            err = wait_for(sock, POLLIN, deadline_ns, msg);
        if (err)
            return err;
    }
}

/* Returns a reply's error. The number may be from a later version; it is passed on as it is. */
static enum embtier_err reply_error(const Embtier__Reply *reply, struct err_msg *msg)
{
    const enum embtier_err err = (enum embtier_err)reply->error->err;

    return err_set(msg, err, "%s",
                   reply->error->message[0] ? reply->error->message : err_text(err));
}

/* True for the message that the server sends unasked when the session ends. */
static bool is_farewell(const Embtier__Reply *reply)
{
    return reply->id == 0 && reply->body_case == EMBTIER__REPLY__BODY_ERROR;
}

static enum embtier_err expect_reply(struct control_socket *sock, embtier_progress_fn *progress,
                                     void *progress_context, Embtier__Reply **ret_reply,
                                     struct err_msg *msg)
{
    for (;;) {
        _cleanup_(reply_freep) Embtier__Reply *reply = NULL;
        const enum embtier_err err = receive_reply(sock, deadline_of(sock), &reply, msg);

        if (err) {
            sock->over = err != EMBTIER_TIMEOUT;
            return err;
        }
        if (is_farewell(reply)) {
            sock->over = true;
            sock->was_told_why = true;
            return reply_error(reply, msg);
        }
        if ((int32_t)(reply->id - sock->last_call_id) > 0) {
            sock->over = true;
            return err_set(msg, EMBTIER_PROTOCOL, "the server sent a reply to no request");
        }
        if (reply->id != sock->last_call_id)
            continue; /* to a call that timed out */
        if (reply->body_case == EMBTIER__REPLY__BODY_ERROR)
            return reply_error(reply, msg);
        if (reply->last) {
            *ret_reply = TAKE(reply);
            return EMBTIER_OK;
        }
        if (progress && reply->progress->total > 0)
            progress(progress_context, reply->progress->done, reply->progress->total,
                     reply->progress->unit);
    }
}

enum embtier_err control_socket_call(struct control_socket *sock, Embtier__Request *request,
                                     embtier_progress_fn *progress, void *progress_context,
                                     Embtier__Reply **ret_reply, struct err_msg *msg)
{
    _cleanup_(freep) uint8_t *bytes = NULL;
    enum embtier_err err;
    size_t count;

    if (++sock->last_call_id == 0)
        sock->last_call_id = 1; /* 0 marks unasked messages of the server */
    request->id = sock->last_call_id;
    err = frame_encode_request(request, &bytes, &count);
    if (err)
        return err_set(msg, err, "cannot send the request: %s", err_text(err));
    if (sock->rpc)
        err = rpc_connection_call(sock->rpc, bytes + FRAME_HEADER_BYTES, count - FRAME_HEADER_BYTES,
                                  msg);
    else
        err = send_bytes(sock, bytes, count, deadline_of(sock), msg);
    /* A server that refused the session may have said why before it closed. expect_reply() reads
     * that. */
    if (err && err != EMBTIER_DISCONNECTED) {
        sock->over = true; /* a frame sent in part cannot be taken back */
        return err;
    }
    return expect_reply(sock, progress, progress_context, ret_reply, msg);
}

enum embtier_err control_socket_check(struct control_socket *sock, struct err_msg *msg)
{
    for (;;) {
        _cleanup_(reply_freep) Embtier__Reply *reply = NULL;
        enum embtier_err err = next_reply(sock, &reply, msg);

        if (err == EMBTIER_AGAIN) {
            err = receive_bytes(sock, msg);
            if (err == EMBTIER_AGAIN)
                return EMBTIER_OK;
            if (!err)
                continue;
        }
        if (!err && !is_farewell(reply))
            continue; /* a late answer to a call that timed out */
        if (!err) {
            (void)reply_error(reply, msg);
            sock->was_told_why = true;
        }
        sock->over = true;
        return EMBTIER_DISCONNECTED;
    }
}
