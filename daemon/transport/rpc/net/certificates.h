/* SPDX-License-Identifier: Apache-2.0 */
/* certificates.h: the server's certificate and key, and the authority of its clients, as files that
 * may be read again while the server runs.
 *
 * A connection keeps those that it began with. New files are taken only if they fit and the
 * certificate is valid today; otherwise the old ones stay.
 *
 * Thread: any. */
#ifndef EMBTIER_DAEMON_TRANSPORT_RPC_NET_CERTIFICATES_H
#define EMBTIER_DAEMON_TRANSPORT_RPC_NET_CERTIFICATES_H

#include <openssl/types.h>

#include "base/err.h"
#include "base/macros.h"

struct certificates;
struct config;

/* Reads the files that config->tls names. A certificate that is not valid today is logged and
 * taken: other clients shall not wait for it. INVALID: they do not fit. */
MUST_CHECK enum embtier_err certificates_new(const struct config *config,
                                             struct certificates **ret_certificates,
                                             struct err_msg *msg);
void certificates_free(struct certificates *certificates);
DEFINE_CLEANUP(struct certificates, certificates_free)

/* Returns those in force, for one connection; tls_context_free() gives them back. */
SSL_CTX *certificates_get(struct certificates *certificates);

/* Reads the files again. Waits for the disk. */
MUST_CHECK enum embtier_err certificates_read(const struct certificates *certificates,
                                              SSL_CTX **ret_fresh, struct err_msg *msg);
/* Puts @fresh in force, and takes it over. */
void certificates_set(struct certificates *certificates, SSL_CTX *fresh);

#endif
