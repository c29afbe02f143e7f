/* SPDX-License-Identifier: Apache-2.0 */
/* test_layouts.c: do rows stay right in each layout, and when a store changes from one to another?
 * Is the space of rows apart from their keys what the files take? */
#include <pthread.h>
#include <stdatomic.h>

#include "store/database/database_impl.h"
#include "store/store_impl.h"
#include "tests/forms.h"
#include "tests/unit/store/store_fixture.h"

#define ROWS   BY_BUILD(8000, 5000, 5000)
#define ROUNDS 8

static struct store_stats stats_of(const struct store_fixture *f)
{
    struct store_stats stats;

    store_stats(f->store, &stats);
    return stats;
}

static enum embtier_err keep_on(void *context, uint32_t done, uint32_t total, struct err_msg *msg)
{
    (void)context;
    (void)done;
    (void)total;
    (void)msg;
    return EMBTIER_OK;
}

static void write_versions(struct store_fixture *f, uint32_t first, uint32_t count)
{
    for (uint32_t version = first; version < first + count; version++) {
        fixture_write_all(f, 1, 0, ROWS, version);
        fixture_write_all(f, FIXTURE_LOGGED, 0, ROWS / 10, version);
        fixture_flush_all(f);
    }
}

static void catch_up(struct store_fixture *f)
{
    struct err_msg msg = { { 0 } };

    must(compaction_scheduler_catch_up(store_compaction(f->store), keep_on, NULL, &msg), &msg);
}

static void assert_rows(struct store_fixture *f, uint32_t version)
{
    assert_int_equal(fixture_count_right(f, 1, 0, ROWS, version), ROWS);
    assert_int_equal(fixture_count_right(f, FIXTURE_LOGGED, 0, ROWS / 10, version), ROWS / 10);
}

/* Space on disk of the files of all databases that end with @suffix. */
static uint64_t disk_bytes(struct store_fixture *f, const char *suffix)
{
    char output[100];

    assert_true(fixture_shell(output, sizeof(output),
                              "find %s/d*/shard* -name '*%s' -printf '%%b\\n' | "
                              "awk '{n += $1 * 512} END {printf \"%%d\", n}'",
                              f->root, suffix) > 0);
    return strtoull(output, NULL, 10);
}

static void open_as(struct store_fixture *f, enum config_layout layout)
{
    f->config.rocksdb.layout = layout;
    fixture_open(f);
}

/* All six changes, each with rows in level 0, below it, and unflushed in a log. */
static void test_a_store_changes_from_each_layout_to_each_other(void **state)
{
    static const enum config_layout way[] = { LAYOUT_LEVELED, LAYOUT_UNIVERSAL, LAYOUT_BLOB,
                                              LAYOUT_LEVELED, LAYOUT_BLOB,      LAYOUT_UNIVERSAL,
                                              LAYOUT_LEVELED };
    struct store_fixture *const f = *state;
    uint32_t version = 0;

    for (uint32_t i = 0; i < ARRAY_LEN(way); i++) {
        open_as(f, way[i]);
        if (version > 0)
            assert_rows(f, version);
        write_versions(f, version + 1, ROUNDS);
        version += ROUNDS;
        catch_up(f);
        assert_rows(f, version);
        write_versions(f, ++version, 1);
        assert_rows(f, version);
        fixture_close(f);
    }
    open_as(f, LAYOUT_BLOB);
    assert_rows(f, version);
}

static void test_each_layout_is_in_force(void **state)
{
    struct store_fixture *const f = *state;

    open_as(f, LAYOUT_LEVELED);
    assert_int_equal(rocksdb_options_get_compaction_style(f->store->setup->options),
                     rocksdb_level_compaction);
    write_versions(f, 1, 1);
    assert_int_equal(disk_bytes(f, ".blob"), 0);
    fixture_close(f);
    open_as(f, LAYOUT_UNIVERSAL);
    assert_int_equal(rocksdb_options_get_compaction_style(f->store->setup->options),
                     rocksdb_universal_compaction);
    fixture_close(f);
    open_as(f, LAYOUT_BLOB);
    assert_true(rocksdb_options_get_enable_blob_files(f->store->setup->options));
    write_versions(f, 2, 1);
    assert_true(disk_bytes(f, ".blob") >= (uint64_t)ROWS * FIXTURE_ROW_BYTES);
    assert_rows(f, 2);
}

