/* SPDX-License-Identifier: Apache-2.0 */
#include "base/tls/tls_stream.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/text/text_escape.h"
#include "base/tls/certificate_names.h"
#include "base/tls/openssl_err.h"

/* Plaintext of one record, and its ciphertext at most. */
#define RECORD_BYTES     ((size_t)SSL3_RT_MAX_PLAIN_LENGTH)
#define RECORD_OUT_BYTES (RECORD_BYTES + 256)
/* Room that is kept for messages of OpenSSL's own. */
#define OWN_OUT_BYTES ((size_t)16 << 10)
/* One such message, such as an answer to an update of keys, is shorter. */
#define OWN_MESSAGE_BYTES ((size_t)1 << 10)
/* Ciphertext received in one call. OpenSSL goes on as long as messages come that have no bytes for
 * the user, such as updates of keys, each of which costs more than its bytes. */
#define TURN_BYTES ((size_t)64 << 10)
/* Smaller pieces are put together into one record. */
#define SMALL_BYTES ((size_t)4 << 10)

struct tls_stream {
    SSL *ssl;
    int fd;
    int refusal;      /* the socket's error number, or 0 */
    size_t allowance; /* bytes that one call may still receive */
    uint8_t *out;
    size_t out_at, out_end;
    enum embtier_err later; /* an error that came behind bytes which the user had first */
    int refusal_reason;     /* SSL_R_..., if a certificate made the stream fail; else 0 */
    int refused_depth;      /* of the certificate of the other side's chain that is refused */
};

/* ---- OpenSSL's way to the socket ---- */

static int receive_some(BIO *bio, char *buffer, int room)
{
    struct tls_stream *const stream = BIO_get_data(bio);
    ssize_t got;

    BIO_clear_retry_flags(bio);
    if (stream->allowance == 0) { /* the socket stays readable */
        BIO_set_retry_read(bio);
        return -1;
    }
    do
        got = recv(stream->fd, buffer, MIN((size_t)room, stream->allowance), MSG_DONTWAIT);
    while (got < 0 && errno == EINTR);
    if (got > 0)
        stream->allowance -= (size_t)got;
    else if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        BIO_set_retry_read(bio);
    else if (got < 0)
        stream->refusal = errno;
    return (int)got;
}

static int collect(BIO *bio, const char *bytes, int count)
{
    struct tls_stream *const stream = BIO_get_data(bio);

    BIO_clear_retry_flags(bio);
    if (!stream->out) {
        stream->out = malloc(TLS_OUT_BYTES);
        stream->out_at = stream->out_end = 0;
    }
    if (!stream->out)
        return -1;
    if (TLS_OUT_BYTES - stream->out_end < (size_t)count) {
        BIO_set_retry_write(bio);
        return -1;
    }
    memcpy(stream->out + stream->out_end, bytes, (size_t)count);
    stream->out_end += (size_t)count;
    return count;
}

static long control(BIO *bio, int command, long number, void *pointer)
{
    (void)bio;
    (void)number;
    (void)pointer;
    return command == BIO_CTRL_FLUSH;
}

static BIO_METHOD *bio_method;

static void make_bio_method(void)
{
    bio_method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "embtier");
    if (!bio_method)
        return;
    (void)BIO_meth_set_read(bio_method, receive_some);
    (void)BIO_meth_set_write(bio_method, collect);
    (void)BIO_meth_set_ctrl(bio_method, control);
}

static BIO *new_bio(struct tls_stream *stream)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    BIO *bio;

    (void)pthread_once(&once, make_bio_method);
    bio = bio_method ? BIO_new(bio_method) : NULL;
    if (!bio)
        return NULL;
    BIO_set_data(bio, stream);
    BIO_set_init(bio, 1);
    return bio;
}

/* ---- Making and freeing ---- */

/* OpenSSL keeps the verdict, but not which certificate it is about. */
static int note_depth(int is_good, X509_STORE_CTX *checking)
{
    SSL *const ssl = X509_STORE_CTX_get_ex_data(checking, SSL_get_ex_data_X509_STORE_CTX_idx());
    struct tls_stream *const stream = SSL_get_app_data(ssl);

    if (!is_good)
        stream->refused_depth = X509_STORE_CTX_get_error_depth(checking);
    return is_good;
}

