/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that a certificate's names are told as they are, or refused: a name that says something
 * else to people or to other programs gives a stranger somebody's role. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <openssl/asn1.h>
#include <openssl/x509v3.h>

#include "base/tls/certificate_names.h"

struct alternative {
    int kind;
    const char *text;
    size_t bytes;
};

static X509 *certificate;
static GENERAL_NAMES *alternatives;

static int setup(void **state)
{
    (void)state;
    certificate = X509_new();
    alternatives = GENERAL_NAMES_new();
    return certificate && alternatives ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    X509_free(certificate);
    GENERAL_NAMES_free(alternatives);
    return 0;
}

static void add_entry(int nid, int type, const void *text, size_t bytes)
{
    X509_NAME_ENTRY *entry =
        X509_NAME_ENTRY_create_by_NID(NULL, nid, V_ASN1_UTF8STRING, (const unsigned char *)"x", 1);

    assert_non_null(entry);
    /* Set this way, the entry keeps bytes that OpenSSL itself would refuse to write. */
    assert_int_equal(X509_NAME_ENTRY_set_data(entry, type, text, (int)bytes), 1);
    assert_int_equal(X509_NAME_add_entry(X509_get_subject_name(certificate), entry, -1, 0), 1);
    X509_NAME_ENTRY_free(entry);
}

static void add_common_name(const char *text)
{
    add_entry(NID_commonName, V_ASN1_UTF8STRING, text, strlen(text));
}

static void add_alternative_bytes(int kind, const void *data, size_t bytes)
{
    GENERAL_NAME *name = GENERAL_NAME_new();
    ASN1_STRING *value =
        kind == GEN_IPADD ? (ASN1_STRING *)ASN1_OCTET_STRING_new() : ASN1_IA5STRING_new();

    assert_non_null(name);
    assert_non_null(value);
    assert_int_equal(ASN1_STRING_set(value, data, (int)bytes), 1);
    GENERAL_NAME_set0_value(name, kind, value);
    assert_true(sk_GENERAL_NAME_push(alternatives, name) > 0);
}

static void add_alternative(int kind, const char *text)
{
    add_alternative_bytes(kind, text, strlen(text));
}

static enum embtier_err get_names(char **ret_names, struct err_msg *msg)
{
    if (sk_GENERAL_NAME_num(alternatives) > 0)
        assert_int_equal(X509_add1_ext_i2d(certificate, NID_subject_alt_name, alternatives, 0,
                                           X509V3_ADD_APPEND),
                         1);
    return certificate_names(certificate, ret_names, msg);
}

/* @expected: the names, each with a NUL behind it; the literal's own NUL is the empty one. */
#define EXPECT_NAMES(expected) expect_names((expected), sizeof(expected))
static void expect_names(const char *expected, size_t bytes)
{
    struct err_msg msg = { { 0 } };
    char *names = NULL;

    if (get_names(&names, &msg) != EMBTIER_OK)
        fail_msg("%s", msg.text);
    assert_memory_equal(names, expected, bytes);
    free(names);
}

static void expect_refused(const char *said)
{
    static char untouched[] = "untouched";
    struct err_msg msg = { { 0 } };
    char *names = untouched;

    assert_int_equal(get_names(&names, &msg), EMBTIER_INVALID);
    assert_ptr_equal(names, untouched);
    if (!strstr(msg.text, said))
        fail_msg("%s", msg.text);
}

static void test_names_have_the_prefixes_of_the_access_file(void **state)
{
    static const unsigned char address[4] = { 127, 0, 0, 1 };

    (void)state;
    add_entry(NID_organizationName, V_ASN1_UTF8STRING, "Example", 7);
    add_common_name("trainer-1");
    add_alternative(GEN_DNS, "Trainer-1.lan");
    add_alternative_bytes(GEN_IPADD, address, sizeof(address));
    add_alternative(GEN_URI, "spiffe://example.org/trainer");
    add_alternative(GEN_EMAIL, "trainer@example.org");
    EXPECT_NAMES("CN=trainer-1\0DNS:Trainer-1.lan\0URI:spiffe://example.org/trainer\0"
                 "EMAIL:trainer@example.org\0");
}

static void test_a_certificate_without_names_has_none(void **state)
{
    (void)state;
    EXPECT_NAMES("");
}

static void test_every_common_name_counts(void **state)
{
    (void)state;
    add_common_name("a");
    add_entry(NID_organizationName, V_ASN1_UTF8STRING, "b", 1);
    add_common_name("c");
    EXPECT_NAMES("CN=a\0CN=c\0");
}

/* A name cannot pass itself off as one of another kind. */
static void test_a_prefix_inside_a_name_stays_inside(void **state)
{
    (void)state;
    add_common_name("DNS:a");
    add_alternative(GEN_DNS, "CN=a");
    EXPECT_NAMES("CN=DNS:a\0DNS:CN=a\0");
}

static void test_other_encodings_become_utf8(void **state)
{
    (void)state;
    add_entry(NID_commonName, V_ASN1_BMPSTRING, "\0K\0\xf6", 4);
    EXPECT_NAMES("CN=K\xc3\xb6\0");
}

