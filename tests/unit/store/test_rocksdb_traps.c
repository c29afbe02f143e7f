/* SPDX-License-Identifier: Apache-2.0 */
/* test_rocksdb_traps.c: do settings of RocksDB that are known to hang flushes or stop writes stay
 * out of the store's databases? */
#include <rocksdb/c.h>

#include "base/paths.h"
#include "store/rocksdb/rocksdb_ext.h"
#include "store/store_impl.h"
#include "tests/unit/store/store_fixture.h"

#define ROWS 4000

/* ---- A debt that a test makes up ---- */

static _Atomic uint64_t pending_bytes; /* 0: RocksDB's own */

int __real_rocksdb_property_int(rocksdb_t *db, const char *name, uint64_t *ret_value);
int __wrap_rocksdb_property_int(rocksdb_t *db, const char *name, uint64_t *ret_value);

int __wrap_rocksdb_property_int(rocksdb_t *db, const char *name, uint64_t *ret_value)
{
    const int failed = __real_rocksdb_property_int(db, name, ret_value);

    if (strcmp(name, "rocksdb.estimate-pending-compaction-bytes") == 0 &&
        atomic_load(&pending_bytes) > 0)
        *ret_value = atomic_load(&pending_bytes);
    return failed;
}

static int teardown(void **state)
{
    atomic_store(&pending_bytes, 0);
    return fixture_teardown(state);
}

/* The scheduler has looked at all databases, as they are now. */
static void await_look(const struct store_fixture *f)
{
    for (uint32_t i = 0; i < store_database_count(f->store); i++) {
        struct database_debt debt;

        database_poll_debt(f->store->databases[i], &debt);
    }
}

static enum embtier_err write_one(struct store_fixture *f, uint32_t shard)
{
    struct fixture_batch *const batch = malloc(sizeof(*batch));
    struct err_msg msg = { { 0 } };
    enum embtier_err err;

    fixture_gather(f, shard, 1, 0, ROWS, batch);
    for (uint32_t i = 0; i < batch->count; i++)
        fixture_row_bytes(1, batch->rows[i].id, 1, batch->rows[i].bytes);
    err = store_write(f->store, shard, batch->rows, batch->count, &msg);
    free(batch);
    return err;
}

/* The scheduler looks, too, and may be late with what it saw before the test's last look. */
static void await_write(struct store_fixture *f, enum embtier_err wanted)
{
    const uint64_t until_ns = now_ns() + FIXTURE_WAIT_NS;

    while (write_one(f, 0) != wanted) {
        assert_true(now_ns() < until_ns);
        await_look(f);
        usleep(1000);
    }
}

static void add_files(struct store_fixture *f, uint32_t count)
{
    struct err_msg msg = { { 0 } };

    for (uint32_t i = 0; i < count; i++) {
        must(write_one(f, 0), &msg);
        must(store_flush(f->store, 0, &msg), &msg);
    }
}

/* ---- Flushes hang if several write buffers are to be merged ---- */

static void test_no_flush_waits_for_a_second_write_buffer(void **state)
{
    struct store_fixture *const f = *state;
    struct err_msg msg = { { 0 } };

    fixture_open(f);
    assert_int_equal(rocksdb_options_get_min_write_buffer_number_to_merge(f->store->setup->options),
                     1);
    must(write_one(f, 0), &msg);
    must(store_flush(f->store, 0, &msg), &msg); /* of one buffer */
    fixture_close(f);
    f->config.rocksdb.options = (char *)(uintptr_t) "min_write_buffer_number_to_merge=2";
    fixture_refused(f, EMBTIER_CONFIG, "hang");
    f->config.rocksdb.options = NULL;
}

/* ---- RocksDB's estimate of pending bytes jumps ---- */

static void test_a_jump_of_the_estimate_does_not_stop_writes(void **state)
{
    struct store_fixture *const f = *state;

    fixture_open(f);
    assert_true(rocksdb_options_get_soft_pending_compaction_bytes_limit(f->store->setup->options) >
                DATABASE_PENDING_BYTES_MAX);
    assert_true(rocksdb_options_get_hard_pending_compaction_bytes_limit(f->store->setup->options) >
                DATABASE_PENDING_BYTES_MAX);
    atomic_store(&pending_bytes, 4 * DATABASE_PENDING_BYTES_MAX);
    await_look(f);
    assert_int_equal(write_one(f, 0), EMBTIER_OK);
    assert_false(database_debt_stops_writes(0, UINT64_MAX));
    assert_false(database_debt_stops_writes(DATABASE_PENDING_FILES - 1, UINT64_MAX));
    assert_true(database_debt_stops_writes(DATABASE_LEVEL0_FILES_MAX, 0));
}

