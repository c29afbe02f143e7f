/* SPDX-License-Identifier: Apache-2.0 */
/* test_tuning.c: do options that change while the store is open work in all of its databases? */
#include <dirent.h>
#include <stdio.h>

#include "store/store_impl.h"
#include "tests/unit/store/store_fixture.h"

#define ROWS   20000
#define ROUNDS 6
#define FILES  8 /* of new rows */

static struct store_stats stats_of(const struct store_fixture *f)
{
    struct store_stats stats;

    store_stats(f->store, &stats);
    return stats;
}

static struct store_tuning tuning_of(const struct store_fixture *f)
{
    struct store_tuning tuning;

    store_tuning(f->store, &tuning);
    return tuning;
}

/* Asserts what RocksDB itself has, in each database. */
static void assert_tuned(const struct store_fixture *f, enum rocksdb_ext_tuning tuning,
                         int64_t value)
{
    for (uint32_t i = 0; i < store_database_count(f->store); i++)
        assert_int_equal(database_tuned(f->store->databases[i], tuning), value);
}

static void set_memtables(struct store_fixture *f, uint64_t bytes)
{
    struct config next = f->config;
    struct err_msg msg = { { 0 } };

    next.rocksdb.memtable_bytes = bytes;
    must(store_set_memtables(f->store, &next, &msg), &msg);
    assert_int_equal(tuning_of(f).memtable_bytes, bytes);
}

/* The database that refuses to be tuned; NULL: none. */
static const struct database *refusing;

enum embtier_err __real_database_tune(struct database *database, enum rocksdb_ext_tuning tuning,
                                      int64_t value, struct err_msg *msg);
enum embtier_err __wrap_database_tune(struct database *database, enum rocksdb_ext_tuning tuning,
                                      int64_t value, struct err_msg *msg);
enum embtier_err __wrap_database_tune(struct database *database, enum rocksdb_ext_tuning tuning,
                                      int64_t value, struct err_msg *msg)
{
    return database == refusing ? err_set(msg, EMBTIER_BUSY, "this one refuses")
                                : __real_database_tune(database, tuning, value, msg);
}

static void test_a_database_that_refuses_does_not_keep_the_others_from_it(void **state)
{
    static const enum rocksdb_ext_tuning tuning = ROCKSDB_EXT_TUNING_WRITE_BUFFER_BYTES;
    struct store_fixture *const f = *state;
    struct config next;
    struct err_msg msg = { { 0 } };
    uint32_t last;
    int64_t before;

    f->config.rocksdb.memtable_bytes = 4 * MIB;
    fixture_open(f);
    last = store_database_count(f->store) - 1;
    before = database_tuned(f->store->databases[0], tuning);
    next = f->config;
    next.rocksdb.memtable_bytes = 64 * MIB;
    refusing = f->store->databases[0];
    assert_int_equal(store_set_memtables(f->store, &next, &msg), EMBTIER_BUSY);
    assert_non_null(strstr(msg.text, "1 of "));
    assert_non_null(strstr(msg.text, "this one refuses"));
    assert_int_equal(database_tuned(f->store->databases[0], tuning), before);
    assert_true(database_tuned(f->store->databases[last], tuning) > before);
    assert_int_equal(tuning_of(f).memtable_bytes, 4 * MIB);
    refusing = NULL;
    set_memtables(f, 4 * MIB); /* the value in force, as far as the store knows */
    assert_tuned(f, tuning, before);
}

static void test_write_buffers_and_their_reserve_follow(void **state)
{
    struct store_fixture *const f = *state;
    struct config next;
    struct err_msg msg = { { 0 } };
    uint64_t reserve_bytes;

    f->config.rocksdb.memtable_bytes = 4 * MIB;
    f->config.data.reserve_bytes = 0;
    fixture_open(f);
    reserve_bytes = stats_of(f).reserve_bytes;
    set_memtables(f, 64 * MIB);
    assert_tuned(f, ROCKSDB_EXT_TUNING_WRITE_BUFFER_BYTES,
                 64 * MIB / store_database_count(f->store) / DATABASE_WRITE_BUFFERS);
    assert_true(stats_of(f).reserve_bytes > reserve_bytes);
    fixture_write_all(f, 1, 0, 5 * ROWS, 1); /* more than the first buffers hold */
    assert_true(stats_of(f).memtable_bytes > 4 * MIB);
    set_memtables(f, 4 * MIB);
    assert_tuned(f, ROCKSDB_EXT_TUNING_WRITE_BUFFER_BYTES,
                 4 * MIB / store_database_count(f->store) / DATABASE_WRITE_BUFFERS);
    assert_int_equal(stats_of(f).reserve_bytes, reserve_bytes);
    next = f->config;
    next.rocksdb.memtable_bytes = 64 * KIB;
    assert_int_equal(store_set_memtables(f->store, &next, &msg), EMBTIER_CONFIG);
    assert_int_equal(tuning_of(f).memtable_bytes, 4 * MIB);
    assert_int_equal(fixture_count_right(f, 1, 0, 5 * ROWS, 1), 5 * ROWS);
}

