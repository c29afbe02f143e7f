/* SPDX-License-Identifier: Apache-2.0 */
/* authority.h: a private CA in a folder, as files ca.crt and ca.key. */
#ifndef EMBTIER_TOOLS_CLI_KEYS_AUTHORITY_H
#define EMBTIER_TOOLS_CLI_KEYS_AUTHORITY_H

#include <time.h>

#include <openssl/evp.h>
#include <openssl/x509.h>

#include "base/err.h"
#include "base/macros.h"

#define AUTHORITY_NAME "ca" /* of the files, before .crt and .key */

struct authority {
    X509 *certificate;
    EVP_PKEY *key;
    time_t not_before, not_after; /* of the certificate */
};

/* Reads the CA of @folder, which then may sign. NOT_FOUND: there is none. INVALID: the certificate
 * is no CA's, has expired or is not valid yet. MISMATCH: the key is another's. */
MUST_CHECK enum embtier_err authority_load(const char *folder, struct authority *ret_authority,
                                           struct err_msg *msg);
/* For _cleanup_. */
void authority_clear(struct authority *authority);

/* INVALID: @time is no time. */
MUST_CHECK enum embtier_err asn1_time_parse(const ASN1_TIME *time, time_t *ret_time,
                                            struct err_msg *msg);

#endif
