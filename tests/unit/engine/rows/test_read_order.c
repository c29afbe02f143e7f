/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that every session and every shard gets its turn at reads. */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#include "base/macros.h"
#include "daemon/engine/rows/read_order.h"
#include "daemon/engine/tables/table.h"

#define CAPACITY 1000
#define SHARDS   5

static struct table table;

struct order {
    struct miss_table *misses;
    struct read_order *reads;
};

static int setup(void **state)
{
    static struct order x;

    assert_int_equal(miss_table_new(CAPACITY, &x.misses), EMBTIER_OK);
    assert_int_equal(read_order_new(x.misses, SHARDS, &x.reads), EMBTIER_OK);
    *state = &x;
    return 0;
}

static int teardown(void **state)
{
    struct order *const x = *state;

    read_order_free(x->reads);
    miss_table_free(x->misses);
    return 0;
}

/* Adds @count rows with ids from @first on. */
static void add(struct order *x, uint32_t shard, uint64_t session, uint64_t first, uint32_t count)
{
    for (uint64_t id = first; id < first + count; id++)
        read_order_add(x->reads, shard, session,
                       miss_table_add(x->misses, &table, id, id, session));
}

static void expect(struct order *x, uint32_t shard, uint64_t id)
{
    struct miss *const miss = read_order_first(x->reads, shard);

    assert_non_null(miss);
    assert_int_equal(miss->id, id);
    read_order_pop(x->reads, shard);
}

static void test_rows_of_one_session_keep_their_order(void **state)
{
    struct order *const x = *state;

    assert_true(read_order_empty(x->reads));
    assert_null(read_order_first(x->reads, 2));
    add(x, 2, 7, 100, 3);
    expect(x, 2, 100);
    add(x, 2, 7, 200, 1);
    expect(x, 2, 101);
    expect(x, 2, 102);
    assert_false(read_order_empty(x->reads));
    expect(x, 2, 200);
    assert_true(read_order_empty(x->reads));
    assert_null(read_order_first(x->reads, 2));
}

static void test_a_few_rows_do_not_wait_for_all_of_another_session(void **state)
{
    struct order *const x = *state;

    add(x, 0, 1, 1000, 500);
    expect(x, 0, 1000);
    add(x, 0, 2, 5, 2);
    add(x, 0, 3, 9, 1);
    expect(x, 0, 1001);
    expect(x, 0, 5);
    expect(x, 0, 9);
    expect(x, 0, 1002);
    expect(x, 0, 6);
    for (uint64_t id = 1003; id < 1500; id++)
        expect(x, 0, id);
    assert_true(read_order_empty(x->reads));
}

static void test_sessions_of_one_flow_share_its_turn(void **state)
{
    struct order *const x = *state;

    add(x, 0, 4, 10, 2);
    add(x, 0, 4 + MISS_FLOWS, 20, 1);
    add(x, 0, 5, 30, 3);
    expect(x, 0, 10);
    expect(x, 0, 30);
    expect(x, 0, 11);
    expect(x, 0, 31);
    expect(x, 0, 20);
    expect(x, 0, 32);
}

static void test_shards_take_turns_however_much_each_has(void **state)
{
    struct order *const x = *state;
    uint32_t turns[SHARDS] = { 0 };

    add(x, 1, 1, 0, 300);
    add(x, 3, 1, 300, 2);
    add(x, 4, 1, 400, 300);
    for (uint32_t turn = 0; turn < 6; turn++) {
        const uint32_t shard = read_order_next_shard(x->reads);

        turns[shard]++;
        assert_non_null(read_order_first(x->reads, shard));
        read_order_pop(x->reads, shard);
    }
    assert_int_equal(turns[1], 2);
    assert_int_equal(turns[3], 2);
    assert_int_equal(turns[4], 2);
    for (uint32_t turn = 0; turn < 6; turn++)
        assert_int_not_equal(read_order_next_shard(x->reads), 3); /* shard 3 has no rows left */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_rows_of_one_session_keep_their_order, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_few_rows_do_not_wait_for_all_of_another_session,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(test_sessions_of_one_flow_share_its_turn, setup, teardown),
        cmocka_unit_test_setup_teardown(test_shards_take_turns_however_much_each_has, setup,
                                        teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
