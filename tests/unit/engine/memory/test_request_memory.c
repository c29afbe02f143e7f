/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that request memory comes back in one piece, and that sessions get it in turn, so that none
 * waits for ever. */
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
#include "daemon/engine/memory/request_memory.h"
#include "tests/forms.h"
#include "tests/seed.h"

#define REGION_BYTES (16 * MIB)
#define SLOTS        200
#define SESSIONS     8
#define THREADS      4
#define BLOCKS       60
#define BLOCK_BYTES  (REGION_BYTES / 8 * 7 / BLOCKS - 128) /* counts as large */
#define SMALL_BYTES  (64 * KIB)

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

/* Takes and gives back at random. No other taker may touch a block that is held. */
static unsigned play(struct request_memory *memory, uint64_t seed, uint32_t rounds)
{
    struct held held[SLOTS] = { { 0 } };
    struct request_memory_share shares[SESSIONS] = { { .wanted_bytes = 0 } };
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
        slot->bytes = request_memory_take(memory, &shares[(slot - held) % SESSIONS], slot->count,
                                          REQUEST_MEMORY_ENDS);
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
        for (uint32_t part = 0; part < REQUEST_MEMORY_PARTS; part++)
            assert_int_equal(shares[i].held_bytes[part], 0);
    }
    return refused;
}

static void assert_in_one_piece(struct request_memory *memory)
{
    struct request_memory_share share = { 0 };
    void *const all =
        request_memory_take(memory, &share, request_memory_largest(memory), REQUEST_MEMORY_ENDS);

    assert_non_null(all);
    assert_null(request_memory_take(memory, &share, BLOCK_BYTES, REQUEST_MEMORY_ENDS));
    request_memory_leave(memory, &share);
    request_memory_give(memory, all);
}

static void test_largest_request_fits_after_any_history(void **state)
{
    struct request_memory *memory = memory_new();
    const uint64_t first = seed_of_test(__func__, SEED_USUAL) | 1;

    (void)state;
    assert_in_one_piece(memory);
    for (uint64_t i = 0; i < BY_BUILD(10, 5, 2); i++) {
        print_message("seed %#" PRIx64 "\n", first + i);
        assert_true(play(memory, first + i, 5000) > 0); /* memory ran out at times */
        assert_in_one_piece(memory);
    }
    request_memory_free(memory);
}

static void test_more_than_the_largest_is_refused(void **state)
{
    struct request_memory *memory = memory_new();
    struct request_memory_share share = { 0 };

    (void)state;
    assert_null(request_memory_take(memory, &share, request_memory_largest(memory) + 1,
                                    REQUEST_MEMORY_ENDS));
    assert_null(request_memory_take(memory, &share, UINT64_MAX, REQUEST_MEMORY_ENDS));
    assert_false(request_memory_waits(memory, &share));
    assert_in_one_piece(memory);
    request_memory_free(memory);
}

