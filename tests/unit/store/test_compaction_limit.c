/* SPDX-License-Identifier: Apache-2.0 */
/* test_compaction_limit.c: do compactions keep the limit of bytes a second, does it give way before
 * writes stop, and has each device turns of its own? */
#include <pthread.h>
#include <stdatomic.h>

#include "store/database/compaction_pace.h"
#include "store/store_impl.h"
#include "tests/unit/store/store_fixture.h"

#define ROWS    20000
#define ROUNDS  6 /* files: enough to compact, and too few for the limit to rise */
#define LIMIT   MIB
#define MANY    80 /* files, more than a database may have */
#define SECOND  UINT64_C(1000000000)
#define BURST   (512 * KIB) /* what compactions may have asked for before the first look */
#define TICK_US 1000

/* ---- The limit that follows from how databases are ---- */

static uint64_t pace_of(double nearest, bool is_near, enum compaction_pace_reason reason)
{
    const struct compaction_strain strain = { .nearest = nearest, .is_near = is_near };
    struct compaction_pace pace = { .rows_since_ns = 0 };
    enum compaction_pace_reason got;
    const uint64_t bytes = compaction_pace(&pace, LIMIT, &strain, SECOND, &got);

    assert_int_equal(got, reason);
    return bytes;
}

static void test_the_limit_rises_with_the_debt_and_goes_before_writes_stop(void **state)
{
    (void)state;
    assert_int_equal(pace_of(0, false, COMPACTION_PACE_HOLDS), LIMIT);
    assert_int_equal(pace_of(0.32, false, COMPACTION_PACE_HOLDS), LIMIT);
    assert_int_equal(pace_of(0.34, false, COMPACTION_PACE_BEHIND), 2 * LIMIT);
    assert_int_equal(pace_of(0.5, false, COMPACTION_PACE_BEHIND), 4 * LIMIT);
    assert_int_equal(pace_of(0.67, true, COMPACTION_PACE_NEAR), 0);
}

static void test_the_limit_goes_while_clients_are_quiet(void **state)
{
    struct compaction_strain strain = { .rows = 7 };
    struct compaction_pace pace = { .rows_since_ns = 0 };
    enum compaction_pace_reason reason;
    uint64_t now = SECOND;

    (void)state;
    assert_int_equal(compaction_pace(&pace, LIMIT, &strain, now, &reason), LIMIT);
    now += COMPACTION_QUIET_NS - 1;
    assert_int_equal(compaction_pace(&pace, LIMIT, &strain, now, &reason), LIMIT);
    now++;
    assert_int_equal(compaction_pace(&pace, LIMIT, &strain, now, &reason), 0);
    assert_int_equal(reason, COMPACTION_PACE_QUIET);
    strain.rows++;
    assert_int_equal(compaction_pace(&pace, LIMIT, &strain, now, &reason), LIMIT);
    assert_int_equal(compaction_pace(&pace, 0, &strain, now, &reason), 0);
    assert_int_equal(reason, COMPACTION_PACE_NONE);
}

/* ---- In a store ---- */

static struct compaction_facts facts_of(const struct store_fixture *f)
{
    struct compaction_facts facts;

    compaction_scheduler_look(store_compaction(f->store), &facts);
    return facts;
}

static struct store_stats stats_of(const struct store_fixture *f)
{
    struct store_stats stats;

    store_stats(f->store, &stats);
    return stats;
}

static uint64_t limited_bytes(const struct store_fixture *f)
{
    uint64_t limited, passing;

    rocksdb_ext_limited_bytes(f->store->setup->options, &limited, &passing);
    return limited;
}

/* Each flush of load() makes one file of a database. */
static void open_limited(struct store_fixture *f)
{
    f->config.rocksdb.memtable_bytes = 64 * MIB;
    f->config.rocksdb.compaction_bytes_per_second = LIMIT;
    fixture_open(f);
}

static void load(struct store_fixture *f)
{
    store_set_busy(f->store, true);
    for (uint32_t version = 1; version <= ROUNDS; version++) {
        fixture_write_all(f, 1, 0, ROWS, version);
        fixture_flush_all(f);
    }
    store_set_busy(f->store, false);
}

/* Reads, so that clients are not quiet. */
static void tick(struct store_fixture *f)
{
    (void)fixture_count_found(f, 1, 0, 10);
    usleep(TICK_US);
}

