/* SPDX-License-Identifier: Apache-2.0 */
#include "client/transport/rpc/wire.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/tls/tls_context.h"
#include "base/tls/tls_stream.h"
#include "client/transport/rpc/tls_refusal.h"

#define NS_PER_MS UINT64_C(1000000)

static enum embtier_err lost(struct err_msg *msg)
{
    return err_set(msg, EMBTIER_DISCONNECTED, "the server closed the connection");
}

/* After any error of the system nothing more comes: a dead link has one of several. */
static enum embtier_err broken(int errnum, const char *what, struct err_msg *msg)
{
    if (errnum == EPIPE || errnum == ECONNRESET)
        return lost(msg);
    (void)err_set_errno(msg, errnum, "%s", what);
    return EMBTIER_DISCONNECTED;
}

/* The same for an error under TLS. Others are about TLS itself. */
static enum embtier_err broken_tls(const struct wire *wire, enum embtier_err err,
                                   struct err_msg *msg)
{
    switch (err) {
    case EMBTIER_PERMISSION:
        (void)tls_refusal_explain(wire->tls, wire->server, msg);
        return err;
    case EMBTIER_OK:
    case EMBTIER_AGAIN:
    case EMBTIER_NO_MEMORY:
    case EMBTIER_PROTOCOL:
        return err;
    case EMBTIER_DISCONNECTED:
        return lost(msg);
    default:
        return EMBTIER_DISCONNECTED;
    }
}

/* ---- Opening ---- */

static enum embtier_err begin_tls(struct wire *wire, const struct address *address,
                                  struct tls_contexts *contexts, struct err_msg *msg)
{
    _cleanup_(tls_context_freep) SSL_CTX *context = NULL;

    wire->server = malloc(sizeof(*wire->server));
    if (!wire->server)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    *wire->server = *address;
    TRY(tls_contexts_get(contexts, &address->files, &context, msg));
    return tls_stream_connect(context, wire->fd, address->host, &wire->tls, msg);
}

/* False: there is no time left. */
static bool await(const struct wire *wire, uint64_t deadline_ns)
{
    const uint64_t now_ns = clock_now_ns(&clock_monotonic);
    const uint64_t left_ms = div_round_up(deadline_ns - MIN(deadline_ns, now_ns), NS_PER_MS);
    struct pollfd at = { .fd = wire->fd, .events = POLLIN };

    if (wire_has_unsent(wire))
        at.events |= POLLOUT;
    (void)poll(&at, 1, deadline_ns == UINT64_MAX ? -1 : (int)MIN(left_ms, (uint64_t)INT32_MAX));
    return now_ns < deadline_ns;
}

static enum embtier_err shake_hands(struct wire *wire, uint64_t deadline_ns, struct err_msg *msg)
{
    for (;;) {
        const enum embtier_err err = tls_handshake(wire->tls, msg);
        struct err_msg lost_too;
        const enum embtier_err sent = tls_flush(wire->tls, err == EMBTIER_AGAIN ? msg : &lost_too);

        if (err != EMBTIER_AGAIN)
            return err;
        if (sent != EMBTIER_OK && sent != EMBTIER_AGAIN)
            return sent;
        if (!await(wire, deadline_ns))
            return err_set(msg, EMBTIER_TIMEOUT, "the server did not answer in time");
    }
}

static enum embtier_err start_tls(struct wire *wire, const struct address *address,
                                  const char *text, struct tls_contexts *contexts,
                                  uint64_t deadline_ns, struct err_msg *msg)
{
    struct err_msg why = { { 0 } };
    enum embtier_err err = begin_tls(wire, address, contexts, &why);

    if (err == EMBTIER_OK)
        err = shake_hands(wire, deadline_ns, &why);
    if (err == EMBTIER_OK)
        return EMBTIER_OK;
    if (wire->tls && tls_refusal_explain(wire->tls, address, &why))
        return err_set(msg, err, "%s", why.text);
    return err_set(msg, err, "cannot connect to %s: %s%s", text, why.text,
                   err == EMBTIER_PROTOCOL ? " (does it have TLS at this port?)" : "");
}

