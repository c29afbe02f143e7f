/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that an address means one thing, or is refused with what is allowed. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/net/address.h"
#include "base/net/loopback.h"

static void expect(const char *text, enum address_kind kind, const char *path, const char *host,
                   const char *port)
{
    struct address address;
    struct err_msg msg = { { 0 } };

    assert_int_equal(address_parse(text, &address, &msg), EMBTIER_OK);
    assert_int_equal(address.kind, kind);
    assert_string_equal(address.path, path);
    assert_string_equal(address.host, host);
    assert_string_equal(address.port, port);
}

static void test_addresses_are_taken_apart(void **state)
{
    (void)state;
    expect("/run/embtier/embtier.sock", ADDRESS_UNIX, "/run/embtier/embtier.sock", "", "");
    expect("socket", ADDRESS_UNIX, "socket", "", "");
    expect("a:b", ADDRESS_UNIX, "a:b", "", "");
    expect("unix:/a", ADDRESS_UNIX, "/a", "", "");
    expect("unix+rpc:/a b", ADDRESS_UNIX_RPC, "/a b", "", "");
    expect("tcp://localhost:7411", ADDRESS_TCP, "", "localhost", "7411");
    expect("tcp://127.0.0.1:0", ADDRESS_TCP, "", "127.0.0.1", "0");
    expect("tcp://[::1]:65535", ADDRESS_TCP, "", "::1", "65535");
    expect("tls://a.example:1", ADDRESS_TLS, "", "a.example", "1");
    expect("tls://[::1]:1", ADDRESS_TLS, "", "::1", "1");
    expect("unix:/a?b", ADDRESS_UNIX, "/a?b", "", "");
}

static void test_addresses_of_http_are_taken_apart(void **state)
{
    static const char *const bad[] = { "",        "127.0.0.1",          "::1:7420", "tcp://h:1",
                                       "h:70000", "http://h:1/metrics", ":1" };
    struct address address;
    struct err_msg msg = { { 0 } };

    (void)state;
    assert_int_equal(address_parse_http("[::1]:7420", &address, &msg), EMBTIER_OK);
    assert_int_equal(address.kind, ADDRESS_HTTP);
    assert_string_equal(address.host, "::1");
    assert_string_equal(address.port, "7420");
    assert_int_equal(address_parse_http("http://localhost:0", &address, &msg), EMBTIER_OK);
    assert_string_equal(address.host, "localhost");
    assert_string_equal(address_scheme(&address), "http");
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_int_equal(address_parse_http(bad[i], &address, &msg), EMBTIER_INVALID);
    assert_int_equal(address_parse("http://h:1", &address, &msg), EMBTIER_INVALID);
}

static void expect_files(const char *text, const char *authority, const char *certificate,
                         const char *key, const char *token)
{
    struct address address;
    struct err_msg msg = { { 0 } };

    assert_int_equal(address_parse(text, &address, &msg), EMBTIER_OK);
    assert_string_equal(address.files.authority, authority);
    assert_string_equal(address.files.certificate, certificate);
    assert_string_equal(address.files.key, key);
    assert_string_equal(address.files.token, token);
}

static void test_addresses_name_files(void **state)
{
    (void)state;
    expect_files("tls://h:1", "", "", "", "");
    expect_files("tls://h:1?ca=/a b/ca.crt", "/a b/ca.crt", "", "", "");
    expect_files("tls://h:1?key=k&cert=c?d=e&token=t", "", "c?d=e", "k", "t");
    expect_files("tcp://h:1?token=/run/t", "", "", "", "/run/t");
    expect_files("unix+rpc:/s?token=/run/t", "", "", "", "/run/t");
    expect("unix+rpc:/s?token=/run/t", ADDRESS_UNIX_RPC, "/s", "", "");
    expect("tls://[::1]:5?ca=x", ADDRESS_TLS, "", "::1", "5");
}

static void test_addresses_say_how_many_connections(void **state)
{
    static const struct {
        const char *text;
        uint32_t connections;
    } cases[] = {
        { "tcp://h:1", 0 },
        { "tcp://h:1?connections=1", 1 },
        { "tls://h:1?ca=c&connections=16&token=t", 16 },
        { "unix+rpc:/s?connections=9", 9 },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct address address;
        struct err_msg msg;

        assert_int_equal(address_parse(cases[i].text, &address, &msg), EMBTIER_OK);
        assert_int_equal(address.connections, cases[i].connections);
        assert_int_equal(address_has_options(&address), cases[i].connections > 0);
    }
}

static void test_addresses_are_shown_as_they_are_written(void **state)
{
    static const char *const texts[] = { "tcp://host:1", "tls://[::ffff:127.0.0.1]:0",
                                         "tls://127.0.0.1:65535", "tcp://[::]:7411" };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        struct address address;
        struct err_msg msg;

        assert_int_equal(address_parse(texts[i], &address, &msg), EMBTIER_OK);
        assert_string_equal(ADDRESS_SHOWN(&address), texts[i]);
    }
}

