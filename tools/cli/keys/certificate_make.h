/* SPDX-License-Identifier: Apache-2.0 */
/* certificate_make.h: makes a key and the certificate for it.
 *
 * Keys are of ECDSA on the curve P-256, which every TLS library knows. A CA signs itself and may
 * sign others, but no further CAs. Certificates of servers and clients are good for that alone, so
 * a stolen client's key cannot pose as the server. */
#ifndef EMBTIER_TOOLS_CLI_KEYS_CERTIFICATE_MAKE_H
#define EMBTIER_TOOLS_CLI_KEYS_CERTIFICATE_MAKE_H

#include <time.h>

#include <openssl/evp.h>
#include <openssl/x509v3.h>

#include "base/err.h"
#include "base/macros.h"
#include "tools/cli/keys/authority.h"

#define COMMON_NAME_CHARACTERS_MAX 64 /* of X.509 */

enum certificate_use { CERTIFICATE_AUTHORITY, CERTIFICATE_SERVER, CERTIFICATE_CLIENT };

struct certificate_order {
    enum certificate_use use;
    const char *common_name;           /* UTF-8; "": none */
    const GENERAL_NAMES *names;        /* subjectAltName; may be empty */
    time_t not_before, not_after;      /* the first and the last second */
    const struct authority *authority; /* signs it; NULL: it signs itself */
};

struct certified_key {
    X509 *certificate;
    EVP_PKEY *key;
};

/* INVALID: the CA may not sign this. INTERNAL: OpenSSL failed. */
MUST_CHECK enum embtier_err certificate_make(const struct certificate_order *order,
                                             struct certified_key *ret_made, struct err_msg *msg);
/* For _cleanup_. */
void certified_key_clear(struct certified_key *made);

#endif
