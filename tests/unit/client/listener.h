/* SPDX-License-Identifier: Apache-2.0 */
/* listener.h: a port of this host for a server that a test plays. */
#ifndef EMBTIER_TESTS_UNIT_CLIENT_LISTENER_H
#define EMBTIER_TESTS_UNIT_CLIENT_LISTENER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>

#include "base/net/address.h"

struct test_listener {
    int fd; /* the test closes it */
    char text[64];
    struct address address;
};

/* Listens at a free port, for at most @most clients that are not accepted yet. */
static inline void test_listen(struct test_listener *listener, int most)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    struct err_msg msg = { { 0 } };
    socklen_t bytes = sizeof(at);

    listener->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listener->fd, (const struct sockaddr *)&at, bytes), 0);
    assert_int_equal(listen(listener->fd, most), 0);
    assert_int_equal(getsockname(listener->fd, (struct sockaddr *)&at, &bytes), 0);
    snprintf(listener->text, sizeof(listener->text), "tcp://127.0.0.1:%u", ntohs(at.sin_port));
    assert_int_equal(address_parse(listener->text, &listener->address, &msg), EMBTIER_OK);
}

#endif
