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
#define SESSIONS     8
#define THREADS      4
#define BLOCKS       60
#define BLOCK_BYTES  (REGION_BYTES / 8 * 7 / BLOCKS - 128) /* not a small one */
#define SMALL_BYTES  (64 * KIB)

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
    struct request_memory_share shares[SESSIONS] = { { 0 } };
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
        slot->bytes = request_memory_take(memory, &shares[(slot - held) % SESSIONS], slot->count);
        refused += !slot->bytes;
        if (slot->bytes) {
            assert_int_equal((uintptr_t)slot->bytes % CACHE_LINE, 0);
            memset(slot->bytes, slot->mark, slot->count);
        }
    }
    for (uint32_t i = 0; i < SLOTS; i++)
        if (held[i].bytes)
            request_memory_give(memory, held[i].bytes);
    for (uint32_t i = 0; i < SESSIONS; i++) {
        request_memory_leave(memory, &shares[i]);
        assert_int_equal(shares[i].held_bytes, 0);
    }
    return refused;
}

static void assert_in_one_piece(struct request_memory *memory)
{
    struct request_memory_share share = { 0 };
    void *const all = request_memory_take(memory, &share, request_memory_largest(memory));

    assert_non_null(all);
    assert_null(request_memory_take(memory, &share, BLOCK_BYTES));
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

/* ---- Shares ---- */

static void test_one_session_gets_half_and_another_half_of_the_rest(void **state)
{
    struct request_memory *memory = memory_new(&held_clock);
    struct request_memory_share shares[3] = { { 0 } };
    void *blocks[BLOCKS];
    uint32_t held[3] = { 0 };
    uint32_t count = 0;

    (void)state;
    for (uint32_t i = 0; i < ARRAY_LEN(shares); i++)
        for (; (blocks[count] = request_memory_take(memory, &shares[i], BLOCK_BYTES)); held[i]++)
            count++;
    assert_in_range(held[0], BLOCKS / 2 - 1, BLOCKS / 2);
    assert_in_range(held[1], BLOCKS / 4 - 1, BLOCKS / 4);
    assert_in_range(held[2], BLOCKS / 8 - 1, BLOCKS / 8 + 1);
    while (count-- > 0)
        request_memory_give(memory, blocks[count]);
    assert_in_one_piece(memory);
    request_memory_free(memory);
}

/* ---- In turn ---- */

/* A memory that is used up, a block by each of many sessions, and one session that wants it all. */
struct short_memory {
    struct request_memory *memory;
    struct request_memory_share large, small[BLOCKS];
    void *blocks[BLOCKS];
};

static void take_block(struct short_memory *x, uint32_t session)
{
    x->blocks[session] = request_memory_take(x->memory, &x->small[session], BLOCK_BYTES);
}

static void give_block(struct short_memory *x, uint32_t session)
{
    if (x->blocks[session])
        request_memory_give(x->memory, TAKE(x->blocks[session]));
}

static void *take_all(struct short_memory *x)
{
    return request_memory_take(x->memory, &x->large, request_memory_largest(x->memory));
}

static void use_up(struct short_memory *x)
{
    *x = (struct short_memory){ .memory = memory_new(&held_clock) };
    for (uint32_t i = 0; i < BLOCKS; i++) {
        take_block(x, i);
        assert_non_null(x->blocks[i]);
    }
    assert_null(take_all(x));
}

static void clear(struct short_memory *x)
{
    for (uint32_t i = 0; i < BLOCKS; i++) {
        give_block(x, i);
        request_memory_leave(x->memory, &x->small[i]);
    }
    request_memory_leave(x->memory, &x->large);
    assert_in_one_piece(x->memory);
    request_memory_free(x->memory);
}

static void test_a_large_request_gets_its_turn_though_small_ones_never_end(void **state)
{
    struct short_memory x;
    void *all = NULL;
    uint32_t passed = 0;

    (void)state;
    use_up(&x);
    /* One small request ends every millisecond, and its session asks for another. */
    for (uint32_t i = 0; i < 3 * BLOCKS && !(all = take_all(&x)); i++, pass_ms(1)) {
        give_block(&x, i % BLOCKS);
        take_block(&x, i % BLOCKS);
        passed += x.blocks[i % BLOCKS] != NULL;
    }
    assert_non_null(all);
    assert_in_range(passed, 1, 10); /* at first it is not strict */
    request_memory_give(x.memory, all);
    for (uint32_t i = 0; i < BLOCKS; i++) /* now there is room for all others, in any order */
        take_block(&x, BLOCKS - 1 - i);
    for (uint32_t i = 0; i < BLOCKS; i++)
        assert_non_null(x.blocks[i]);
    clear(&x);
}

static void test_small_requests_are_served_though_a_large_one_holds_or_wants_all(void **state)
{
    struct request_memory *memory = memory_new(&held_clock);
    struct request_memory_share large = { 0 }, other = { 0 }, small = { 0 };
    void *const all = request_memory_take(memory, &large, request_memory_largest(memory));

    (void)state;
    assert_null(request_memory_take(memory, &other, request_memory_largest(memory)));
    for (uint32_t i = 0; i < 100; i++, pass_ms(50)) {
        void *const place = request_memory_take(memory, &small, SMALL_BYTES);

        assert_non_null(place);
        assert_null(request_memory_take(memory, &small, SMALL_BYTES)); /* one of each session */
        assert_null(request_memory_take(memory, &other, request_memory_largest(memory)));
        request_memory_give(memory, place);
    }
    request_memory_leave(memory, &small);
    request_memory_leave(memory, &other);
    request_memory_give(memory, all);
    assert_in_one_piece(memory);
    request_memory_free(memory);
}

/* Has the large one's turn come: there is room for a block, and it is not given. */
static void await_turn_of_large(struct short_memory *x)
{
    use_up(x);
    pass_ms(50);
    give_block(x, 0);
    take_block(x, 0);
    assert_null(x->blocks[0]);
}

static void test_who_stops_trying_keeps_nobody_out(void **state)
{
    struct short_memory x;

    (void)state;
    await_turn_of_large(&x);
    pass_ms(60);
    take_block(&x, 0);
    assert_non_null(x.blocks[0]);
    assert_false(x.large.in_line);
    clear(&x);
}

static void test_who_leaves_the_line_keeps_nobody_out(void **state)
{
    struct short_memory x;

    (void)state;
    await_turn_of_large(&x);
    request_memory_leave(x.memory, &x.large);
    take_block(&x, 0);
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
        cmocka_unit_test(test_one_session_gets_half_and_another_half_of_the_rest),
        cmocka_unit_test(test_a_large_request_gets_its_turn_though_small_ones_never_end),
        cmocka_unit_test(test_small_requests_are_served_though_a_large_one_holds_or_wants_all),
        cmocka_unit_test(test_who_stops_trying_keeps_nobody_out),
        cmocka_unit_test(test_who_leaves_the_line_keeps_nobody_out),
    };

    return cmocka_run_group_tests_name("request memory", tests, NULL, NULL);
}
