/* SPDX-License-Identifier: Apache-2.0 */
/* test_metadata_cache.c: tests that the block cache keeps metadata only, and keeps RocksDB's
 * contract for the handles of all other blocks. */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */

#include "base/macros.h"
#include "store/rocksdb/ext/cache_caller.h"

/* As long as RocksDB's keys are, and longer. */
static const char *const keys[] = { "sixteen bytes ok", "a key of more than sixteen bytes" };

struct test {
    struct cache_caller *cache;
    int deletions; /* also serves as the value of a block */
};

static int set_up(void **state)
{
    static struct test test;

    test = (struct test){ .cache = cache_caller_new(MIB) };
    *state = &test;
    return 0;
}

static int tear_down(void **state)
{
    struct test *const test = *state;

    cache_caller_free(test->cache);
    return 0;
}

static struct cache_handle *insert(struct test *test, const char *key, bool is_metadata,
                                   bool has_deleter)
{
    struct cache_handle *handle = NULL;

    cache_caller_insert(test->cache, key, &test->deletions, 4096, is_metadata, has_deleter,
                        &handle);
    assert_non_null(handle);
    return handle;
}

static void test_metadata_stays_after_its_last_handle(void **state)
{
    struct test *const test = *state;
    struct cache_handle *handle = insert(test, keys[0], true, true);

    assert_false(cache_caller_release(test->cache, handle));
    assert_int_equal(test->deletions, 0);
    assert_true(cache_caller_usage(test->cache) >= 4096);
    handle = cache_caller_lookup(test->cache, keys[0]);
    assert_non_null(handle);
    assert_ptr_equal(cache_caller_value(test->cache, handle), &test->deletions);
    assert_true(cache_caller_has_deleter(test->cache, handle));
    assert_true(cache_caller_tells_key(test->cache, handle, keys[0]));
    cache_caller_release(test->cache, handle);
}

static void test_other_blocks_go_with_their_last_handle(void **state)
{
    struct test *const test = *state;
    struct cache_handle *const handle = insert(test, keys[0], false, true);

    assert_null(cache_caller_lookup(test->cache, keys[0]));
    assert_true(cache_caller_ref(test->cache, handle));
    assert_true(cache_caller_ref(test->cache, handle));
    assert_false(cache_caller_release(test->cache, handle));
    assert_false(cache_caller_release(test->cache, handle));
    assert_int_equal(test->deletions, 0);
    assert_true(cache_caller_release(test->cache, handle));
    assert_int_equal(test->deletions, 1);
    assert_int_equal(cache_caller_usage(test->cache), 0);
}

static void test_a_handle_tells_its_block(void **state)
{
    struct test *const test = *state;

    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        struct cache_handle *const handle = insert(test, keys[i], false, true);

        assert_ptr_equal(cache_caller_value(test->cache, handle), &test->deletions);
        assert_int_equal(cache_caller_charge(test->cache, handle), 4096);
        assert_true(cache_caller_has_deleter(test->cache, handle));
        assert_true(cache_caller_tells_key(test->cache, handle, keys[i]));
        assert_true(cache_caller_release(test->cache, handle));
        assert_int_equal(test->deletions, (int)i + 1);
    }
}

static void test_a_block_without_a_handle_is_deleted_at_once(void **state)
{
    struct test *const test = *state;

    cache_caller_insert(test->cache, keys[0], &test->deletions, 4096, false, true, NULL);
    assert_int_equal(test->deletions, 1);
    cache_caller_insert(test->cache, keys[0], &test->deletions, 4096, false, false, NULL);
    assert_int_equal(test->deletions, 1);
    assert_null(cache_caller_lookup(test->cache, keys[0]));
}

/* RocksDB counts memory outside the cache with such blocks. */
static void test_a_block_without_a_deleter_has_none_called(void **state)
{
    struct test *const test = *state;
    struct cache_handle *const handle = insert(test, keys[0], false, false);

    assert_false(cache_caller_has_deleter(test->cache, handle));
    assert_true(cache_caller_release(test->cache, handle));
    assert_int_equal(test->deletions, 0);
}

/* Happens when two files are read at once. */
static void test_two_blocks_of_one_key_are_two(void **state)
{
    struct test *const test = *state;
    struct cache_handle *const first = insert(test, keys[0], false, true);
    struct cache_handle *const second = insert(test, keys[0], false, true);

    assert_ptr_not_equal(first, second);
    assert_true(cache_caller_release(test->cache, first));
    assert_int_equal(test->deletions, 1);
    assert_ptr_equal(cache_caller_value(test->cache, second), &test->deletions);
    assert_true(cache_caller_release(test->cache, second));
    assert_int_equal(test->deletions, 2);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_metadata_stays_after_its_last_handle),
        TEST(test_other_blocks_go_with_their_last_handle),
        TEST(test_a_handle_tells_its_block),
        TEST(test_a_block_without_a_handle_is_deleted_at_once),
        TEST(test_a_block_without_a_deleter_has_none_called),
        TEST(test_two_blocks_of_one_key_are_two),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
