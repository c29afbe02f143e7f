/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that the blocks of a request's waves are given out, kept and given back correctly, in
 * whatever order the waves end. */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "daemon/engine/memory/request_memory.h"
#include "daemon/engine/ops/waves.h"
#include "daemon/engine/rows/request.h"

#define REGION_BYTES (16 * MIB)
#define BLOCK_BYTES  (256 * KIB) /* counts as large */

struct fixture {
    struct request_rules rules;
    struct session *session;
    struct waves waves;
    char own[CACHE_LINE]; /* stands for a block inside the request's own block */
};

static int setup(void **state)
{
    struct fixture *const f = calloc(1, sizeof(*f));
    struct err_msg msg = { { 0 } };

    f->session = aligned_alloc(CACHE_LINE, align_up(sizeof(*f->session), CACHE_LINE));
    memset(f->session, 0, sizeof(*f->session));
    assert_int_equal(request_memory_new(REGION_BYTES, &f->rules.memory, &msg), EMBTIER_OK);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *const f = *state;

    request_memory_leave(f->rules.memory, &f->session->memory_share);
    request_memory_free(f->rules.memory);
    free(f->session);
    free(f);
    return 0;
}

static void *take(struct fixture *f)
{
    return waves_take(&f->waves, &f->rules, f->session, BLOCK_BYTES);
}

static void end(struct fixture *f, void *block, bool more)
{
    waves_end(&f->waves, f->rules.memory, block, more);
}

static uint64_t held(const struct fixture *f)
{
    const uint64_t *const parts = f->session->memory_share.held_bytes;

    return parts[REQUEST_MEMORY_SMALL] + parts[REQUEST_MEMORY_MAIN];
}

static void test_the_own_block_comes_first_and_is_never_given_back(void **state)
{
    struct fixture *const f = *state;

    waves_init(&f->waves, f->own);
    for (unsigned i = 0; i < 3; i++) {
        assert_ptr_equal(waves_idle(&f->waves), f->own);
        waves_begin(&f->waves, f->own);
        assert_int_equal(f->waves.under_way, 1);
        assert_null(waves_idle(&f->waves));
        end(f, f->own, i < 2);
        assert_int_equal(f->waves.under_way, 0);
    }
    assert_int_equal(f->waves.count, 1);
    waves_give(&f->waves, f->rules.memory);
    assert_ptr_equal(waves_idle(&f->waves), f->own);
    assert_int_equal(held(f), 0);
}

static void test_blocks_are_taken_up_to_the_most_and_used_again(void **state)
{
    struct fixture *const f = *state;
    void *blocks[WAVES_MAX] = { f->own };

    waves_init(&f->waves, f->own);
    waves_begin(&f->waves, f->own);
    for (uint32_t i = 1; i < WAVES_MAX; i++) {
        assert_null(waves_idle(&f->waves));
        blocks[i] = take(f);
        assert_non_null(blocks[i]);
        assert_ptr_equal(waves_idle(&f->waves), blocks[i]);
        waves_begin(&f->waves, blocks[i]);
        assert_int_equal(f->waves.under_way, i + 1);
    }
    assert_null(take(f));
    for (uint32_t i = 0; i < WAVES_MAX; i++) { /* each one is found again by itself */
        end(f, blocks[i], true);
        assert_ptr_equal(waves_idle(&f->waves), blocks[i]);
        waves_begin(&f->waves, blocks[i]);
    }
    for (uint32_t i = 0; i < WAVES_MAX; i++)
        end(f, blocks[i], true);
    assert_true(held(f) >= (WAVES_MAX - 1) * BLOCK_BYTES);
    waves_give(&f->waves, f->rules.memory);
    assert_int_equal(held(f), 0);
    assert_int_equal(f->waves.count, 1);
}

/* A block that moves into a returned block's place stays under way, or idle. */
static void test_with_no_more_to_come_blocks_go_back_in_any_order(void **state)
{
    struct fixture *const f = *state;

    for (uint32_t first = 0; first < WAVES_MAX; first++) {
        for (uint32_t step = 1; step < WAVES_MAX; step += 2) { /* odd, to visit all blocks */
            void *blocks[WAVES_MAX] = { f->own };
            uint64_t before;

            waves_init(&f->waves, f->own);
            for (uint32_t i = 1; i < WAVES_MAX; i++)
                blocks[i] = take(f);
            for (uint32_t i = 0; i < WAVES_MAX; i++)
                waves_begin(&f->waves, blocks[i]);
            for (uint32_t i = 0; i < WAVES_MAX; i++) {
                void *const block = blocks[(first + i * step) % WAVES_MAX];

                before = held(f);
                end(f, block, false);
                assert_int_equal(f->waves.under_way, WAVES_MAX - 1 - i);
                assert_int_equal(held(f) < before, block != f->own);
                assert_true(!waves_idle(&f->waves) || waves_idle(&f->waves) == f->own);
            }
            assert_int_equal(f->waves.count, 1);
            assert_int_equal(held(f), 0);
        }
    }
}

static void test_an_idle_block_stays_idle_when_it_moves(void **state)
{
    struct fixture *const f = *state;
    void *first, *last;

    waves_init(&f->waves, f->own);
    waves_begin(&f->waves, f->own);
    first = take(f);
    last = take(f);
    waves_begin(&f->waves, first);
    end(f, first, false); /* the last block moves into its place */
    assert_ptr_equal(waves_idle(&f->waves), last);
    assert_int_equal(f->waves.under_way, 1);
    end(f, f->own, false);
    waves_give(&f->waves, f->rules.memory);
    assert_int_equal(held(f), 0);
}

/* The request does not take memory that another session queues for. A request without any block
 * queues itself. */
static void test_a_request_with_a_block_leaves_memory_to_others(void **state)
{
    struct fixture *const f = *state;
    struct request_memory_share other = { 0 };
    struct request_memory_share waiting = { 0 };
    void *const all = request_memory_take(
        f->rules.memory, &other, request_memory_largest(f->rules.memory), REQUEST_MEMORY_ENDS);

    assert_non_null(all);
    assert_false(
        request_memory_reserve(f->rules.memory, &waiting, BLOCK_BYTES, REQUEST_MEMORY_ENDS));
    waves_init(&f->waves, f->own);
    assert_null(take(f));
    assert_false(request_memory_waits(f->rules.memory, &f->session->memory_share));
    assert_int_equal(f->session->wanted_bytes, 0);
    waves_init(&f->waves, NULL);
    assert_null(waves_idle(&f->waves));
    assert_null(take(f));
    assert_true(request_memory_waits(f->rules.memory, &f->session->memory_share));
    assert_int_equal(f->session->wanted_bytes, BLOCK_BYTES);
    request_memory_give(f->rules.memory, all);
    assert_non_null(take(f));
    assert_int_equal(f->session->wanted_bytes, 0);
    waves_begin(&f->waves, waves_idle(&f->waves));
    end(f, f->waves.blocks[0], false); /* the request has no own block to keep */
    assert_int_equal(f->waves.count, 0);
    assert_int_equal(held(f), 0);
    request_memory_leave(f->rules.memory, &waiting);
    request_memory_leave(f->rules.memory, &other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_the_own_block_comes_first_and_is_never_given_back,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(test_blocks_are_taken_up_to_the_most_and_used_again, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_with_no_more_to_come_blocks_go_back_in_any_order,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(test_an_idle_block_stays_idle_when_it_moves, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_a_request_with_a_block_leaves_memory_to_others, setup,
                                        teardown),
    };

    return cmocka_run_group_tests_name("waves", tests, NULL, NULL);
}
