/* SPDX-License-Identifier: Apache-2.0 */
/* tls_stream.h: one side of a TLS connection.
 *
 * Ciphertext is received straight from the socket, which never waits. Ciphertext to be sent is
 * collected in a buffer, which the user sends: several records with one call of the system. The
 * buffer has a fixed size, and exists only while there is something in it. OpenSSL puts its own
 * messages there too, such as alerts, from any of the functions below; so look at tls_out() after
 * each.
 *
 * Thread: one at a time. */
#ifndef EMBTIER_BASE_TLS_TLS_STREAM_H
#define EMBTIER_BASE_TLS_TLS_STREAM_H

#include <openssl/x509.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/err.h"
#include "base/macros.h"

/* Ciphertext that is collected, at most: four records, and messages of OpenSSL. */
#define TLS_OUT_BYTES ((size_t)82 << 10)

struct tls_stream;

/* The server's side. @fd is borrowed. NO_MEMORY. */
MUST_CHECK enum embtier_err tls_stream_accept(SSL_CTX *context, int fd,
                                              struct tls_stream **ret_stream, struct err_msg *msg);
/* The client's side, which wants a server whose certificate has the name or number @host. */
MUST_CHECK enum embtier_err tls_stream_connect(SSL_CTX *context, int fd, const char *host,
                                               struct tls_stream **ret_stream, struct err_msg *msg);
void tls_stream_free(struct tls_stream *stream);
DEFINE_CLEANUP(struct tls_stream, tls_stream_free)

/* Goes on with the handshake. AGAIN: it waits for bytes of the other side, or for what is in
 * tls_out() to be sent. PERMISSION: one side refuses the other; DISCONNECTED; PROTOCOL. */
MUST_CHECK enum embtier_err tls_handshake(struct tls_stream *stream, struct err_msg *msg);

/* Receives at most @most bytes into @buffers, of at most 64 KiB that have come. AGAIN: there are
 * none for the user, or tls_is_full(); then wait for the socket, which may be readable still.
 * DISCONNECTED: the other side has ended. Others as above. */
MUST_CHECK enum embtier_err tls_read(struct tls_stream *stream, const struct iovec *buffers,
                                     uint32_t count, size_t most, size_t *ret_bytes,
                                     struct err_msg *msg);
/* True: bytes have been received from the socket that tls_read() has not given. */
bool tls_has_more(const struct tls_stream *stream);
/* Encrypts the first bytes of @buffers, as many as tls_out() has room for. AGAIN: for none; or the
 * other side is in the middle of an update of keys, so try again after a tls_read(). */
MUST_CHECK enum embtier_err tls_write(struct tls_stream *stream, const struct iovec *buffers,
                                      uint32_t count, size_t *ret_bytes, struct err_msg *msg);
/* Tells the other side that no more comes. */
void tls_end(struct tls_stream *stream);

/* Returns the ciphertext to be sent, and how much there is. It stays in place until it is sent, and
 * more may come behind it. */
const uint8_t *tls_out(const struct tls_stream *stream, size_t *ret_bytes);
void tls_out_sent(struct tls_stream *stream, size_t bytes);
/* True: nothing is received before some of it has been sent. */
bool tls_is_full(const struct tls_stream *stream);
/* Sends as much of it as the socket takes at once. AGAIN: some is left. DISCONNECTED, or the
 * system's error. */
MUST_CHECK enum embtier_err tls_flush(struct tls_stream *stream, struct err_msg *msg);

/* Why one side has refused the other's certificates. All is borrowed from the stream. */
struct tls_refusal {
    int alert; /* SSL_R_...: the other side refuses this one's; 0: this one refuses the other's */
    long verdict;                       /* then X509_V_ERR_...: why */
    const X509 *own;                    /* NULL: none was to be shown */
    const STACK_OF(X509) * own_signers; /* shown behind it; NULL: none */
    X509 *other;                        /* NULL: it is not known */
    const X509 *refused; /* the one of the other side's chain that the verdict is about, or NULL */
    int depth;           /* its place in the chain; 0: it is @other */
};
/* False: the stream has not failed for that reason. */
bool tls_refusal_of(const struct tls_stream *stream, struct tls_refusal *ret_refusal);

/* For the names in the other side's certificate. NULL: it has shown none. The caller frees it. */
X509 *tls_peer_certificate(const struct tls_stream *stream);

#endif
