/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that a session's secret is compared in a time that tells nothing of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/engine/sessions/session_secret.h"

static struct {
    unsigned count;
    size_t bytes;
} compared;

int __real_CRYPTO_memcmp(const void *a, const void *b, size_t bytes);
int __wrap_CRYPTO_memcmp(const void *a, const void *b, size_t bytes);

int __wrap_CRYPTO_memcmp(const void *a, const void *b, size_t bytes)
{
    compared.count++;
    compared.bytes += bytes;
    return __real_CRYPTO_memcmp(a, b, bytes);
}

static bool is(const struct session_secret *secret, const uint8_t *bytes, size_t count)
{
    compared.count = 0;
    compared.bytes = 0;
    return session_secret_is(secret, bytes, count);
}

static struct session_secret make(void)
{
    struct session_secret secret;
    struct err_msg msg;

    assert_int_equal(session_secret_make(&secret, &msg), EMBTIER_OK);
    return secret;
}

static void test_all_bytes_are_compared_wherever_one_differs(void **state)
{
    const struct session_secret secret = make();
    struct session_secret other;

    (void)state;
    assert_true(is(&secret, secret.bytes, sizeof(secret.bytes)));
    assert_int_equal(compared.bytes, SESSION_SECRET_BYTES);
    for (size_t at = 0; at < sizeof(secret.bytes); at++) {
        other = secret;
        other.bytes[at] ^= 1;
        assert_false(is(&secret, other.bytes, sizeof(other.bytes)));
        assert_int_equal(compared.count, 1);
        assert_int_equal(compared.bytes, SESSION_SECRET_BYTES);
    }
}

/* The length is no secret. */
static void test_a_part_is_not_the_secret(void **state)
{
    const struct session_secret secret = make(), other = make();
    uint8_t longer[SESSION_SECRET_BYTES + 1] = { 0 };

    (void)state;
    memcpy(longer, secret.bytes, sizeof(secret.bytes));
    assert_false(is(&secret, longer, sizeof(longer)));
    assert_false(is(&secret, secret.bytes, SESSION_SECRET_BYTES - 1));
    assert_false(is(&secret, secret.bytes, 0));
    assert_false(is(&secret, other.bytes, sizeof(other.bytes)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_bytes_are_compared_wherever_one_differs),
        cmocka_unit_test(test_a_part_is_not_the_secret),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
