/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/keys/facts.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/bio.h>
#include <openssl/bn.h>
#include <openssl/err.h>
#include <openssl/sha.h>
#include <openssl/x509v3.h>

#include "base/tls/certificate_life.h"
#include "base/tls/certificate_names.h"
#include "tools/cli/cli.h"
#include "tools/cli/keys/authority.h"
#include "tools/cli/number.h"

#define DAY_S 86400

bool facts_warn(json_t *facts, const char *format, ...)
{
    _cleanup_(freep) char *text = NULL;
    va_list args;

    va_start(args, format);
    if (vasprintf(&text, format, args) < 0)
        text = NULL;
    va_end(args);
    return text &&
           json_array_append_new(json_object_get(facts, "warnings"), cli_json_text(text)) == 0;
}

/* Takes what was printed into @bio, and frees it. */
static json_t *printed_to_json(BIO *bio)
{
    char *text = NULL;
    const size_t bytes = (size_t)MAX(BIO_get_mem_data(bio, &text), 0L);
    _cleanup_(freep) char *copy = calloc(1, bytes + 1); /* OpenSSL's text has no NUL */

    if (copy && bytes > 0)
        memcpy(copy, text, bytes);
    BIO_free(bio);
    return copy ? cli_json_text(copy) : NULL;
}

/* The name in one line, the most specific part first. */
static json_t *name_to_json(const X509_NAME *name)
{
    BIO *const bio = BIO_new(BIO_s_mem());

    if (!bio)
        return NULL;
    (void)X509_NAME_print_ex(bio, name, 0, XN_FLAG_RFC2253 & ~ASN1_STRFLGS_ESC_MSB);
    return printed_to_json(bio);
}

static json_t *serial_to_json(X509 *certificate)
{
    BIO *const bio = BIO_new(BIO_s_mem());

    if (!bio)
        return NULL;
    (void)i2a_ASN1_INTEGER(bio, X509_get0_serialNumber(certificate));
    return printed_to_json(bio);
}

/* "AB:CD:…", as OpenSSL prints fingerprints. */
static json_t *digest_to_json(const unsigned char digest[SHA256_DIGEST_LENGTH])
{
    char text[3 * SHA256_DIGEST_LENGTH + 1];

    for (size_t i = 0; i < SHA256_DIGEST_LENGTH; i++)
        (void)snprintf(text + 3 * i, 4, "%02X:", digest[i]);
    text[3 * SHA256_DIGEST_LENGTH - 1] = '\0';
    return json_string(text);
}

static json_t *certificate_digest(X509 *certificate)
{
    unsigned char digest[EVP_MAX_MD_SIZE];

    if (X509_digest(certificate, EVP_sha256(), digest, NULL) != 1)
        return json_null();
    return digest_to_json(digest);
}

/* The SHA-256 of the public half. */
static json_t *key_digest(EVP_PKEY *key)
{
    unsigned char digest[SHA256_DIGEST_LENGTH];
    unsigned char *der = NULL;
    const int bytes = i2d_PUBKEY(key, &der);

    if (bytes <= 0)
        return json_null();
    (void)SHA256(der, (size_t)bytes, digest);
    OPENSSL_free(der);
    return digest_to_json(digest);
}

static json_t *names_to_json(const char *names)
{
    json_t *const list = json_array();

    for (const char *name = names; list && name[0] != '\0'; name += strlen(name) + 1)
        (void)json_array_append_new(list, cli_json_text(name));
    return list;
}

static void add_address(json_t *list, const GENERAL_NAME *name)
{
    char text[INET6_ADDRSTRLEN];
    int kind;
    const ASN1_STRING *const value = GENERAL_NAME_get0_value(name, &kind);
    int family = AF_UNSPEC;

    if (kind != GEN_IPADD)
        return;
    if (ASN1_STRING_length(value) == 4)
        family = AF_INET;
    else if (ASN1_STRING_length(value) == 16)
        family = AF_INET6;
    if (inet_ntop(family, ASN1_STRING_get0_data(value), text, sizeof(text)))
        (void)json_array_append_new(list, json_string(text));
}

static json_t *addresses_to_json(X509 *certificate)
{
    GENERAL_NAMES *const names = X509_get_ext_d2i(certificate, NID_subject_alt_name, NULL, NULL);
    json_t *const list = json_array();

    for (int i = 0; list && i < sk_GENERAL_NAME_num(names); i++)
        add_address(list, sk_GENERAL_NAME_value(names, i));
    GENERAL_NAMES_free(names);
    return list;
}

static json_t *uses_to_json(X509 *certificate)
{
    json_t *const list = json_array();

    if (!list)
        return NULL;
    if (X509_check_ca(certificate) != 0) {
        (void)json_array_append_new(list, json_string("ca"));
        return list;
    }
    if (X509_check_purpose(certificate, X509_PURPOSE_SSL_SERVER, 0) == 1)
        (void)json_array_append_new(list, json_string("server"));
    if (X509_check_purpose(certificate, X509_PURPOSE_SSL_CLIENT, 0) == 1)
        (void)json_array_append_new(list, json_string("client"));
    return list;
}

