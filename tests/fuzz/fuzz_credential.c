/* SPDX-License-Identifier: Apache-2.0 */
/* Credentials of clients: tokens (base/tls/token.h), their hashes in an access file,
 * and certificates (base/tls/certificate_names.h). The first byte chooses.
 *
 *   t  a token, as a file has it
 *   h  a hash
 *   c  a certificate in DER
 *   n  the names of a certificate that is made here: kind, two bytes of a length, text
 *
 * A certificate's names are told byte by byte, in their order, or all are refused. */
#include "tests/fuzz/lib/fuzz.h"

#include <openssl/x509v3.h>

#include "base/text/text_escape.h"
#include "base/tls/certificate_names.h"
#include "daemon/access/token_hash.h"

/* ---- Tokens ---- */

static void check_token(const uint8_t *data, size_t bytes)
{
    _cleanup_(freep) char *copy = (char *)fuzz_copy(data, bytes);
    _cleanup_(freep) char *text = fuzz_text(data, bytes);
    struct token token;
    struct token_hash hash, again;

    if (bytes == 0)
        return;
    if (!token_parse(copy, bytes, &token)) {
        FUZZ_CHECK(strlen(text) < bytes || !token_hash_of(text, &hash));
        return;
    }
    FUZZ_CHECK(strlen(token.text) == TOKEN_BYTES && memcmp(token.text, copy, TOKEN_BYTES) == 0);
    FUZZ_CHECK(token_hash_of(token.text, &hash));
    FUZZ_CHECK(token_hash_parse(hash.text, &again) && token_hash_equal(&hash, &again));
    FUZZ_CHECK(token_hash_of(text, &again) == (strlen(text) == TOKEN_BYTES));
}

static void check_hash(const uint8_t *data, size_t bytes)
{
    _cleanup_(freep) char *text = fuzz_text(data, bytes);
    struct token_hash hash;

    if (token_hash_parse(text, &hash))
        FUZZ_CHECK(strcmp(hash.text, text) == 0 && strlen(text) == TOKEN_HASH_BYTES);
}

/* ---- Certificates ---- */

static const char *const prefixes[] = { "CN=", "DNS:", "URI:", "EMAIL:" };

/* Returns the bytes of the name behind its prefix, which must be one of those. */
static size_t name_bytes(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(prefixes); i++)
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0)
            return strlen(name) - strlen(prefixes[i]);
    FUZZ_CHECK(!"a prefix");
    return 0;
}

/* NULL: they are refused, with a reason. */
static char *get_names(X509 *certificate)
{
    struct err_msg msg = { { 0 } };
    char *names = NULL;
    uint32_t count = 0;

    if (certificate_names(certificate, &names, &msg) != EMBTIER_OK) {
        FUZZ_CHECK(msg.text[0] && !names && text_is_plain(msg.text, strlen(msg.text)));
        return NULL;
    }
    for (const char *name = names; *name != '\0'; name += strlen(name) + 1) {
        const size_t bytes = name_bytes(name);

        FUZZ_CHECK(bytes > 0 && bytes <= CERTIFICATE_NAME_BYTES_MAX);
        FUZZ_CHECK(text_is_plain(name, strlen(name)));
        FUZZ_CHECK(++count <= CERTIFICATE_NAMES_MAX);
    }
    return names;
}

static void check_der(const uint8_t *data, size_t bytes)
{
    const unsigned char *at = data;
    X509 *const certificate = d2i_X509(NULL, &at, (long)bytes);

    if (certificate)
        free(get_names(certificate));
    X509_free(certificate);
}

/* ---- Names that are put into a certificate ---- */

struct made {
    X509 *certificate;
    GENERAL_NAMES *alternatives;
    char *expected; /* the list, if no name is bad */
    size_t bytes;
    uint32_t count;
    bool has_bad;
};

static void expect(struct made *made, const char *prefix, const uint8_t *text, size_t bytes)
{
    const size_t head = strlen(prefix);

    made->expected = realloc(made->expected, made->bytes + head + bytes + 2);
    FUZZ_CHECK(made->expected);
    memcpy(made->expected + made->bytes, prefix, head);
    if (bytes > 0)
        memcpy(made->expected + made->bytes + head, text, bytes);
    made->bytes += head + bytes;
    made->expected[made->bytes++] = '\0';
    made->count++;
    made->has_bad |= bytes == 0 || bytes > CERTIFICATE_NAME_BYTES_MAX || memchr(text, 0, bytes) ||
                     !text_is_plain((const char *)text, bytes);
    for (size_t i = 0; i < bytes && prefix[head - 1] == ':'; i++)
        made->has_bad |= text[i] >= 0x80;
}

