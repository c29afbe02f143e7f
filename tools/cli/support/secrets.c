/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/support/secrets.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

#include "base/macros.h"
#include "base/tls/token.h"

#define DASHES       "-----"
#define PEM_BEGIN    DASHES "BEGIN "
#define PEM_END      DASHES "END "
#define PEM_SECRET   "PRIVATE KEY" DASHES
#define LABEL_LENGTH 64 /* of a line such as -----BEGIN ENCRYPTED PRIVATE KEY----- */

static void cover(char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (text[i] != '\n')
            text[i] = '*';
}

/* ---- Tokens and hashes ---- */

static bool is_of_token(unsigned char c)
{
    return isalnum(c) || c == '-' || c == '_';
}

static bool is_of_hash(unsigned char c)
{
    return isxdigit(c);
}

/* Part of a secret makes the rest easier to guess; a few characters are a word such as
 * "embt_cache". */
#define PART_LENGTH 16

static size_t hide_words(char *text, size_t bytes, const char *prefix, bool (*is_of)(unsigned char))
{
    const size_t prefix_bytes = strlen(prefix);
    char *const end = text + bytes;
    size_t count = 0;

    for (char *at = memmem(text, bytes, prefix, prefix_bytes); at;
         at = memmem(at, (size_t)(end - at), prefix, prefix_bytes)) {
        size_t length = 0;

        at += prefix_bytes;
        while (at + length < end && is_of((unsigned char)at[length]))
            length++;
        if (length >= PART_LENGTH) {
            cover(at, length);
            count++;
        }
        at += length;
    }
    return count;
}

/* ---- Private keys ---- */

/* True if the line of a PEM file at @at is that of a private key. */
static bool is_secret_label(const char *at, const char *end)
{
    const size_t room = MIN((size_t)(end - at), (size_t)LABEL_LENGTH);

    return memmem(at, room, PEM_SECRET, strlen(PEM_SECRET)) != NULL;
}

static char *find_label(char *from, char *end, const char *label)
{
    for (char *at = from; at < end; at++) {
        at = memmem(at, (size_t)(end - at), label, strlen(label));
        if (!at)
            return NULL;
        if (is_secret_label(at, end))
            return at;
    }
    return NULL;
}

static size_t hide_keys(char *text, size_t bytes)
{
    char *const end = text + bytes;
    char *from = text;
    size_t count = 0;

    while (from < end) {
        char *const first = find_label(from, end, PEM_BEGIN);
        char *const last = find_label(first ? first : from, end, PEM_END);
        char *const alone = find_label(from, first ? first : end, PEM_END);
        char *const begin = alone ? from : first; /* alone: the text begins inside of a key */
        char *const stop = alone ? alone : last ? last : end;

        if (!begin)
            return count;
        cover(begin, (size_t)(stop - begin));
        count++;
        from = stop + 1;
    }
    return count;
}

size_t secrets_hide(char *text, size_t bytes)
{
    return hide_words(text, bytes, TOKEN_PREFIX, is_of_token) +
           hide_words(text, bytes, TOKEN_HASH_PREFIX, is_of_hash) + hide_keys(text, bytes);
}
