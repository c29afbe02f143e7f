/* SPDX-License-Identifier: Apache-2.0 */
#include "base/tls/tls_context.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>

#include "base/tls/openssl_err.h"

/* AES first: processors have instructions for it. The shorter key is safe enough, and faster. */
#define SUITES "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256"
/* Read from a socket at once: two records, with what encryption adds. */
#define READ_BYTES (2 * (SSL3_RT_MAX_PLAIN_LENGTH + 256))
/* All certificates that the other side shows. */
#define PEER_CHAIN_BYTES (32 << 10)

void tls_context_free(SSL_CTX *context)
{
    SSL_CTX_free(context);
}

static bool is_given(const char *path)
{
    return path && path[0] != '\0';
}

static enum embtier_err fail_file(const char *path, const char *expected, struct err_msg *msg)
{
    return openssl_failed(msg, EMBTIER_INVALID, "%s holds no %s (PEM) that can be used", path,
                          expected);
}

/* OpenSSL would hide why a file cannot be opened. */
static enum embtier_err check_readable(const char *path, struct err_msg *msg)
{
    FILE *const file = fopen(path, "re");

    if (!file)
        return err_set(msg, EMBTIER_INVALID, "cannot read %s: %s", path,
                       strerror(errno)); // NOLINT(concurrency-mt-unsafe)
    (void)fclose(file);
    return EMBTIER_OK;
}

/* ---- The side's own certificate ---- */

/* Each certificate must have been signed by the next one. */
static enum embtier_err check_chain(SSL_CTX *context, const char *path, struct err_msg *msg)
{
    X509 *at = SSL_CTX_get0_certificate(context);
    STACK_OF(X509) *chain = NULL;

    (void)SSL_CTX_get0_chain_certs(context, &chain);
    for (int i = 0; i < sk_X509_num(chain); i++) {
        X509 *const next = sk_X509_value(chain, i);

        if (X509_check_issued(next, at) != X509_V_OK ||
            X509_verify(at, X509_get0_pubkey(next)) != 1) {
            ERR_clear_error();
            return err_set(msg, EMBTIER_INVALID,
                           "%s: certificate %d was not signed by the one behind it; expected the "
                           "own certificate first, then each signer's",
                           path, i + 1);
        }
        at = next;
    }
    return EMBTIER_OK;
}

/* A key that is encrypted would make OpenSSL ask for its password on the terminal. */
static int no_password(char *buffer, int room, int is_for_writing, void *context)
{
    (void)buffer;
    (void)room;
    (void)is_for_writing;
    (void)context;
    return -1;
}

/* A handshake's message has them with five more bytes each. */
static enum embtier_err check_chain_bytes(SSL_CTX *context, const char *path, struct err_msg *msg)
{
    STACK_OF(X509) *chain = NULL;
    size_t bytes = (size_t)i2d_X509(SSL_CTX_get0_certificate(context), NULL) + 16;

    (void)SSL_CTX_get0_chain_certs(context, &chain);
    for (int i = 0; i < sk_X509_num(chain); i++)
        bytes += (size_t)i2d_X509(sk_X509_value(chain, i), NULL) + 5;
    if (bytes <= PEER_CHAIN_BYTES)
        return EMBTIER_OK;
    return err_set(msg, EMBTIER_INVALID,
                   "%s: its %d certificates have %zu bytes, and the other side takes at most %d: "
                   "leave out those that it knows, such as the authority's own",
                   path, sk_X509_num(chain) + 1, bytes, PEER_CHAIN_BYTES);
}

static enum embtier_err take_certificate(SSL_CTX *context, const struct tls_files *files,
                                         struct err_msg *msg)
{
    TRY(check_readable(files->certificate, msg));
    if (SSL_CTX_use_certificate_chain_file(context, files->certificate) != 1)
        return fail_file(files->certificate, "certificate", msg);
    TRY(check_chain_bytes(context, files->certificate, msg));
    return check_chain(context, files->certificate, msg);
}