/* Some authorities compare a name only up to its NUL, and sign "admin" with more behind it. */
static void test_a_nul_in_a_common_name_is_refused(void **state)
{
    (void)state;
    add_entry(NID_commonName, V_ASN1_UTF8STRING, "admin\0.example.org", 18);
    expect_refused("'CN=admin\\u0000.example.org' is refused: it has a NUL");
}

static void test_a_nul_in_a_wide_common_name_is_refused(void **state)
{
    (void)state;
    add_entry(NID_commonName, V_ASN1_BMPSTRING, "\0a\0\0\0b", 6);
    expect_refused("it has a NUL");
}

static void test_a_nul_in_an_alternative_name_is_refused(void **state)
{
    (void)state;
    add_common_name("good");
    add_alternative(GEN_DNS, "good.example.org");
    add_alternative_bytes(GEN_DNS, "admin\0.example.org", 18);
    expect_refused("it has a NUL");
}

/* The NUL at the very end would otherwise be an empty name: the end of the list. */
static void test_a_nul_at_the_end_is_refused(void **state)
{
    (void)state;
    add_alternative_bytes(GEN_URI, "urn:a\0", 6);
    expect_refused("it has a NUL");
}

static void test_bytes_that_are_not_utf8_are_refused(void **state)
{
    (void)state;
    add_entry(NID_commonName, V_ASN1_UTF8STRING, "a\xff", 2);
    expect_refused("is refused: it is");
}

static void test_invisible_characters_are_refused(void **state)
{
    (void)state;
    add_common_name("admin\xe2\x80\x8b"); /* U+200B */
    expect_refused("invisible");
}

static void test_a_line_break_is_refused(void **state)
{
    (void)state;
    add_alternative(GEN_EMAIL, "a@b\nc");
    expect_refused("control character");
}

static void test_alternative_names_are_ascii(void **state)
{
    (void)state;
    add_alternative(GEN_DNS, "k\xc3\xb6ln.example.org");
    expect_refused("it is not ASCII");
}

static void test_empty_names_are_refused(void **state)
{
    (void)state;
    add_alternative(GEN_DNS, "");
    expect_refused("'DNS:' is refused: it is empty");
}

static void test_the_longest_name_fits(void **state)
{
    char name[CERTIFICATE_NAME_BYTES_MAX + 1] = { 0 };
    char expected[sizeof(name) + 5] = "URI:";

    (void)state;
    memset(name, 'x', CERTIFICATE_NAME_BYTES_MAX);
    add_alternative(GEN_URI, name);
    strcpy(expected + 4, name);
    expect_names(expected, sizeof(expected));
}

static void test_a_longer_name_is_refused(void **state)
{
    char name[CERTIFICATE_NAME_BYTES_MAX + 2] = { 0 };

    (void)state;
    memset(name, 'x', CERTIFICATE_NAME_BYTES_MAX + 1);
    add_alternative(GEN_URI, name);
    expect_refused("it is too long");
}

static void test_too_many_names_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i <= CERTIFICATE_NAMES_MAX; i++)
        add_alternative(GEN_DNS, "a");
    expect_refused("more names than the 256 allowed");
}

static void add_raw_extension(const char *der, size_t bytes)
{
    ASN1_OCTET_STRING *value = ASN1_OCTET_STRING_new();
    X509_EXTENSION *extension;

    assert_non_null(value);
    assert_int_equal(ASN1_OCTET_STRING_set(value, (const unsigned char *)der, (int)bytes), 1);
    extension = X509_EXTENSION_create_by_NID(NULL, NID_subject_alt_name, 0, value);
    assert_non_null(extension);
    assert_int_equal(X509_add_ext(certificate, extension, -1), 1);
    X509_EXTENSION_free(extension);
    ASN1_OCTET_STRING_free(value);
}

static void test_damaged_alternative_names_are_refused(void **state)
{
    (void)state;
    add_common_name("good");
    add_raw_extension("\x30\x05\x82\x7f", 4); /* lengths that reach past the end */
    expect_refused("damaged");
}

/* Programs that look at one of two extensions only may look at the other one. */
static void test_two_lists_of_alternative_names_are_refused(void **state)
{
    (void)state;
    add_raw_extension("\x30\x03\x82\x01\x61", 5);
    add_raw_extension("\x30\x03\x82\x01\x62", 5);
    expect_refused("there are two of it");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_names_have_the_prefixes_of_the_access_file),
        TEST(test_a_certificate_without_names_has_none),
        TEST(test_every_common_name_counts),
        TEST(test_a_prefix_inside_a_name_stays_inside),
        TEST(test_other_encodings_become_utf8),
        TEST(test_a_nul_in_a_common_name_is_refused),
        TEST(test_a_nul_in_a_wide_common_name_is_refused),
        TEST(test_a_nul_in_an_alternative_name_is_refused),
        TEST(test_a_nul_at_the_end_is_refused),
        TEST(test_bytes_that_are_not_utf8_are_refused),
        TEST(test_invisible_characters_are_refused),
        TEST(test_a_line_break_is_refused),
        TEST(test_alternative_names_are_ascii),
        TEST(test_empty_names_are_refused),
        TEST(test_the_longest_name_fits),
        TEST(test_a_longer_name_is_refused),
        TEST(test_too_many_names_are_refused),
        TEST(test_damaged_alternative_names_are_refused),
        TEST(test_two_lists_of_alternative_names_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
