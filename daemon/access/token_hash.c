/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/access/token_hash.h"

#include <string.h>

#include <openssl/crypto.h>

bool token_hash_parse(const char *text, struct token_hash *ret_hash)
{
    const size_t prefix = sizeof(TOKEN_HASH_PREFIX) - 1;

    if (strlen(text) != TOKEN_HASH_BYTES || memcmp(text, TOKEN_HASH_PREFIX, prefix) != 0 ||
        strspn(text + prefix, "0123456789abcdef") != TOKEN_HASH_BYTES - prefix)
        return false;
    memcpy(ret_hash->text, text, sizeof(ret_hash->text));
    return true;
}

/* A token in a message has no line's end, as one in a file may. */
bool token_hash_of(const char *token, struct token_hash *ret_hash)
{
    struct token parsed;
    bool is_token;

    is_token = strlen(token) == TOKEN_BYTES && token_parse(token, TOKEN_BYTES, &parsed) &&
               token_hash(&parsed, ret_hash, NULL) == EMBTIER_OK;
    OPENSSL_cleanse(&parsed, sizeof(parsed));
    return is_token;
}

bool token_hash_equal(const struct token_hash *a, const struct token_hash *b)
{
    return CRYPTO_memcmp(a->text, b->text, sizeof(a->text)) == 0;
}