/* RocksDB's statistics may tell half of it. */
static void test_the_space_of_blobs_is_that_of_their_files(void **state)
{
    struct store_fixture *const f = *state;
    const uint64_t until_ns = now_ns() + FIXTURE_WAIT_NS;

    open_as(f, LAYOUT_BLOB);
    store_set_busy(f->store, true); /* no compaction changes the files meanwhile */
    write_versions(f, 1, 3);
    while (stats_of(f).blob_bytes != disk_bytes(f, ".blob")) {
        assert_true(now_ns() < until_ns);
        usleep(50000);
    }
    assert_true(stats_of(f).blob_bytes >= 3 * (uint64_t)ROWS * FIXTURE_ROW_BYTES);
    assert_true(stats_of(f).stored_bytes > stats_of(f).blob_bytes);
}

/* With direct I/O and without, or endurance figures leave out most of what this layout writes. */
static void test_written_bytes_have_those_of_blobs(void **state)
{
    static const enum config_switch ways[] = { SWITCH_AUTO, SWITCH_OFF };
    struct store_fixture *const f = *state;
    const uint64_t once = (uint64_t)ROWS * FIXTURE_ROW_BYTES;

    for (uint32_t i = 0; i < ARRAY_LEN(ways); i++) {
        const uint64_t before = i == 0 ? 0 : disk_bytes(f, ".blob");
        uint64_t written;

        f->config.rocksdb.direct_io = ways[i];
        open_as(f, LAYOUT_BLOB);
        store_set_busy(f->store, true);
        written = stats_of(f).written.blob_bytes;
        write_versions(f, 1 + i, 1);
        written = stats_of(f).written.blob_bytes - written;
        assert_true(written >= once);
        assert_true(written <= 2 * (disk_bytes(f, ".blob") - before));
        fixture_close(f);
    }
}

/* Old versions must leave in time, or a store that is updated for days fills its disk. */
static void test_blobs_of_old_versions_leave(void **state)
{
    struct store_fixture *const f = *state;
    const uint64_t once = (uint64_t)ROWS * FIXTURE_ROW_BYTES;
    uint64_t until_ns;

    open_as(f, LAYOUT_BLOB);
    for (uint32_t i = 0; i < 4; i++) {
        write_versions(f, i * ROUNDS + 1, ROUNDS);
        catch_up(f);
    }
    assert_true(disk_bytes(f, ".blob") >= once);
    until_ns = now_ns() + FIXTURE_WAIT_NS;
    while (disk_bytes(f, ".blob") > 6 * once) {
        assert_true(now_ns() < until_ns);
        usleep(20000); /* RocksDB deletes files after it has told that a compaction is over */
    }
    assert_rows(f, 4 * ROUNDS);
}

static void test_a_checkpoint_of_blobs_is_restored(void **state)
{
    struct store_fixture *const f = *state;
    struct err_msg msg = { { 0 } };
    uint64_t id;

    open_as(f, LAYOUT_BLOB);
    write_versions(f, 1, 2);
    id = fixture_checkpoint(f);
    write_versions(f, 3, ROUNDS);
    catch_up(f);
    fixture_close(f);
    must(
        store_open(&(struct store_opts){ .config = &f->config, .restore_id = id }, &f->store, &msg),
        &msg);
    assert_rows(f, 2);
}

/* ---- Rewriting all files ---- */

struct telling {
    uint32_t calls, done, total;
    uint32_t until; /* calls, after which it is cancelled; 0: never */
};

static enum embtier_err count_calls(void *context, uint32_t done, uint32_t total,
                                    struct err_msg *msg)
{
    struct telling *const telling = context;

