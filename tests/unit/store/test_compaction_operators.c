/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that compaction does as operators say: it is put off and goes on, keeps its hours, and
 * catches up at once, also after failures; and that what the scheduler tells of each database is
 * so. */
#include <stdatomic.h>

#include "store/database/compaction_scheduler.h"
#include "tests/unit/store/store_fixture.h"

#define ROWS       20000
#define ROUNDS     6
#define FEW_ROWS   2000
#define MANY_FILES 60
#define VIEWS_MAX  64

static struct store_stats stats_of(const struct store_fixture *f)
{
    struct store_stats stats;

    store_stats(f->store, &stats);
    return stats;
}

static struct compaction_scheduler *scheduler_of(const struct store_fixture *f)
{
    return store_compaction(f->store);
}

/* Level 0 of each shard has more files than it may keep. Nothing compacts, as @put_off says. */
static void load(struct store_fixture *f)
{
    for (uint32_t version = 1; version <= ROUNDS; version++) {
        fixture_write_all(f, 1, 0, ROWS, version);
        fixture_flush_all(f);
    }
}

static uint32_t count_of(const struct store_fixture *f, enum compaction_state state)
{
    struct compaction_view views[VIEWS_MAX];
    const uint32_t count = compaction_scheduler_list(scheduler_of(f), 0, VIEWS_MAX, views);
    uint32_t found = 0;

    for (uint32_t i = 0; i < count; i++)
        found += views[i].state == state;
    return found;
}

static void await_state(const struct store_fixture *f, enum compaction_state state, uint32_t count)
{
    const uint64_t until_ns = now_ns() + FIXTURE_WAIT_NS;

    while (count_of(f, state) != count) {
        if (now_ns() > until_ns)
            fail_msg("%u databases are in state %d, not %u", count_of(f, state), state, count);
        usleep(20000);
    }
}

/* All shards are due: one database of each has rows. */
static void await_all(const struct store_fixture *f, enum compaction_state state)
{
    await_state(f, state, store_shard_count(f->store));
}

static void await_compacted(struct store_fixture *f)
{
    struct compaction_facts facts;

    compaction_scheduler_look(scheduler_of(f), &facts);
    await_state(f, COMPACTION_IDLE, facts.databases);
    assert_true(stats_of(f).compactions_run >= store_shard_count(f->store));
    assert_int_equal(fixture_count_right(f, 1, 0, ROWS, ROUNDS), ROWS);
}

static void test_compaction_is_put_off_until_it_is_resumed(void **state)
{
    struct store_fixture *const f = *state;
    struct compaction_facts facts;

    fixture_open(f);
    compaction_scheduler_defer(scheduler_of(f), true);
    load(f);
    await_all(f, COMPACTION_PAUSED);
    assert_int_equal(stats_of(f).compactions_run, 0);
    compaction_scheduler_look(scheduler_of(f), &facts);
    assert_true(facts.is_deferred && !facts.is_busy && !facts.lacks_space);
    compaction_scheduler_defer(scheduler_of(f), false);
    await_compacted(f);
}

/* Hours that begin in two and end in three: this test is over before. */
static struct day_hours later_hours(void)
{
    const uint32_t now = day_hours_now();

    return (struct day_hours){ .ranges = { { (uint16_t)((now + 120) % DAY_HOURS_MINUTES),
                                             (uint16_t)((now + 180) % DAY_HOURS_MINUTES) } },
                               .count = 1 };
}

static void test_compaction_keeps_its_hours(void **state)
{
    const struct day_hours later = later_hours(), all_day = { .count = 0 };
    struct store_fixture *const f = *state;
    struct compaction_facts facts;

    fixture_open(f);
    compaction_scheduler_set_hours(scheduler_of(f), &later);
    load(f);
    await_all(f, COMPACTION_WAITS_HOURS);
    assert_int_equal(stats_of(f).compactions_run, 0);
    compaction_scheduler_look(scheduler_of(f), &facts);
    assert_in_range(facts.minutes_to_hours, 60, 120);
    compaction_scheduler_set_hours(scheduler_of(f), &all_day);
    await_compacted(f);
}