static enum embtier_err take_key(SSL_CTX *context, const struct tls_files *files,
                                 struct err_msg *msg)
{
    TRY(check_readable(files->key, msg));
    SSL_CTX_set_default_passwd_cb(context, no_password);
    if (SSL_CTX_use_PrivateKey_file(context, files->key, SSL_FILETYPE_PEM) != 1) {
        const bool is_other = ERR_GET_REASON(ERR_peek_last_error()) == X509_R_KEY_VALUES_MISMATCH ||
                              ERR_GET_REASON(ERR_peek_last_error()) == X509_R_KEY_TYPE_MISMATCH;

        if (!is_other)
            return fail_file(files->key, "private key without a password", msg);
        ERR_clear_error();
        return err_set(msg, EMBTIER_INVALID, "the key in %s is not that of the certificate in %s",
                       files->key, files->certificate);
    }
    return EMBTIER_OK;
}

static enum embtier_err take_own(SSL_CTX *context, const struct tls_files *files,
                                 enum tls_file *ret_file, struct err_msg *msg)
{
    *ret_file = TLS_FILE_CERTIFICATE;
    TRY(take_certificate(context, files, msg));
    *ret_file = TLS_FILE_KEY;
    return take_key(context, files, msg);
}

/* ---- The other side's ---- */

static enum embtier_err take_authority(SSL_CTX *context, const char *path, bool is_server,
                                       struct err_msg *msg)
{
    TRY(check_readable(path, msg));
    if (SSL_CTX_load_verify_file(context, path) != 1)
        return fail_file(path, "authority's certificate", msg);
    /* The user trusts these, also one that another authority has signed. */
    (void)X509_VERIFY_PARAM_set_flags(SSL_CTX_get0_param(context), X509_V_FLAG_PARTIAL_CHAIN);
    if (is_server) /* tells clients which of their certificates to show */
        SSL_CTX_set_client_CA_list(context, SSL_load_client_CA_file(path));
    return EMBTIER_OK;
}

/* ---- Contexts ---- */

static SSL_CTX *new_context(const SSL_METHOD *method)
{
    SSL_CTX *const context = SSL_CTX_new(method);

    if (!context)
        return NULL;
    (void)SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION);
    (void)SSL_CTX_set_ciphersuites(context, SUITES);
    (void)SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    (void)SSL_CTX_set_num_tickets(context, 0);
    (void)SSL_CTX_set_options(context, SSL_OP_NO_COMPRESSION | SSL_OP_CIPHER_SERVER_PREFERENCE |
                                           SSL_OP_NO_RENEGOTIATION);
    /* Idle connections keep no buffers. A write may be repeated from another place. */
    (void)SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                                        SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_max_cert_list(context, PEER_CHAIN_BYTES);
    SSL_CTX_set_read_ahead(context, 1);
    SSL_CTX_set_default_read_buffer_len(context, READ_BYTES);
    return context;
}

enum embtier_err tls_context_server(const struct tls_files *files, bool must_show,
                                    SSL_CTX **ret_context, enum tls_file *ret_file,
                                    struct err_msg *msg)
{
    _cleanup_(tls_context_freep) SSL_CTX *context = new_context(TLS_server_method());

    *ret_file = TLS_FILE_CERTIFICATE;
    ERR_clear_error();
    if (!context)
        return openssl_failed(msg, EMBTIER_NO_MEMORY, "cannot prepare TLS");
    TRY(take_own(context, files, ret_file, msg));
    *ret_file = TLS_FILE_AUTHORITY;
    if (is_given(files->authority)) {
        TRY(take_authority(context, files->authority, true, msg));
        SSL_CTX_set_verify(
            context, SSL_VERIFY_PEER | (must_show ? SSL_VERIFY_FAIL_IF_NO_PEER_CERT : 0), NULL);
    }
    *ret_context = TAKE(context);
    return EMBTIER_OK;
}

enum embtier_err tls_context_client(const struct tls_files *files, SSL_CTX **ret_context,
                                    struct err_msg *msg)
{
    _cleanup_(tls_context_freep) SSL_CTX *context = new_context(TLS_client_method());
    enum tls_file ignored;

    ERR_clear_error();
    if (!context)
        return openssl_failed(msg, EMBTIER_NO_MEMORY, "cannot prepare TLS");
    if (is_given(files->certificate) != is_given(files->key))
        return err_set(
            msg, EMBTIER_INVALID,
            "a client's certificate needs its key, and the other way; give both or none");
    if (is_given(files->certificate))
        TRY(take_own(context, files, &ignored, msg));
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
    if (is_given(files->authority))
        TRY(take_authority(context, files->authority, false, msg));
    else
        (void)SSL_CTX_set_default_verify_paths(context);
    *ret_context = TAKE(context);
    return EMBTIER_OK;
}
