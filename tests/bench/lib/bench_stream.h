/* SPDX-License-Identifier: Apache-2.0 */
/* bench_stream.h: a connection to a server over TCP or TLS, for bytes that no client would send.
 *
 * Functions wait until they are done. Thread: one at a time for a stream; any for a target. */
#ifndef EMBTIER_TESTS_BENCH_LIB_BENCH_STREAM_H
#define EMBTIER_TESTS_BENCH_LIB_BENCH_STREAM_H

#include <openssl/types.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/net/address.h"

/* Where streams go. It reads the authority's certificate once, for all of them. */
struct bench_target {
    const char *text; /* the address, borrowed */
    struct address address;
    SSL_CTX *context; /* NULL: plain TCP */
};

/* @text: tcp:// or tls://. Failures end the program. */
void bench_target_init(struct bench_target *target, const char *text);
void bench_target_done(struct bench_target *target);

struct bench_stream;

/* Connects and, with TLS, shakes hands. Failures end the program. */
struct bench_stream *bench_stream_new(const struct bench_target *target);
/* Connects, and sends the first message of a handshake (ClientHello) without waiting for an answer.
 * Such a stream can only be ended. The server may have closed it already. */
struct bench_stream *bench_stream_new_half(const struct bench_target *target);
/* Ends it without a word of TLS. NULL: does nothing. */
void bench_stream_free(struct bench_stream *stream);
/* The same with a reset, which leaves no port waiting, so there are always enough of them. */
void bench_stream_reset(struct bench_stream *stream);

/* False: the server has closed the connection. */
bool bench_stream_send(struct bench_stream *stream, const void *bytes, size_t count);
/* Receives all @count bytes. False as above. */
bool bench_stream_receive(struct bench_stream *stream, void *bytes, size_t count);
/* Receives at least one byte, and at most @most. Returns 0 if the server has closed. */
size_t bench_stream_receive_some(struct bench_stream *stream, void *bytes, size_t most);

#endif
