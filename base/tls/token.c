/* SPDX-License-Identifier: Apache-2.0 */
#include "base/tls/token.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <openssl/sha.h>

#include "base/tls/openssl_err.h"

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

static_assert(TOKEN_BYTES == 48, "the protocol and the access file say so");
static_assert(TOKEN_HASH_BYTES == sizeof(TOKEN_HASH_PREFIX) - 1 + 2 * SHA256_DIGEST_LENGTH,
              "two digits a byte");

/* Writes @bytes in base64, six bits a character from the highest on. */
static void encode(const unsigned char *bytes, size_t count, char *out)
{
    uint32_t bits = 0;
    unsigned held = 0;

    for (size_t i = 0; i < count; i++) {
        bits = bits << 8 | bytes[i];
        for (held += 8; held >= 6; held -= 6)
            *out++ = digits[bits >> (held - 6) & 63];
    }
    if (held > 0)
        *out++ = digits[bits << (6 - held) & 63];
    *out = '\0';
}

enum embtier_err token_make(struct token *ret_token, struct err_msg *msg)
{
    unsigned char bytes[TOKEN_RANDOM_BYTES];

    if (RAND_priv_bytes(bytes, sizeof(bytes)) != 1)
        return openssl_failed(msg, EMBTIER_INTERNAL, "no random bytes for a token");
    memcpy(ret_token->text, TOKEN_PREFIX, sizeof(TOKEN_PREFIX) - 1);
    encode(bytes, sizeof(bytes), ret_token->text + sizeof(TOKEN_PREFIX) - 1);
    OPENSSL_cleanse(bytes, sizeof(bytes));
    return EMBTIER_OK;
}

static size_t line_end(const char *text, size_t bytes)
{
    if (bytes > 0 && text[bytes - 1] == '\n')
        bytes--;
    if (bytes > 0 && text[bytes - 1] == '\r')
        bytes--;
    return bytes;
}

bool token_parse(const char *text, size_t bytes, struct token *ret_token)
{
    const size_t prefix = sizeof(TOKEN_PREFIX) - 1;

    if (line_end(text, bytes) != TOKEN_BYTES || memcmp(text, TOKEN_PREFIX, prefix) != 0)
        return false;
    for (size_t i = prefix; i < TOKEN_BYTES; i++)
        if (!memchr(digits, text[i], sizeof(digits) - 1))
            return false;
    memcpy(ret_token->text, text, TOKEN_BYTES);
    ret_token->text[TOKEN_BYTES] = '\0';
    return true;
}

/* Returns the algorithm. The first call fetches it, for as long as the process lives: OpenSSL would
 * look EVP_sha256() up under its locks at each use, thus for each client. NULL: it cannot be had.
 */
static const EVP_MD *sha256(void)
{
    static _Atomic(EVP_MD *) kept;
    EVP_MD *found = atomic_load_explicit(&kept, memory_order_acquire);
    EVP_MD *fetched;

    if (found)
        return found;
    fetched = EVP_MD_fetch(NULL, "SHA256", NULL);
    if (!fetched)
        return NULL;
    if (atomic_compare_exchange_strong_explicit(&kept, &found, fetched, memory_order_acq_rel,
                                                memory_order_acquire))
        return fetched;
    EVP_MD_free(fetched); /* another thread was first */
    return found;
}

enum embtier_err token_hash(const struct token *token, struct token_hash *ret_hash,
                            struct err_msg *msg)
{
    unsigned char hash[SHA256_DIGEST_LENGTH];
    const EVP_MD *const algorithm = sha256();
    char *at;

    if (!algorithm || EVP_Digest(token->text, TOKEN_BYTES, hash, NULL, algorithm, NULL) != 1)
        return openssl_failed(msg, EMBTIER_INTERNAL, "the hash of a token");
    at = stpcpy(ret_hash->text, TOKEN_HASH_PREFIX);
    for (size_t i = 0; i < sizeof(hash); i++)
        at += snprintf(at, 3, "%02x", hash[i]);
    return EMBTIER_OK;
}