/* Compaction that is behind in earnest must still stop writes: the disk would fill up. */
static void test_a_debt_that_level_0_shows_too_stops_writes(void **state)
{
    struct store_fixture *const f = *state;

    fixture_open(f);
    store_set_busy(f->store, true);
    add_files(f, DATABASE_PENDING_FILES);
    assert_int_equal(write_one(f, 0), EMBTIER_OK);
    compaction_scheduler_pause(store_compaction(f->store),
                               true); /* else the database would compact */
    atomic_store(&pending_bytes, DATABASE_PENDING_BYTES_MAX);
    await_look(f);
    await_write(f, EMBTIER_BUSY);
    atomic_store(&pending_bytes, 0);
    await_look(f);
    await_write(f, EMBTIER_OK);
}

/* ---- A reader ends the process if the MANIFEST names logs that it does not track ---- */

static void put(rocksdb_t *db, const char *key)
{
    rocksdb_writeoptions_t *const how = rocksdb_writeoptions_create();
    char *error = NULL;

    rocksdb_put(db, how, key, strlen(key), "v", 1, &error);
    assert_null(error);
    rocksdb_writeoptions_destroy(how);
}

static bool has(rocksdb_t *db, const char *key)
{
    rocksdb_readoptions_t *const how = rocksdb_readoptions_create();
    size_t bytes;
    char *error = NULL, *const value = rocksdb_get(db, how, key, strlen(key), &bytes, &error);

    assert_null(error);
    rocksdb_readoptions_destroy(how);
    rocksdb_free(value);
    return value != NULL;
}

/* RocksDB writes the logs down that are synced while their rows still wait for a flush. Here no
 * thread flushes. */
static void test_a_reader_takes_a_manifest_that_names_logs(void **state)
{
    struct store_fixture *const f = *state;
    rocksdb_options_t *const options = rocksdb_options_create();
    rocksdb_options_t *const for_reader = rocksdb_options_create();
    rocksdb_flushoptions_t *const now = rocksdb_flushoptions_create();
    rocksdb_env_t *const env = rocksdb_create_default_env();
    char *const path = path_join(f->root, "trap");
    char *error = NULL;
    rocksdb_t *db, *reader;

    assert_non_null(path);
    rocksdb_get_options_from_string(for_reader,
                                    "create_if_missing=true;track_and_verify_wals_in_manifest=true",
                                    options, &error);
    assert_null(error);
    rocksdb_flushoptions_set_wait(now, 0);
    rocksdb_ext_log_nowhere(options);
    rocksdb_ext_log_nowhere(for_reader);
    rocksdb_ext_check_logs(for_reader);
    db = rocksdb_open(options, path, &error);
    assert_null(error);
    put(db, "old log");
    rocksdb_disable_file_deletions(db, &error); /* if one still does */
    assert_null(error);
    rocksdb_env_set_background_threads(env, 0);
    rocksdb_env_set_high_priority_background_threads(env, 0);
    rocksdb_flush(db, now, &error);
    assert_null(error);
    put(db, "new log");
    rocksdb_flush_wal(db, 1, &error);
    assert_null(error);
    reader = rocksdb_open_for_read_only(for_reader, path, 0, &error);
    if (error)
        fail_msg("%s", error);
    assert_true(has(reader, "old log") && has(reader, "new log"));
    rocksdb_close(reader);
    rocksdb_env_set_background_threads(env, 1);
    rocksdb_env_set_high_priority_background_threads(env, 1);
    rocksdb_close(db);
    rocksdb_env_destroy(env);
    rocksdb_flushoptions_destroy(now);
    rocksdb_options_destroy(for_reader);
    rocksdb_options_destroy(options);
    free(path);
}

#define TRAPS_TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TRAPS_TEST(test_no_flush_waits_for_a_second_write_buffer),
        TRAPS_TEST(test_a_jump_of_the_estimate_does_not_stop_writes),
        TRAPS_TEST(test_a_debt_that_level_0_shows_too_stops_writes),
        TRAPS_TEST(test_a_reader_takes_a_manifest_that_names_logs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
