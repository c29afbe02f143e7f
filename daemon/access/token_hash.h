/* SPDX-License-Identifier: Apache-2.0 */
/* token_hash.h: compares clients' tokens with the hashes of the access file (base/tls/token.h).
 * Thread: any. */
#ifndef EMBTIER_DAEMON_ACCESS_TOKEN_HASH_H
#define EMBTIER_DAEMON_ACCESS_TOKEN_HASH_H

#include <stdbool.h>

#include "base/macros.h"
#include "base/tls/token.h"

/* Reads "sha256:" and 64 hexadecimal digits. False: @text is something else. */
MUST_CHECK bool token_hash_parse(const char *text, struct token_hash *ret_hash);
/* False: @token has not the form of a token. */
MUST_CHECK bool token_hash_of(const char *token, struct token_hash *ret_hash);
/* Takes as long for any two hashes. */
bool token_hash_equal(const struct token_hash *a, const struct token_hash *b);

#endif
