/* SPDX-License-Identifier: Apache-2.0 */
/* Does the memory of requests come back in one piece, and is it shared out in turn, so that no
 * session waits for ever? */
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
#define BLOCKS       60
#define BLOCK_BYTES  (REGION_BYTES / BLOCKS - 128)

static uint64_t held_now_ns;

static uint64_t held_time(void *context)
{
    (void)context;
    return held_now_ns;
}

/* Stands still, so that nobody's turn comes but where a test says so. */
static const struct clock held_clock = { .now_ns = held_time };

static void pass_ms(uint64_t ms)
{
    held_now_ns += ms * 1000 * 1000;
}

static struct request_memory *memory_new(const struct clock *clock)
{
    struct request_memory *memory = NULL;
    struct err_msg msg = { { 0 } };

    if (request_memory_new(REGION_BYTES, clock, &memory, &msg) != EMBTIER_OK)
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
    struct request_memory_share share = { 0 };
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
        slot->bytes = request_memory_take(memory, &share, slot->count);
        refused += !slot->bytes;
        if (slot->bytes) {
            assert_int_equal((uintptr_t)slot->bytes % CACHE_LINE, 0);
            memset(slot->bytes, slot->mark, slot->count);
        }
    }
    for (uint32_t i = 0; i < SLOTS; i++)
        if (held[i].bytes)
            request_memory_give(memory, held[i].bytes);
    request_memory_leave(memory, &share);
    return refused;
}

static void assert_in_one_piece(struct request_memory *memory)
{
    struct request_memory_share share = { 0 };
    void *const all = request_memory_take(memory, &share, request_memory_largest(memory));

    assert_non_null(all);
    assert_null(request_memory_take(memory, &share, 1));
    request_memory_leave(memory, &share);
    request_memory_give(memory, all);
}

static void test_largest_request_fits_after_any_history(void **state)
{
    struct request_memory *memory = memory_new(&held_clock);

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
    struct request_memory *memory = memory_new(&held_clock);
    struct request_memory_share share = { 0 };

    (void)state;
    assert_null(request_memory_take(memory, &share, request_memory_largest(memory) + 1));
    assert_null(request_memory_take(memory, &share, UINT64_MAX));
    assert_false(share.in_line);
    assert_in_one_piece(memory);
    request_memory_free(memory);
}

static void test_places_become_links_and_back(void **state)
{
    struct request_memory *memory = memory_new(&held_clock);
    struct request_memory_share share = { 0 };
    uint8_t *const base = request_memory_base(memory);
    uint8_t *const block = request_memory_take(memory, &share, request_memory_largest(memory));

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
    struct request_memory *memory = memory_new(&clock_monotonic);
    pthread_t threads[THREADS];

    (void)state;
    for (uint32_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, play_thread, memory), 0);
    for (uint32_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_in_one_piece(memory);
    request_memory_free(memory);
}

/* ---- In turn ---- */

/* A memory that is used up, by blocks of which one comes back now and then. */
struct short_memory {
    struct request_memory *memory;
    struct request_memory_share filler, large, small;
    void *blocks[BLOCKS];
};

static void use_up(struct short_memory *x)
{
    *x = (struct short_memory){ .memory = memory_new(&held_clock) };
    for (uint32_t i = 0; i < BLOCKS; i++) {
        x->blocks[i] = request_memory_take(x->memory, &x->filler, BLOCK_BYTES);
        assert_non_null(x->blocks[i]);
    }
    assert_null(request_memory_take(x->memory, &x->large, request_memory_largest(x->memory)));
}

static void clear(struct short_memory *x)
{
    for (uint32_t i = 0; i < BLOCKS; i++)
        if (x->blocks[i])
            request_memory_give(x->memory, x->blocks[i]);
    request_memory_leave(x->memory, &x->large);
    request_memory_leave(x->memory, &x->small);
    assert_in_one_piece(x->memory);
    request_memory_free(x->memory);
}

static void *take_small(struct short_memory *x)
{
    return request_memory_take(x->memory, &x->small, BLOCK_BYTES);
}

static void test_a_large_request_gets_its_turn_though_small_ones_never_end(void **state)
{
    struct short_memory x;
    void *all = NULL;
    uint32_t passed = 0;

    (void)state;
    use_up(&x);
    /* One small request ends every millisecond, another wants to begin, the large one tries. */
    for (uint32_t i = 0; i < BLOCKS + 10 && !all; i++, pass_ms(1)) {
        if (i < BLOCKS)
            request_memory_give(x.memory, TAKE(x.blocks[i]));
        all = request_memory_take(x.memory, &x.large, request_memory_largest(x.memory));
        if (!all && i < BLOCKS && (x.blocks[i] = take_small(&x)))
            passed++;
        if (i + 1 == BLOCKS) /* those that passed end too */
            for (uint32_t j = 0; j < BLOCKS; j++)
                if (x.blocks[j])
                    request_memory_give(x.memory, TAKE(x.blocks[j]));
    }
    assert_non_null(all);
    assert_in_range(passed, 1, 10); /* at first it is not strict */
    assert_null(take_small(&x));
    request_memory_give(x.memory, all);
    x.blocks[0] = take_small(&x);
    assert_non_null(x.blocks[0]);
    clear(&x);
}

static void test_who_needs_little_is_not_held_up_by_who_holds_much(void **state)
{
    struct short_memory x;

    (void)state;
    use_up(&x);
    request_memory_leave(x.memory, &x.large);
    assert_null(request_memory_take(x.memory, &x.filler, BLOCK_BYTES)); /* which holds it all */
    for (uint32_t i = 0; i < 100; i++) {
        pass_ms(50);
        assert_null(request_memory_take(x.memory, &x.filler, 2 * BLOCK_BYTES));
        request_memory_give(x.memory, TAKE(x.blocks[0]));
        x.blocks[0] = take_small(&x);
        assert_non_null(x.blocks[0]);
    }
    request_memory_leave(x.memory, &x.filler);
    clear(&x);
}

static void test_who_stops_trying_keeps_nobody_out(void **state)
{
    struct short_memory x;

    (void)state;
    use_up(&x);
    pass_ms(50);
    request_memory_give(x.memory, TAKE(x.blocks[0]));
    assert_null(take_small(&x)); /* there is room, but it is the large one's turn */
    pass_ms(60);
    x.blocks[0] = take_small(&x);
    assert_non_null(x.blocks[0]);
    assert_false(x.large.in_line);
    clear(&x);
}

static void test_who_leaves_the_line_keeps_nobody_out(void **state)
{
    struct short_memory x;

    (void)state;
    use_up(&x);
    pass_ms(50);
    request_memory_give(x.memory, TAKE(x.blocks[0]));
    assert_null(take_small(&x));
    request_memory_leave(x.memory, &x.large);
    x.blocks[0] = take_small(&x);
    assert_non_null(x.blocks[0]);
    clear(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_largest_request_fits_after_any_history),
        cmocka_unit_test(test_more_than_the_largest_is_refused),
        cmocka_unit_test(test_places_become_links_and_back),
        cmocka_unit_test(test_lanes_share_the_memory),
        cmocka_unit_test(test_a_large_request_gets_its_turn_though_small_ones_never_end),
        cmocka_unit_test(test_who_needs_little_is_not_held_up_by_who_holds_much),
        cmocka_unit_test(test_who_stops_trying_keeps_nobody_out),
        cmocka_unit_test(test_who_leaves_the_line_keeps_nobody_out),
    };

    return cmocka_run_group_tests_name("request memory", tests, NULL, NULL);
}
