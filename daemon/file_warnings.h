/* SPDX-License-Identifier: Apache-2.0 */
/* file_warnings.h: looks at the certificates and users that a start or a reload has taken, for what
 * is no mistake but will keep clients out, or keeps a secret badly: certificates that clients
 * refuse or soon will, a key that others can read, users that no client can be.
 *
 * Thread: any. */
#ifndef EMBTIER_DAEMON_FILE_WARNINGS_H
#define EMBTIER_DAEMON_FILE_WARNINGS_H

#include <openssl/types.h>

struct access_rules;
struct config;

/* Takes one warning. @place: "FILE:LINE: KEY", of the configuration or of the access file. @what
 * is the same text for all of its kind; @why has names, dates and the remedy. */
typedef void file_warning_fn(const char *place, const char *what, const char *why);

/* Calls @warn for each warning, and @note for what is usual for some servers; NULL: nobody is told
 * of that. @tls: the server's certificates; NULL: it has none. @rules: its
 * users; NULL: it has no access file. The dates are compared with now. */
void file_warnings(const struct config *config, SSL_CTX *tls, const struct access_rules *rules,
                   file_warning_fn *warn, file_warning_fn *note);

/* Logs the warning. */
void file_warning_log(const char *place, const char *what, const char *why);

#endif
