/* SPDX-License-Identifier: Apache-2.0 */
/* Does the memory of requests come back in one piece, and does everybody's turn come, so that no
 * session waits for ever? */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/macros.h"
#include "daemon/request_memory.h"

#define REGION_BYTES (16 * MIB)
#define SLOTS        200
#define THREADS      4

static struct request_memory *memory_new(void)
{
    struct request_memory *memory = NULL;
    struct err_msg msg = { { 0 } };

    if (request_memory_new(REGION_BYTES, &memory, &msg) != EMBTIER_OK)
        fail_msg("%s", msg.text);
    return memory;
}

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

struct held {
    unsigned char *bytes;
    uint64_t count;
    unsigned char mark;
};

/* Takes and gives back at random; what is held is never touched by anybody else. */
static unsigned play(struct request_memory *memory, uint64_t seed, uint32_t rounds)
{
    struct held held[SLOTS] = { { 0 } };
    unsigned refused = 0;

    for (uint32_t round = 0; round < rounds; round++) {
        struct held *const slot = &held[next_random(&seed) % SLOTS];

        if (slot->bytes) {
            for (uint64_t i = 0; i < slot->count; i += 61)
                assert_int_equal(slot->bytes[i], slot->mark);
            request_memory_give(memory, TAKE(slot->bytes));
            continue;
        }
        slot->count = 1 + (next_random(&seed) % 1000) * (next_random(&seed) % 700);
        slot->mark = (unsigned char)next_random(&seed);
        slot->bytes = request_memory_take(memory, slot->count, held, round);
        if (!slot->bytes) {
            refused++;
            request_memory_leave(memory, held); /* it will want something else */
        } else {
            assert_int_equal((uintptr_t)slot->bytes % CACHE_LINE, 0);
            memset(slot->bytes, slot->mark, slot->count);
        }
    }
    for (uint32_t i = 0; i < SLOTS; i++)
        if (held[i].bytes)
            request_memory_give(memory, held[i].bytes);
    return refused;
}

static void *take_all(struct request_memory *memory, const void *who, uint64_t since_ns)
{
    return request_memory_take(memory, request_memory_largest(memory), who, since_ns);
}

static void assert_in_one_piece(struct request_memory *memory)
{
    void *const all = take_all(memory, memory, 1);

    assert_non_null(all);
    assert_null(request_memory_take(memory, 1, memory, 1));
    request_memory_leave(memory, memory);
    request_memory_give(memory, all);
}

static void test_largest_request_fits_after_any_history(void **state)
{
    struct request_memory *memory = memory_new();

    (void)state;
    assert_in_one_piece(memory);
    for (uint64_t seed = 1; seed <= 10; seed++) {
        print_message("seed %llu\n", (unsigned long long)seed);
        assert_true(play(memory, seed, 5000) > 0); /* it was used up at times */
        assert_in_one_piece(memory);
    }
    request_memory_free(memory);
}

static void test_more_than_the_largest_is_refused(void **state)
{
    struct request_memory *memory = memory_new();

    (void)state;
    assert_null(request_memory_take(memory, request_memory_largest(memory) + 1, memory, 1));
    assert_null(request_memory_take(memory, UINT64_MAX, memory, 1));
    assert_false(
        request_memory_must_wait(memory, &state, 1)); /* nobody waits for what never comes */
    assert_in_one_piece(memory);
    request_memory_free(memory);
}

static void test_places_become_links_and_back(void **state)
{
    struct request_memory *memory = memory_new();
    uint8_t *const base = request_memory_base(memory);
    uint8_t *const block = take_all(memory, memory, 1);

    (void)state;
    for (uint64_t at = 0; at < request_memory_largest(memory); at += 24) {
        const uint32_t link = request_memory_link(base, block + at);

        assert_int_not_equal(link, 0);
        assert_ptr_equal(request_memory_place(base, link), block + at);
    }
    request_memory_give(memory, block);
    request_memory_free(memory);
}

/* ---- Who is first ---- */

static const char small, large, larger;

/* One block goes back and @who takes another of its size at once, until he is refused; returns how
 * often he was not. One block is under way before, and none after. */
static uint32_t overtake(struct request_memory *memory, void *block, uint64_t bytes,
                         const void *who, uint64_t since_ns)
{
    uint32_t count = 0;

    for (;; count++) {
        void *const next = request_memory_take(memory, bytes, who, since_ns);

        request_memory_give(memory, block);
        if (!next)
            return count;
        assert_true(count < 1000);
        block = next;
    }
}

static void test_others_overtake_the_first_by_no_more_than_the_region(void **state)
{
    struct request_memory *memory = memory_new();
    void *const block = request_memory_take(memory, MIB, &small, 1);
    void *all;

    (void)state;
    assert_null(take_all(memory, &large, 5));
    assert_true(request_memory_must_wait(memory, &large, 5)); /* nothing was given back */
    assert_false(request_memory_must_wait(memory, &small, 6));
    assert_int_equal(overtake(memory, block, MIB, &small, 6), REGION_BYTES / MIB);
    assert_true(request_memory_must_wait(memory, &small, 6));
    assert_false(request_memory_must_wait(memory, &large, 5));
    all = take_all(memory, &large, 5);
    assert_non_null(all);
    request_memory_give(memory, all);
    assert_false(request_memory_must_wait(memory, &small, 6));
    assert_in_one_piece(memory);
    request_memory_free(memory);
}

