/* SPDX-License-Identifier: Apache-2.0 */
/* Tests when a client tries to reach its server again. Time passes only when the code under test
 * sleeps, and chance is the test's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/macros.h"
#include "client/lib/session/retry.h"

#define MS         UINT64_C(1000000)
#define ERRORS_MAX 20

struct world {
    uint64_t now_ns;
    uint64_t chance;                     /* what is drawn next */
    bool is_longest;                     /* draw the longest pause instead */
    enum embtier_err errors[ERRORS_MAX]; /* of the attempts; after the last one again and again */
    uint32_t error_count, attempts, sleeps;
    uint64_t at_ns[ERRORS_MAX]; /* when the attempts began */
    uint64_t attempt_ns;        /* an attempt's length */
};

static uint64_t now(void *context)
{
    return ((struct world *)context)->now_ns;
}

static void sleep_for(void *context, uint64_t ns)
{
    struct world *const world = context;

    assert_true(ns > 0);
    world->sleeps++;
    world->now_ns += ns;
}

/* The limit after n failures is 50 ms, doubled n - 1 times. */
static uint64_t chance(void *context)
{
    const struct world *const world = context;
    uint64_t limit_ms = RETRY_PAUSE_MS_FIRST;

    for (uint32_t i = 1; i < world->attempts; i++)
        limit_ms = MIN(limit_ms * 2, (uint64_t)RETRY_PAUSE_MS_MOST);
    return world->is_longest ? limit_ms * MS : world->chance;
}

static enum embtier_err attempt(void *context)
{
    struct world *const world = context;
    const uint32_t i = world->attempts++;

    assert_true(i < ERRORS_MAX);
    world->at_ns[i] = world->now_ns;
    world->now_ns += world->attempt_ns;
    return world->errors[MIN(i, world->error_count - 1)];
}

static enum embtier_err run(struct world *world, struct retry *retry, uint32_t limit_ms)
{
    const struct retry_outside outside = {
        .clock = { .now_ns = now, .context = world },
        .sleep = sleep_for,
        .chance = chance,
        .context = world,
    };

    return retry_run(retry, &outside, limit_ms, attempt, world);
}

static void test_the_longest_pauses_double_up_to_a_limit(void **state)
{
    static const uint64_t pauses_ms[] = { 50, 100, 200, 400, 800, 1600, 3200, 5000, 5000 };
    struct world world = { .is_longest = true,
                           .errors = { [0 ... 8] = EMBTIER_UNREACHABLE, [9] = EMBTIER_OK },
                           .error_count = 10 };
    struct retry retry = { 0 };

    (void)state;
    assert_int_equal(run(&world, &retry, RETRY_FOREVER_MS), EMBTIER_OK);
    assert_int_equal(world.attempts, 10);
    for (uint32_t i = 0; i < ARRAY_LEN(pauses_ms); i++)
        assert_int_equal(world.at_ns[i + 1] - world.at_ns[i], pauses_ms[i] * MS);
    assert_int_equal(retry.failures, 0); /* the next loss begins with short pauses again */
}

static void test_a_pause_is_any_time_up_to_its_limit(void **state)
{
    static const uint64_t drawn[] = { 0, 1, 12345678, 50 * MS - 1, 50 * MS };

    (void)state;
    for (uint32_t i = 0; i < ARRAY_LEN(drawn); i++) {
        struct world world = { .chance = drawn[i],
                               .errors = { EMBTIER_BUSY, EMBTIER_OK },
                               .error_count = 2 };

        assert_int_equal(run(&world, &(struct retry){ 0 }, RETRY_FOREVER_MS), EMBTIER_OK);
        assert_int_equal(world.at_ns[1] - world.at_ns[0], drawn[i]);
        assert_int_equal(world.sleeps, drawn[i] > 0);
    }
    for (uint64_t bits = 0; bits < 64; bits++) { /* whatever the system draws */
        struct world world = { .chance = UINT64_MAX >> bits,
                               .errors = { EMBTIER_TIMEOUT, EMBTIER_OK },
                               .error_count = 2 };

        assert_int_equal(run(&world, &(struct retry){ 0 }, RETRY_FOREVER_MS), EMBTIER_OK);
        assert_true(world.at_ns[1] - world.at_ns[0] <= 50 * MS);
    }
}