enum embtier_err wire_open(struct wire *ret_wire, int fd, const struct address *address,
                           const char *text, struct tls_contexts *contexts, uint64_t deadline_ns,
                           struct err_msg *msg)
{
    struct wire wire = { .fd = fd };
    enum embtier_err err = EMBTIER_OK;

    if (address->kind == ADDRESS_TLS)
        err = start_tls(&wire, address, text, contexts, deadline_ns, msg);
    if (err != EMBTIER_OK) {
        wire_close(&wire);
        return err;
    }
    *ret_wire = wire;
    return EMBTIER_OK;
}

void wire_close(struct wire *wire)
{
    tls_stream_free(TAKE(wire->tls));
    free(TAKE(wire->server));
    closep(&wire->fd);
    wire->fd = -1;
}

/* ---- Receiving ---- */

static enum embtier_err receive_plain(const struct wire *wire, struct iovec *buffers,
                                      uint32_t count, size_t *ret_bytes, struct err_msg *msg)
{
    struct msghdr message = { .msg_iov = buffers, .msg_iovlen = count };
    ssize_t got;

    do
        got = recvmsg(wire->fd, &message, MSG_DONTWAIT);
    while (got < 0 && errno == EINTR);
    if (got < 0 && errno == EAGAIN)
        return EMBTIER_AGAIN;
    if (got == 0)
        return lost(msg);
    if (got < 0)
        return broken(errno, "cannot read from the server", msg);
    *ret_bytes = (size_t)got;
    return EMBTIER_OK;
}

/* Messages of OpenSSL itself go out now, or with the next bytes. */
static enum embtier_err receive_tls(struct wire *wire, const struct iovec *buffers, uint32_t count,
                                    size_t *ret_bytes, struct err_msg *msg)
{
    const enum embtier_err err = tls_read(wire->tls, buffers, count, SIZE_MAX, ret_bytes, msg);
    struct err_msg ignored;

    (void)!tls_flush(wire->tls, &ignored);
    return broken_tls(wire, err, msg);
}

enum embtier_err wire_receive(struct wire *wire, struct iovec *buffers, uint32_t count,
                              size_t *ret_bytes, struct err_msg *msg)
{
    return wire->tls ? receive_tls(wire, buffers, count, ret_bytes, msg)
                     : receive_plain(wire, buffers, count, ret_bytes, msg);
}

bool wire_has_more(const struct wire *wire)
{
    return wire->tls && tls_has_more(wire->tls);
}

/* ---- Sending ---- */

static enum embtier_err send_plain(const struct wire *wire, struct iovec *buffers, uint32_t count,
                                   size_t *ret_bytes, struct err_msg *msg)
{
    const struct msghdr message = { .msg_iov = buffers, .msg_iovlen = count };
    ssize_t sent;

    do
        sent = sendmsg(wire->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (sent < 0 && errno == EINTR);
    if (sent < 0 && errno == EAGAIN)
        return EMBTIER_AGAIN;
    if (sent < 0)
        return broken(errno, "cannot send to the server", msg);
    *ret_bytes = (size_t)sent;
    return EMBTIER_OK;
}

static enum embtier_err send_tls(struct wire *wire, const struct iovec *buffers, uint32_t count,
                                 size_t *ret_bytes, struct err_msg *msg)
{
    enum embtier_err err;

    TRY(wire_flush(wire, msg));
    TRY(broken_tls(wire, tls_write(wire->tls, buffers, count, ret_bytes, msg), msg));
    err = wire_flush(wire, msg);
    return err == EMBTIER_AGAIN ? EMBTIER_OK : err;
}

enum embtier_err wire_send(struct wire *wire, struct iovec *buffers, uint32_t count,
                           size_t *ret_bytes, struct err_msg *msg)
{
    return wire->tls ? send_tls(wire, buffers, count, ret_bytes, msg)
                     : send_plain(wire, buffers, count, ret_bytes, msg);
}

bool wire_has_unsent(const struct wire *wire)
{
    size_t bytes = 0;

    if (wire->tls)
        (void)tls_out(wire->tls, &bytes);
    return bytes > 0;
}

enum embtier_err wire_flush(struct wire *wire, struct err_msg *msg)
{
    return wire->tls ? broken_tls(wire, tls_flush(wire->tls, msg), msg) : EMBTIER_OK;
}