    telling->done = done;
    telling->total = total;
    if (++telling->calls == telling->until)
        return err_set(msg, EMBTIER_CANCELLED, "enough");
    return EMBTIER_OK;
}

/* Numbers of the files that hold rows, each in its own line. */
static void list_files(struct store_fixture *f, char *ret_names, size_t capacity)
{
    (void)fixture_shell(ret_names, capacity,
                        "cd %s && find d*/shard* -name '*.sst' -o -name '*.blob' | sort", f->root);
}

/* Returns the first of the names in @before that is in @after, or "". */
static const char *name_left(const char *before, const char *after)
{
    static char name[200];

    for (const char *at = before; sscanf(at, "%199s", name) == 1; at = strchr(at, '\n') + 1)
        if (strstr(after, name))
            return name;
    return "";
}

/* RocksDB deletes files after it has told that a compaction is over. */
static void await_none_is_left(struct store_fixture *f, const char *before)
{
    const uint64_t until_ns = now_ns() + FIXTURE_WAIT_NS;
    static char after[20000];

    for (;;) {
        list_files(f, after, sizeof(after));
        if (name_left(before, after)[0] == '\0')
            return;
        if (now_ns() > until_ns)
            fail_msg("%s was not rewritten", name_left(before, after));
        usleep(20000);
    }
}

static void rewrite_layout(struct store_fixture *f, enum config_layout layout, uint32_t version)
{
    static char before[20000];
    struct telling telling = { .calls = 0 };
    struct err_msg msg = { { 0 } };

    open_as(f, layout);
    write_versions(f, version, 2);
    list_files(f, before, sizeof(before));
    must(compaction_scheduler_rewrite(store_compaction(f->store), count_calls, &telling, &msg),
         &msg);
    await_none_is_left(f, before);
    assert_true(telling.total >= 1 && telling.done == telling.total);
    assert_rows(f, version + 1);
    /* One of two versions of all rows is left. */
    assert_in_range(disk_bytes(f, ".sst") + disk_bytes(f, ".blob"), 0,
                    (uint64_t)ROWS * (FIXTURE_ROW_BYTES + 48) * 3 / 2);
    assert_int_equal(disk_bytes(f, ".blob") > 0, layout == LAYOUT_BLOB);
    fixture_close(f);
}

static void test_all_files_are_rewritten_in_the_present_layout(void **state)
{
    struct store_fixture *const f = *state;

    rewrite_layout(f, LAYOUT_LEVELED, 1);
    rewrite_layout(f, LAYOUT_BLOB, 3);
    rewrite_layout(f, LAYOUT_UNIVERSAL, 5);
    rewrite_layout(f, LAYOUT_LEVELED, 7);
}

static void test_a_rewrite_can_be_cancelled(void **state)
{
    struct telling telling = { .until = 5 };
    struct store_fixture *const f = *state;
    struct err_msg msg = { { 0 } };

    f->config.rocksdb.compaction_bytes_per_second = MIB; /* so that it does not end before */
    open_as(f, LAYOUT_LEVELED);
    write_versions(f, 1, 2);
    assert_int_equal(
        compaction_scheduler_rewrite(store_compaction(f->store), count_calls, &telling, &msg),
        EMBTIER_CANCELLED);
    assert_int_equal(telling.calls, 5);
    store_set_compaction_bytes(f->store, 0);
    telling.until = 0;
    must(compaction_scheduler_rewrite(store_compaction(f->store), count_calls, &telling, &msg),
         &msg);
    assert_rows(f, 2);
}

/* Returns the one database with most rows. Its last level has some files, at which a rewrite can be
 * cut. */
static struct database *open_in_files(struct store_fixture *f, enum config_layout layout)
{
    struct err_msg msg = { { 0 } };