static void test_who_has_waited_longest_is_first(void **state)
{
    struct request_memory *memory = memory_new();
    void *const block = request_memory_take(memory, MIB, &small, 1);
    void *all;

    (void)state;
    assert_null(take_all(memory, &large, 5));
    overtake(memory, block, MIB, &small, 6);
    /* Nothing is under way, but it is kept for &large. */
    assert_false(request_memory_must_wait(memory, &larger, 4));
    assert_null(take_all(memory, &larger, 4));
    assert_true(request_memory_must_wait(memory, &large, 5));
    assert_null(take_all(memory, &large, 5));
    /* Nobody gives anything back any more that could tell him. */
    assert_false(request_memory_must_wait(memory, &larger, 4));
    all = take_all(memory, &larger, 4);
    assert_non_null(all);
    assert_null(take_all(memory, &large, 5));
    assert_null(take_all(memory, &larger, 7));
    assert_int_equal(overtake(memory, all, request_memory_largest(memory), &larger, 7), 0);
    all = take_all(memory, &large, 5);
    assert_non_null(all);
    request_memory_give(memory, all);
    request_memory_free(memory);
}

static void test_who_leaves_keeps_nobody_waiting(void **state)
{
    struct request_memory *memory = memory_new();
    void *block = request_memory_take(memory, MIB, &small, 1);

    (void)state;
    assert_null(take_all(memory, &large, 5));
    overtake(memory, block, MIB, &small, 6);
    request_memory_leave(memory, &larger); /* who is not first */
    assert_null(request_memory_take(memory, 1, &small, 6));
    request_memory_leave(memory, &large);
    block = request_memory_take(memory, 1, &small, 6);
    assert_non_null(block);
    request_memory_give(memory, block);
    assert_in_one_piece(memory);
    request_memory_free(memory);
}

/* ---- Threads ---- */

static void *play_thread(void *context)
{
    static _Atomic uint64_t seed = 100;

    play(context, ++seed, 20000);
    return NULL;
}

/* Wants all of it a few times, while others never cease to take a little. */
static _Atomic bool all_served;

static void *little_thread(void *context)
{
    struct request_memory *const memory = context;
    void *blocks[8] = { NULL };
    uint64_t since = 1;

    for (uint32_t i = 0; !atomic_load(&all_served); i = (i + 1) % ARRAY_LEN(blocks)) {
        if (blocks[i])
            request_memory_give(memory, TAKE(blocks[i]));
        if (request_memory_must_wait(memory, blocks, since))
            continue;
        blocks[i] = request_memory_take(memory, 100000, blocks, since);
        if (blocks[i])
            since = clock_now_ns(&clock_monotonic);
    }
    request_memory_leave(memory, blocks);
    for (uint32_t i = 0; i < ARRAY_LEN(blocks); i++)
        if (blocks[i])
            request_memory_give(memory, blocks[i]);
    return NULL;
}

static void *all_thread(void *context)
{
    struct request_memory *const memory = context;
    const int who = 0;

    for (uint32_t i = 0; i < 50; i++) {
        const uint64_t since = clock_now_ns(&clock_monotonic);
        void *all = NULL;

        while (!all)
            if (!request_memory_must_wait(memory, &who, since))
                all = take_all(memory, &who, since);
        request_memory_give(memory, all);
    }
    return NULL;
}

static void test_all_is_had_by_those_who_wait_for_it(void **state)
{
    struct request_memory *memory = memory_new();
    pthread_t threads[THREADS];

    (void)state;
    for (uint32_t i = 0; i < THREADS; i++)
        assert_int_equal(
            pthread_create(&threads[i], NULL, i < THREADS / 2 ? all_thread : little_thread, memory),
            0);
    for (uint32_t i = 0; i < THREADS / 2; i++)
        pthread_join(threads[i], NULL);
    atomic_store(&all_served, true);
    for (uint32_t i = THREADS / 2; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_in_one_piece(memory);
    request_memory_free(memory);
}

static void test_lanes_share_the_memory(void **state)
{
    struct request_memory *memory = memory_new();
    pthread_t threads[THREADS];

    (void)state;
    for (uint32_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, play_thread, memory), 0);
    for (uint32_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_in_one_piece(memory);
    request_memory_free(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_largest_request_fits_after_any_history),
        cmocka_unit_test(test_more_than_the_largest_is_refused),
        cmocka_unit_test(test_places_become_links_and_back),
        cmocka_unit_test(test_others_overtake_the_first_by_no_more_than_the_region),
        cmocka_unit_test(test_who_has_waited_longest_is_first),
        cmocka_unit_test(test_who_leaves_keeps_nobody_waiting),
        cmocka_unit_test(test_all_is_had_by_those_who_wait_for_it),
        cmocka_unit_test(test_lanes_share_the_memory),
    };

    return cmocka_run_group_tests_name("request memory", tests, NULL, NULL);
}
