/* SPDX-License-Identifier: Apache-2.0 */
/* certificates.h: the server's certificate and key, and the authority of its clients, as files that
 * may be read again while the server runs.
 *
 * A connection keeps those that it began with. New files are taken only if they fit and clients
 * would take the certificates (base/tls/tls_chain.h); otherwise the old ones stay.
 *
 * Thread: any. */
#ifndef EMBTIER_DAEMON_TRANSPORT_RPC_NET_CERTIFICATES_H
#define EMBTIER_DAEMON_TRANSPORT_RPC_NET_CERTIFICATES_H

#include <openssl/types.h>

#include "base/err.h"
#include "base/macros.h"

struct certificates;
struct config;

/* Reads the files that config->tls names; @ret_certificates is NULL if no address has TLS. A
 * certificate that clients refuse is taken: clients without TLS shall not wait for a better one.
 * INVALID: the files do not fit. */
MUST_CHECK enum embtier_err certificates_new(const struct config *config,
                                             struct certificates **ret_certificates,
                                             struct err_msg *msg);
void certificates_free(struct certificates *certificates);
DEFINE_CLEANUP(struct certificates, certificates_free)

/* Returns those in force, for one connection; tls_context_free() gives them back. */
SSL_CTX *certificates_get(struct certificates *certificates);

/* For struct reload_part (daemon/jobs/reload/reload.h); @context is the certificates. Read: reads
 * the files again, which waits for the disk. INVALID: they do not fit, or clients would refuse the
 * certificates, and take those in force. Take puts them in force. Drop frees them. */
MUST_CHECK enum embtier_err certificates_read(void *context, void **ret_fresh, struct err_msg *msg);
void certificates_take(void *context, void *fresh);
void certificates_drop(void *context, void *fresh);

#endif
