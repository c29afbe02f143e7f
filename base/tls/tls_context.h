/* SPDX-License-Identifier: Apache-2.0 */
/* tls_context.h: the certificates and rules of one side's TLS connections.
 *
 * TLS 1.3 alone, without tickets for resumption: each connection shows its certificates, so that a
 * reload holds for all that follow. A process makes one context and shares it, because OpenSSL 3
 * looks its algorithms up under a lock for each. A context is an SSL_CTX of OpenSSL, which counts
 * its holders: SSL_CTX_up_ref(), SSL_CTX_free().
 *
 * Thread: any; a context does not change once it is made. */
#ifndef EMBTIER_BASE_TLS_TLS_CONTEXT_H
#define EMBTIER_BASE_TLS_TLS_CONTEXT_H

#include <openssl/types.h>
#include <stdbool.h>

#include "base/err.h"
#include "base/macros.h"

/* PEM files. NULL or "": none. */
struct tls_files {
    const char *certificate; /* the side's own, then those between it and the authority's */
    const char *key;         /* private, of the first certificate */
    const char *authority;   /* certificates that the other side's must come from */
};

enum tls_file { TLS_FILE_CERTIFICATE, TLS_FILE_KEY, TLS_FILE_AUTHORITY };

void tls_context_free(SSL_CTX *context);
DEFINE_CLEANUP(SSL_CTX, tls_context_free)

/* @must_show: a client without a certificate of the authority's is refused. Without an authority
 * clients are asked for no certificate. INVALID: a file cannot be read or holds something else, the
 * key is not the certificate's, or a certificate was not signed by the one behind it. The message
 * names the file, and @ret_file says which of them it is. */
MUST_CHECK enum embtier_err tls_context_server(const struct tls_files *files, bool must_show,
                                               SSL_CTX **ret_context, enum tls_file *ret_file,
                                               struct err_msg *msg);
/* Servers must show a certificate of the authority's, or, without one, of an authority that the
 * system trusts. Errors as above. */
MUST_CHECK enum embtier_err tls_context_client(const struct tls_files *files, SSL_CTX **ret_context,
                                               struct err_msg *msg);

#endif