/* Set this way, the entry keeps bytes that OpenSSL itself would refuse to write. */
static void add_common_name(struct made *made, const uint8_t *text, size_t bytes)
{
    X509_NAME *const subject = X509_get_subject_name(made->certificate);
    X509_NAME_ENTRY *entry = X509_NAME_ENTRY_create_by_NID(NULL, NID_commonName, V_ASN1_UTF8STRING,
                                                           (const unsigned char *)"x", 1);

    FUZZ_CHECK(entry);
    FUZZ_CHECK(X509_NAME_ENTRY_set_data(entry, V_ASN1_UTF8STRING, text, (int)bytes) == 1);
    FUZZ_CHECK(X509_NAME_add_entry(subject, entry, -1, 0) == 1);
    X509_NAME_ENTRY_free(entry);
}

static void add_alternative(struct made *made, int kind, const uint8_t *text, size_t bytes)
{
    GENERAL_NAME *const name = GENERAL_NAME_new();
    ASN1_STRING *const value =
        kind == GEN_IPADD ? (ASN1_STRING *)ASN1_OCTET_STRING_new() : ASN1_IA5STRING_new();

    FUZZ_CHECK(name && value && ASN1_STRING_set(value, text, (int)bytes) == 1);
    GENERAL_NAME_set0_value(name, kind, value);
    FUZZ_CHECK(sk_GENERAL_NAME_push(made->alternatives, name) > 0);
}

/* Common names come before the others in the list, so they come first here too. */
static void make_names(struct made *made, struct fuzz_input input, bool common)
{
    static const struct {
        int kind;
        const char *prefix; /* NULL: the list leaves these out */
    } kinds[] = {
        { 0, "CN=" },        { GEN_DNS, "DNS:" }, { GEN_URI, "URI:" }, { GEN_EMAIL, "EMAIL:" },
        { GEN_IPADD, NULL },
    };

    while (input.left > 0) {
        const size_t kind = fuzz_byte(&input) % ARRAY_LEN(kinds);
        const size_t high = fuzz_byte(&input);
        const size_t bytes = MIN((high << 8) + fuzz_byte(&input), input.left);
        const uint8_t *const text = input.at;

        input.at += bytes;
        input.left -= bytes;
        if ((kind == 0) != common)
            continue;
        if (kinds[kind].prefix)
            expect(made, kinds[kind].prefix, text, bytes);
        if (common)
            add_common_name(made, text, bytes);
        else
            add_alternative(made, kinds[kind].kind, text, bytes);
    }
}

static void check_made(struct made *made)
{
    char *names;

    if (sk_GENERAL_NAME_num(made->alternatives) > 0)
        FUZZ_CHECK(X509_add1_ext_i2d(made->certificate, NID_subject_alt_name, made->alternatives, 0,
                                     X509V3_ADD_APPEND) == 1);
    names = get_names(made->certificate);
    FUZZ_CHECK((names != NULL) == (!made->has_bad && made->count <= CERTIFICATE_NAMES_MAX));
    if (names && made->bytes > 0)
        FUZZ_CHECK(memcmp(names, made->expected, made->bytes) == 0 && names[made->bytes] == '\0');
    free(names);
}

static void check_names(struct fuzz_input input)
{
    struct made made = { .certificate = X509_new(), .alternatives = GENERAL_NAMES_new() };

    FUZZ_CHECK(made.certificate && made.alternatives);
    make_names(&made, input, true);
    make_names(&made, input, false);
    check_made(&made);
    free(made.expected);
    GENERAL_NAMES_free(made.alternatives);
    X509_free(made.certificate);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct fuzz_input input = { .at = data, .left = bytes };

    switch (fuzz_byte(&input)) {
    case 't':
        check_token(input.at, input.left);
        break;
    case 'h':
        check_hash(input.at, input.left);
        break;
    case 'c':
        check_der(input.at, input.left);
        break;
    default:
        check_names(input);
        break;
    }
    return 0;
}