static bool is_loopback(const char *number)
{
    struct sockaddr_in6 v6 = { .sin6_family = AF_INET6 };
    struct sockaddr_in v4 = { .sin_family = AF_INET };
    const bool is_v4 = inet_pton(AF_INET, number, &v4.sin_addr) == 1;

    assert_true(is_v4 || inet_pton(AF_INET6, number, &v6.sin6_addr) == 1);
    return address_is_loopback(is_v4 ? (const struct sockaddr *)&v4 : (const struct sockaddr *)&v6);
}

static void test_addresses_of_loopback_are_known(void **state)
{
    static const char *const own[] = { "127.0.0.1", "127.255.1.2", "::1", "::ffff:127.0.0.1",
                                       "::ffff:127.9.9.9" };
    static const char *const others[] = { "0.0.0.0", "126.0.0.1",       "::",         "::2",
                                          "fe80::1", "::ffff:10.0.0.1", "::127.0.0.1" };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(own); i++)
        assert_true(is_loopback(own[i]));
    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        assert_false(is_loopback(others[i]));
}

static void test_mistakes_are_named(void **state)
{
    static const struct {
        const char *text, *said;
    } cases[] = {
        { "", "1 to 107" },
        { "unix:", "1 to 107" },
        { "unix+rpc:", "1 to 107" },
        { "tcp://", "no port" },
        { "tcp://host", "no port" },
        { "tcp://host:", "no port" },
        { "tcp://host:65536", "has the port 65536; allowed: 0 to 65535" },
        { "tcp://host:123456", "0 to 65535" },
        { "tls://[::1]:99999?ca=a", "has the port 99999; allowed: 0 to 65535" },
        { "tcp://host:-1", "0 to 65535" },
        { "tcp://host:1x", "0 to 65535" },
        { "tcp://host: 1", "0 to 65535" },
        { "tcp://:1", "host of 0 bytes" },
        { "tcp://[]:1", "host of 0 bytes" },
        { "tcp://::1:80", "needs brackets: tcp://[IPV6]:PORT" },
        { "tcp://[::1", "no port" },
        { "tcp://[::1]", "no port" },
        { "tcp://[::1]80", "no port" },
        { "tls://host", "expected tls://HOST:PORT" },
        { "tls://host?ca=a:1", "no port" },
        { "tcp://host:1?connections=0", "a number of 1 to 16" },
        { "tcp://host:1?connections=17", "a number of 1 to 16" },
        { "tcp://host:1?connections=", "a number of 1 to 16" },
        { "tcp://host:1?connections=1x", "a number of 1 to 16" },
        { "tcp://host:1?connections=2&connections=2", "twice" },
        { "tls://host:1?", "allowed: token=FILE" },
        { "tls://host:1?ca", "allowed: token=FILE" },
        { "tls://host:1?ca=", "0 bytes" },
        { "tls://host:1?ca=a&", "allowed: token=FILE" },
        { "tls://host:1?ca=a&ca=b", "twice" },
        { "tls://host:1?cat=a", "`cat=a`" },
        { "tls://host:1?cert=a", "give both" },
        { "tls://host:1?key=a", "give both" },
        { "tcp://host:1?ca=a", "for tls://" },
        { "unix+rpc:?token=a", "1 to 107" },
        { "http://host:1", "no known kind" },
        { "TCP://host:1", "no known kind" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct address address;
        struct err_msg msg = { { 0 } };

        assert_int_equal(address_parse(cases[i].text, &address, &msg), EMBTIER_INVALID);
        if (!strstr(msg.text, cases[i].said))
            fail_msg("%s: %s", cases[i].text, msg.text);
    }
}

/* The longest that fit, and one byte more. */
static void test_lengths_are_limited(void **state)
{
    char path[ADDRESS_PATH_MAX + 2];
    char text[ADDRESS_HOST_MAX + 32];
    struct address address;
    struct err_msg msg;

    (void)state;
    memset(path, 'x', sizeof(path));
    path[ADDRESS_PATH_MAX] = '\0';
    expect(path, ADDRESS_UNIX, path, "", "");
    path[ADDRESS_PATH_MAX] = 'x';
    path[ADDRESS_PATH_MAX + 1] = '\0';
    assert_int_equal(address_parse(path, &address, &msg), EMBTIER_INVALID);
    memset(text, 'h', sizeof(text));
    strcpy(text, "tcp://");
    text[6] = 'h';
    strcpy(text + 6 + ADDRESS_HOST_MAX, ":1");
    assert_int_equal(address_parse(text, &address, &msg), EMBTIER_OK);
    assert_int_equal(strlen(address.host), ADDRESS_HOST_MAX);
    strcpy(text + 7 + ADDRESS_HOST_MAX, ":1");
    text[6 + ADDRESS_HOST_MAX] = 'h';
    assert_int_equal(address_parse(text, &address, &msg), EMBTIER_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_addresses_are_taken_apart),
        cmocka_unit_test(test_addresses_of_http_are_taken_apart),
        cmocka_unit_test(test_addresses_name_files),
        cmocka_unit_test(test_addresses_say_how_many_connections),
        cmocka_unit_test(test_addresses_are_shown_as_they_are_written),
        cmocka_unit_test(test_addresses_of_loopback_are_known),
        cmocka_unit_test(test_mistakes_are_named),
        cmocka_unit_test(test_lengths_are_limited),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
