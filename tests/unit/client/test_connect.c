/* SPDX-License-Identifier: Apache-2.0 */
/* Tests how a name becomes a connection: all of its addresses count, one that does not answer keeps
 * none of the others waiting, each connection asks for the name again, and messages tell the time
 * that the caller gave. The look-up is the test's own; the sockets are real ones on the loopback.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/net/dead_link.h"
#include "client/include/embtier.h"
#include "client/transport/connect.h"

#define FOREVER     UINT64_MAX
#define ANSWERS_MAX 20
#define QUEUE_MAX   8

/* ---- A name that the test gives its addresses ---- */

union name {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

static union name answers[ANSWERS_MAX];
static struct addrinfo infos[ANSWERS_MAX];
static int answer_count, looked_up, look_up_ms;

int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *wanted,
                       struct addrinfo **ret_found);
void __wrap_freeaddrinfo(struct addrinfo *found);

int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *wanted,
                       struct addrinfo **ret_found)
{
    (void)port;
    assert_string_equal(host, "name");
    assert_int_equal(wanted->ai_socktype, SOCK_STREAM);
    looked_up++;
    usleep((useconds_t)look_up_ms * 1000);
    for (int i = 0; i < answer_count; i++)
        infos[i] = (struct addrinfo){
            .ai_family = answers[i].any.sa_family,
            .ai_addr = &answers[i].any,
            .ai_addrlen =
                answers[i].any.sa_family == AF_INET ? sizeof(answers[i].v4) : sizeof(answers[i].v6),
            .ai_next = i + 1 < answer_count ? &infos[i + 1] : NULL,
        };
    *ret_found = infos;
    return answer_count > 0 ? 0 : EAI_NONAME;
}

void __wrap_freeaddrinfo(struct addrinfo *found)
{
    assert_ptr_equal(found, infos);
}

/* ---- Sockets ---- */

static union name any_port(int family)
{
    union name name = { .any.sa_family = (sa_family_t)family };

    if (family == AF_INET)
        name.v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    else
        name.v6.sin6_addr = in6addr_loopback;
    return name;
}

/* Makes the name's next answer a socket, which listens if @backlog is not negative. */
static int answer(int family, int backlog)
{
    union name name = any_port(family);
    socklen_t bytes = family == AF_INET ? sizeof(name.v4) : sizeof(name.v6);
    const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0 && answer_count < ANSWERS_MAX);
    assert_int_equal(bind(fd, &name.any, bytes), 0);
    if (backlog >= 0)
        assert_int_equal(listen(fd, backlog), 0);
    assert_int_equal(getsockname(fd, &name.any, &bytes), 0);
    answers[answer_count++] = name;
    return fd;
}

/* A listener whose queue is full. The system drops the packets of further clients, so to them it is
 * a host that does not answer. */
struct black_hole {
    int listener, queued[QUEUE_MAX];
};

static struct black_hole black_hole(void)
{
    struct black_hole hole = { .listener = answer(AF_INET, 0) };
    const union name name = answers[answer_count - 1];

    for (int i = 0; i < QUEUE_MAX; i++) {
        hole.queued[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        assert_true(hole.queued[i] >= 0);
        (void)!connect(hole.queued[i], &name.any, sizeof(name.v4));
    }
    return hole;
}

static void close_hole(struct black_hole hole)
{
    for (int i = 0; i < QUEUE_MAX; i++)
        close(hole.queued[i]);
    close(hole.listener);
}

static enum embtier_err try_name(uint64_t deadline_ns, int *ret_fd, struct err_msg *msg)
{
    const struct address address = { .kind = ADDRESS_TCP, .host = "name", .port = "1" };