static void await_compacting(struct store_fixture *f)
{
    const uint64_t until_ns = now_ns() + FIXTURE_WAIT_NS;

    while (limited_bytes(f) == 0) {
        assert_true(now_ns() < until_ns);
        tick(f);
    }
}

static bool is_due(const struct store_fixture *f)
{
    struct database_debt debt;

    for (uint32_t i = 0; i < store_database_count(f->store); i++) {
        database_poll_debt(f->store->databases[i], &debt);
        if (debt.due || debt.running > 0)
            return true;
    }
    return false;
}

static bool compacts(const struct store_fixture *f)
{
    return stats_of(f).shards_compacting > 0;
}

/* Rounds of the scheduler stop here while the test says so. */
static _Atomic bool holds_rounds;

uint64_t __real_database_rows_moved(struct database *database);
uint64_t __wrap_database_rows_moved(struct database *database);

uint64_t __wrap_database_rows_moved(struct database *database)
{
    while (atomic_load(&holds_rounds))
        usleep(TICK_US);
    return __real_database_rows_moved(database);
}

/* A drop may compact before that. */
static void test_the_limit_holds_before_the_first_round(void **state)
{
    struct store_fixture *const f = *state;
    struct compaction_facts facts;
    uint64_t limit;

    atomic_store(&holds_rounds, true);
    open_limited(f);
    limit = rocksdb_ext_compaction_limit(f->store->setup->options);
    facts = facts_of(f);
    atomic_store(&holds_rounds, false);
    assert_int_equal(limit, LIMIT);
    assert_int_equal(facts.limit_now_bytes, LIMIT);
    assert_int_equal(facts.pace, COMPACTION_PACE_HOLDS);
}

static void test_compactions_keep_the_limit(void **state)
{
    struct store_fixture *const f = *state;
    uint64_t began_ns, bytes, nanoseconds;

    open_limited(f);
    began_ns = now_ns();
    load(f);
    began_ns = now_ns();
    await_compacting(f);
    while (is_due(f)) {
        assert_true(now_ns() - began_ns < FIXTURE_WAIT_NS);
        assert_true(facts_of(f).pace == COMPACTION_PACE_HOLDS);
        tick(f);
    }
    nanoseconds = now_ns() - began_ns;
    bytes = limited_bytes(f);
    assert_true(bytes > 2 * LIMIT); /* else the test shows nothing */
    if ((double)(bytes - BURST) > 1.1 * LIMIT * (double)nanoseconds / SECOND)
        fail_msg("%" PRIu64 " bytes in %" PRIu64 " ms", bytes, nanoseconds / 1000000);
    assert_int_equal(fixture_count_right(f, 1, 0, ROWS, ROUNDS), ROWS);
}

/* Compactions wait for minutes from now on. */
static void limit_to_nearly_nothing(struct store_fixture *f)
{
    const uint64_t until_ns = now_ns() + FIXTURE_WAIT_NS;

    store_set_compaction_bytes(f->store, KIB);
    while (rocksdb_ext_compaction_limit(f->store->setup->options) != KIB) {
        assert_true(now_ns() < until_ns);
        tick(f);
    }
}

static void test_flushes_do_not_wait_behind_compactions_that_wait(void **state)
{
    struct store_fixture *const f = *state;
    uint64_t limited_before, flushed_before;

    open_limited(f);
    load(f);
    await_compacting(f);
    limit_to_nearly_nothing(f);
    limited_before = limited_bytes(f);
    flushed_before = stats_of(f).written.flush_bytes;
    for (uint32_t table = 2; table < 5; table++) {
        fixture_write_all(f, table, 0, ROWS, 1);
        fixture_flush_all(f);
    }
    assert_true(is_due(f));
    assert_true(stats_of(f).written.flush_bytes - flushed_before > 4 * BURST);
    assert_in_range(limited_bytes(f) - limited_before, 0, BURST);
    store_set_compaction_bytes(f->store, 0); /* so the end does not wait for them */
}

static void test_a_new_limit_counts_for_compactions_under_way(void **state)
{
    struct store_fixture *const f = *state;
    const uint64_t until_ns = now_ns() + FIXTURE_WAIT_NS;
    struct store_tuning tuning;

    open_limited(f);
    load(f);
    await_compacting(f);
    store_set_compaction_bytes(f->store, 0);
    store_tuning(f->store, &tuning);
    assert_int_equal(tuning.compaction_bytes_per_second, 0);
    while (is_due(f)) {
        assert_true(now_ns() < until_ns);
        tick(f);
    }
    assert_int_equal(facts_of(f).pace, COMPACTION_PACE_NONE);
    assert_int_equal(rocksdb_ext_compaction_limit(f->store->setup->options), 0);
}

