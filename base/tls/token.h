/* SPDX-License-Identifier: Apache-2.0 */
/* token.h: the tokens by which clients show their right, and the hashes by which a server knows
 * them.
 *
 * A token is "embt_" and 43 characters: 32 random bytes in base64 for URLs (RFC 4648, section 5)
 * without padding. The access file has its hash, "sha256:" and the SHA-256 of the token's text in
 * 64 hexadecimal digits. A plain hash is enough, as nobody can try 2^256 tokens. That is why other
 * texts, such as passwords, are no tokens. The prefix lets programs that look for leaked secrets
 * find tokens. Thread: any. */
#ifndef EMBTIER_BASE_TLS_TOKEN_H
#define EMBTIER_BASE_TLS_TOKEN_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/macros.h"

#define TOKEN_PREFIX       "embt_"
#define TOKEN_RANDOM_BYTES 32
#define TOKEN_BYTES        (sizeof(TOKEN_PREFIX) - 1 + (TOKEN_RANDOM_BYTES * 4 + 2) / 3)
#define TOKEN_HASH_PREFIX  "sha256:"
#define TOKEN_HASH_BYTES   (sizeof(TOKEN_HASH_PREFIX) - 1 + 64)

/* The caller clears it with OPENSSL_cleanse(). */
struct token {
    char text[TOKEN_BYTES + 1];
};
struct token_hash {
    char text[TOKEN_HASH_BYTES + 1];
};

/* INTERNAL: OpenSSL has no random bytes. */
MUST_CHECK enum embtier_err token_make(struct token *ret_token, struct err_msg *msg);
/* Takes a token from a file's text, with at most one line's end behind it. False: it is none. */
MUST_CHECK bool token_parse(const char *text, size_t bytes, struct token *ret_token);
MUST_CHECK enum embtier_err token_hash(const struct token *token, struct token_hash *ret_hash,
                                       struct err_msg *msg);

#endif