static void test_clients_of_one_server_draw_differently(void **state)
{
    const uint64_t one = retry_outside_system.chance(NULL);

    (void)state;
    assert_int_not_equal(one, retry_outside_system.chance(NULL)); /* one chance of 2^64 to fail */
}

static void test_a_refusal_that_stays_ends_it_at_once(void **state)
{
    static const enum embtier_err final[] = { EMBTIER_PERMISSION, EMBTIER_VERSION,
                                              EMBTIER_MISMATCH,   EMBTIER_INVALID,
                                              EMBTIER_PROTOCOL,   EMBTIER_NO_MEMORY };
    static const enum embtier_err passing[] = { EMBTIER_UNREACHABLE, EMBTIER_TIMEOUT, EMBTIER_BUSY,
                                                EMBTIER_DISCONNECTED, EMBTIER_SHUTDOWN };

    (void)state;
    for (uint32_t i = 0; i < ARRAY_LEN(final); i++) {
        struct world world = { .errors = { EMBTIER_UNREACHABLE, final[i] }, .error_count = 2 };
        struct retry retry = { 0 };

        assert_int_equal(run(&world, &retry, RETRY_FOREVER_MS), final[i]);
        assert_int_equal(world.attempts, 2);
        assert_int_equal(retry.failures, 0);
    }
    for (uint32_t i = 0; i < ARRAY_LEN(passing); i++) {
        struct world world = { .errors = { passing[i], EMBTIER_OK }, .error_count = 2 };

        assert_int_equal(run(&world, &(struct retry){ 0 }, RETRY_FOREVER_MS), EMBTIER_OK);
    }
}

static void test_no_attempt_begins_after_the_limit(void **state)
{
    struct world world = { .is_longest = true,
                           .errors = { EMBTIER_UNREACHABLE },
                           .error_count = 1 };

    (void)state;
    assert_int_equal(run(&world, &(struct retry){ 0 }, 400), EMBTIER_UNREACHABLE);
    assert_int_equal(world.attempts, 4); /* at 0, 50, 150 and 350 ms; the next would be at 750 */
    assert_int_equal(world.now_ns, 400 * MS);
}

static void test_a_long_attempt_is_not_cut_short(void **state)
{
    struct world world = { .errors = { EMBTIER_TIMEOUT },
                           .error_count = 1,
                           .attempt_ns = 900 * MS };

    (void)state;
    assert_int_equal(run(&world, &(struct retry){ 0 }, 1000), EMBTIER_TIMEOUT);
    assert_int_equal(world.attempts, 2);
    assert_int_equal(world.now_ns, 1800 * MS);
}

static void test_without_a_limit_there_is_one_attempt_at_once(void **state)
{
    struct world world = { .is_longest = true,
                           .errors = { EMBTIER_UNREACHABLE },
                           .error_count = 1 };
    struct retry retry = { 0 };

    (void)state;
    for (uint32_t i = 1; i <= 3; i++) {
        assert_int_equal(run(&world, &retry, 0), EMBTIER_UNREACHABLE);
        assert_int_equal(world.attempts, i);
        assert_int_equal(world.sleeps, 0);
    }
}

/* As the Python package waits, so that Ctrl-C is noticed. */
static void test_short_calls_make_the_pauses_of_a_long_one(void **state)
{
    struct world world = { .is_longest = true,
                           .errors = { [0 ... 4] = EMBTIER_UNREACHABLE, [5] = EMBTIER_OK },
                           .error_count = 6 };
    struct retry retry = { 0 };
    enum embtier_err err;

    (void)state;
    do
        err = run(&world, &retry, 30);
    while (err == EMBTIER_UNREACHABLE);
    assert_int_equal(err, EMBTIER_OK);
    assert_int_equal(world.attempts, 6);
    assert_int_equal(world.at_ns[5], (50 + 100 + 200 + 400 + 800) * MS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_longest_pauses_double_up_to_a_limit),
        cmocka_unit_test(test_a_pause_is_any_time_up_to_its_limit),
        cmocka_unit_test(test_clients_of_one_server_draw_differently),
        cmocka_unit_test(test_a_refusal_that_stays_ends_it_at_once),
        cmocka_unit_test(test_no_attempt_begins_after_the_limit),
        cmocka_unit_test(test_a_long_attempt_is_not_cut_short),
        cmocka_unit_test(test_without_a_limit_there_is_one_attempt_at_once),
        cmocka_unit_test(test_short_calls_make_the_pauses_of_a_long_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