/* Before the scheduler's next round, and read from RocksDB: someone else may change it there. */
static void test_a_limit_is_in_force_when_it_is_set(void **state)
{
    struct store_fixture *const f = *state;
    const uint64_t until_ns = now_ns() + FIXTURE_WAIT_NS;
    const rocksdb_options_t *options;
    struct store_tuning tuning;

    fixture_open(f);
    options = f->store->setup->options;
    for (uint64_t limit = 100 * LIMIT; limit > 90 * LIMIT; limit -= LIMIT) {
        store_set_compaction_bytes(f->store, limit);
        assert_int_equal(rocksdb_ext_compaction_limit(options), limit);
        assert_int_equal(facts_of(f).limit_now_bytes, limit);
        assert_int_equal(facts_of(f).pace, COMPACTION_PACE_HOLDS);
    }
    do { /* a round takes it back */
        assert_true(now_ns() < until_ns);
        rocksdb_ext_set_compaction_limit(options, LIMIT);
        store_tuning(f->store, &tuning);
    } while (tuning.compaction_bytes_per_second != LIMIT);
    store_set_compaction_bytes(f->store, 0);
    assert_int_equal(facts_of(f).pace, COMPACTION_PACE_NONE);
}

/* A checkpoint or drop on a full disk waits for compactions under way, and for not more than 30
 * seconds. */
static void test_work_that_needs_the_reserve_does_not_wait_for_the_limit(void **state)
{
    struct store_fixture *const f = *state;
    const uint64_t until_ns = now_ns() + FIXTURE_WAIT_NS;

    open_limited(f);
    load(f);
    await_compacting(f);
    limit_to_nearly_nothing(f);
    compaction_scheduler_pause(f->store->scheduler, true);
    while (compacts(f) || facts_of(f).pace != COMPACTION_PACE_SPACE) {
        assert_true(now_ns() < until_ns);
        tick(f);
    }
    compaction_scheduler_pause(f->store->scheduler, false);
    while (facts_of(f).pace == COMPACTION_PACE_SPACE) {
        assert_true(now_ns() < until_ns);
        tick(f);
    }
    store_set_compaction_bytes(f->store, 0); /* so the end does not wait for it */
}

/* Writes a batch into shard 0 as often as it takes. While it is refused for long, no limit may be
 * in force. */
static void write_patiently(struct store_fixture *f, struct fixture_batch *batch)
{
    const uint64_t began_ns = now_ns();
    struct err_msg msg = { { 0 } };
    enum embtier_err err;

    while ((err = store_write(f->store, 0, batch->rows, batch->count, &msg)) == EMBTIER_BUSY) {
        const uint64_t waited_ns = now_ns() - began_ns;

        assert_true(waited_ns < FIXTURE_WAIT_NS);
        if (waited_ns > 2 * SECOND)
            assert_int_equal(facts_of(f).limit_now_bytes, 0);
        usleep(TICK_US);
    }
    must(err, &msg);
}

static void test_the_limit_never_stops_writes(void **state)
{
    struct fixture_batch *const batch = malloc(sizeof(*batch));
    struct store_fixture *const f = *state;
    struct err_msg msg = { { 0 } };
    bool was_suspended = false;

    open_limited(f);
    store_set_busy(f->store, true); /* compaction is put off until the database is urgent */
    for (uint32_t version = 1; version <= MANY; version++) {
        for (uint64_t id = 0; id < ROWS;) {
            id = fixture_gather(f, 0, 1, id, ROWS, batch);
            for (uint32_t i = 0; i < batch->count; i++)
                fixture_row_bytes(1, batch->rows[i].id, version, batch->rows[i].bytes);
            write_patiently(f, batch);
        }
        must(store_flush(f->store, 0, &msg), &msg);
        was_suspended = was_suspended || facts_of(f).pace == COMPACTION_PACE_NEAR;
    }
    free(batch);
    assert_true(was_suspended);
    assert_in_range(fixture_count_right(f, 1, 0, ROWS, MANY), ROWS / 5, ROWS / 3);
}

/* A store's directories are on one device here, so the test tells its own scheduler otherwise: half
 * of the databases are on one device, half on another. */
