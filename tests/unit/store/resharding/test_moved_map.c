/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of stores whose buckets have moved, by maps written by hand: shards that are gone, rows
 * that lie where the map does not look, and ways back to checkpoints of other maps. */
#include "store/checkpoint/table_scan.h"
#include "store/store_identity.h"
#include "tests/seed.h"
#include "tests/unit/store/store_fixture.h"

#define SHARDS 4
#define ROWS   600
#define TABLE  1

static struct store_identity *identity_of(const struct store_fixture *f)
{
    struct store_identity *identity = NULL;
    struct err_msg msg;

    must(store_identity_look(&f->config, &identity, &msg), &msg);
    return identity;
}

/* Writes @map to both directories. */
static void map_write(const struct store_fixture *f, const struct bucket_map *map)
{
    struct store_identity *const identity = identity_of(f);
    struct err_msg msg;

    for (unsigned d = 0; d < 2; d++)
        must(bucket_map_write(f->made[d], store_identity_uuid(identity), map, &msg), &msg);
    store_identity_free(identity);
}

static struct bucket_map *map_read(const struct store_fixture *f)
{
    struct store_identity *identity = NULL;
    struct bucket_map *map = NULL;
    struct err_msg msg;

    must(store_identity_open(&f->config, &identity, &msg), &msg);
    must(bucket_map_open(identity, SHARDS, &map, &msg), &msg);
    store_identity_free(identity);
    return map;
}

/* A map of format 2 of the fixture's shards. */
static struct bucket_map *map_new(uint64_t generation)
{
    struct bucket_map *const map = test_malloc(sizeof(*map));

    bucket_map_balance(map, SHARDS);
    bucket_map_place(map, 2);
    map->format = BUCKET_MAP_FORMAT_VERSION;
    map->generation = generation;
    return map;
}

static void turn(struct bucket_map *map)
{
    for (uint32_t bucket = 0; bucket < ROW_BUCKETS; bucket++)
        map->shards[bucket] = (uint16_t)(map->shard_count - 1 - map->shards[bucket]);
    bucket_map_count(map);
}

static void write_both(struct store_fixture *f, uint32_t version)
{
    fixture_write_all(f, TABLE, 0, ROWS, version);
    fixture_write_all(f, FIXTURE_LOGGED, 0, ROWS, version);
}

static void assert_both(struct store_fixture *f, uint32_t version)
{
    assert_int_equal(fixture_count_right(f, TABLE, 0, ROWS, version), ROWS);
    assert_int_equal(fixture_count_right(f, FIXTURE_LOGGED, 0, ROWS, version), ROWS);
}

/* Leaves the store as a crash would. */
static void crash(struct store_fixture *f)
{
    struct err_msg msg = { { 0 } };

    must(store_close(TAKE(f->store), false, &msg), &msg);
}

static bool file_has(const struct store_fixture *f, const char *name, const char *text)
{
    char path[400], bytes[4096] = { 0 };
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s", f->made[0], name);
    file = fopen(path, "r");
    assert_non_null(file);
    assert_true(fread(bytes, 1, sizeof(bytes) - 1, file) > 0);
    assert_int_equal(fclose(file), 0);
    return strstr(bytes, text) != NULL;
}

/* Asserts that a scan of checkpoint @id gives each row once, in version @version. */
static void assert_scan(struct store_fixture *f, uint64_t id, uint32_t table, uint32_t version)
{
    const struct store_row like = { .table_id = table,
                                    .logged = table >= FIXTURE_LOGGED,
                                    .weight_bytes = FIXTURE_WEIGHT_BYTES,
                                    .state_bytes = FIXTURE_STATE_BYTES };
    struct checkpoint_record *record = NULL;
    struct err_msg msg = { { 0 } };
    struct table_scan *scan = NULL;

    must(checkpoint_read(store_shelf(f->store), id, &record, &msg), &msg);
    must(checkpoint_verify(store_shelf(f->store), record, NULL, NULL, NULL, &msg), &msg);
    must(table_scan_open(store_shelf(f->store), record, &like, &scan, &msg), &msg);
    for (uint64_t row = 0; row < ROWS; row++) {
        unsigned char expected[FIXTURE_ROW_BYTES];
        uint64_t found = UINT64_MAX;
        const void *const bytes = table_scan_row(scan, &found);

        assert_non_null(bytes);
        assert_int_equal(found, row);
        fixture_row_bytes(table, row, version, expected);
        assert_memory_equal(bytes, expected, sizeof(expected));
        must(table_scan_step(scan, &msg), &msg);
    }
    assert_null(table_scan_row(scan, &(uint64_t){ 0 }));
    table_scan_free(scan);
    checkpoint_record_free(record);
}

