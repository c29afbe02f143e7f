/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that blocks come from one region, are found with few looks, and leave it in one piece. */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#include <stdlib.h>

#include "base/macros.h"
#include "daemon/engine/memory/block_pool.h"
#include "tests/seed.h"

#define REGION_BYTES (8 * MIB)
#define HEAD         BLOCK_POOL_HEAD_BYTES
#define MANY         1000

struct region {
    struct block_pool pool;
    uint8_t *base;
};

static struct region region_new(void)
{
    struct region region = { .base = aligned_alloc(CACHE_LINE, REGION_BYTES) };

    assert_non_null(region.base);
    block_pool_init(&region.pool, region.base, REGION_BYTES);
    return region;
}

/* Returns the blocks to the region, which must then be in one piece. */
static void region_free(struct region *region)
{
    assert_int_equal(region->pool.taken_bytes, 0);
    assert_non_null(block_pool_take(&region->pool, REGION_BYTES - HEAD, NULL));
    free(region->base);
}

/* Takes MANY blocks of @bytes, with a block between any two that keeps them apart. */
static void fill(struct region *region, const uint64_t *bytes, void **places, void **between)
{
    for (uint32_t i = 0; i < MANY; i++) {
        places[i] = block_pool_take(&region->pool, bytes[i], NULL);
        between[i] = block_pool_take(&region->pool, HEAD, NULL);
        assert_true(places[i] && between[i]);
    }
}

/* All blocks are in the bin of the length that is asked for, and only the last in line is long
 * enough. So it would take a thousand looks to find it. */
static void test_a_bin_of_short_blocks_is_not_searched(void **state)
{
    struct region region = region_new();
    static void *places[MANY], *between[MANY];
    uint64_t bytes[MANY];
    void *rest, *found;

    (void)state;
    for (uint32_t i = 0; i < MANY; i++)
        bytes[i] = i == 0 ? 4096 + 512 : 4096;
    fill(&region, bytes, places, between);
    for (rest = NULL; (found = block_pool_take(&region.pool, HEAD, NULL)); rest = found)
        *(void **)found = rest;
    for (uint32_t i = 0; i < MANY; i++)
        block_pool_give(&region.pool, places[i]); /* the last one given is the first in its bin */
    assert_true(block_pool_has(&region.pool, 4096));
    assert_false(block_pool_has(&region.pool, 4096 + 256));
    assert_null(block_pool_take(&region.pool, 4096 + 256, NULL));
    /* One block of a larger bin is found, behind all the short ones. */
    block_pool_give(&region.pool, between[0]);
    found = block_pool_take(&region.pool, 4096 + 256, NULL);
    assert_non_null(found);
    block_pool_give(&region.pool, found);
    for (uint32_t i = 1; i < MANY; i++)
        block_pool_give(&region.pool, between[i]);
    for (; rest; rest = found) {
        found = *(void **)rest;
        block_pool_give(&region.pool, rest);
    }
    region_free(&region);
}

/* Returns a number below @limit. */
static uint64_t random_below(uint64_t *state, uint64_t limit)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state % limit;
}

/* Returns the longest free piece: what lies between taken blocks. */
static uint64_t longest_free(const struct region *region, void *const *places, uint32_t count)
{
    uint64_t longest = 0;

    for (const uint8_t *at = region->base; at < region->base + REGION_BYTES;) {
        const uint8_t *next = region->base + REGION_BYTES;

        for (uint32_t i = 0; i < count; i++)
            if (places[i] && (const uint8_t *)places[i] - HEAD >= at)
                next = MIN(next, (const uint8_t *)places[i] - HEAD);
        longest = MAX(longest, (uint64_t)(next - at));
        at = next;
        for (uint32_t i = 0; i < count; i++)
            if (places[i] && (const uint8_t *)places[i] - HEAD == next)
                at = next + block_pool_block_bytes(places[i]);
    }
    return longest;
}

#define SLOTS 64

/* A request may be refused although a free piece would do, but not if that piece is a quarter
 * longer. */
static void test_a_piece_that_is_a_quarter_longer_is_found(void **state)
{
    struct region region = region_new();
    uint64_t random = seed_of_test(__func__, 20261128);
    void *places[SLOTS] = { NULL };
    uint32_t refused = 0;

    (void)state;
    for (uint32_t step = 0; step < 30000; step++) {
        void **const place = &places[random_below(&random, SLOTS)];
        const uint64_t most = random_below(&random, 4) ? 512 * KIB : 4 * KIB;
        const uint64_t bytes = 1 + random_below(&random, most);

        if (*place) {
            block_pool_give(&region.pool, *place);
            *place = NULL;
            continue;
        }
        *place = block_pool_take(&region.pool, bytes, NULL);
        if (*place) {
            assert_true(block_pool_block_bytes(*place) >= bytes + HEAD);
            assert_true(block_pool_holds(&region.pool, *place));
            continue;
        }
        refused++;
        assert_true(longest_free(&region, places, SLOTS) <
                    block_pool_cost(bytes) + block_pool_cost(bytes) / 4);
    }
    assert_true(refused > 100);
    for (uint32_t i = 0; i < SLOTS; i++)
        if (places[i])
            block_pool_give(&region.pool, places[i]);
    region_free(&region);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_bin_of_short_blocks_is_not_searched),
        cmocka_unit_test(test_a_piece_that_is_a_quarter_longer_is_found),
    };

    return cmocka_run_group_tests_name("block_pool", tests, NULL, NULL);
}