    f->config.rocksdb.options = (char *)(uintptr_t) "target_file_size_base=65536";
    f->config.data.directory_count = f->config.data.shards_per_directory = 1;
    open_as(f, layout);
    store_set_busy(f->store, true); /* nothing else compacts */
    write_versions(f, 1, 2);
    must(compaction_scheduler_rewrite(store_compaction(f->store), keep_on, NULL, &msg), &msg);
    return f->store->databases[0];
}

static void test_the_bytes_of_a_piece_count_rows_apart_from_their_keys(void **state)
{
    struct database *const database = open_in_files(*state, LAYOUT_BLOB);
    struct database_ranges whole, halves;
    struct err_msg msg = { { 0 } };

    must(database_ranges(database, UINT64_MAX, &whole, &msg), &msg);
    assert_int_equal(whole.cut_count, 0);
    must(database_ranges(database, whole.bytes / 2, &halves, &msg), &msg);
    assert_true(halves.cut_count > 0);
    assert_int_equal(halves.bytes, whole.bytes);
    database_ranges_clear(&whole);
    database_ranges_clear(&halves);
}

static uint32_t count_gone(const rocksdb_livefiles_t *before, const rocksdb_livefiles_t *after)
{
    uint32_t gone = 0;

    for (int i = 0; i < rocksdb_livefiles_count(before); i++) {
        const char *const name = rocksdb_livefiles_name(before, i);
        bool is_there = false;

        for (int j = 0; j < rocksdb_livefiles_count(after); j++)
            is_there = is_there || strcmp(rocksdb_livefiles_name(after, j), name) == 0;
        gone += !is_there;
    }
    return gone;
}

static void test_a_piece_leaves_the_files_of_the_piece_before_it_alone(void **state)
{
    struct database *const database = open_in_files(*state, LAYOUT_LEVELED);
    struct rocksdb_ext_stop *const stop = rocksdb_ext_stop_new();
    struct database_ranges ranges;
    struct err_msg msg = { { 0 } };

    must(database_ranges(database, 1, &ranges, &msg), &msg); /* a piece for each file */
    assert_true(ranges.cut_count >= 2);
    for (uint32_t i = 0; i <= ranges.cut_count; i++) {
        const rocksdb_livefiles_t *const before = rocksdb_livefiles(database->db), *after;

        must(database_rewrite(database, &ranges, i, stop, &msg), &msg);
        after = rocksdb_livefiles(database->db);
        assert_int_equal(count_gone(before, after), 1);
        rocksdb_livefiles_destroy(before);
        rocksdb_livefiles_destroy(after);
    }
    database_ranges_clear(&ranges);
    rocksdb_ext_stop_free(stop);
    assert_rows(*state, 2);
}

/* RocksDB's error of a compaction that was ended says "paused", and so do the paths here. */
static int setup_paused(void **state)
{
    *state = fixture_named("paused");
    return 0;
}

static void test_a_rewrite_that_fails_was_not_cancelled(void **state)
{
    struct store_fixture *const f = *state;
    const uint64_t until_ns = now_ns() + FIXTURE_WAIT_NS;
    struct err_msg msg = { { 0 } };
    enum embtier_err err;

    open_as(f, LAYOUT_LEVELED);
    store_set_busy(f->store, true); /* nothing else compacts */
    write_versions(f, 1, 2);
    fixture_limit_files(16 * KIB);
    err = compaction_scheduler_rewrite(store_compaction(f->store), keep_on, NULL, &msg);
    fixture_limit_files(RLIM_INFINITY);
    assert_int_equal(err, EMBTIER_NO_SPACE);
    assert_non_null(strstr(msg.text, "/paused-"));
    while (compaction_scheduler_rewrite(store_compaction(f->store), keep_on, NULL, &msg) !=
           EMBTIER_OK) {
        assert_true(now_ns() < until_ns);
        usleep(50000); /* until the database has been resumed */
    }
    assert_rows(f, 2);
}

/* A piece of a rewrite that takes for ever, if the test says so. */
static _Atomic bool never_ends, is_stopped;

