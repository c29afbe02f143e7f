/* SPDX-License-Identifier: Apache-2.0 */
/* Does the memory of requests come back in one piece, so that no session waits for ever? */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

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
        slot->bytes = request_memory_take(memory, slot->count);
        refused += !slot->bytes;
        if (slot->bytes) {
            assert_int_equal((uintptr_t)slot->bytes % CACHE_LINE, 0);
            memset(slot->bytes, slot->mark, slot->count);
        }
    }
    for (uint32_t i = 0; i < SLOTS; i++)
        if (held[i].bytes)
            request_memory_give(memory, held[i].bytes);
    return refused;
}

static void assert_in_one_piece(struct request_memory *memory)
{
    void *const all = request_memory_take(memory, request_memory_largest(memory));

    assert_non_null(all);
    assert_null(request_memory_take(memory, 1));
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
    assert_null(request_memory_take(memory, request_memory_largest(memory) + 1));
    assert_null(request_memory_take(memory, UINT64_MAX));
    assert_in_one_piece(memory);
    request_memory_free(memory);
}

static void test_places_become_links_and_back(void **state)
{
    struct request_memory *memory = memory_new();
    uint8_t *const base = request_memory_base(memory);
    uint8_t *const block = request_memory_take(memory, request_memory_largest(memory));

    (void)state;
    for (uint64_t at = 0; at < request_memory_largest(memory); at += 24) {
        const uint32_t link = request_memory_link(base, block + at);

        assert_int_not_equal(link, 0);
        assert_ptr_equal(request_memory_place(base, link), block + at);
    }
    request_memory_give(memory, block);
    request_memory_free(memory);
}

static void *play_thread(void *context)
{
    static _Atomic uint64_t seed = 100;

    play(context, ++seed, 20000);
    return NULL;
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
        cmocka_unit_test(test_lanes_share_the_memory),
    };

    return cmocka_run_group_tests_name("request memory", tests, NULL, NULL);
}