static void test_hours_come_from_the_configuration(void **state)
{
    const struct day_hours later = later_hours();
    struct store_fixture *const f = *state;
    char text[32];

    snprintf(text, sizeof(text), "%02u:%02u-%02u:%02u", later.ranges[0].begin / 60u,
             later.ranges[0].begin % 60u, later.ranges[0].end / 60u, later.ranges[0].end % 60u);
    f->config.rocksdb.compaction_hours = text;
    fixture_open(f);
    f->config.rocksdb.compaction_hours = NULL;
    load(f);
    await_all(f, COMPACTION_WAITS_HOURS);
    assert_int_equal(stats_of(f).compactions_run, 0);
}

/* A pause must not end in refused updates. */
static void test_shards_near_their_limit_compact_although_it_is_put_off(void **state)
{
    struct store_fixture *const f = *state;
    uint64_t until_ns;

    fixture_open(f);
    compaction_scheduler_defer(scheduler_of(f), true);
    for (uint32_t version = 1; version <= MANY_FILES; version++) {
        fixture_write_all(f, 1, 0, FEW_ROWS, version);
        fixture_flush_all(f);
    }
    until_ns = now_ns() + FIXTURE_WAIT_NS;
    while (stats_of(f).compactions_run == 0) {
        assert_true(now_ns() < until_ns);
        usleep(20000);
    }
    assert_int_equal(fixture_count_right(f, 1, 0, FEW_ROWS, MANY_FILES), FEW_ROWS);
}

struct telling {
    uint32_t calls, last, total;
    enum embtier_err err; /* to return */
};

static enum embtier_err tell(void *context, uint32_t done, uint32_t total, struct err_msg *msg)
{
    struct telling *const telling = context;

    assert_true(done <= total);
    telling->calls++;
    telling->last = done;
    telling->total = total;
    return telling->err == EMBTIER_OK ? EMBTIER_OK : err_set(msg, telling->err, "enough");
}

static void test_all_shards_catch_up_at_once_although_compaction_is_put_off(void **state)
{
    struct store_fixture *const f = *state;
    struct telling telling = { .calls = 0 };
    struct err_msg msg = { { 0 } };

    fixture_open(f);
    compaction_scheduler_defer(scheduler_of(f), true);
    store_set_busy(f->store, true);
    load(f);
    await_all(f, COMPACTION_PAUSED);
    must(compaction_scheduler_catch_up(scheduler_of(f), tell, &telling, &msg), &msg);
    await_compacted(f);
    assert_true(telling.total > 0);
    assert_int_equal(telling.last, telling.total);
    assert_int_equal(stats_of(f).shards_compacting_peak, 1); /* one after the other */
}

static void test_with_nothing_to_do_it_has_caught_up(void **state)
{
    struct store_fixture *const f = *state;
    struct telling telling = { .calls = 0 };
    struct err_msg msg = { { 0 } };

    fixture_open(f);
    must(compaction_scheduler_catch_up(scheduler_of(f), tell, &telling, &msg), &msg);
    assert_true(telling.calls > 0);
    assert_int_equal(telling.total, 0);
    assert_int_equal(stats_of(f).compactions_run, 0);
}

static void test_catching_up_can_be_ended(void **state)
{
    struct telling telling = { .err = EMBTIER_CANCELLED };
    struct store_fixture *const f = *state;
    struct err_msg msg = { { 0 } };

    fixture_open(f);
    compaction_scheduler_defer(scheduler_of(f), true);
    load(f);
    await_all(f, COMPACTION_PAUSED);
    assert_int_equal(compaction_scheduler_catch_up(scheduler_of(f), tell, &telling, &msg),
                     EMBTIER_CANCELLED);
    assert_int_equal(telling.calls, 1);
    await_state(f, COMPACTION_RUNS, 0); /* it is put off again */
    telling.err = EMBTIER_OK;
    must(compaction_scheduler_catch_up(scheduler_of(f), tell, &telling, &msg), &msg);
    await_compacted(f);
}

static void test_without_space_there_is_no_catching_up(void **state)
{
    struct store_fixture *const f = *state;
    struct telling telling = { .calls = 0 };
    struct err_msg msg = { { 0 } };

    fixture_open(f);
    compaction_scheduler_pause(scheduler_of(f), true);
    load(f);
    await_all(f, COMPACTION_NO_SPACE);
    assert_int_equal(compaction_scheduler_catch_up(scheduler_of(f), tell, &telling, &msg),
                     EMBTIER_NO_SPACE);
    assert_int_equal(stats_of(f).compactions_run, 0);
    compaction_scheduler_pause(scheduler_of(f), false);
    await_compacted(f);
}

