/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and writes with TLS. Ciphertext to be sent is in the stream's buffer (tls_out()), which one
 * write of the socket empties; more may come behind it meanwhile. */
#include <assert.h>
#include <errno.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/macros.h"
#include "base/tls/tls_stream.h"
#include "daemon/engine/memory/engine_reserved.h"
#include "daemon/engine/sessions/tsan.h"
#include "daemon/transport/rpc/net/net.h"

_Static_assert(TLS_OUT_BYTES + (94 << 10) <= SESSION_TLS_BYTES, "the configuration counts it");

/* Decrypted in one turn, so that no client keeps the loop. */
#define TURN_BYTES ((size_t)256 << 10)

static struct net *net_of(struct io_file *file)
{
    return CONTAINER_OF(file, struct net, file);
}

/* ---- Ciphertext that goes out ---- */

static void go_on_writing(struct net *net);

static void tell_flushed(struct net *net)
{
    void (*const flushed)(struct net * net) = TAKE(net->flushed);

    if (flushed)
        flushed(net);
}

static void send_out(struct net *net);

/* Ends all that waits for ciphertext to be sent. */
static void fail(struct net *net, int result)
{
    net->is_broken = true;
    if (net->write_done)
        TAKE(net->write_done)(net, result);
    if (net->lacks_room) {
        net->lacks_room = false;
        TAKE(net->read_done)(net, result);
    }
    tell_flushed(net);
}

static void on_sent(struct io_file *file, int result)
{
    struct net *const net = net_of(file);

    net->moved_ns = clock_now_ns(&clock_monotonic);
    if (result > 0)
        tls_out_sent(net->tls, (size_t)result);
    if (result < 0) {
        fail(net, result);
        return;
    }
    if (net->lacks_room) {
        net->lacks_room = false;
        net_tls_read(net);
    }
    send_out(net);
    if (net_is_writing(net))
        return;
    if (net->write_done)
        go_on_writing(net);
    else if (net->is_shutting)
        (void)shutdown(net->file.fd, SHUT_WR);
    tell_flushed(net);
}

/* Sends what there is, if nothing is being sent. */
static void send_out(struct net *net)
{
    size_t bytes;
    const uint8_t *const out = tls_out(net->tls, &bytes);

    if (bytes == 0 || net_is_writing(net) || net_is_closing(net))
        return;
    if (!net->write_done)
        net->moved_ns = clock_now_ns(&clock_monotonic);
    net->sending = (struct iovec){ .iov_base = (void *)(uintptr_t)out, .iov_len = bytes };
    io_write(net->io, &net->file, &net->sending, 1, on_sent);
}

void net_tls_flush(struct net *net, void (*flushed)(struct net *net))
{
    assert(!net->flushed);
    send_out(net);
    if (net_is_writing(net))
        net->flushed = flushed;
    else
        flushed(net);
}

/* ---- Writing ---- */

static void on_write_over(struct io_file *file, int result)
{
    struct net *const net = net_of(file);

    TAKE(net->write_done)(net, result);
}

/* The buffers may lie in a client's region. */
static enum embtier_err encrypt(struct net *net)
{
    struct err_msg msg;
    enum embtier_err err;

    TSAN_CLIENT_BEGIN();
    err = tls_write(net->tls, net->out, net->out_count, &net->taken, &msg);
    TSAN_CLIENT_END();
    return err;
}

void net_tls_write(struct net *net)
{
    enum embtier_err err;

    net->taken = 0;
    err = net->is_broken ? EMBTIER_PROTOCOL : encrypt(net);
    if (err == EMBTIER_OK || err == EMBTIER_AGAIN)
        send_out(net);
    else if (!net_is_writing(net))
        io_end_soon(net->io, &net->file.write, -EPIPE, on_write_over);
}

/* All ciphertext has been sent: that of the write too, or it found no room before. */
static void go_on_writing(struct net *net)
{
    if (net->taken > 0)
        TAKE(net->write_done)(net, (int)net->taken);
    else
        net_tls_write(net);
}

/* ---- Reading ---- */

static void on_read_over(struct io_file *file, int result)
{
    struct net *const net = net_of(file);

    TAKE(net->read_done)(net, result);
}

static void on_readable(struct io_file *file, int result)
{
    struct net *const net = net_of(file);

    if (result < 0)
        TAKE(net->read_done)(net, result);
    else
        net_tls_read(net);
}

static enum embtier_err decrypt(struct net *net, size_t *ret_bytes)
{
    struct err_msg msg;
    enum embtier_err err;

    TSAN_CLIENT_BEGIN();
    err = tls_read(net->tls, net->in, net->in_count, TURN_BYTES, ret_bytes, &msg);
    TSAN_CLIENT_END();
    return err;
}

static int result_of(enum embtier_err err, size_t bytes)
{
    if (err == EMBTIER_OK)
        return (int)bytes;
    return err == EMBTIER_DISCONNECTED ? 0 : -EPROTO;
}

void net_tls_read(struct net *net)
{
    size_t bytes = 0;
    const enum embtier_err err = decrypt(net, &bytes);

    if (err != EMBTIER_OK && err != EMBTIER_AGAIN)
        net->is_broken = true;
    send_out(net); /* an alert, or an answer to an update of keys */
    if (err != EMBTIER_AGAIN)
        io_end_soon(net->io, &net->file.read, result_of(err, bytes), on_read_over);
    else if (tls_is_full(net->tls) && net_is_writing(net))
        net->lacks_room = true;
    else
        io_await(net->io, &net->file, on_readable);
    /* A write of which nothing is encrypted yet waited for the rest of an update of keys. */
    if (net->write_done && net->taken == 0 && !net_is_writing(net))
        net_tls_write(net);
}

/* ---- The end ---- */

void net_tls_shut(struct net *net)
{
    tls_end(net->tls);
    send_out(net);
    if (!net_is_writing(net))
        (void)shutdown(net->file.fd, SHUT_WR);
}

void net_tls_close(struct net *net)
{
    struct err_msg msg;

    if (net_is_writing(net))
        return;
    if (!net->is_shutting)
        tls_end(net->tls);
    (void)!tls_flush(net->tls, &msg);
}
