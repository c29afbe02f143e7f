/* SPDX-License-Identifier: Apache-2.0 */
/* Tests which connections without a session make place for others. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/transport/rpc/rpc_strangers.h"

/* Returns a server's end of a connection from 127.0.0.@host, whose other end is closed. */
static int connection_from(uint8_t host)
{
    struct sockaddr_in server = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000001) };
    const struct sockaddr_in client = { .sin_family = AF_INET,
                                        .sin_addr.s_addr = htonl(0x7f000000 | host) };
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    const int other = socket(AF_INET, SOCK_STREAM, 0);
    socklen_t bytes = sizeof(server);
    int fd;

    assert_int_equal(bind(listener, (struct sockaddr *)&server, sizeof(server)), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&server, &bytes), 0);
    assert_int_equal(bind(other, (const struct sockaddr *)&client, sizeof(client)), 0);
    assert_int_equal(connect(other, (struct sockaddr *)&server, sizeof(server)), 0);
    fd = accept(listener, NULL, NULL);
    assert_true(fd >= 0);
    close(other);
    close(listener);
    return fd;
}

static void add_from(struct rpc_strangers *strangers, struct rpc_stranger *stranger, uint8_t host)
{
    const int fd = connection_from(host);

    rpc_strangers_add(strangers, stranger, fd);
    close(fd);
}

/* Gives the hosts 1 and 2 different lines, as nearly all secrets do. */
static void init(struct rpc_strangers *strangers, struct strangers *all, uint32_t most,
                 uint32_t loop_count)
{
    struct rpc_stranger one = { .line = 0 }, two = { .line = 0 };

    rpc_strangers_init(strangers, all, most, loop_count);
    for (strangers->secret = 0;; strangers->secret++) {
        add_from(strangers, &one, 1);
        add_from(strangers, &two, 2);
        rpc_strangers_remove(strangers, &one);
        rpc_strangers_remove(strangers, &two);
        if (one.line != two.line)
            return;
    }
}

static void test_the_oldest_goes_first(void **state)
{
    struct rpc_stranger each[4] = { { .line = 0 } };
    struct rpc_strangers strangers;
    struct strangers all = { 0 };

    (void)state;
    init(&strangers, &all, 10, 1);
    for (int i = 0; i < 4; i++)
        add_from(&strangers, &each[i], 1);
    rpc_strangers_remove(&strangers, &each[1]); /* it has said hello */
    rpc_strangers_remove(&strangers, &each[1]);
    assert_int_equal(all.now, 3);
    assert_ptr_equal(rpc_strangers_first(&strangers), &each[0]);
    rpc_strangers_remove(&strangers, &each[0]);
    assert_ptr_equal(rpc_strangers_first(&strangers), &each[2]);
    rpc_strangers_remove(&strangers, &each[3]); /* the end of the line */
    add_from(&strangers, &each[0], 1);
    rpc_strangers_remove(&strangers, &each[2]);
    assert_ptr_equal(rpc_strangers_first(&strangers), &each[0]);
}

static void test_the_address_that_has_most_gives_up_one(void **state)
{
    struct rpc_stranger early[2] = { { .line = 0 } }, many[3] = { { .line = 0 } };
    struct rpc_strangers strangers;
    struct strangers all = { 0 };

    (void)state;
    init(&strangers, &all, 10, 1);
    for (int i = 0; i < 2; i++)
        add_from(&strangers, &early[i], 1);
    for (int i = 0; i < 3; i++)
        add_from(&strangers, &many[i], 2);
    assert_ptr_equal(rpc_strangers_first(&strangers), &many[0]);
    rpc_strangers_remove(&strangers, &many[0]);
    assert_ptr_equal(rpc_strangers_first(&strangers), &early[0]); /* as many: the older one */
}

static void test_a_loop_keeps_its_share_of_the_places(void **state)
{
    struct rpc_stranger ours = { .line = 0 }, theirs[4] = { { .line = 0 } };
    struct rpc_strangers here, there;
    struct strangers all = { 0 };

    (void)state;
    init(&here, &all, 4, 4);
    init(&there, &all, 4, 4);
    for (int i = 0; i < 4; i++) {
        assert_false(rpc_strangers_are_full(&there));
        add_from(&there, &theirs[i], 1);
    }
    assert_true(rpc_strangers_are_full(&there));
    assert_false(rpc_strangers_are_full(&here));
    add_from(&here, &ours, 2);
    assert_true(rpc_strangers_are_full(&here));
    for (int i = 0; i < 2; i++)
        rpc_strangers_remove(&there, &theirs[i]);
    assert_false(rpc_strangers_are_full(&there));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_oldest_goes_first),
        cmocka_unit_test(test_the_address_that_has_most_gives_up_one),
        cmocka_unit_test(test_a_loop_keeps_its_share_of_the_places),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
