/* SPDX-License-Identifier: Apache-2.0 */
/* tls_chain.h: what clients make of the certificates that a server shows.
 *
 * A server does not know which CA its clients trust. So its chain is looked at as a client does
 * that trusts the last certificate of the file: if that client refuses it, each client does. Only
 * the dates of the last of several signers, a root, say nothing of clients that know it by another
 * certificate.
 *
 * Thread: any. */
#ifndef EMBTIER_BASE_TLS_TLS_CHAIN_H
#define EMBTIER_BASE_TLS_TLS_CHAIN_H

#include <openssl/types.h>

#include "base/err.h"
#include "base/macros.h"

/* Checks that each certificate of a server's context is valid today, but for the last of several
 * signers, that the first is made for servers, and that the others may sign it. INVALID: the
 * message names the certificate and says why; @ret_verdict is OpenSSL's X509_V_ERR_... NO_MEMORY.
 */
MUST_CHECK enum embtier_err tls_chain_check(SSL_CTX *context, int *ret_verdict,
                                            struct err_msg *msg);

#endif