static void use_two_devices(struct store_fixture *f, uint64_t bytes_per_second)
{
    uint32_t devices[16] = { 0 };
    struct database *databases[16] = { NULL };
    struct compaction_scheduler_opts opts = { .databases = databases,
                                              .database_count = store_database_count(f->store),
                                              .devices = devices,
                                              .parallel = 1,
                                              .options = f->store->setup->options,
                                              .bytes_per_second = bytes_per_second };
    struct err_msg msg = { { 0 } };

    for (uint32_t i = 0; i < opts.database_count; i++) {
        devices[i] = i >= opts.database_count / 2;
        databases[i] = store_database_at(f->store, i);
    }
    compaction_scheduler_free(TAKE(f->store->scheduler));
    must(compaction_scheduler_new(&opts, &f->store->scheduler, &msg), &msg);
}

static void test_each_device_has_turns_of_its_own(void **state)
{
    struct store_fixture *const f = *state;
    const uint64_t until_ns = now_ns() + FIXTURE_WAIT_NS;

    fixture_open(f);
    load(f);
    use_two_devices(f, LIMIT);
    while (stats_of(f).shards_compacting_peak < 2) {
        assert_true(now_ns() < until_ns);
        tick(f);
    }
    compaction_scheduler_set_bytes(f->store->scheduler, 0);
    while (is_due(f)) {
        assert_true(now_ns() < until_ns);
        tick(f);
    }
    assert_int_equal(stats_of(f).shards_compacting_peak, 2);
}

static uint32_t count_of(const struct store_fixture *f, enum compaction_state state)
{
    struct compaction_view views[16];
    const uint32_t count = compaction_scheduler_list(f->store->scheduler, 0, 16, views);
    uint32_t found = 0;

    for (uint32_t i = 0; i < count; i++)
        found += views[i].state == state;
    return found;
}

struct catching_up {
    struct store_fixture *f;
    uint64_t both_since_ns; /* since when a database of each device has its turn; 0: not yet */
};

/* The limit goes after a time in which a database that RocksDB finds nothing in loses its turn. */
static enum embtier_err let_go_later(void *context, uint32_t done, uint32_t total,
                                     struct err_msg *msg)
{
    struct catching_up *const catching_up = context;
    struct store_fixture *const f = catching_up->f;

    (void)done;
    (void)total;
    (void)msg;
    assert_int_equal(count_of(f, COMPACTION_SITS_OUT), 0);
    tick(f);
    if (catching_up->both_since_ns == 0 && count_of(f, COMPACTION_RUNS) == 2)
        catching_up->both_since_ns = now_ns();
    if (catching_up->both_since_ns != 0 && now_ns() - catching_up->both_since_ns > 4 * SECOND)
        compaction_scheduler_set_bytes(f->store->scheduler, 0);
    return EMBTIER_OK;
}

static void test_a_database_that_waits_for_the_only_thread_keeps_its_turn(void **state)
{
    struct catching_up catching_up = { .f = *state };
    struct store_fixture *const f = *state;
    struct err_msg msg = { { 0 } };

    f->config.rocksdb.background_threads = 2; /* one of them compacts */
    open_limited(f);
    compaction_scheduler_defer(f->store->scheduler, true);
    load(f);
    use_two_devices(f, KIB); /* so the first compaction keeps the thread */
    must(compaction_scheduler_catch_up(f->store->scheduler, let_go_later, &catching_up, &msg),
         &msg);
    assert_false(is_due(f));
    assert_int_equal(fixture_count_right(f, 1, 0, ROWS, ROUNDS), ROWS);
}

#define LIMIT_TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_limit_rises_with_the_debt_and_goes_before_writes_stop),
        cmocka_unit_test(test_the_limit_goes_while_clients_are_quiet),
        LIMIT_TEST(test_the_limit_holds_before_the_first_round),
        LIMIT_TEST(test_compactions_keep_the_limit),
        LIMIT_TEST(test_flushes_do_not_wait_behind_compactions_that_wait),
        LIMIT_TEST(test_a_new_limit_counts_for_compactions_under_way),
        LIMIT_TEST(test_a_limit_is_in_force_when_it_is_set),
        LIMIT_TEST(test_work_that_needs_the_reserve_does_not_wait_for_the_limit),
        LIMIT_TEST(test_the_limit_never_stops_writes),
        LIMIT_TEST(test_each_device_has_turns_of_its_own),
        LIMIT_TEST(test_a_database_that_waits_for_the_only_thread_keeps_its_turn),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
