/* SPDX-License-Identifier: Apache-2.0 */
/* client_fixture.h: the library, connected to the fake server. Each test program includes it
 * once. */
#ifndef EMBTIER_TESTS_UNIT_CLIENT_CLIENT_FIXTURE_H
#define EMBTIER_TESTS_UNIT_CLIENT_CLIENT_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "client/include/embtier.h"
#include "tests/unit/client/fake_server.h"

struct fixture {
    struct fake_server fake;
    struct embtier *server;
    struct embtier_table *users;
    struct embtier_table *words;
};

static inline uint64_t now_ns(void)
{
    return clock_now_ns(&clock_monotonic);
}

static inline struct embtier_connect_options options_for(const struct fixture *fixture)
{
    struct embtier_connect_options options = EMBTIER_CONNECT_OPTIONS_INIT;

    options.socket_path = fixture->fake.path;
    options.arena_bytes = 1 << 20;
    options.max_in_flight = 4;
    options.timeout_ms = 60000;
    return options;
}

static inline int setup_listening(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));

    if (!fixture)
        return -1;
    fake_server_start(&fixture->fake);
    *state = fixture;
    return 0;
}

static inline int setup(void **state)
{
    struct fixture *fixture;
    struct embtier_connect_options options;

    if (setup_listening(state) != 0)
        return -1;
    fixture = *state;
    options = options_for(fixture);
    assert_int_equal(embtier_connect(&options, &fixture->server), EMBTIER_OK);
    assert_int_equal(embtier_table_open(fixture->server, "users", &fixture->users), EMBTIER_OK);
    assert_int_equal(embtier_table_open(fixture->server, "words", &fixture->words), EMBTIER_OK);
    return 0;
}

static inline int teardown(void **state)
{
    struct fixture *fixture = *state;

    embtier_disconnect(fixture->server);
    fake_server_stop(&fixture->fake);
    free(fixture);
    return 0;
}

static inline void wait_until_taken(struct fixture *fixture, uint32_t count)
{
    while (fixture->fake.taken < count)
        usleep(200);
}

/* Drops the client's connection, and waits until the client can see that. */
static inline void drop_client(struct fixture *fixture)
{
    const unsigned ended = fixture->fake.ended;

    fixture->fake.drop_client = true;
    while (fixture->fake.ended == ended)
        usleep(200);
}

#endif