static void test_a_store_that_never_moved_a_bucket_keeps_its_first_format(void **state)
{
    struct store_fixture *const f = *state;
    struct err_msg msg = { { 0 } };

    fixture_open(f);
    write_both(f, 1);
    assert_int_equal(fixture_checkpoint(f), 1);
    write_both(f, 2);
    crash(f);
    fixture_open(f);
    assert_int_equal(fixture_count_right(f, TABLE, 0, ROWS, 1), ROWS);
    assert_int_equal(fixture_count_right(f, FIXTURE_LOGGED, 0, ROWS, 2), ROWS);
    fixture_close(f);
    must(store_open(&(struct store_opts){ .config = &f->config, .restore_id = 1 }, &f->store, &msg),
         &msg);
    must(store_restore_done(f->store, &msg), &msg);
    assert_both(f, 1);
    assert_scan(f, 1, TABLE, 1);
    fixture_close(f);
    assert_true(file_has(f, BUCKET_MAP_FILE, "\"format_version\":1,") ||
                file_has(f, BUCKET_MAP_FILE, "\"format_version\": 1,"));
    assert_true(file_has(f, BUCKET_MAP_FILE, "\"generation\":1,") ||
                file_has(f, BUCKET_MAP_FILE, "\"generation\": 1,"));
    assert_true(file_has(f, "checkpoints/000001/checkpoint.json", "\"format_version\":1,"));
}

static void test_a_map_of_the_second_format_is_read_as_it_was_written(void **state)
{
    struct store_fixture *const f = *state;
    struct bucket_map *const map = map_new(5);
    struct bucket_map *read;

    fixture_open(f);
    fixture_close(f);
    turn(map);
    map->strays[2] = true;
    map->checkpoint_from = 17;
    map->shard_count = 9;
    for (uint32_t s = SHARDS; s < 9; s++)
        map->places[s] = s == 7 ? 1 : BUCKET_MAP_GONE;
    map_write(f, map);
    read = map_read(f);
    for (uint32_t s = 9; s < BUCKET_MAP_SHARDS_MAX; s++)
        map->places[s] = read->places[s]; /* they mean nothing */
    assert_memory_equal(read, map, sizeof(*map));
    bucket_map_free(read);
    test_free(map);
}

static void test_maps_of_the_second_format_that_say_nonsense_are_refused(void **state)
{
    struct store_fixture *const f = *state;
    struct bucket_map *const map = map_new(2);

    fixture_open(f);
    fixture_close(f);
    map->places[3] = BUCKET_MAP_GONE;
    map_write(f, map);
    fixture_refused(f, EMBTIER_CORRUPT, "shard 3 is gone, but has buckets");
    map->places[3] = 2;
    map_write(f, map);
    fixture_refused(f, EMBTIER_MISMATCH,
                    "shard 3 lies in data directory 2, which the store does not have");
    map->places[3] = 1;
    map->shards[0] = 4;
    map_write(f, map);
    fixture_refused(f, EMBTIER_CORRUPT, "bucket 0 is in shard 4, but the store has 4 shards");
    test_free(map);
}

/* Shard 1 has no bucket, and so is gone after a start: routes have no hole. */
static void test_a_store_does_without_a_shard_that_is_gone(void **state)
{
    struct store_fixture *const f = *state;
    struct bucket_map *const map = map_new(2);
    char folder[400];

    fixture_open(f);
    fixture_close(f);
    for (uint32_t bucket = 0; bucket < ROW_BUCKETS; bucket++)
        if (map->shards[bucket] == 1)
            map->shards[bucket] = 2;
    map_write(f, map);
    fixture_open(f);
    assert_int_equal(store_shard_count(f->store), SHARDS - 1);
    write_both(f, 1);
    assert_int_equal(fixture_checkpoint(f), 1);
    assert_scan(f, 1, TABLE, 1);
    fixture_close(f);
    snprintf(folder, sizeof(folder), "%s/shard-0001", f->made[0]);
    assert_int_equal(access(folder, F_OK), -1);
    fixture_open(f);
    assert_int_equal(store_shard_count(f->store), SHARDS - 1);
    assert_both(f, 1);
    write_both(f, 2);
    fixture_flush_all(f);
    assert_int_equal(fixture_checkpoint(f), 2);
    assert_scan(f, 1, TABLE, 1);
    assert_scan(f, 2, FIXTURE_LOGGED, 2);
    crash(f);
    fixture_open(f);
    assert_both(f, 2);
    fixture_close(f);
    test_free(map);
}