static enum embtier_err new_stream(SSL_CTX *context, int fd, struct tls_stream **ret_stream,
                                   struct err_msg *msg)
{
    _cleanup_(tls_stream_freep) struct tls_stream *stream = calloc(1, sizeof(*stream));
    BIO *bio;

    ERR_clear_error();
    if (!stream)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    stream->fd = fd;
    stream->ssl = SSL_new(context);
    bio = stream->ssl ? new_bio(stream) : NULL;
    if (!bio)
        return openssl_failed(msg, EMBTIER_NO_MEMORY, "cannot begin TLS");
    SSL_set_bio(stream->ssl, bio, bio);
    SSL_set_verify(stream->ssl, SSL_get_verify_mode(stream->ssl), note_depth);
    if (SSL_set_app_data(stream->ssl, stream) != 1)
        return openssl_failed(msg, EMBTIER_NO_MEMORY, "cannot begin TLS");
    *ret_stream = TAKE(stream);
    return EMBTIER_OK;
}

enum embtier_err tls_stream_accept(SSL_CTX *context, int fd, struct tls_stream **ret_stream,
                                   struct err_msg *msg)
{
    struct tls_stream *stream;

    TRY(new_stream(context, fd, &stream, msg));
    SSL_set_accept_state(stream->ssl);
    *ret_stream = stream;
    return EMBTIER_OK;
}

/* A number is compared with the certificate's addresses, and is no name for a server to choose its
 * certificate by (RFC 6066, section 3). */
static bool expect_host(SSL *ssl, const char *host)
{
    uint8_t number[sizeof(struct in6_addr)];

    if (inet_pton(AF_INET, host, number) == 1 || inet_pton(AF_INET6, host, number) == 1)
        return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host) == 1;
    SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    return SSL_set1_host(ssl, host) == 1 && SSL_set_tlsext_host_name(ssl, host) == 1;
}

enum embtier_err tls_stream_connect(SSL_CTX *context, int fd, const char *host,
                                    struct tls_stream **ret_stream, struct err_msg *msg)
{
    _cleanup_(tls_stream_freep) struct tls_stream *stream = NULL;

    TRY(new_stream(context, fd, &stream, msg));
    SSL_set_connect_state(stream->ssl);
    if (!expect_host(stream->ssl, host))
        return openssl_failed(msg, EMBTIER_INVALID, "cannot check the server's name");
    *ret_stream = TAKE(stream);
    return EMBTIER_OK;
}

void tls_stream_free(struct tls_stream *stream)
{
    if (!stream)
        return;
    SSL_free(stream->ssl);
    free(stream->out);
    free(stream);
}

/* ---- Errors ---- */

static enum embtier_err ended(struct err_msg *msg)
{
    ERR_clear_error();
    return err_set(msg, EMBTIER_DISCONNECTED, "the other side has closed the connection");
}

/* One side's certificates do not satisfy the other. */
static bool is_refusal(int reason)
{
    switch (reason) {
    case SSL_R_CERTIFICATE_VERIFY_FAILED:
    case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE:
    case SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED:
    case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
    case SSL_R_TLSV1_ALERT_ACCESS_DENIED:
    case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN:
    case SSL_R_TLSV1_ALERT_DECRYPT_ERROR: /* the signature of a certificate is wrong */
        return true;
    default:
        return false;
    }
}

/* OpenSSL keeps the chain that it has looked at, also if it is refused. The other side's own
 * certificate is its first. */
static X509 *looked_at(const struct tls_stream *stream, int depth)
{
    const STACK_OF(X509) *const chain = SSL_get0_verified_chain(stream->ssl);

    return depth < sk_X509_num(chain) ? sk_X509_value(chain, depth) : NULL;
}

static enum embtier_err fail_verdict(struct tls_stream *stream, struct err_msg *msg)
{
    const char *const why = X509_verify_cert_error_string(SSL_get_verify_result(stream->ssl));
    const int depth = stream->refused_depth;
    const X509 *const signer = depth > 0 ? looked_at(stream, depth) : NULL;
    struct text_shown subject;

    ERR_clear_error();
    if (!signer)
        return err_set(msg, EMBTIER_PERMISSION, "TLS: the other side's certificate is refused: %s",
                       why);
    return err_set(msg, EMBTIER_PERMISSION,
                   "TLS: the other side's certificate is refused: %s: certificate %d of its chain, "
                   "%s",
                   why, depth + 1, certificate_show(X509_get_subject_name(signer), &subject));
}