/* RocksDB's blocks of a write buffer stay as long as they were for the first one. */
static void test_the_smallest_write_buffers_take_rows_after_large_ones(void **state)
{
    struct store_fixture *const f = *state;
    uint64_t smallest;

    f->config.rocksdb.memtable_bytes = 256 * MIB;
    fixture_open(f);
    fixture_write_all(f, 1, 0, ROWS, 1);
    smallest =
        store_database_count(f->store) * DATABASE_WRITE_BUFFERS * (uint64_t)WRITE_BUFFER_BYTES_MIN;
    set_memtables(f, smallest);
    for (uint32_t round = 2; round < 2 + ROUNDS; round++)
        fixture_write_all(f, 1, 0, ROWS, round);
    set_memtables(f, 256 * MIB);
    fixture_write_all(f, 1, 0, ROWS, ROUNDS + 2);
    assert_int_equal(fixture_count_right(f, 1, 0, ROWS, ROUNDS + 2), ROWS);
}

static void test_a_smaller_cache_of_metadata_gives_its_blocks_back(void **state)
{
    struct store_fixture *const f = *state;

    f->config.rocksdb.metadata_cache_bytes = 8 * MIB;
    fixture_open(f);
    fixture_write_all(f, 1, 0, 5 * ROWS, 1);
    fixture_flush_all(f);
    fixture_count_right(f, 1, 0, 5 * ROWS, 1);
    assert_true(stats_of(f).metadata_cache_bytes > 128 * KIB);
    store_set_metadata_cache(f->store, 64 * KIB);
    assert_int_equal(tuning_of(f).metadata_cache_bytes, 64 * KIB);
    assert_in_range(stats_of(f).metadata_cache_bytes, 0, 2 * 64 * KIB);
    store_set_metadata_cache(f->store, 8 * MIB);
    assert_int_equal(fixture_count_right(f, 1, 0, 5 * ROWS, 1), 5 * ROWS);
    assert_true(stats_of(f).metadata_cache_bytes > 128 * KIB);
}

/* Counts threads of this process by their name. */
static uint32_t threads_named(const char *name)
{
    DIR *const tasks = opendir("/proc/self/task");
    const struct dirent *task;
    uint32_t count = 0;

    assert_non_null(tasks);
    while ((task = readdir(tasks))) { // NOLINT(concurrency-mt-unsafe)
        char path[300], found[32] = "";
        FILE *file;

        snprintf(path, sizeof(path), "/proc/self/task/%s/comm", task->d_name);
        file = fopen(path, "re");
        if (!file)
            continue;
        if (fgets(found, sizeof(found), file))
            count += strncmp(found, name, strlen(name)) == 0;
        (void)fclose(file);
    }
    closedir(tasks);
    return count;
}

static void assert_threads(struct store_fixture *f, uint32_t threads, uint32_t compacting,
                           uint32_t flushing)
{
    const uint64_t until_ns = now_ns() + FIXTURE_WAIT_NS;
    struct err_msg msg = { { 0 } };

    must(store_set_threads(f->store, threads, &msg), &msg);
    assert_int_equal(tuning_of(f).background_threads, threads);
    assert_tuned(f, ROCKSDB_EXT_TUNING_COMPACTIONS, compacting);
    while (threads_named("rocksdb:low") != compacting ||
           threads_named("rocksdb:high") != flushing) {
        assert_true(now_ns() < until_ns);
        usleep(10000);
    }
}

static void test_threads_come_and_go(void **state)
{
    struct store_fixture *const f = *state;

    f->config.rocksdb.background_threads = 2;
    fixture_open(f);
    assert_threads(f, 8, 6, 2);
    assert_threads(f, 1, 1, 1);
    fixture_write_all(f, 1, 0, ROWS, 1);
    fixture_flush_all(f);
    assert_threads(f, 4, 3, 1);
    assert_int_equal(fixture_count_right(f, 1, 0, ROWS, 1), ROWS);
}

