/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that a row being read is found, and only that row, until it is removed. */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#include <string.h>

#include "base/macros.h"
#include "daemon/engine/rows/miss_table.h"
#include "daemon/engine/tables/table.h"

#define CAPACITY 1000

static struct table one, other;

static struct miss_table *misses_new(uint32_t capacity)
{
    struct miss_table *misses = NULL;

    assert_int_equal(miss_table_new(capacity, &misses), EMBTIER_OK);
    return misses;
}

static void test_rows_are_told_apart_by_table_hash_and_id(void **state)
{
    struct miss_table *misses = misses_new(CAPACITY);
    struct miss *const a = miss_table_add(misses, &one, 5, 1, 1);
    struct miss *const b = miss_table_add(misses, &one, 5, 2, 1); /* in the same bucket */
    struct miss *const c = miss_table_add(misses, &other, 5, 1, 1);

    (void)state;
    assert_ptr_equal(miss_table_find(misses, &one, 5, 1), a);
    assert_ptr_equal(miss_table_find(misses, &one, 5, 2), b);
    assert_ptr_equal(miss_table_find(misses, &other, 5, 1), c);
    assert_null(miss_table_find(misses, &other, 5, 2));
    assert_null(miss_table_find(misses, &one, 6, 1));
    assert_int_equal(a->state, MISS_PENDING);
    miss_table_remove(misses, b); /* from the middle of the bucket */
    assert_null(miss_table_find(misses, &one, 5, 2));
    assert_ptr_equal(miss_table_find(misses, &one, 5, 1), a);
    assert_ptr_equal(miss_table_find(misses, &other, 5, 1), c);
    assert_int_equal(miss_table_count(misses), 2);
    miss_table_free(misses);
}

/* Adds rows for a session until refused. Returns how many. */
static uint32_t add_all(struct miss_table *misses, uint64_t session_id, uint64_t *next_id)
{
    uint32_t count = 0;

    while (miss_table_add(misses, &one, *next_id * 7, *next_id, session_id)) {
        ++*next_id;
        count++;
    }
    return count;
}

static void test_one_session_may_have_most_entries_and_another_finds_some_at_once(void **state)
{
    struct miss_table *misses = misses_new(CAPACITY);
    uint64_t next_id = 0;
    uint32_t first, second, third;

    (void)state;
    first = add_all(misses, 1, &next_id);
    assert_in_range(first, CAPACITY * 3 / 4, CAPACITY * 9 / 10);
    second = add_all(misses, 2, &next_id);
    assert_in_range(second, CAPACITY / 10, CAPACITY / 4);
    third = add_all(misses, 3, &next_id);
    assert_in_range(third, 1, second);
    assert_int_equal(miss_table_count(misses), first + second + third);
    assert_null(miss_table_add(misses, &one, 1, CAPACITY, 1));
    for (uint64_t i = 0; i < next_id; i++) /* every one can be found */
        assert_non_null(miss_table_find(misses, &one, i * 7, i));
    miss_table_free(misses);
}

/* The first session's entries come back and go to the others, until all have equally many. */
static void test_shares_become_even_as_entries_come_back(void **state)
{
    struct miss_table *misses = misses_new(CAPACITY);
    uint64_t next_id = 0, oldest = 0;
    uint32_t held[2];

    (void)state;
    held[0] = add_all(misses, 0, &next_id);
    held[1] = add_all(misses, 1, &next_id);
    for (uint32_t round = 0; round < 20 * CAPACITY; round++) {
        struct miss *const miss = miss_table_find(misses, &one, oldest * 7, oldest);

        oldest++;
        held[miss->flow]--;
        miss_table_remove(misses, miss);
        for (uint32_t session = 0; session < 2; session++)
            held[session] += add_all(misses, session, &next_id);
    }
    assert_in_range(held[0], held[1] * 3 / 4, held[1] * 4 / 3);
    miss_table_free(misses);
}

/* An entry that is used again starts without waiters and without a place. */
static void test_entry_used_again_remembers_nothing(void **state)
{
    struct miss_table *misses = misses_new(1);
    struct miss *miss = miss_table_add(misses, &one, 1, 1, 1);

    (void)state;
    miss->first_waiter = miss->last_waiter = 7;
    miss->state = MISS_PARKED;
    miss_table_remove(misses, miss);
    miss = miss_table_add(misses, &other, 2, 2, 1);
    assert_int_equal(miss->first_waiter, 0);
    assert_int_equal(miss->last_waiter, 0);
    assert_int_equal(miss->state, MISS_PENDING);
    assert_ptr_equal(miss_table_at(misses, miss_table_index(misses, miss)), miss);
    miss_table_free(misses);
}

static void test_random_history_agrees_with_a_model(void **state)
{
    struct miss_table *misses = misses_new(CAPACITY);
    bool there[4 * CAPACITY] = { false };
    uint32_t count = 0;
    uint64_t random = 88172645463325252;

    (void)state;
    for (uint32_t round = 0; round < 200000; round++) {
        uint64_t id, hash;
        struct miss *miss;

        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        id = random % ARRAY_LEN(there);
        hash = id % 300; /* crowded buckets */
        miss = miss_table_find(misses, &one, hash, id);
        assert_int_equal(miss != NULL, there[id]);
        if (miss) {
            miss_table_remove(misses, miss);
            there[id] = false;
            count--;
        } else if (miss_table_add(misses, &one, hash, id, random >> 32)) {
            there[id] = true;
            count++;
        } else {
            assert_in_range(count, CAPACITY * 3 / 4, CAPACITY);
        }
        assert_int_equal(miss_table_count(misses), count);
    }
    miss_table_free(misses);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_are_told_apart_by_table_hash_and_id),
        cmocka_unit_test(test_one_session_may_have_most_entries_and_another_finds_some_at_once),
        cmocka_unit_test(test_shares_become_even_as_entries_come_back),
        cmocka_unit_test(test_entry_used_again_remembers_nothing),
        cmocka_unit_test(test_random_history_agrees_with_a_model),
    };

    return cmocka_run_group_tests_name("miss table", tests, NULL, NULL);
}
