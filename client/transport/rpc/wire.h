/* SPDX-License-Identifier: Apache-2.0 */
/* wire.h: the socket of a connection, plain or with TLS (base/tls/tls_stream.h).
 *
 * Nothing here waits, except the handshake. Bytes that are sent with TLS are taken when they are
 * encrypted; wire_has_unsent() tells of those that the system has not taken.
 *
 * Thread: the connection's. */
#ifndef EMBTIER_CLIENT_TRANSPORT_RPC_WIRE_H
#define EMBTIER_CLIENT_TRANSPORT_RPC_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/err.h"
#include "base/net/address.h"
#include "client/transport/rpc/tls_contexts.h"

struct wire {
    int fd;                 /* it does not block; -1: closed */
    struct tls_stream *tls; /* NULL: plain */
    struct address *server; /* with TLS: for messages */
};

/* Takes over @fd. With TLS it shakes hands before @deadline_ns (of the monotonic clock; UINT64_MAX:
 * no limit), with the context that @contexts has for the address; plain, those may be NULL.
 * INVALID: the address names files that cannot be used. PERMISSION: the server's certificate is
 * refused. PROTOCOL: it speaks no TLS 1.3. DISCONNECTED, TIMEOUT. On failure @fd is closed. */
MUST_CHECK enum embtier_err wire_open(struct wire *ret_wire, int fd, const struct address *address,
                                      const char *text, struct tls_contexts *contexts,
                                      uint64_t deadline_ns, struct err_msg *msg);
void wire_close(struct wire *wire);

/* AGAIN: nothing has come. DISCONNECTED: the server has closed, or the link is dead. PERMISSION: it
 * refuses the client's certificate. Otherwise at least one byte has come. */
MUST_CHECK enum embtier_err wire_receive(struct wire *wire, struct iovec *buffers, uint32_t count,
                                         size_t *ret_bytes, struct err_msg *msg);
/* True: some bytes that came have not been received, and poll() does not tell of them. */
bool wire_has_more(const struct wire *wire);
/* AGAIN: nothing was taken. DISCONNECTED, as above. */
MUST_CHECK enum embtier_err wire_send(struct wire *wire, struct iovec *buffers, uint32_t count,
                                      size_t *ret_bytes, struct err_msg *msg);
bool wire_has_unsent(const struct wire *wire);
/* Sends these. AGAIN: some are left. */
MUST_CHECK enum embtier_err wire_flush(struct wire *wire, struct err_msg *msg);

#endif