void __real_rocksdb_ext_stop_set(struct rocksdb_ext_stop *stop, bool is_ended);
void __wrap_rocksdb_ext_stop_set(struct rocksdb_ext_stop *stop, bool is_ended);
enum embtier_err __real_database_rewrite(struct database *database,
                                         const struct database_ranges *ranges, uint32_t range,
                                         struct rocksdb_ext_stop *stop, struct err_msg *msg);
enum embtier_err __wrap_database_rewrite(struct database *database,
                                         const struct database_ranges *ranges, uint32_t range,
                                         struct rocksdb_ext_stop *stop, struct err_msg *msg);

void __wrap_rocksdb_ext_stop_set(struct rocksdb_ext_stop *stop, bool is_ended)
{
    atomic_store(&is_stopped, is_ended);
    __real_rocksdb_ext_stop_set(stop, is_ended);
}

enum embtier_err __wrap_database_rewrite(struct database *database,
                                         const struct database_ranges *ranges, uint32_t range,
                                         struct rocksdb_ext_stop *stop, struct err_msg *msg)
{
    const uint64_t until_ns = now_ns() + FIXTURE_WAIT_NS / 2;

    if (!atomic_exchange(&never_ends, false))
        return __real_database_rewrite(database, ranges, range, stop, msg);
    while (!atomic_load(&is_stopped) && now_ns() < until_ns)
        usleep(1000);
    return err_set(msg, EMBTIER_CANCELLED, "it takes for ever");
}

struct rewriting {
    struct store_fixture *f;
    enum embtier_err err;
};

static void *rewrite_main(void *context)
{
    struct rewriting *const rewriting = context;
    struct err_msg msg = { { 0 } };

    rewriting->err =
        compaction_scheduler_rewrite(store_compaction(rewriting->f->store), keep_on, NULL, &msg);
    return NULL;
}

/* More files than a database may have are written while a piece of the rewrite has the only slot.
 * It must give it back. */
static void test_writes_go_on_during_a_rewrite(void **state)
{
    const uint64_t until_ns = now_ns() + FIXTURE_WAIT_NS;
    struct store_fixture *const f = *state;
    struct rewriting rewriting = { .f = f };
    pthread_t thread;

    open_as(f, LAYOUT_LEVELED);
    write_versions(f, 1, 2);
    atomic_store(&never_ends, true);
    assert_int_equal(pthread_create(&thread, NULL, rewrite_main, &rewriting), 0);
    while (atomic_load(&never_ends)) {
        assert_true(now_ns() < until_ns);
        usleep(1000);
    }
    write_versions(f, 3, 2 * DATABASE_LEVEL0_FILES_MAX); /* waits while the store is busy */
    assert_rows(f, 2 + 2 * DATABASE_LEVEL0_FILES_MAX);
    pthread_join(thread, NULL);
    assert_int_equal(rewriting.err, EMBTIER_OK);
    assert_rows(f, 2 + 2 * DATABASE_LEVEL0_FILES_MAX);
}

#define LAYOUT_TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        LAYOUT_TEST(test_a_store_changes_from_each_layout_to_each_other),
        LAYOUT_TEST(test_each_layout_is_in_force),
        LAYOUT_TEST(test_the_space_of_blobs_is_that_of_their_files),
        LAYOUT_TEST(test_written_bytes_have_those_of_blobs),
        LAYOUT_TEST(test_blobs_of_old_versions_leave),
        LAYOUT_TEST(test_a_checkpoint_of_blobs_is_restored),
        LAYOUT_TEST(test_all_files_are_rewritten_in_the_present_layout),
        LAYOUT_TEST(test_the_bytes_of_a_piece_count_rows_apart_from_their_keys),
        LAYOUT_TEST(test_a_piece_leaves_the_files_of_the_piece_before_it_alone),
        LAYOUT_TEST(test_a_rewrite_can_be_cancelled),
        cmocka_unit_test_setup_teardown(test_a_rewrite_that_fails_was_not_cancelled, setup_paused,
                                        fixture_teardown),
        LAYOUT_TEST(test_writes_go_on_during_a_rewrite),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
