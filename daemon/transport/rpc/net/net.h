/* SPDX-License-Identifier: Apache-2.0 */
/* net.h: a client's socket, plain or with TLS (base/tls/tls_stream.h).
 *
 * Reads and writes are those of io.h: at most one of each is under way, and each ends with one call
 * of its function, from io_run(). With TLS, bytes are decrypted straight into the reader's buffers,
 * as they come. Bytes to be written are encrypted into a buffer, and a write ends when the system
 * has all of that.
 *
 * Thread: the loop's. */
#ifndef EMBTIER_DAEMON_TRANSPORT_RPC_NET_NET_H
#define EMBTIER_DAEMON_TRANSPORT_RPC_NET_NET_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "daemon/transport/rpc/io/io.h"

struct net;
struct tls_stream;

/* Bytes read or written; an error is its negative number. 0: a read found the end. ECANCELED: the
 * socket was being closed. EPROTO: what came was not TLS. */
typedef void net_done_fn(struct net *net, int result);

/* The user embeds it, and keeps it until its closed(). */
struct net {
    struct io *io;
    struct io_file file;
    net_done_fn *read_done, *write_done; /* NULL: none is under way */
    void (*closed)(struct net *net);
    uint64_t moved_ns; /* when bytes last went out, or there were none to send */

    struct tls_stream *tls; /* NULL: plain */
    const struct iovec *in, *out;
    uint32_t in_count, out_count;
    size_t taken; /* bytes of the write that are encrypted */
    struct iovec sending;
    void (*flushed)(struct net *net); /* NULL: nobody waits */
    bool is_broken;                   /* nothing more is decrypted; what comes is thrown away */
    bool is_shutting;
    bool lacks_room; /* the read goes on when ciphertext has been sent */
};

/* Takes over @fd, and @tls if it is not NULL. */
void net_open(struct net *net, struct io *io, int fd, struct tls_stream *tls);
/* @buffers, and the bytes they name, are used until @done is called; they may be shortened. */
void net_read(struct net *net, struct iovec *buffers, uint32_t count, net_done_fn *done);
/* May write less than all. */
void net_write(struct net *net, struct iovec *buffers, uint32_t count, net_done_fn *done);
/* Tells the client that no more comes. No write is under way, and none is begun any more. */
void net_shut(struct net *net);
/* Ends what is under way, then calls @closed, from io_run(). A second call does nothing. */
void net_close(struct net *net, void (*closed)(struct net *net));

static inline bool net_is_reading(const struct net *net)
{
    return net->read_done != NULL;
}

/* True while bytes wait for the client to take them. */
static inline bool net_is_writing(const struct net *net)
{
    return net->file.write.done != NULL;
}

static inline bool net_is_closing(const struct net *net)
{
    return net->file.is_closing;
}

/* ---- net_tls.c ---- */

void net_tls_read(struct net *net);
void net_tls_write(struct net *net);
void net_tls_shut(struct net *net);
/* Sends ciphertext that OpenSSL made by itself, and calls @flushed once there is none, or at once,
 * or when the socket fails. During a handshake. */
void net_tls_flush(struct net *net, void (*flushed)(struct net *net));
/* The last words before the socket is closed. */
void net_tls_close(struct net *net);

#endif
