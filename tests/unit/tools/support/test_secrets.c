/* SPDX-License-Identifier: Apache-2.0 */
/* Are secrets hidden in whatever text they stand, also in part, and is the rest kept? */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#include <stdio.h>
#include <string.h>

#include "tools/cli/support/secrets.h"

#define TOKEN "embt_AbCdEfGhIjKlMnOpQrStUvWxYz0123456789-_AbCdE"
#define HASH  "sha256:00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
#define BODY  "MC4CAQAwBQYDK2VwBCIEIDYxMjM0NTY3ODkwYWJjZGVm\n"

/* Hides secrets of @text, of which there are @count, and compares with @expected. */
static void assert_hidden(const char *text, size_t count, const char *expected)
{
    char shown[4096];

    assert_true(strlen(text) < sizeof(shown));
    strcpy(shown, text);
    assert_int_equal(secrets_hide(shown, strlen(text)), count);
    assert_string_equal(shown, expected);
}

static void test_text_without_secrets_stays(void **state)
{
    (void)state;
    assert_hidden("", 0, "");
    assert_hidden("embt_cache=3 sha256:short sha256:", 0, "embt_cache=3 sha256:short sha256:");
    assert_hidden("-----BEGIN CERTIFICATE-----\n" BODY "-----END CERTIFICATE-----\n", 0,
                  "-----BEGIN CERTIFICATE-----\n" BODY "-----END CERTIFICATE-----\n");
}

static void test_tokens_and_hashes_are_hidden(void **state)
{
    char all[512];

    (void)state;
    snprintf(all, sizeof(all), "a=%s b=\"%s\"\n%.*s", TOKEN, HASH, 25, TOKEN);
    assert_hidden(all, 3,
                  "a=embt_******************************************* "
                  "b=\"sha256:****************************************************************\"\n"
                  "embt_********************");
}

static size_t count_of(const char *text, const char *word)
{
    size_t count = 0;

    for (const char *at = strstr(text, word); at; at = strstr(at + 1, word))
        count++;
    return count;
}

static void test_private_keys_are_hidden_even_in_part(void **state)
{
    static const struct {
        const char *text;
        size_t count;
    } cases[] = {
        { "x\n-----BEGIN PRIVATE KEY-----\n" BODY "-----END PRIVATE KEY-----\ny\n", 1 },
        { "x\n-----BEGIN ENCRYPTED PRIVATE KEY-----\n" BODY
          "-----END ENCRYPTED PRIVATE KEY-----\ny\n",
          1 },
        { "x\n-----BEGIN EC PRIVATE KEY-----\\n" BODY, 1 },
        { BODY "-----END PRIVATE KEY-----\ny\n", 1 },
        { BODY "-----END PRIVATE KEY-----\ny\n-----BEGIN PRIVATE KEY-----\n" BODY
               "-----END PRIVATE KEY-----\ny\n-----BEGIN PRIVATE KEY-----\n" BODY,
          3 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char shown[1024];
        const size_t lines = count_of(cases[i].text, "\n");

        strcpy(shown, cases[i].text);
        assert_int_equal(secrets_hide(shown, strlen(shown)), cases[i].count);
        assert_int_equal(count_of(shown, "MC4CAQAw"), 0);
        assert_int_equal(count_of(shown, "\n"), lines);
        assert_int_equal(count_of(shown, "y\n"), count_of(cases[i].text, "y\n"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_without_secrets_stays),
        cmocka_unit_test(test_tokens_and_hashes_are_hidden),
        cmocka_unit_test(test_private_keys_are_hidden_even_in_part),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