    return connect_stream(&address, "tcp://name:1", deadline_ns, ret_fd, msg);
}

/* Connects, and checks that it is to @listener. */
static void expect_connection_to(int listener)
{
    struct err_msg msg = { { 0 } };
    int fd = -1, accepted;

    if (try_name(FOREVER, &fd, &msg) != EMBTIER_OK)
        fail_msg("%s", msg.text);
    accepted = accept(listener, NULL, NULL);
    assert_int_equal(write(fd, "x", 1), 1);
    assert_int_equal(read(accepted, (char[1]){ 0 }, 1), 1);
    close(accepted);
    close(fd);
}

static int setup(void **state)
{
    (void)state;
    answer_count = looked_up = look_up_ms = 0;
    return 0;
}

/* ---- Tests ---- */

static void test_an_address_that_refuses_is_passed_over(void **state)
{
    const int closed = answer(AF_INET, -1), open = answer(AF_INET, 4);

    (void)state;
    expect_connection_to(open);
    close(open);
    close(closed);
}

/* There is no deadline, and the system would try the first two for minutes. */
static void test_addresses_that_do_not_answer_keep_no_other_waiting(void **state)
{
    const struct black_hole first = black_hole(), second = black_hole();
    const int open = answer(AF_INET, 4);

    (void)state;
    expect_connection_to(open);
    close(open);
    close_hole(second);
    close_hole(first);
}

static void test_ipv6_and_ipv4_take_turns(void **state)
{
    const int refuses = answer(AF_INET, -1), third = answer(AF_INET, 4);
    const int second = answer(AF_INET6, 4);

    (void)state;
    expect_connection_to(second);
    close(second);
    close(third);
    close(refuses);
}

static void test_the_deadline_holds_for_all_addresses_together(void **state)
{
    const int refuses = answer(AF_INET, -1);
    const struct black_hole first = black_hole(), second = black_hole();
    struct err_msg msg = { { 0 } };
    int fd = -1;

    (void)state;
    assert_int_equal(try_name(clock_now_ns(&clock_monotonic) + 1000000000, &fd, &msg),
                     EMBTIER_TIMEOUT);
    assert_int_equal(fd, -1);
    /* On a busy machine no time may be left for the second one, or for any. */
    assert_non_null(strstr(msg.text, "time"));
    close_hole(second);
    close_hole(first);
    close(refuses);
}

static void test_each_address_has_its_own_reason(void **state)
{
    const int one = answer(AF_INET, -1), other = answer(AF_INET6, -1);
    struct err_msg msg = { { 0 } };
    int fd = -1;

    (void)state;
    assert_int_equal(try_name(FOREVER, &fd, &msg), EMBTIER_UNREACHABLE);
    assert_string_equal(msg.text, "no embtierd answers at tcp://name:1: 127.0.0.1: Connection "
                                  "refused; ::1: Connection refused");
    answer_count = 1;
    assert_int_equal(try_name(FOREVER, &fd, &msg), EMBTIER_UNREACHABLE);
    assert_string_equal(msg.text, "no embtierd answers at tcp://name:1: Connection refused");
    answer_count = 0;
    assert_int_equal(try_name(FOREVER, &fd, &msg), EMBTIER_UNREACHABLE);
    assert_non_null(strstr(msg.text, "no embtierd answers at tcp://name:1: "));
    close(other);
    close(one);
}

static void test_each_connection_asks_for_the_name_again(void **state)
{
    const int before = answer(AF_INET, 4);
    int after;

    (void)state;
    expect_connection_to(before);
    answer_count = 0;
    after = answer(AF_INET6, 4);
    expect_connection_to(after);
    assert_int_equal(looked_up, 2);
    close(after);
    close(before);
}

static void test_more_addresses_than_are_tried(void **state)
{
    int refuses[ANSWERS_MAX];
    struct err_msg msg = { { 0 } };
    int fd = -1;

    (void)state;
    for (size_t i = 0; i < ANSWERS_MAX; i++)
        refuses[i] = answer(AF_INET, -1);
    assert_int_equal(try_name(FOREVER, &fd, &msg), EMBTIER_UNREACHABLE);
    for (size_t i = 0; i < ANSWERS_MAX; i++)
        close(refuses[i]);
}

/* The server is silent, and the connection has taken a part of the time. On a busy machine it may
 * have taken all of it: then there is more time in the next turn. */
static void test_a_silence_is_told_with_the_time_that_was_given(void **state)
{
    struct embtier_connect_options options = EMBTIER_CONNECT_OPTIONS_INIT;
    const int silent = answer(AF_INET, 8);
    struct embtier *server = NULL;
    char expected[64];

    (void)state;
    look_up_ms = 30;
    options.socket_path = "tcp://name:1";
    options.timeout_ms = 250;
    do {
        options.timeout_ms *= 2;
        assert_true(options.timeout_ms <= 64000);
        assert_int_equal(embtier_connect(&options, &server), EMBTIER_TIMEOUT);
    } while (!strstr(embtier_message(NULL), "no answer"));
    snprintf(expected, sizeof(expected), "no answer from the server within %u ms",
             options.timeout_ms);
    assert_string_equal(embtier_message(NULL), expected);
    close(silent);
}

static void test_the_system_watches_the_link(void **state)
{
    const int open = answer(AF_INET, 4);
    int fd = -1, value = 0;
    socklen_t bytes = sizeof(value);

    (void)state;
    assert_int_equal(try_name(FOREVER, &fd, NULL), EMBTIER_OK);
    assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &value, &bytes), 0);
    assert_int_equal(value, 1);
    assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &value, &bytes), 0);
    assert_int_equal(value, DEAD_LINK_SECONDS * 1000);
    close(fd);
    close(open);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_an_address_that_refuses_is_passed_over, setup),
        cmocka_unit_test_setup(test_addresses_that_do_not_answer_keep_no_other_waiting, setup),
        cmocka_unit_test_setup(test_ipv6_and_ipv4_take_turns, setup),
        cmocka_unit_test_setup(test_the_deadline_holds_for_all_addresses_together, setup),
        cmocka_unit_test_setup(test_each_address_has_its_own_reason, setup),
        cmocka_unit_test_setup(test_each_connection_asks_for_the_name_again, setup),
        cmocka_unit_test_setup(test_more_addresses_than_are_tried, setup),
        cmocka_unit_test_setup(test_a_silence_is_told_with_the_time_that_was_given, setup),
        cmocka_unit_test_setup(test_the_system_watches_the_link, setup),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
