/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that rows are dealt out, written and read as the map of buckets on disk says, whatever that
 * map is. */
#include "tests/unit/engine/lane/lane_fixture.h"

#include "store/store_identity.h"

#define ROWS       3000
#define DIM        4
#define SLOT_BYTES (64 * KIB)

static const struct lanes_shape two_lanes = {
    .lane_count = 2, .slabs_per_lane = 2, .readers = 1, .write_queue_bytes = 256 * KIB
};

/* Makes a map unlike any that a program makes: it favours three of four shards. */
static void make_crooked(struct bucket_map *ret_map, uint32_t shard_count)
{
    assert_int_equal(shard_count, 4);
    bucket_map_balance(ret_map, shard_count);
    ret_map->generation = 2;
    for (uint32_t bucket = 0; bucket < ROW_BUCKETS; bucket++)
        ret_map->shards[bucket] = bucket / 5 % 11 == 0 ? 1 : bucket % 3 == 0 ? 3 : bucket % 2 * 2;
}

/* Puts the map into the directories of a new store. */
static void put_map(struct store_fixture *f, const struct bucket_map *map)
{
    struct store_identity *identity = NULL;
    struct err_msg msg;

    fixture_open(f);
    fixture_close(f);
    must(store_identity_look(&f->config, &identity, &msg), &msg);
    for (uint32_t d = 0; d < store_identity_directory_count(identity); d++)
        must(bucket_map_write(store_identity_directory(identity, d), store_identity_uuid(identity),
                              map, &msg),
             &msg);
    store_identity_free(identity);
}

static uint32_t bucket_of(const struct store *store, uint32_t table_id, uint64_t id)
{
    return row_bucket(row_hash(store_hasher(store), table_id, id));
}

/* Every row is in the shard that the map names, and in no other. */
static void assert_stored(struct store_fixture *f, const struct bucket_map *map, uint32_t table_id)
{
    float weights[DIM];
    struct store_row row = { .table_id = table_id,
                             .weight_bytes = sizeof(weights),
                             .bytes = (unsigned char *)weights };
    struct err_msg msg;

    for (row.id = 0; row.id < ROWS; row.id++) {
        const uint32_t right = map->shards[bucket_of(f->store, table_id, row.id)];

        for (uint32_t shard = 0; shard < map->shard_count; shard++) {
            must(store_read(f->store, shard, &row, 1, &msg), &msg);
            if (row.found != (shard == right))
                fail_msg("row %" PRIu64 " of shard %u: found %d in shard %u", row.id, right,
                         row.found, shard);
        }
    }
}

/* Returns how many rows the map gives to the second of two lanes. */
static uint64_t count_of_second(const struct store *store, const struct bucket_map *map,
                                uint32_t table_id)
{
    uint64_t count = 0;

    for (uint64_t id = 0; id < ROWS; id++)
        count += map->shards[bucket_of(store, table_id, id)] % 2;
    return count;
}

static uint32_t id_of(uint64_t handle)
{
    return (uint32_t)(handle >> 32);
}

static void test_rows_are_dealt_out_and_stored_as_the_map_says(void **state)
{
    struct bucket_map *const map = test_malloc(sizeof(*map));
    struct lanes_fixture x;
    struct lane_stats stats;
    struct client client;
    uint64_t table, second;

    make_crooked(map, 4);
    put_map(*state, map);
    lanes_start(&x, *state, &two_lanes);
    table = fixture_table(&x, "rows", EMBTIER_UNBOUNDED, DIM, EMBTIER_OPTIMIZER_NONE);
    second = count_of_second(x.f->store, map, id_of(table));
    assert_true(second > 0 && second < ROWS * 45 / 100); /* no program makes such a map */
    client = client_attach(&x, SLOT_BYTES);
    for (uint64_t id = 0; id < ROWS; id++)
        assert_int_equal(client_set_one(&client, table, id, DIM, (float)id), EMBTIER_OK);
    lane_stats(x.lanes[0], &stats);
    assert_int_equal(stats.set_rows, ROWS - second);
    lane_stats(x.lanes[1], &stats);
    assert_int_equal(stats.set_rows, second);
    client_detach(&client);
    lanes_write_back(&x);
    lanes_stop(&x);

    fixture_open(*state);
    assert_stored(*state, map, id_of(table));
    fixture_close(*state);
    lanes_start(&x, *state, &two_lanes);
    client = client_attach(&x, SLOT_BYTES);
    for (uint64_t id = 0; id < ROWS; id++) {
        float value = -1;

        assert_int_equal(client_get_one(&client, table, id, &value), EMBTIER_OK);
        assert_true(value == (float)id);
    }
    assert_int_equal(fixture_stats(&x).stored_get_rows, ROWS);
    client_detach(&client);
    lanes_stop(&x);
    test_free(map);
}

/* Rows of an eager table do not go through a lane. */
static void test_rows_of_an_eager_table_are_stored_as_the_map_says(void **state)
{
    struct bucket_map *const map = test_malloc(sizeof(*map));
    struct table_spec spec = { .name = "eager",
                               .rows = ROWS,
                               .dim = DIM,
                               .dtype = EMBTIER_DTYPE_F32,
                               .optimizer = EMBTIER_OPTIMIZER_NONE,
                               .durability = EMBTIER_DURABILITY_REPLAY,
                               .init = EMBTIER_INIT_CONSTANT,
                               .init_params = { 0.5, 0 },
                               .eager = true,
                               .eps = EMBTIER_DEFAULT,
                               .alpha = EMBTIER_DEFAULT,
                               .beta1 = EMBTIER_DEFAULT,
                               .beta2 = EMBTIER_DEFAULT };
    struct lanes_fixture x;
    struct table_info info;
    struct err_msg msg;

    make_crooked(map, 4);
    put_map(*state, map);
    lanes_start(&x, *state, &two_lanes);
    table_spec_fill_defaults(&spec);
    must(tables_create(x.tables, &spec, FIXTURE_UID, true, NULL, &info, &msg), &msg);
    assert_stored(x.f, map, info.table_id);
    lanes_stop(&x);
    test_free(map);
}

#define LANE_TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        LANE_TEST(test_rows_are_dealt_out_and_stored_as_the_map_says),
        LANE_TEST(test_rows_of_an_eager_table_are_stored_as_the_map_says),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