/* ---- Validity ---- */

struct validity {
    time_t from, to, now;
};

/* Rounded, so that a new certificate has as many as were asked for; negative if it has expired. */
static int64_t days_left(const struct validity *validity)
{
    const int64_t left_s = (int64_t)validity->to - (int64_t)validity->now;

    return (left_s + (left_s < 0 ? -DAY_S / 2 : DAY_S / 2)) / DAY_S;
}

static const char *state_of(const struct validity *validity)
{
    if (validity->now > validity->to)
        return "expired";
    if (validity->now < validity->from)
        return "not_yet";
    return certificate_expires_soon(validity->to - validity->from, validity->to - validity->now)
               ? "soon"
               : "valid";
}

static json_t *date_to_json(time_t when)
{
    struct number_text date;

    return when < 0 ? json_null() : json_string(number_date(&date, (uint64_t)when * 1000));
}

static bool warn_of_time(json_t *facts, const struct validity *validity)
{
    const char *const state = state_of(validity);
    const int64_t days = days_left(validity);
    struct number_text date;

    if (strcmp(state, "expired") == 0)
        return facts_warn(facts, "expired on %s: make a new one",
                          number_date(&date, (uint64_t)validity->to * 1000));
    if (strcmp(state, "not_yet") == 0)
        return facts_warn(facts, "not valid before %s",
                          number_date(&date, (uint64_t)validity->from * 1000));
    if (strcmp(state, "soon") == 0)
        return facts_warn(facts, "expires in %" PRId64 " day%s: make a new one", days,
                          PLURAL(days));
    return true;
}

static bool add_validity(json_t *facts, X509 *certificate, time_t now)
{
    struct validity validity = { .now = now };
    struct err_msg msg;

    if (asn1_time_parse(X509_get0_notBefore(certificate), &validity.from, &msg) != EMBTIER_OK ||
        asn1_time_parse(X509_get0_notAfter(certificate), &validity.to, &msg) != EMBTIER_OK)
        return json_object_set_new(facts, "state", json_string("damaged")) == 0 &&
               facts_warn(facts, "%s", msg.text);
    return json_object_set_new(facts, "not_before", date_to_json(validity.from)) == 0 &&
           json_object_set_new(facts, "not_after", date_to_json(validity.to)) == 0 &&
           json_object_set_new(facts, "days_left", json_integer(days_left(&validity))) == 0 &&
           json_object_set_new(facts, "state", json_string(state_of(&validity))) == 0 &&
           warn_of_time(facts, &validity);
}

/* ---- Certificates, keys, tokens ---- */

static bool add_names(json_t *facts, X509 *certificate)
{
    _cleanup_(freep) char *names = NULL;
    struct err_msg msg = { { 0 } };
    const bool is_good = certificate_names(certificate, &names, &msg) == EMBTIER_OK;

    if (json_object_set_new(facts, "names", is_good ? names_to_json(names) : json_array()) != 0)
        return false;
    return is_good || facts_warn(facts, "%s", msg.text);
}

json_t *certificate_facts(X509 *certificate, time_t now)
{
    json_t *const facts = json_pack(
        "{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:[]}", "kind", "certificate", "uses",
        uses_to_json(certificate), "subject", name_to_json(X509_get_subject_name(certificate)),
        "issuer", name_to_json(X509_get_issuer_name(certificate)), "addresses",
        addresses_to_json(certificate), "serial", serial_to_json(certificate), "sha256",
        certificate_digest(certificate), "warnings");

    if (facts && add_names(facts, certificate) && add_validity(facts, certificate, now))
        return facts;
    json_decref(facts);
    return NULL;
}

static json_t *algorithm_of(EVP_PKEY *key)
{
    const char *const type = EVP_PKEY_get0_type_name(key);
    char group[64];

    if (EVP_PKEY_get_group_name(key, group, sizeof(group), NULL) == 1)
        return json_sprintf("%s %s", type ? type : "?", group);
    ERR_clear_error();
    return json_sprintf("%s, %d bits", type ? type : "?", EVP_PKEY_get_bits(key));
}

json_t *pem_item_facts(const struct pem_item *item)
{
    if (item->key)
        return json_pack("{s:s, s:o, s:b, s:o, s:[]}", "kind", "key", "algorithm",
                         algorithm_of(item->key), "locked", 0, "public_sha256",
                         key_digest(item->key), "warnings");
    if (pem_item_is_locked(item))
        return json_pack("{s:s, s:b, s:[s]}", "kind", "key", "locked", 1, "warnings",
                         "needs a password: embtier reads only keys without one");
    return json_pack("{s:s, s:o, s:[]}", "kind", "other", "label", cli_json_text(item->label),
                     "warnings");
}

json_t *token_facts(const struct token_hash *hash)
{
    return json_pack("{s:s, s:s, s:[]}", "kind", "token", "hash", hash->text, "warnings");
}
