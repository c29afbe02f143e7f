/* SPDX-License-Identifier: Apache-2.0 */
/* test_array_space.c: tests that pieces of a tier's memory never overlap, and come back whole. */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#include <string.h>

#include "base/macros.h"
#include "tiers/arena/arena.h"
#include "tiers/array/array_space.h"

#define SLABS  64
#define PIECES 128
#define STEPS  20000

/* The test never touches this memory: a space knows addresses only. */
static uint8_t *const base = (uint8_t *)(ARENA_SLAB_BYTES * 1000);

static uint64_t next_random(uint64_t *random)
{
    *random ^= *random << 13;
    *random ^= *random >> 7;
    return *random ^= *random << 17;
}

struct model {
    uint8_t owner[SLABS]; /* number of the slab's piece + 1 */
    uint64_t first[PIECES];
    uint64_t slabs[PIECES]; /* 0: not taken */
};

/* Returns the model's smallest gap of at least @slabs, or 0. */
static uint64_t smallest_gap(const struct model *model, uint64_t slabs)
{
    uint64_t best = 0, length = 0;

    for (uint32_t i = 0; i <= SLABS; i++) {
        if (i < SLABS && model->owner[i] == 0) {
            length++;
            continue;
        }
        if (length >= slabs && (best == 0 || length < best))
            best = length;
        length = 0;
    }
    return best;
}

/* Returns the length of the gap around slab @at. */
static uint64_t gap_at(const struct model *model, uint64_t at)
{
    uint64_t first = at, end = at;

    while (first > 0 && model->owner[first - 1] == 0)
        first--;
    while (end < SLABS && model->owner[end] == 0)
        end++;
    return end - first;
}

static void check_stats(const struct array_space *space, const struct model *model)
{
    struct array_space_stats stats;
    uint64_t taken = 0, largest = 0;

    for (uint32_t i = 0; i < SLABS; i++) {
        taken += model->owner[i] != 0;
        if (model->owner[i] == 0)
            largest = MAX(largest, gap_at(model, i));
    }
    array_space_stats(space, &stats);
    assert_int_equal(stats.bytes, SLABS * ARENA_SLAB_BYTES);
    assert_int_equal(stats.free_bytes, (SLABS - taken) * ARENA_SLAB_BYTES);
    assert_int_equal(stats.largest_free_bytes, largest * ARENA_SLAB_BYTES);
}

static void take(struct array_space *space, struct model *model, uint32_t piece, uint64_t slabs)
{
    const uint64_t gap = smallest_gap(model, slabs);
    void *memory = NULL;
    enum embtier_err err = array_space_take(space, slabs * ARENA_SLAB_BYTES, &memory);
    uint64_t first;

    assert_int_equal(err, gap ? EMBTIER_OK : EMBTIER_TOO_LARGE);
    if (err != EMBTIER_OK)
        return;
    first = (uint64_t)((uint8_t *)memory - base) / ARENA_SLAB_BYTES;
    assert_int_equal(((uint8_t *)memory - base) % ARENA_SLAB_BYTES, 0);
    assert_true(array_space_has(space, memory));
    assert_true(first + slabs <= SLABS);
    assert_int_equal(gap_at(model, first), gap);
    model->first[piece] = first;
    model->slabs[piece] = slabs;
    for (uint64_t i = first; i < first + slabs; i++) {
        assert_int_equal(model->owner[i], 0);
        model->owner[i] = (uint8_t)(piece + 1);
    }
}

static void give(struct array_space *space, struct model *model, uint32_t piece)
{
    array_space_give(space, base + model->first[piece] * ARENA_SLAB_BYTES);
    memset(&model->owner[model->first[piece]], 0, model->slabs[piece]);
    model->slabs[piece] = 0;
}

static void test_pieces_never_overlap_and_come_from_the_smallest_gap(void **state)
{
    _cleanup_(array_space_freep) struct array_space *space = NULL;
    struct model model = { .owner = { 0 } };
    uint64_t random = 88172645463325252;

    (void)state;
    assert_int_equal(array_space_new(base, SLABS, &space), EMBTIER_OK);
    for (uint32_t step = 0; step < STEPS; step++) {
        const uint32_t piece = (uint32_t)(next_random(&random) % PIECES);

        if (model.slabs[piece] > 0)
            give(space, &model, piece);
        else
            take(space, &model, piece, 1 + next_random(&random) % (step % 1000 < 500 ? 3 : 12));
        check_stats(space, &model);
    }
    for (uint32_t piece = 0; piece < PIECES; piece++)
        if (model.slabs[piece] > 0)
            give(space, &model, piece);
    take(space, &model, 0, SLABS);
    check_stats(space, &model);
}

static void test_a_space_of_no_memory_has_room_for_nothing(void **state)
{
    _cleanup_(array_space_freep) struct array_space *space = NULL;
    void *memory = NULL;

    (void)state;
    assert_int_equal(array_space_new(base, 0, &space), EMBTIER_OK);
    assert_int_equal(array_space_take(space, ARENA_SLAB_BYTES, &memory), EMBTIER_TOO_LARGE);
    assert_false(array_space_has(space, base));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pieces_never_overlap_and_come_from_the_smallest_gap),
        cmocka_unit_test(test_a_space_of_no_memory_has_room_for_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