static void test_places_become_links_and_back(void **state)
{
    struct request_memory *memory = memory_new();
    struct request_memory_share share = { 0 };
    uint8_t *const base = request_memory_base(memory);
    uint8_t *const block =
        request_memory_take(memory, &share, request_memory_largest(memory), REQUEST_MEMORY_ENDS);

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

/* ---- Shares ---- */

static void test_one_session_gets_half_and_another_half_of_the_rest(void **state)
{
    struct request_memory *memory = memory_new();
    struct request_memory_share shares[3] = { { .wanted_bytes = 0 } };
    void *blocks[BLOCKS];
    uint32_t held[3] = { 0 };
    uint32_t count = 0;

    (void)state;
    for (uint32_t i = 0; i < ARRAY_LEN(shares); i++)
        for (; (blocks[count] =
                    request_memory_take(memory, &shares[i], BLOCK_BYTES, REQUEST_MEMORY_ENDS));
             held[i]++)
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

/* Memory that is used up by one block of each of many sessions, and a session that wants it all. */
struct short_memory {
    struct request_memory *memory;
    struct request_memory_share large, small[BLOCKS];
    void *blocks[BLOCKS];
};

static uint32_t told; /* how often a session was told */

static void count_told(struct request_memory_share *share)
{
    assert_non_null(share->granted);
    told++;
}

static void take_block(struct short_memory *x, uint32_t session)
{
    if (!x->blocks[session])
        x->blocks[session] =
            request_memory_take(x->memory, &x->small[session], BLOCK_BYTES, REQUEST_MEMORY_ENDS);
    x->small[session].is_told = false; /* the session has heard it */
}

static void give_block(struct short_memory *x, uint32_t session)
{
    if (x->blocks[session])
        request_memory_give(x->memory, TAKE(x->blocks[session]));
}

static void *take_all(struct short_memory *x)
{
    return request_memory_take(x->memory, &x->large, request_memory_largest(x->memory),
                               REQUEST_MEMORY_ENDS);
}

static void use_up(struct short_memory *x)
{
    *x = (struct short_memory){ .memory = memory_new(), .large.wake = count_told };
    told = 0;
    for (uint32_t i = 0; i < BLOCKS; i++) {
        x->small[i].wake = count_told;
        take_block(x, i);
        assert_non_null(x->blocks[i]);
    }
    assert_null(take_all(x));
}

static void clear(struct short_memory *x)
{
    request_memory_leave(x->memory, &x->large);
    for (uint32_t i = 0; i < BLOCKS; i++)
        request_memory_leave(x->memory, &x->small[i]);
    for (uint32_t i = 0; i < BLOCKS; i++)
        give_block(x, i);
    assert_in_one_piece(x->memory);
    request_memory_free(x->memory);
}

static void test_a_large_request_gets_its_turn_though_small_ones_never_end(void **state)
{
    struct short_memory x;
    uint32_t session = 0;
    uint32_t passed = 0;
    void *all;

    (void)state;
    use_up(&x);
    /* One request after another ends, and its session asks again. */
    while (!x.large.granted && passed <= 2 * BLOCKS * BLOCKS) {
        const uint32_t i = session++ % BLOCKS;

        passed += x.blocks[i] != NULL;
        give_block(&x, i);
        take_block(&x, i);
    }
    assert_in_range(passed, BLOCKS, BLOCKS * (BLOCKS + 2)); /* each had its share */
    all = take_all(&x);
    assert_non_null(all);
    request_memory_give(x.memory, all);
    clear(&x);
}
/* A session owns its memory when it is told, and need not ask again before. Others may ask as often
 * as they like. */
static void test_a_session_that_waits_is_told_once_and_has_its_memory_then(void **state)
{
    struct short_memory x;
    struct request_memory_share other = { 0 };
    void *place;

    (void)state;
    use_up(&x);
    request_memory_leave(x.memory, &x.large);
    give_block(&x, 0);
    take_block(&x, 0);
    assert_non_null(x.blocks[0]); /* no other session wanted it */
    assert_null(request_memory_take(x.memory, &other, BLOCK_BYTES, REQUEST_MEMORY_ENDS));
    other.wake = count_told;
    for (uint32_t i = 0; i < 3; i++)
        assert_false(request_memory_reserve(x.memory, &other, BLOCK_BYTES, REQUEST_MEMORY_ENDS));
    assert_true(request_memory_waits(x.memory, &other));
    assert_int_equal(told, 0);
    give_block(&x, 0);
    assert_int_equal(told, 1);
    assert_false(request_memory_waits(x.memory, &other));
    take_block(&x, 0);
    assert_null(x.blocks[0]);
    assert_true(request_memory_reserve(x.memory, &other, BLOCK_BYTES, REQUEST_MEMORY_ENDS));
    place = request_memory_take(x.memory, &other, BLOCK_BYTES, REQUEST_MEMORY_ENDS);
    assert_non_null(place);
    assert_int_equal(told, 1);
    request_memory_give(x.memory, place); /* session 0 gets this */
    assert_int_equal(told, 2);
    clear(&x);
}

static void test_a_session_that_asks_for_something_else_gives_back_its_grant(void **state)
{
    struct short_memory x;

    (void)state;
    use_up(&x);
    for (uint32_t i = 0; i < BLOCKS; i++)
        give_block(&x, i);
    assert_int_equal(told, 1);
    take_block(&x, 0); /* none is left: the large request was granted all */
    assert_null(x.blocks[0]);
    x.large.is_told = false;
    assert_true(request_memory_reserve(x.memory, &x.large, BLOCK_BYTES, REQUEST_MEMORY_ENDS));
    take_block(&x, 0);
    assert_non_null(x.blocks[0]);
    clear(&x);
}

/* Sessions with endless large requests get no more of the memory's time than one whose requests are
 * a tenth as large. */
static void test_the_line_is_in_the_order_of_what_each_has_got(void **state)
{
    enum { LARGE = 5 };
    struct request_memory *memory = memory_new();
    const uint64_t bytes[LARGE + 1] = { 6 * MIB, 6 * MIB, 6 * MIB, 6 * MIB, 6 * MIB, 600 * KIB };
    struct request_memory_share shares[LARGE + 1] = { { .wanted_bytes = 0 } };
    uint32_t got[LARGE + 1] = { 0 };
    void *held[2 * LARGE];
    uint32_t count = 0;
    uint32_t taken = 0;

    (void)state;
    for (uint32_t round = 0; round < 1000; round++) {
        for (uint32_t i = 0; i <= LARGE; i++) {
            void *const place =
                request_memory_take(memory, &shares[i], bytes[i], REQUEST_MEMORY_ENDS);

            if (place) {
                held[count++] = place;
                got[i]++;
                taken++;
            }
        }
        assert_in_range(count, 1, 2 * LARGE - 1);
        request_memory_give(memory, held[0]); /* the oldest ends */
        memmove(held, held + 1, --count * sizeof(held[0]));
    }
    for (uint32_t i = 1; i < LARGE; i++)
        assert_in_range(got[i], got[0] - 2, got[0] + 2);
    assert_in_range(got[LARGE], 4 * got[0], taken);
    while (count > 0)
        request_memory_give(memory, held[--count]);
    for (uint32_t i = 0; i <= LARGE; i++)
        request_memory_leave(memory, &shares[i]);
    assert_in_one_piece(memory);
    request_memory_free(memory);
}

static void test_small_requests_are_served_though_a_large_one_holds_or_wants_all(void **state)
{
    struct request_memory *memory = memory_new();
    struct request_memory_share large = { 0 }, other = { 0 }, small = { 0 };
    void *const all =
        request_memory_take(memory, &large, request_memory_largest(memory), REQUEST_MEMORY_ENDS);

    (void)state;
    assert_null(
        request_memory_take(memory, &other, request_memory_largest(memory), REQUEST_MEMORY_ENDS));
    for (uint32_t i = 0; i < 100; i++) {
        void *const place = request_memory_take(memory, &small, SMALL_BYTES, REQUEST_MEMORY_ENDS);

        assert_non_null(place);
        assert_null(request_memory_take(memory, &small, SMALL_BYTES,
                                        REQUEST_MEMORY_ENDS)); /* one per session */
        assert_null(request_memory_take(memory, &other, request_memory_largest(memory),
                                        REQUEST_MEMORY_ENDS));
        request_memory_give(memory, place);
    }
    request_memory_leave(memory, &small);
    request_memory_leave(memory, &other);
    request_memory_give(memory, all);
    assert_in_one_piece(memory);
    request_memory_free(memory);
}

/* A session's small request under way blocks its second one until it ends. */
static void test_the_second_small_request_follows_the_first(void **state)
{
    struct request_memory *memory = memory_new();
    struct request_memory_share large = { 0 }, small = { 0 };
    void *const all =
        request_memory_take(memory, &large, request_memory_largest(memory), REQUEST_MEMORY_ENDS);
    void *const first = request_memory_take(memory, &small, SMALL_BYTES, REQUEST_MEMORY_ENDS);
    void *second;

    (void)state;
    assert_null(request_memory_take(memory, &small, SMALL_BYTES / 2, REQUEST_MEMORY_ENDS));
    request_memory_give(memory, first);
    second = request_memory_take(memory, &small, SMALL_BYTES / 2, REQUEST_MEMORY_ENDS);
    assert_non_null(second);
    request_memory_give(memory, second);
    request_memory_give(memory, all);
    assert_in_one_piece(memory);
    request_memory_free(memory);
}

static void test_many_small_requests_wait_for_each_other(void **state)
{
    enum { COUNT = REGION_BYTES / 8 / SMALL_BYTES };
    struct request_memory *memory = memory_new();
    struct request_memory_share large = { 0 }, shares[COUNT] = { { .wanted_bytes = 0 } };
    void *const all =
        request_memory_take(memory, &large, request_memory_largest(memory), REQUEST_MEMORY_ENDS);
    void *places[COUNT];

    (void)state;
    for (uint32_t i = 0; i < COUNT; i++) /* the last finds no room, since blocks have heads */
        places[i] = request_memory_take(memory, &shares[i], SMALL_BYTES, REQUEST_MEMORY_ENDS);
    assert_null(places[COUNT - 1]);
    request_memory_give(memory, places[0]);
    assert_non_null(shares[COUNT - 1].granted);
    places[0] = request_memory_take(memory, &shares[COUNT - 1], SMALL_BYTES, REQUEST_MEMORY_ENDS);
    assert_non_null(places[0]);
    for (uint32_t i = 0; i < COUNT - 1; i++)
        request_memory_give(memory, places[i]);
    request_memory_give(memory, all);
    assert_in_one_piece(memory);
    request_memory_free(memory);
}

static void test_a_session_that_leaves_the_line_keeps_no_other_out(void **state)
{
    struct short_memory x;
    struct request_memory_share other = { .wake = count_told };

    (void)state;
    use_up(&x);
    assert_null(request_memory_take(x.memory, &other, request_memory_largest(x.memory),
                                    REQUEST_MEMORY_ENDS));
    for (uint32_t i = 1; i < BLOCKS; i++)
        give_block(&x, i);
    assert_int_equal(told, 0);
    give_block(&x, 0);
    assert_int_equal(told, 1); /* the large request has all */
    request_memory_leave(x.memory, &x.large);
    assert_int_equal(told, 2);
    request_memory_leave(x.memory, &other);
    for (uint32_t i = 0; i < BLOCKS; i++) {
        take_block(&x, i);
        assert_non_null(x.blocks[i]);
    }
    clear(&x);
}

static void test_spare_memory_is_memory_that_no_session_waits_for(void **state)
{
    struct short_memory x;
    struct request_memory_share other = { 0 };
    void *place;

    (void)state;
    use_up(&x);
    give_block(&x, 0);
    assert_null(request_memory_take_spare(x.memory, &other, BLOCK_BYTES));
    request_memory_leave(x.memory, &x.large);
    place = request_memory_take_spare(x.memory, &other, BLOCK_BYTES);
    assert_non_null(place);
    assert_null(request_memory_take_spare(x.memory, &x.small[0], BLOCK_BYTES));
    assert_false(request_memory_waits(x.memory, &x.small[0]));
    request_memory_give(x.memory, place);
    clear(&x);
}

/* ---- Groups ---- */

static void test_pushes_that_wait_take_none_of_the_part_for_small_ones(void **state)
{
    enum { COUNT = REGION_BYTES / SMALL_BYTES };
    struct request_memory *memory = memory_new();
    struct request_memory_share waiting[COUNT] = { { .wanted_bytes = 0 } }, other = { 0 };
    void *places[COUNT], *small;
    uint32_t count = 0;

    (void)state;
    while ((places[count] =
                request_memory_take(memory, &waiting[count], SMALL_BYTES, REQUEST_MEMORY_WAITS)))
        count++;
    small = request_memory_take(memory, &other, SMALL_BYTES, REQUEST_MEMORY_ENDS);
    assert_non_null(small);
    assert_int_not_equal(other.held_bytes[REQUEST_MEMORY_SMALL], 0);
    request_memory_leave(memory, &waiting[count]);
    request_memory_give(memory, small);
    while (count-- > 0)
        request_memory_give(memory, places[count]);
    assert_in_one_piece(memory);
    request_memory_free(memory);
}

/* The leader holds the memory of its waiting push, and others hold more than is left. The leader's
 * own share does not keep it out. */
static void test_a_leader_gets_its_first_wave_past_its_share(void **state)
{
    struct short_memory x;
    void *wave;

    (void)state;
    use_up(&x);
    request_memory_leave(x.memory, &x.large);
    give_block(&x, 1);
    assert_null(request_memory_take(x.memory, &x.small[0], 2 * BLOCK_BYTES, REQUEST_MEMORY_LEADS));
    assert_true(request_memory_waits(x.memory, &x.small[0]));
    give_block(&x, 2);
    give_block(&x, 3);
    assert_int_equal(told, 1);
    wave = request_memory_take(x.memory, &x.small[0], 2 * BLOCK_BYTES, REQUEST_MEMORY_LEADS);
    assert_non_null(wave);
    request_memory_give(x.memory, wave);
    clear(&x);
}

/* The second small request stands first in the line for the main part until the first is done. Then
 * it moves to the part for small ones, and the next in line is served. */
static void test_a_session_that_changes_lines_keeps_no_other_out(void **state)
{
    struct request_memory *memory = memory_new();
    struct request_memory_share large = { 0 }, twice = { 0 }, other = { .wake = count_told };
    void *held, *first, *others, *second;

    (void)state;
    held = request_memory_take(memory, &large, request_memory_largest(memory) - SMALL_BYTES / 4,
                               REQUEST_MEMORY_ENDS);
    first = request_memory_take(memory, &twice, SMALL_BYTES, REQUEST_MEMORY_ENDS);
    others = request_memory_take(memory, &other, SMALL_BYTES, REQUEST_MEMORY_ENDS);
    assert_null(request_memory_take(memory, &twice, SMALL_BYTES, REQUEST_MEMORY_ENDS));
    while ((second = request_memory_take(memory, &other, SMALL_BYTES / 16, REQUEST_MEMORY_ENDS)))
        request_memory_give(memory, second); /* until it has had as much and falls behind */
    told = 0;
    request_memory_give(memory, first);
    assert_int_equal(told, 0);
    second = request_memory_take(memory, &twice, SMALL_BYTES, REQUEST_MEMORY_ENDS);
    assert_non_null(second);
    assert_int_equal(told, 1);
    request_memory_leave(memory, &other);
    request_memory_give(memory, second);
    request_memory_give(memory, others);
    request_memory_give(memory, held);
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
        cmocka_unit_test(test_one_session_gets_half_and_another_half_of_the_rest),
        cmocka_unit_test(test_a_large_request_gets_its_turn_though_small_ones_never_end),
        cmocka_unit_test(test_a_session_that_waits_is_told_once_and_has_its_memory_then),
        cmocka_unit_test(test_a_session_that_asks_for_something_else_gives_back_its_grant),
        cmocka_unit_test(test_the_line_is_in_the_order_of_what_each_has_got),
        cmocka_unit_test(test_small_requests_are_served_though_a_large_one_holds_or_wants_all),
        cmocka_unit_test(test_the_second_small_request_follows_the_first),
        cmocka_unit_test(test_many_small_requests_wait_for_each_other),
        cmocka_unit_test(test_a_session_that_leaves_the_line_keeps_no_other_out),
        cmocka_unit_test(test_spare_memory_is_memory_that_no_session_waits_for),
        cmocka_unit_test(test_pushes_that_wait_take_none_of_the_part_for_small_ones),
        cmocka_unit_test(test_a_leader_gets_its_first_wave_past_its_share),
        cmocka_unit_test(test_a_session_that_changes_lines_keeps_no_other_out),
    };

    return cmocka_run_group_tests_name("request memory", tests, NULL, NULL);
}