/* After the map turned, each shard has rows of version 1 that belong elsewhere. */
static void test_rows_where_the_map_does_not_look_are_no_part_of_a_checkpoint(void **state)
{
    struct store_fixture *const f = *state;
    struct bucket_map *const map = map_new(2);

    fixture_open(f);
    write_both(f, 1);
    fixture_close(f);
    turn(map);
    map_write(f, map);
    fixture_open(f);
    assert_int_equal(fixture_count_found(f, TABLE, 0, ROWS), 0);
    write_both(f, 2);
    assert_int_equal(fixture_checkpoint(f), 1);
    assert_scan(f, 1, TABLE, 2);
    assert_scan(f, 1, FIXTURE_LOGGED, 2);
    fixture_close(f);
    test_free(map);
}

static void test_a_restore_takes_the_map_of_its_checkpoint(void **state)
{
    struct store_fixture *const f = *state;
    struct bucket_map *const map = map_new(2);
    struct err_msg msg = { { 0 } };
    struct bucket_map *now;

    fixture_open(f);
    write_both(f, 1);
    assert_int_equal(fixture_checkpoint(f), 1); /* of format 1 */
    fixture_close(f);
    turn(map);
    map_write(f, map);
    fixture_open(f);
    write_both(f, 2);
    assert_int_equal(fixture_checkpoint(f), 2);
    fixture_close(f);
    for (uint64_t id = 1; id <= 2; id++) {
        must(store_open(&(struct store_opts){ .config = &f->config, .restore_id = id }, &f->store,
                        &msg),
             &msg);
        assert_both(f, (uint32_t)id);
        crash(f);
        fixture_open(f); /* the restore is not done: it is repeated */
        assert_both(f, (uint32_t)id);
        must(store_restore_done(f->store, &msg), &msg);
        assert_scan(f, 1, TABLE, 1);
        assert_scan(f, 2, TABLE, 2);
        fixture_close(f);
        now = map_read(f);
        assert_int_equal(now->format, BUCKET_MAP_FORMAT_VERSION);
        assert_true(now->generation > 2);
        assert_int_equal(now->checkpoint_from, 3);
        assert_int_equal(now->shards[0], id == 1 ? 0 : SHARDS - 1);
        bucket_map_free(now);
    }
    test_free(map);
}

static void test_a_crash_does_not_go_back_to_before_a_move(void **state)
{
    struct store_fixture *const f = *state;
    struct bucket_map *const map = map_new(2);
    struct err_msg msg = { { 0 } };

    fixture_open(f);
    write_both(f, 1);
    assert_int_equal(fixture_checkpoint(f), 1);
    fixture_close(f);
    turn(map);
    map->checkpoint_from = 2;
    map_write(f, map);
    fixture_open(f);
    write_both(f, 2);
    crash(f);
    fixture_refused(f, EMBTIER_MISMATCH, "was made before buckets of rows moved");
    must(store_open(&(struct store_opts){ .config = &f->config, .restore_id = 1 }, &f->store, &msg),
         &msg);
    assert_both(f, 1);
    fixture_close(f);
    test_free(map);
}

/* A crash brings rows back that a sweep had removed: they are marked, so that a move that comes
 * back does not take them for newer ones. */
static void test_shards_that_get_strays_back_are_marked(void **state)
{
    struct store_fixture *const f = *state;
    struct bucket_map *const map = map_new(2);
    struct bucket_map *now;

    fixture_open(f);
    fixture_close(f);
    map->strays[3] = true;
    map_write(f, map);
    fixture_open(f);
    write_both(f, 1);
    assert_int_equal(fixture_checkpoint(f), 1);
    fixture_close(f);
    map->generation++;
    map->strays[3] = false;
    for (uint32_t bucket = 1; bucket < ROW_BUCKETS; bucket++)
        if (map->shards[bucket] == 0)
            map->shards[bucket] = 1;
    map->checkpoint_from = 1;
    map_write(f, map);
    fixture_open(f);
    fixture_write_all(f, TABLE, 0, 1, 2);
    crash(f);
    fixture_open(f);
    fixture_close(f);
    now = map_read(f);
    for (uint32_t s = 0; s < SHARDS; s++)
        assert_int_equal(now->strays[s], s == 0 || s == 3);
    bucket_map_free(now);
    test_free(map);
}

#define STORE_TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        STORE_TEST(test_a_store_that_never_moved_a_bucket_keeps_its_first_format),
        STORE_TEST(test_a_map_of_the_second_format_is_read_as_it_was_written),
        STORE_TEST(test_maps_of_the_second_format_that_say_nonsense_are_refused),
        STORE_TEST(test_a_store_does_without_a_shard_that_is_gone),
        STORE_TEST(test_rows_where_the_map_does_not_look_are_no_part_of_a_checkpoint),
        STORE_TEST(test_a_restore_takes_the_map_of_its_checkpoint),
        STORE_TEST(test_a_crash_does_not_go_back_to_before_a_move),
        STORE_TEST(test_shards_that_get_strays_back_are_marked),
    };

    setvbuf(stdout, NULL, _IOLBF, 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
