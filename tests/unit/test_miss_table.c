/* SPDX-License-Identifier: Apache-2.0 */
/* Is a row that is being read found, and only it, until it is removed? */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#include <string.h>

#include "base/macros.h"
#include "daemon/miss_table.h"
#include "daemon/table.h"

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
    struct miss *const a = miss_table_add(misses, &one, 5, 1);
    struct miss *const b = miss_table_add(misses, &one, 5, 2); /* the same bucket */
    struct miss *const c = miss_table_add(misses, &other, 5, 1);

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

static void test_full_table_refuses_and_takes_again_after_a_removal(void **state)
{
    struct miss_table *misses = misses_new(CAPACITY);

    (void)state;
    for (uint64_t i = 0; i < CAPACITY; i++)
        assert_non_null(miss_table_add(misses, &one, i * 7, i));
    assert_null(miss_table_add(misses, &one, 1, CAPACITY));
    assert_int_equal(miss_table_count(misses), CAPACITY);
    miss_table_remove(misses, miss_table_find(misses, &one, 70, 10));
    assert_non_null(miss_table_add(misses, &one, 1, CAPACITY));
    assert_null(miss_table_add(misses, &one, 2, CAPACITY + 1));
    for (uint64_t i = 0; i < CAPACITY; i++)
        assert_true((miss_table_find(misses, &one, i * 7, i) != NULL) == (i != 10));
    miss_table_free(misses);
}

/* An entry that serves another row begins without waiters and without a place. */
static void test_entry_used_again_remembers_nothing(void **state)
{
    struct miss_table *misses = misses_new(1);
    struct miss *miss = miss_table_add(misses, &one, 1, 1);

    (void)state;
    miss->first_waiter = miss->last_waiter = 7;
    miss->state = MISS_PARKED;
    miss_table_remove(misses, miss);
    miss = miss_table_add(misses, &other, 2, 2);
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
        } else if (miss_table_add(misses, &one, hash, id)) {
            there[id] = true;
            count++;
        } else {
            assert_int_equal(count, CAPACITY);
        }
        assert_int_equal(miss_table_count(misses), count);
    }
    miss_table_free(misses);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_are_told_apart_by_table_hash_and_id),
        cmocka_unit_test(test_full_table_refuses_and_takes_again_after_a_removal),
        cmocka_unit_test(test_entry_used_again_remembers_nothing),
        cmocka_unit_test(test_random_history_agrees_with_a_model),
    };

    return cmocka_run_group_tests_name("miss table", tests, NULL, NULL);
}