static void test_more_shards_compact_at_once_from_then_on(void **state)
{
    struct store_fixture *const f = *state;
    const uint64_t until_ns = now_ns() + FIXTURE_WAIT_NS;

    f->config.rocksdb.compaction_parallel = 1;
    f->config.rocksdb.background_threads = 8;
    fixture_open(f);
    store_set_compaction_parallel(f->store, 2);
    assert_int_equal(tuning_of(f).compaction_parallel, 2);
    for (uint32_t version = 1; stats_of(f).shards_compacting_peak < 2; version++) {
        assert_true(now_ns() < until_ns);
        store_set_busy(f->store, version % ROUNDS != 0);
        fixture_write_all(f, 1, 0, ROWS, version);
        fixture_flush_all(f);
    }
    assert_int_equal(stats_of(f).shards_compacting_peak, 2);
    store_set_compaction_parallel(f->store, 0); /* there is always one */
    assert_int_equal(tuning_of(f).compaction_parallel, 1);
}

/* Returns the most files of level 0 that a database has. */
static uint32_t most_level0_files(const struct store_fixture *f)
{
    uint32_t most = 0;

    for (uint32_t i = 0; i < store_database_count(f->store); i++) {
        struct database_debt debt;

        database_poll_debt(f->store->databases[i], &debt);
        most = MAX(most, debt.level0_files);
    }
    return most;
}

static void test_as_many_new_files_start_a_compaction_as_are_set(void **state)
{
    struct store_fixture *const f = *state;
    const uint64_t until_ns = now_ns() + FIXTURE_WAIT_NS;
    struct err_msg msg = { { 0 } };

    f->config.rocksdb.compaction_trigger_files = 3;
    fixture_open(f);
    assert_tuned(f, ROCKSDB_EXT_TUNING_TRIGGER_FILES, 3);
    must(store_set_trigger_files(f->store, 12, &msg), &msg);
    assert_tuned(f, ROCKSDB_EXT_TUNING_TRIGGER_FILES, 12);
    assert_int_equal(store_trigger_files(f->store), 12);
    for (uint32_t version = 1; version <= FILES; version++) {
        fixture_write_all(f, 1, 0, ROWS / 10, version);
        fixture_flush_all(f);
    }
    for (uint32_t i = 0; i < store_database_count(f->store); i++) {
        struct database_debt debt;

        database_poll_debt(f->store->databases[i], &debt);
        assert_false(debt.due);
    }
    assert_int_equal(most_level0_files(f), FILES);
    must(store_set_trigger_files(f->store, 2, &msg), &msg);
    while (most_level0_files(f) >= 2) {
        assert_true(now_ns() < until_ns);
        usleep(10000);
    }
    assert_int_equal(fixture_count_right(f, 1, 0, ROWS / 10, FILES), ROWS / 10);
}

static void test_fewer_descriptors_mean_fewer_open_files(void **state)
{
    struct store_fixture *const f = *state;
    struct config next = f->config;
    struct err_msg msg = { { 0 } };

    f->config.descriptors.table_files = 1000;
    f->config.descriptors.read_files = 50;
    fixture_open(f);
    next.descriptors.table_files = 500;
    next.descriptors.read_files = 60; /* never more than before */
    must(store_share_files(f->store, &next, &msg), &msg);
    assert_tuned(f, ROCKSDB_EXT_TUNING_OPEN_FILES, 510);
    assert_int_equal(atomic_load(&f->store->read_files), 50);
    next.descriptors.table_files = 2000;
    must(store_share_files(f->store, &next, &msg), &msg);
    assert_tuned(f, ROCKSDB_EXT_TUNING_OPEN_FILES, 510);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_database_that_refuses_does_not_keep_the_others_from_it),
        TEST(test_write_buffers_and_their_reserve_follow),
        TEST(test_the_smallest_write_buffers_take_rows_after_large_ones),
        TEST(test_a_smaller_cache_of_metadata_gives_its_blocks_back),
        TEST(test_threads_come_and_go),
        TEST(test_more_shards_compact_at_once_from_then_on),
        TEST(test_as_many_new_files_start_a_compaction_as_are_set),
        TEST(test_fewer_descriptors_mean_fewer_open_files),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
