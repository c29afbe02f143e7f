/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that a text of several addresses is taken apart at its commas, or refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/net/address_list.h"

static void test_a_text_has_one_address_or_several(void **state)
{
    _cleanup_(address_list_freep) struct address_list *one = NULL;
    _cleanup_(address_list_freep) struct address_list *list = NULL;
    struct err_msg msg = { { 0 } };

    (void)state;
    assert_int_equal(address_list_parse("/run/s", &one, &msg), EMBTIER_OK);
    assert_int_equal(one->count, 1);
    assert_string_equal(one->texts[0], "/run/s");
    assert_int_equal(
        address_list_parse("tcp://a:1,tcp://[::1]:2,unix:/x,unix+rpc:/y,/z", &list, &msg),
        EMBTIER_OK);
    assert_int_equal(list->count, 5);
    assert_string_equal(list->texts[1], "tcp://[::1]:2");
    assert_int_equal(list->addresses[0].kind, ADDRESS_TCP);
    assert_string_equal(list->addresses[0].host, "a");
    assert_string_equal(list->addresses[1].host, "::1");
    assert_string_equal(list->addresses[1].port, "2");
    assert_int_equal(list->addresses[2].kind, ADDRESS_UNIX);
    assert_int_equal(list->addresses[3].kind, ADDRESS_UNIX_RPC);
    assert_string_equal(list->addresses[4].path, "/z");
}

static void test_mistakes_are_named(void **state)
{
    static const struct {
        const char *text, *said;
    } cases[] = {
        { "", "1 to 107" },
        { ",", "address 1 is empty" },
        { "/a,", "address 2 is empty" },
        { ",/a", "address 1 is empty" },
        { "/a,,/b", "address 2 is empty: /a,,/b" },
        { "/a,tcp://b", "tcp://b has no port" },
        { "tls://::1:17411", "an IPv6 address needs brackets: tls://[IPV6]:PORT" },
        { "tcp://::1", "an IPv6 address needs brackets" },
        { "/a,http://b:1", "http://b:1 is of no known kind" },
        { "/1,/2,/3,/4,/5,/6,/7,/8,/9", "more than 8 addresses" },
        { "/1,/2,/3,/4,/5,/6,/7,/8,", "more than 8 addresses" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct address_list *list = NULL;
        struct err_msg msg = { { 0 } };

        assert_int_equal(address_list_parse(cases[i].text, &list, &msg), EMBTIER_INVALID);
        assert_null(list);
        if (!strstr(msg.text, cases[i].said))
            fail_msg("%s: %s", cases[i].text, msg.text);
    }
}

static void test_as_many_as_are_allowed(void **state)
{
    _cleanup_(address_list_freep) struct address_list *list = NULL;

    (void)state;
    assert_int_equal(address_list_parse("/1,/2,/3,/4,/5,/6,/7,/8", &list, NULL), EMBTIER_OK);
    assert_int_equal(list->count, ADDRESS_LIST_MAX);
    assert_string_equal(list->texts[7], "/8");
}

static void test_a_default_path_may_have_commas(void **state)
{
    _cleanup_(address_list_freep) struct address_list *list = NULL;

    (void)state;
    assert_int_equal(address_list_of_path("/run/a,b/s", &list, NULL), EMBTIER_OK);
    assert_int_equal(list->count, 1);
    assert_string_equal(list->addresses[0].path, "/run/a,b/s");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_text_has_one_address_or_several),
        cmocka_unit_test(test_mistakes_are_named),
        cmocka_unit_test(test_as_many_as_are_allowed),
        cmocka_unit_test(test_a_default_path_may_have_commas),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