static enum embtier_err broken(struct tls_stream *stream, struct err_msg *msg)
{
    const int reason = ERR_GET_REASON(ERR_peek_last_error());

    stream->refusal_reason = is_refusal(reason) ? reason : 0;
    if (reason == SSL_R_CERTIFICATE_VERIFY_FAILED)
        return fail_verdict(stream, msg);
    return openssl_failed(msg, is_refusal(reason) ? EMBTIER_PERMISSION : EMBTIER_PROTOCOL, "TLS");
}

/* Says why a function of OpenSSL returned @result. */
static enum embtier_err reason_of(struct tls_stream *stream, int result, struct err_msg *msg)
{
    switch (SSL_get_error(stream->ssl, result)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
        return EMBTIER_AGAIN;
    case SSL_ERROR_ZERO_RETURN:
        return ended(msg);
    case SSL_ERROR_SYSCALL:
        if (stream->refusal == 0 || stream->refusal == ECONNRESET || stream->refusal == EPIPE)
            return ended(msg);
        ERR_clear_error();
        return err_set_errno(msg, stream->refusal, "TLS");
    default:
        /* Frames say how long they are, so an end without its announcement hides nothing. */
        if (ERR_GET_REASON(ERR_peek_last_error()) == SSL_R_UNEXPECTED_EOF_WHILE_READING)
            return ended(msg);
        return broken(stream, msg);
    }
}

bool tls_refusal_of(const struct tls_stream *stream, struct tls_refusal *ret_refusal)
{
    const int reason = stream->refusal_reason;
    const bool is_own = reason == SSL_R_CERTIFICATE_VERIFY_FAILED;
    STACK_OF(X509) *own_signers = NULL;

    if (reason == 0)
        return false;
    (void)SSL_get0_chain_certs(stream->ssl, &own_signers);
    *ret_refusal = (struct tls_refusal){ .alert = is_own ? 0 : reason,
                                         .verdict = SSL_get_verify_result(stream->ssl),
                                         .own = SSL_get_certificate(stream->ssl),
                                         .own_signers = own_signers,
                                         .other = looked_at(stream, 0),
                                         .refused = looked_at(stream, stream->refused_depth),
                                         .depth = stream->refused_depth };
    return true;
}

static void begin_call(struct tls_stream *stream)
{
    ERR_clear_error();
    stream->allowance = TURN_BYTES;
}

/* ---- Handshake ---- */

enum embtier_err tls_handshake(struct tls_stream *stream, struct err_msg *msg)
{
    int result;

    begin_call(stream);
    result = SSL_do_handshake(stream->ssl);
    return result == 1 ? EMBTIER_OK : reason_of(stream, result, msg);
}

X509 *tls_peer_certificate(const struct tls_stream *stream)
{
    return SSL_get1_peer_certificate(stream->ssl);
}

/* ---- Reading ---- */

/* The user has the bytes before an error first. OpenSSL forgets a fatal one once it has told it. */
static enum embtier_err stop_reading(struct tls_stream *stream, size_t bytes, struct err_msg *msg)
{
    const enum embtier_err err = reason_of(stream, 0, msg);

    if (bytes == 0)
        return err;
    if (err != EMBTIER_AGAIN)
        stream->later = err;
    return EMBTIER_OK;
}

enum embtier_err tls_read(struct tls_stream *stream, const struct iovec *buffers, uint32_t count,
                          size_t most, size_t *ret_bytes, struct err_msg *msg)
{
    enum embtier_err err = EMBTIER_OK;
    size_t bytes = 0, done = 0; /* done: of the buffer */
    uint32_t at = 0;

    if (stream->later != EMBTIER_OK)
        return err_set(msg, stream->later, "TLS: the connection has ended");
    begin_call(stream);
    while (at < count && bytes < most) {
        const size_t room = MIN(buffers[at].iov_len - done, most - bytes);
        size_t got = 0;

        if (room > 0 &&
            SSL_read_ex(stream->ssl, (uint8_t *)buffers[at].iov_base + done, room, &got) != 1) {
            err = stop_reading(stream, bytes, msg);
            break;
        }
        bytes += got;
        done += got;
        if (done == buffers[at].iov_len) {
            at++;
            done = 0;
        }
    }
    if (err == EMBTIER_OK)
        *ret_bytes = bytes;
    return err;
}

bool tls_has_more(const struct tls_stream *stream)
{
    return SSL_has_pending(stream->ssl) == 1;
}

/* ---- Writing ---- */

