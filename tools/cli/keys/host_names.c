/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/keys/host_names.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stdbool.h>
#include <string.h>

#include "base/text/text_escape.h"
#include "base/tls/certificate_names.h"
#include "base/tls/openssl_err.h"

#define DNS_BYTES_MAX   253
#define LABEL_BYTES_MAX 63

static bool is_ascii_word(const char *text)
{
    for (const unsigned char *at = (const unsigned char *)text; *at; at++)
        if (*at <= ' ' || *at > '~')
            return false;
    return text[0] != '\0' && strlen(text) <= CERTIFICATE_NAME_BYTES_MAX;
}

/* Underscores are not in the rules for names of hosts, and yet in many names. */
static bool is_label(const char *label, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (!isalnum((unsigned char)label[i]) && label[i] != '-' && label[i] != '_')
            return false;
    return bytes >= 1 && bytes <= LABEL_BYTES_MAX && label[0] != '-' && label[bytes - 1] != '-';
}

/* A name whose last label is a number is a mistyped address: no domain of the top is a number. */
static bool is_number(const char *label)
{
    return label[strspn(label, "0123456789")] == '\0';
}

static bool is_dns_name(const char *text)
{
    const bool is_wild = strncmp(text, "*.", 2) == 0;
    const char *label = is_wild ? text + 2 : text;
    size_t bytes = strcspn(label, ".");

    if (!is_ascii_word(text) || strlen(text) > DNS_BYTES_MAX ||
        (is_wild && label[bytes] == '\0')) /* "*.com" would stand for all of .com */
        return false;
    while (is_label(label, bytes) && label[bytes] == '.') {
        label += bytes + 1;
        bytes = strcspn(label, ".");
    }
    return is_label(label, bytes) && label[bytes] == '\0' && !is_number(label);
}

/* A scheme, a colon, and something. */
static bool is_uri(const char *text)
{
    const size_t scheme =
        strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-.");

    return is_ascii_word(text) && isalpha((unsigned char)text[0]) && text[scheme] == ':' &&
           text[scheme + 1] != '\0';
}

static bool is_email(const char *text)
{
    const char *const at = strchr(text, '@');

    return is_ascii_word(text) && at && at > text && is_dns_name(at + 1);
}

/* Returns the bytes of an address, 4 or 16; 0 if @text is none. */
static size_t parse_address(const char *text, unsigned char address[16])
{
    if (inet_pton(AF_INET, text, address) == 1)
        return 4;
    return inet_pton(AF_INET6, text, address) == 1 ? 16 : 0;
}

static enum embtier_err add(GENERAL_NAMES *names, int kind, const void *value, size_t bytes,
                            struct err_msg *msg)
{
    GENERAL_NAME *name = GENERAL_NAME_new();
    ASN1_STRING *string =
        ASN1_STRING_type_new(kind == GEN_IPADD ? V_ASN1_OCTET_STRING : V_ASN1_IA5STRING);

    if (name && string && ASN1_STRING_set(string, value, (int)bytes) == 1) {
        GENERAL_NAME_set0_value(name, kind, TAKE(string));
        if (sk_GENERAL_NAME_push(names, name) > 0)
            return EMBTIER_OK;
    }
    ASN1_STRING_free(string);
    GENERAL_NAME_free(name);
    return openssl_failed(msg, EMBTIER_NO_MEMORY, "names of a certificate");
}

/* One name is left for the subject. */
static enum embtier_err check_count(const GENERAL_NAMES *names, struct err_msg *msg)
{
    if (sk_GENERAL_NAME_num(names) < CERTIFICATE_NAMES_MAX - 1)
        return EMBTIER_OK;
    return err_set(msg, EMBTIER_INVALID,
                   "too many names; allowed in one certificate: %d: make several certificates",
                   CERTIFICATE_NAMES_MAX - 1);
}

static enum embtier_err add_address(const char *text, GENERAL_NAMES *names, struct err_msg *msg)
{
    unsigned char address[16];
    const size_t bytes = parse_address(text, address);

    if (bytes == 0)
        return err_set(msg, EMBTIER_INVALID,
                       "'%s' is no IP address; allowed: such as 192.0.2.1 and 2001:db8::1",
                       TEXT_SHOWN(text));
    return add(names, GEN_IPADD, address, bytes, msg);
}

enum embtier_err host_name_add(const char *text, GENERAL_NAMES *names, struct err_msg *msg)
{
    unsigned char address[16];

    TRY(check_count(names, msg));
    if (parse_address(text, address) > 0)
        return add_address(text, names, msg);
    if (is_dns_name(text))
        return add(names, GEN_DNS, text, strlen(text), msg);
    return err_set(msg, EMBTIER_INVALID,
                   "'%s' is neither a DNS name nor an IP address; allowed: such as host, "
                   "host.example.org, *.example.org, 192.0.2.1 and 2001:db8::1, without a port; "
                   "letters outside ASCII as xn--",
                   TEXT_SHOWN(text));
}

static bool is_dns_value(const char *text)
{
    unsigned char address[16];

    return parse_address(text, address) == 0 && is_dns_name(text);
}

enum embtier_err typed_name_add(const char *text, GENERAL_NAMES *names, struct err_msg *msg)
{
    static const struct {
        const char *prefix;
        int kind;
        bool (*is_good)(const char *value);
        const char *allowed;
    } kinds[] = {
        { "DNS:", GEN_DNS, is_dns_value, "a DNS name, such as host.example.org" },
        { "URI:", GEN_URI, is_uri, "an absolute URI, such as spiffe://example.org/trainer" },
        { "EMAIL:", GEN_EMAIL, is_email, "a mail address, such as trainer@example.org" },
    };

    TRY(check_count(names, msg));
    if (strncmp(text, "IP:", 3) == 0)
        return add_address(text + 3, names, msg);
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        const size_t prefix = strlen(kinds[i].prefix);
        const char *const value = text + prefix;

        if (strncmp(text, kinds[i].prefix, prefix) != 0)
            continue;
        if (!kinds[i].is_good(value))
            return err_set(msg, EMBTIER_INVALID, "'%s': allowed behind %s is %s, in ASCII",
                           TEXT_SHOWN(text), kinds[i].prefix, kinds[i].allowed);
        return add(names, kinds[i].kind, value, strlen(value), msg);
    }
    return err_set(msg, EMBTIER_INVALID,
                   "'%s' has no known type; allowed: DNS:NAME, IP:ADDRESS, URI:URI, EMAIL:ADDRESS",
                   TEXT_SHOWN(text));
}
