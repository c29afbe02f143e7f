/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that a row's shard and lane follow from the map of buckets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "daemon/engine/tables/row_routes.h"
#include "store/buckets/bucket_map.h"

#define SHARDS 1000

static void test_a_row_goes_where_its_bucket_lies(void **state)
{
    static const uint32_t lane_counts[] = { 1, 2, 3, 8, CONFIG_LANES_MAX };
    struct bucket_map *const map = test_malloc(sizeof(*map));

    (void)state;
    bucket_map_balance(map, SHARDS);
    for (uint32_t bucket = 0; bucket < ROW_BUCKETS; bucket++)
        map->shards[bucket] = (uint16_t)(bucket * UINT64_C(2654435761) % SHARDS);
    for (size_t i = 0; i < ARRAY_LEN(lane_counts); i++) {
        struct row_routes *routes = NULL;
        struct err_msg msg;

        assert_int_equal(row_routes_new(map, lane_counts[i], &routes, &msg), EMBTIER_OK);
        assert_int_equal(routes->shard_count, SHARDS);
        for (uint64_t bucket = 0; bucket < ROW_BUCKETS; bucket++) {
            const uint64_t hash = bucket << (64 - ROW_BUCKET_BITS) | bucket * 1234567;

            assert_int_equal(row_routes_shard(routes, hash), map->shards[bucket]);
            assert_int_equal(row_routes_lane(routes, hash), map->shards[bucket] % lane_counts[i]);
        }
        row_routes_free(routes);
    }
    test_free(map);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_row_goes_where_its_bucket_lies),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
