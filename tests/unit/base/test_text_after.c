/* SPDX-License-Identifier: Apache-2.0 */
/* test_text_after.c: is the rest of a text that which follows its beginning, and only that? */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/text/text_after.h"

static void test_the_rest_follows_the_beginning(void **state)
{
    static const char text[] = "tcp://tcp://host";

    (void)state;
    assert_ptr_equal(text_after(text, "tcp://"), text + 6);
    assert_ptr_equal(text_after(text, ""), text);
    assert_string_equal(text_after(text, text), "");
}

static void test_another_beginning_has_no_rest(void **state)
{
    (void)state;
    assert_null(text_after("tcp:/", "tcp://")); /* a part of it */
    assert_null(text_after("", "tcp://"));
    assert_null(text_after(" tcp://", "tcp://")); /* not at the beginning */
    assert_null(text_after("TCP://", "tcp://"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_rest_follows_the_beginning),
        cmocka_unit_test(test_another_beginning_has_no_rest),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
