/* SPDX-License-Identifier: Apache-2.0 */
/* test_rocksdb_traps.c: do settings of RocksDB that are known to hang flushes or stop writes stay
 * out of the store's databases? */
#include <rocksdb/c.h>

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

#define TRAPS_TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TRAPS_TEST(test_no_flush_waits_for_a_second_write_buffer),
        TRAPS_TEST(test_a_jump_of_the_estimate_does_not_stop_writes),
        TRAPS_TEST(test_a_debt_that_level_0_shows_too_stops_writes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
