/* SPDX-License-Identifier: Apache-2.0 */
/* host_names.h: the subjectAltNames of a new certificate, from the words of a user. */
#ifndef EMBTIER_TOOLS_CLI_KEYS_HOST_NAMES_H
#define EMBTIER_TOOLS_CLI_KEYS_HOST_NAMES_H

#include <openssl/x509v3.h>

#include "base/err.h"
#include "base/macros.h"

/* Adds a server's name: a DNS name, of which the first label may be "*", or an address. INVALID:
 * @text is neither, or there are too many names for certificate_names(). */
MUST_CHECK enum embtier_err host_name_add(const char *text, GENERAL_NAMES *names,
                                          struct err_msg *msg);
/* Adds "DNS:name", "IP:address", "URI:uri" or "EMAIL:address". Errors as host_name_add(). */
MUST_CHECK enum embtier_err typed_name_add(const char *text, GENERAL_NAMES *names,
                                           struct err_msg *msg);

#endif