/* A place among buffers. */
struct place {
    const struct iovec *buffers;
    uint32_t count;
    uint32_t at;
    size_t done; /* of that buffer */
};

static const uint8_t *place_bytes(const struct place *p, size_t *ret_bytes)
{
    *ret_bytes = p->buffers[p->at].iov_len - p->done;
    return (const uint8_t *)p->buffers[p->at].iov_base + p->done;
}

static void place_move(struct place *p, size_t bytes)
{
    while (bytes > 0 || (p->at < p->count && p->done == p->buffers[p->at].iov_len)) {
        const size_t here = MIN(bytes, p->buffers[p->at].iov_len - p->done);

        p->done += here;
        bytes -= here;
        if (p->done == p->buffers[p->at].iov_len) {
            p->at++;
            p->done = 0;
        }
    }
}

/* Returns the plaintext of the next record. Small pieces are copied together into @scratch. */
static const uint8_t *next_record(struct place at, uint8_t scratch[RECORD_BYTES], size_t *ret_bytes)
{
    size_t bytes, filled = 0;
    const uint8_t *const first = place_bytes(&at, &bytes);

    if (bytes >= SMALL_BYTES || at.at + 1 == at.count) {
        *ret_bytes = MIN(bytes, RECORD_BYTES);
        return first;
    }
    while (at.at < at.count && filled < RECORD_BYTES) {
        const uint8_t *const piece = place_bytes(&at, &bytes);
        const size_t here = MIN(bytes, RECORD_BYTES - filled);

        memcpy(scratch + filled, piece, here);
        filled += here;
        place_move(&at, here);
    }
    *ret_bytes = filled;
    return scratch;
}

static bool has_room(const struct tls_stream *stream)
{
    return !stream->out || TLS_OUT_BYTES - stream->out_end >= RECORD_OUT_BYTES + OWN_OUT_BYTES;
}

bool tls_is_full(const struct tls_stream *stream)
{
    return stream->out && TLS_OUT_BYTES - stream->out_end < OWN_MESSAGE_BYTES;
}

enum embtier_err tls_write(struct tls_stream *stream, const struct iovec *buffers, uint32_t count,
                           size_t *ret_bytes, struct err_msg *msg)
{
    struct place at = { .buffers = buffers, .count = count };
    uint8_t scratch[RECORD_BYTES];
    size_t bytes = 0;

    begin_call(stream);
    place_move(&at, 0);
    while (at.at < at.count && has_room(stream)) {
        size_t wanted, written = 0;
        const uint8_t *const record = next_record(at, scratch, &wanted);

        if (SSL_write_ex(stream->ssl, record, wanted, &written) != 1) {
            if (bytes > 0)
                break;
            return reason_of(stream, 0, msg);
        }
        bytes += written;
        place_move(&at, written);
    }
    if (bytes == 0 && at.at < at.count)
        return EMBTIER_AGAIN;
    *ret_bytes = bytes;
    return EMBTIER_OK;
}

void tls_end(struct tls_stream *stream)
{
    ERR_clear_error();
    if (SSL_is_init_finished(stream->ssl))
        (void)SSL_shutdown(stream->ssl);
    ERR_clear_error();
}

/* ---- Ciphertext ---- */

const uint8_t *tls_out(const struct tls_stream *stream, size_t *ret_bytes)
{
    *ret_bytes = stream->out ? stream->out_end - stream->out_at : 0;
    return stream->out ? stream->out + stream->out_at : NULL;
}

void tls_out_sent(struct tls_stream *stream, size_t bytes)
{
    assert(bytes <= stream->out_end - stream->out_at);
    stream->out_at += bytes;
    if (stream->out_at == stream->out_end)
        free(TAKE(stream->out));
}

enum embtier_err tls_flush(struct tls_stream *stream, struct err_msg *msg)
{
    size_t bytes;
    const uint8_t *out;

    while ((out = tls_out(stream, &bytes)) && bytes > 0) {
        const ssize_t sent = send(stream->fd, out, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);

        if (sent >= 0)
            tls_out_sent(stream, (size_t)sent);
        else if (errno == EAGAIN || errno == EWOULDBLOCK)
            return EMBTIER_AGAIN;
        else if (errno == EPIPE || errno == ECONNRESET)
            return ended(msg);
        else if (errno != EINTR)
            return err_set_errno(msg, errno, "cannot send");
    }
    return EMBTIER_OK;
}
