/* SPDX-License-Identifier: Apache-2.0 */
/* tls_contexts.h: the TLS contexts of a session, one for each set of files that its addresses name.
 *
 * A new context reads the files, and OpenSSL looks its algorithms up for it under locks of the
 * process. So all connections of a session share one, and so do those of its later attempts to
 * connect. Files are looked at each time: those that were renewed since are read again. A context
 * that was replaced lives on with the connections that use it.
 *
 * Thread: the connection's. */
#ifndef EMBTIER_CLIENT_TRANSPORT_RPC_TLS_CONTEXTS_H
#define EMBTIER_CLIENT_TRANSPORT_RPC_TLS_CONTEXTS_H

#include <openssl/types.h>

#include "base/err.h"
#include "base/macros.h"
#include "base/net/address.h"

struct tls_contexts;

/* NO_MEMORY. */
MUST_CHECK enum embtier_err tls_contexts_new(struct tls_contexts **ret_contexts,
                                             struct err_msg *msg);
/* NULL is fine. */
void tls_contexts_free(struct tls_contexts *contexts);
DEFINE_CLEANUP(struct tls_contexts, tls_contexts_free)

/* Returns the context of these files, which the caller frees (tls_context_free()). NO_MEMORY, or
 * INVALID as tls_context_client() says it; an older context of the files is not taken instead. */
MUST_CHECK enum embtier_err tls_contexts_get(struct tls_contexts *contexts,
                                             const struct address_files *files,
                                             SSL_CTX **ret_context, struct err_msg *msg);

#endif
