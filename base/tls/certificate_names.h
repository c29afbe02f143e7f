/* SPDX-License-Identifier: Apache-2.0 */
/* certificate_names.h: the names of a certificate, as the access file writes them.
 *
 *     CN=trainer-1        a common name of the subject
 *     DNS:trainer-1.lan   a subjectAltName of this kind
 *     URI:spiffe://a/b
 *     EMAIL:a@example.org
 *
 * The text behind the prefix is the certificate's own, byte by byte: capital letters stay. Other
 * kinds of subjectAltName, such as IP addresses, are left out, as no role hangs on them.
 *
 * Authorities sign what they have looked at, and some look at a name only up to its first NUL. So
 * one bad name makes all of them invalid: an empty one, one with a NUL or another character that is
 * not plain (base/text/text_escape.h), one that is not UTF-8 (or, in a subjectAltName, not ASCII),
 * and one that is too long. Thread: any. */
#ifndef EMBTIER_BASE_TLS_CERTIFICATE_NAMES_H
#define EMBTIER_BASE_TLS_CERTIFICATE_NAMES_H

#include <openssl/x509.h>

#include "base/err.h"
#include "base/macros.h"
#include "base/text/text_escape.h"

#define CERTIFICATE_NAME_BYTES_MAX 2048 /* without its prefix; SPIFFE allows its URIs as many */
#define CERTIFICATE_NAMES_MAX      256

/* Returns the names one after another, each with its NUL, and an empty one behind the last,
 * malloced. INVALID: a name is bad, there are too many, or subjectAltName cannot be read. */
MUST_CHECK enum embtier_err certificate_names(X509 *certificate, char **ret_names,
                                              struct err_msg *msg);

/* Returns a subject or an issuer for a message, such as CN=ca,O=lab: escaped, and cut if it is
 * long. */
const char *certificate_show(const X509_NAME *name, struct text_shown *buffer);

#endif
