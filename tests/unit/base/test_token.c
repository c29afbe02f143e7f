/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that all of a token is random, that its hash is the one that other programs
 * compute, and that a file with a secret is read whole or refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <openssl/evp.h>

#include "base/macros.h"
#include "base/tls/secret_file.h"
#include "base/tls/token.h"

#define SAMPLE "embt_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"

static struct token make(void)
{
    struct token token;
    struct err_msg msg;

    if (token_make(&token, &msg) != EMBTIER_OK)
        fail_msg("%s", msg.text);
    return token;
}

static void test_a_token_is_read_as_it_was_made(void **state)
{
    const struct token token = make();
    struct token read;

    (void)state;
    assert_int_equal(strlen(token.text), 48);
    assert_memory_equal(token.text, "embt_", 5);
    assert_true(token_parse(token.text, TOKEN_BYTES, &read));
    assert_string_equal(read.text, token.text);
}

/* Each character occurs at each place; the last one has four random bits, and two that are 0. A
 * place lacks one of 64 characters in 4,000 tokens with a probability below 1e-25. */
static void test_all_characters_of_a_token_are_random(void **state)
{
    enum { TOKENS = 4000 };
    bool seen[TOKEN_BYTES][128] = { { false } };

    (void)state;
    for (uint32_t i = 0; i < TOKENS; i++) {
        const struct token token = make();

        for (size_t at = 0; at < TOKEN_BYTES; at++)
            seen[at][(unsigned char)token.text[at]] = true;
    }
    for (size_t at = 5; at < TOKEN_BYTES; at++) {
        size_t count = 0;

        for (size_t letter = 0; letter < 128; letter++)
            count += seen[at][letter];
        assert_int_equal(count, at == TOKEN_BYTES - 1 ? 16 : 64);
    }
}

/* The hash is that of `printf %s TOKEN | sha256sum`. */
static void test_the_hash_is_that_of_the_text(void **state)
{
    struct token token;
    struct token_hash hash;
    struct err_msg msg;

    (void)state;
    assert_true(token_parse(SAMPLE "\n", TOKEN_BYTES + 1, &token));
    assert_int_equal(token_hash(&token, &hash, &msg), EMBTIER_OK);
    assert_string_equal(hash.text,
                        "sha256:44dc576071bb72dd45a8f5ca5fa83c83bbee9a5cdf79784979646f1a87a3979a");
}

static unsigned fetches;

EVP_MD *__real_EVP_MD_fetch(OSSL_LIB_CTX *library, const char *name, const char *properties);
EVP_MD *__wrap_EVP_MD_fetch(OSSL_LIB_CTX *library, const char *name, const char *properties);
const EVP_MD *__wrap_EVP_sha256(void);

EVP_MD *__wrap_EVP_MD_fetch(OSSL_LIB_CTX *library, const char *name, const char *properties)
{
    fetches++;
    return __real_EVP_MD_fetch(library, name, properties);
}

/* An algorithm that OpenSSL would fetch at each use. */
const EVP_MD *__wrap_EVP_sha256(void)
{
    fail_msg("EVP_sha256() was called");
    return NULL;
}

/* A fetch takes locks of the process, and the control thread makes a hash for each client. */
static void test_the_algorithm_is_fetched_once(void **state)
{
    const struct token token = make();
    struct token_hash first, again;
    struct err_msg msg;

    (void)state;
    assert_int_equal(token_hash(&token, &first, &msg), EMBTIER_OK);
    for (uint32_t i = 0; i < 100; i++)
        assert_int_equal(token_hash(&token, &again, &msg), EMBTIER_OK);
    assert_string_equal(again.text, first.text);
    assert_int_equal(fetches, 1); /* of the whole process, also by tests before this one */
}

static void test_other_texts_are_no_tokens(void **state)
{
    static const char *const cases[] = {
        "",
        "\n",
        "password",
        "embt_",
        "embt_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh",     /* too short */
        SAMPLE "A",                                            /* too long */
        SAMPLE "\n\n",                                         /* two line ends */
        SAMPLE " ",                                            /* a blank */
        (" " SAMPLE),                                          /* a blank in front */
        "EMBT_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8",    /* another prefix */
        "embt_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+",    /* base64, but not for URLs */
        "embt_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh=",    /* padded */
        "embt_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh\xc3", /* not ASCII */
    };
    struct token token;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        if (token_parse(cases[i], strlen(cases[i]), &token))
            fail_msg("'%s' is a token", cases[i]);
    assert_false(token_parse("embt_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh\0", 48, &token));
    assert_true(token_parse(SAMPLE "\r\n", TOKEN_BYTES + 2, &token));
}

static void write_file(char path[200], const char *text, size_t bytes)
{
    const char *const tmp = getenv("TMPDIR");
    int fd;

    snprintf(path, 200, "%.150s/embtier-token-XXXXXX", tmp ? tmp : "/tmp");
    fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, bytes), bytes);
    assert_int_equal(close(fd), 0);
}

static void test_a_secret_is_read_whole(void **state)
{
    struct secret_file file = { 0 };
    struct err_msg msg;
    char path[200];

    (void)state;
    write_file(path, "a\0b\n", 4);
    assert_int_equal(secret_file_read(path, 4, &file, &msg), EMBTIER_OK);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(file.bytes, 4);
    assert_memory_equal(file.text, "a\0b\n", 5);
    secret_file_clear(&file);
    assert_null(file.text);
    secret_file_clear(&file);
}

static void test_a_file_that_is_too_large_is_refused(void **state)
{
    struct secret_file file = { 0 };
    struct err_msg msg;
    char path[200];

    (void)state;
    write_file(path, "abcd", 4);
    assert_int_equal(secret_file_read(path, 3, &file, &msg), EMBTIER_TOO_LARGE);
    assert_non_null(strstr(msg.text, "more than 3 bytes"));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(secret_file_read(path, 3, &file, &msg), EMBTIER_NOT_FOUND);
    assert_non_null(strstr(msg.text, path));
    assert_int_not_equal(secret_file_read("/", 3, &file, &msg), EMBTIER_OK);
    assert_null(file.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_token_is_read_as_it_was_made),
        cmocka_unit_test(test_all_characters_of_a_token_are_random),
        cmocka_unit_test(test_the_hash_is_that_of_the_text),
        cmocka_unit_test(test_the_algorithm_is_fetched_once),
        cmocka_unit_test(test_other_texts_are_no_tokens),
        cmocka_unit_test(test_a_secret_is_read_whole),
        cmocka_unit_test(test_a_file_that_is_too_large_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
