/* SPDX-License-Identifier: Apache-2.0 */
/* tls_refusal.h: says why client and server do not accept each other's certificates, and what
 * helps.
 *
 * OpenSSL's words name no file, no name and no date. The server's verdict comes as an alert: in TLS
 * 1.3 after the client's handshake, with the first bytes that it receives. Thread: any. */
#ifndef EMBTIER_CLIENT_TRANSPORT_RPC_TLS_REFUSAL_H
#define EMBTIER_CLIENT_TRANSPORT_RPC_TLS_REFUSAL_H

#include <stdbool.h>

#include "base/err.h"
#include "base/net/address.h"
#include "base/tls/tls_stream.h"

/* Replaces the message if a certificate is the reason why @stream failed. Its names of files and of
 * the server are those of @address. False: there is another reason. */
bool tls_refusal_explain(const struct tls_stream *stream, const struct address *address,
                         struct err_msg *msg);

#endif