/* ---- Databases that fail ---- */

static _Atomic bool is_disk_bad;
/* While it is, the first database that gets a turn cannot be turned on, and the second fails. */
static struct database *_Atomic refuses, *_Atomic fails;

enum embtier_err __real_database_set_compacting(struct database *database, bool on,
                                                struct err_msg *msg);
enum embtier_err __wrap_database_set_compacting(struct database *database, bool on,
                                                struct err_msg *msg);
bool __real_database_is_failed(struct database *database);
bool __wrap_database_is_failed(struct database *database);

enum embtier_err __wrap_database_set_compacting(struct database *database, bool on,
                                                struct err_msg *msg)
{
    if (!on || !atomic_load(&is_disk_bad))
        return __real_database_set_compacting(database, on, msg);
    if (!atomic_load(&refuses))
        atomic_store(&refuses, database);
    if (database == atomic_load(&refuses))
        return err_set(msg, EMBTIER_IO, "the disk is bad");
    if (!atomic_load(&fails))
        atomic_store(&fails, database);
    return __real_database_set_compacting(database, on, msg);
}

bool __wrap_database_is_failed(struct database *database)
{
    return (atomic_load(&is_disk_bad) && database == atomic_load(&fails)) ||
           __real_database_is_failed(database);
}

static void test_databases_that_failed_have_not_caught_up(void **state)
{
    struct store_fixture *const f = *state;
    struct telling telling = { .calls = 0 };
    struct compaction_facts facts;
    struct err_msg msg = { { 0 } };

    fixture_open(f);
    compaction_scheduler_defer(scheduler_of(f), true);
    load(f);
    await_all(f, COMPACTION_PAUSED);
    atomic_store(&is_disk_bad, true);
    compaction_scheduler_defer(scheduler_of(f), false);
    await_state(f, COMPACTION_FAILED, 1);
    await_state(f, COMPACTION_RECOVERS, 1);
    atomic_store(&is_disk_bad, false);
    must(compaction_scheduler_catch_up(scheduler_of(f), tell, &telling, &msg), &msg);
    compaction_scheduler_look(scheduler_of(f), &facts);
    assert_int_equal(count_of(f, COMPACTION_IDLE), facts.databases);
    await_compacted(f);
}

static void test_views_come_in_pieces(void **state)
{
    struct store_fixture *const f = *state;
    struct compaction_view views[VIEWS_MAX];
    struct compaction_facts facts;

    fixture_open(f);
    compaction_scheduler_look(scheduler_of(f), &facts);
    assert_int_equal(compaction_scheduler_list(scheduler_of(f), 0, 3, views), 3);
    assert_int_equal(compaction_scheduler_list(scheduler_of(f), facts.databases - 1, 3, views), 1);
    assert_int_equal(compaction_scheduler_list(scheduler_of(f), facts.databases, 3, views), 0);
    assert_int_equal(compaction_scheduler_list(scheduler_of(f), UINT32_MAX, 3, views), 0);
    for (uint32_t i = 0; i < facts.databases; i++)
        assert_non_null(strstr(compaction_scheduler_path(scheduler_of(f), i), "/shard"));
}

#define OPERATORS_TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        OPERATORS_TEST(test_compaction_is_put_off_until_it_is_resumed),
        OPERATORS_TEST(test_compaction_keeps_its_hours),
        OPERATORS_TEST(test_hours_come_from_the_configuration),
        OPERATORS_TEST(test_shards_near_their_limit_compact_although_it_is_put_off),
        OPERATORS_TEST(test_all_shards_catch_up_at_once_although_compaction_is_put_off),
        OPERATORS_TEST(test_with_nothing_to_do_it_has_caught_up),
        OPERATORS_TEST(test_catching_up_can_be_ended),
        OPERATORS_TEST(test_without_space_there_is_no_catching_up),
        OPERATORS_TEST(test_databases_that_failed_have_not_caught_up),
        OPERATORS_TEST(test_views_come_in_pieces),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
