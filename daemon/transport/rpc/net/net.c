/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/transport/rpc/net/net.h"

#include <assert.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/macros.h"
#include "base/tls/tls_stream.h"

static struct net *net_of(struct io_file *file)
{
    return CONTAINER_OF(file, struct net, file);
}

void net_open(struct net *net, struct io *io, int fd, struct tls_stream *tls)
{
    *net = (struct net){ .io = io, .tls = tls, .moved_ns = clock_now_ns(&clock_monotonic) };
    io_open(io, &net->file, fd);
}

static void on_read(struct io_file *file, int result)
{
    struct net *const net = net_of(file);

    TAKE(net->read_done)(net, result);
}

void net_read(struct net *net, struct iovec *buffers, uint32_t count, net_done_fn *done)
{
    assert(!net->read_done);
    net->read_done = done;
    net->in = buffers;
    net->in_count = count;
    if (net->tls && !net->is_broken)
        net_tls_read(net);
    else
        io_read(net->io, &net->file, buffers, count, on_read);
}

static void on_written(struct io_file *file, int result)
{
    struct net *const net = net_of(file);

    net->moved_ns = clock_now_ns(&clock_monotonic);
    TAKE(net->write_done)(net, result);
}

void net_write(struct net *net, struct iovec *buffers, uint32_t count, net_done_fn *done)
{
    assert(!net->write_done && !net->is_shutting);
    if (!net_is_writing(net))
        net->moved_ns = clock_now_ns(&clock_monotonic);
    net->write_done = done;
    net->out = buffers;
    net->out_count = count;
    if (net->tls)
        net_tls_write(net);
    else
        io_write(net->io, &net->file, buffers, count, on_written);
}

void net_shut(struct net *net)
{
    assert(!net->write_done);
    net->is_shutting = true;
    if (net->tls)
        net_tls_shut(net);
    else
        (void)shutdown(net->file.fd, SHUT_WR);
}

static void on_closed(struct io_file *file)
{
    struct net *const net = net_of(file);

    tls_stream_free(TAKE(net->tls));
    net->closed(net);
}

void net_close(struct net *net, void (*closed)(struct net *net))
{
    if (net_is_closing(net))
        return;
    if (net->tls)
        net_tls_close(net);
    net->closed = closed;
    io_close(net->io, &net->file, on_closed);
}
