/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/lib/bench_stream.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/tls/tls_context.h"
#include "base/tls/tls_stream.h"
#include "client/transport/connect.h"
#include "tests/bench/lib/bench.h"

#define NO_DEADLINE UINT64_MAX

struct bench_stream {
    int fd;                 /* blocks; TLS asks it not to */
    struct tls_stream *tls; /* NULL: plain TCP */
};

/* ---- Targets ---- */

void bench_target_init(struct bench_target *target, const char *text)
{
    struct err_msg msg = { { 0 } };

    *target = (struct bench_target){ .text = text };
    if (address_parse(text, &target->address, &msg) != EMBTIER_OK)
        bench_die("%s", msg.text);
    if (target->address.kind == ADDRESS_TLS &&
        tls_context_client(&(struct tls_files){ .authority = target->address.files.authority },
                           &target->context, &msg) != EMBTIER_OK)
        bench_die("%s", msg.text);
}

void bench_target_done(struct bench_target *target)
{
    tls_context_free(TAKE(target->context));
}

/* ---- Making and ending ---- */

static void await(int fd, short events)
{
    struct pollfd at = { .fd = fd, .events = events };

    (void)poll(&at, 1, -1);
}

static struct bench_stream *connect_to(const struct bench_target *target)
{
    struct bench_stream *const stream = bench_alloc(1, sizeof(*stream));
    struct err_msg msg = { { 0 } };

    if (connect_stream(&target->address, target->text, NO_DEADLINE, &stream->fd, &msg) !=
        EMBTIER_OK)
        bench_die("%s", msg.text);
    if (fcntl(stream->fd, F_SETFL, 0) != 0)
        bench_die("cannot make a socket block: %s", strerror(errno));
    if (target->context && tls_stream_connect(target->context, stream->fd, target->address.host,
                                              &stream->tls, &msg) != EMBTIER_OK)
        bench_die("%s", msg.text);
    return stream;
}

/* Sends what OpenSSL has written. */
static enum embtier_err flush(struct bench_stream *stream, struct err_msg *msg)
{
    enum embtier_err err;

    while ((err = tls_flush(stream->tls, msg)) == EMBTIER_AGAIN)
        await(stream->fd, POLLOUT);
    return err;
}

static void shake_hands(struct bench_stream *stream)
{
    struct err_msg msg = { { 0 } };
    enum embtier_err err;

    do {
        err = tls_handshake(stream->tls, &msg);
        if ((err != EMBTIER_OK && err != EMBTIER_AGAIN) || flush(stream, &msg) != EMBTIER_OK)
            bench_die("%s", msg.text);
        if (err == EMBTIER_AGAIN)
            await(stream->fd, POLLIN);
    } while (err == EMBTIER_AGAIN);
}

struct bench_stream *bench_stream_new(const struct bench_target *target)
{
    struct bench_stream *const stream = connect_to(target);

    if (stream->tls)
        shake_hands(stream);
    return stream;
}

struct bench_stream *bench_stream_new_half(const struct bench_target *target)
{
    struct bench_stream *const stream = connect_to(target);
    struct err_msg msg;

    if (tls_handshake(stream->tls, &msg) == EMBTIER_AGAIN)
        (void)flush(stream, &msg);
    return stream;
}

void bench_stream_free(struct bench_stream *stream)
{
    if (!stream)
        return;
    tls_stream_free(stream->tls);
    close(stream->fd);
    free(stream);
}

void bench_stream_reset(struct bench_stream *stream)
{
    if (stream)
        (void)setsockopt(stream->fd, SOL_SOCKET, SO_LINGER, &(struct linger){ .l_onoff = 1 },
                         sizeof(struct linger));
    bench_stream_free(stream);
}

/* ---- Bytes ---- */

/* Returns how many were sent; 0: the server has closed. */
static size_t send_some(struct bench_stream *stream, const void *bytes, size_t count)
{
    const struct iovec piece = { .iov_base = (void *)(uintptr_t)bytes, .iov_len = count };
    struct err_msg msg;
    size_t sent = 0;
    enum embtier_err err;

    if (!stream->tls)
        return (size_t)MAX(send(stream->fd, bytes, count, MSG_NOSIGNAL), 0);
    err = tls_write(stream->tls, &piece, 1, &sent, &msg);
    return err == EMBTIER_OK && flush(stream, &msg) == EMBTIER_OK ? sent : 0;
}

bool bench_stream_send(struct bench_stream *stream, const void *bytes, size_t count)
{
    while (count > 0) {
        const size_t sent = send_some(stream, bytes, count);

        if (sent == 0)
            return false;
        bytes = (const uint8_t *)bytes + sent;
        count -= sent;
    }
    return true;
}

size_t bench_stream_receive_some(struct bench_stream *stream, void *bytes, size_t most)
{
    const struct iovec buffer = { .iov_base = bytes, .iov_len = most };
    struct err_msg msg;
    size_t got = 0;
    enum embtier_err err;

    if (!stream->tls)
        return (size_t)MAX(recv(stream->fd, bytes, most, 0), 0);
    while ((err = tls_read(stream->tls, &buffer, 1, most, &got, &msg)) == EMBTIER_AGAIN)
        await(stream->fd, POLLIN);
    return err == EMBTIER_OK ? got : 0;
}

bool bench_stream_receive(struct bench_stream *stream, void *bytes, size_t count)
{
    while (count > 0) {
        const size_t got = bench_stream_receive_some(stream, bytes, count);

        if (got == 0)
            return false;
        bytes = (uint8_t *)bytes + got;
        count -= got;
    }
    return true;
}
