/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that the memory the server takes in addition to its budgets counts each part as often as it
 * exists. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/budget/budget.h"
#include "daemon/engine/memory/engine_reserved.h"
#include "daemon/engine/tables/tables_reserved.h"
#include "store/store_reserved.h"

static struct config some_config(void)
{
    struct config config = { 0 };

    config.data.directory_count = 2;
    config.data.shards_per_directory = 4;
    config.lanes.count = 2;
    config.lanes.readers_per_lane = 2;
    config.lanes.request_bytes = 64 * MIB;
    config.lanes.ticket_bytes = 64 * MIB;
    config.lanes.write_queue_bytes = 64 * MIB;
    config.socket.max_sessions = 1024;
    config.socket.max_batch_rows = 1 << 20;
    config.rocksdb.background_threads = 4;
    config.rocksdb.compaction_parallel = 2;
    return config;
}

static struct config_unbudgeted unbudgeted_of(const struct config *config, uint32_t lane_count)
{
    struct config_unbudgeted unbudgeted;

    budget_unbudgeted(config, lane_count, &unbudgeted);
    return unbudgeted;
}

/* The figures were worked out by hand from the sizes in the modules' headers. */
static void test_parts_are_what_modules_say(void **state)
{
    const struct config config = some_config();
    const struct config_unbudgeted unbudgeted = unbudgeted_of(&config, 2);

    (void)state;
    /* On the lane: 6,528 KiB, 8 shards of 1 KiB, 128 KiB, 32 MiB / 32, 2^20 pairs of 16 bytes, 2
     * readers of 560 KiB. That is 24.7 MiB. On the heap: 2 * 3 MiB and 6 MiB. */
    assert_int_equal(unbudgeted.lane_reserved_bytes, 25 * MIB);
    assert_int_equal(unbudgeted.lane_bytes, 37 * MIB);
    assert_int_equal(unbudgeted.databases, 16);
    assert_int_equal(unbudgeted.database_bytes, 512 * KIB);
    /* 4 threads; 2 shards of each directory may compact 40 files, and 3 threads do. */
    assert_int_equal(unbudgeted.compaction_bytes, 4 * 2 * MIB + 3 * 40 * 2 * MIB);
    assert_int_equal(unbudgeted.session_bytes, 42 * MIB);
    assert_int_equal(unbudgeted.rest_bytes, 16 * MIB + 16 * MIB + 24 * MIB);
    assert_int_equal(unbudgeted.transfer_least_bytes, 32 * MIB + 8 * 256 * KIB + 2 * 16 * MIB);
}

static void test_sessions_over_a_network_take_more(void **state)
{
    struct config config = some_config();

    (void)state;
    config.rpc.listen_count = 1;
    /* 1024 of 66 KiB, and twice 528 places for strangers of 20 KiB. */
    assert_int_equal(unbudgeted_of(&config, 2).session_bytes, 87 * MIB);
    config.rpc.listen[0].kind = ADDRESS_TLS;
    assert_int_equal(unbudgeted_of(&config, 2).session_bytes, 445 * MIB);
}

static void test_http_takes_memory_for_its_connections(void **state)
{
    static char listen[] = "127.0.0.1:0";
    struct config config = some_config();
    const uint64_t before = unbudgeted_of(&config, 2).bytes;

    (void)state;
    config.http.listen = listen;
    config.http.max_connections = 64;
    assert_int_equal(unbudgeted_of(&config, 2).bytes - before, 2 * MIB + 64 * 288 * KIB);
    config.http.tables = 20;
    assert_int_equal(unbudgeted_of(&config, 2).bytes - before, 10 * MIB + 64 * 288 * KIB);
}

static void test_sum_counts_lanes_and_databases_each(void **state)
{
    const struct config config = some_config();
    const struct config_unbudgeted unbudgeted = unbudgeted_of(&config, 2);

    (void)state;
    assert_int_equal(unbudgeted.lanes, 2);
    assert_int_equal(unbudgeted.bytes,
                     2 * 37 * MIB + 16 * 512 * KIB + 248 * MIB + 42 * MIB + 56 * MIB);
}

static void test_more_lanes_share_the_ring_but_not_the_rest(void **state)
{
    const struct config config = some_config();
    const struct config_unbudgeted two = unbudgeted_of(&config, 2),
                                   eight = unbudgeted_of(&config, 8);

    (void)state;
    assert_true(eight.lane_bytes <= two.lane_bytes);
    assert_true(eight.lane_bytes > two.lane_bytes - 2 * MIB);
    assert_int_equal(eight.bytes - two.bytes, 8 * eight.lane_bytes - 2 * two.lane_bytes);
}

/* 16,384 slabs of 256 bytes in each lane. */
static void test_arrays_count_their_counters_in_each_lane(void **state)
{
    struct config config = some_config();
    const struct config_unbudgeted before = unbudgeted_of(&config, 2);
    struct config_unbudgeted after;

    (void)state;
    config.cache.tier_count = 1;
    config.cache.tiers[0].array_bytes = 32 * GIB;
    after = unbudgeted_of(&config, 2);
    assert_int_equal(after.lane_bytes - before.lane_bytes, 4 * MIB);
    assert_int_equal(after.bytes - before.bytes, 2 * 4 * MIB);
    assert_int_equal(after.lane_reserved_bytes, before.lane_reserved_bytes);
}

static void test_requests_count_their_least(void **state)
{
    struct config config = some_config();
    const uint64_t before = unbudgeted_of(&config, 2).rest_bytes;

    (void)state;
    config.lanes.request_bytes = MIB;
    assert_int_equal(unbudgeted_of(&config, 2).rest_bytes - before,
                     CONFIG_REQUEST_BYTES_LEAST - MIB);
}

static void test_many_shards_count_in_all_that_has_shards(void **state)
{
    struct config config = some_config();
    const struct config_unbudgeted few = unbudgeted_of(&config, 2);
    struct config_unbudgeted many;

    (void)state;
    config.data.shards_per_directory = 512;
    many = unbudgeted_of(&config, 2);
    assert_int_equal(many.databases, 2048);
    assert_int_equal(many.lane_reserved_bytes, few.lane_reserved_bytes + MIB);
    assert_int_equal(many.transfer_least_bytes - few.transfer_least_bytes,
                     (1024 - 8) * SCAN_SHARD_BYTES);
    assert_true(tables_eager_reserved_bytes(1024) > ROW_WRITER_MOST);
    assert_int_equal(many.rest_bytes - few.rest_bytes,
                     tables_eager_reserved_bytes(1024) - ROW_WRITER_MOST);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts_are_what_modules_say),
        cmocka_unit_test(test_sessions_over_a_network_take_more),
        cmocka_unit_test(test_http_takes_memory_for_its_connections),
        cmocka_unit_test(test_sum_counts_lanes_and_databases_each),
        cmocka_unit_test(test_more_lanes_share_the_ring_but_not_the_rest),
        cmocka_unit_test(test_arrays_count_their_counters_in_each_lane),
        cmocka_unit_test(test_requests_count_their_least),
        cmocka_unit_test(test_many_shards_count_in_all_that_has_shards),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
