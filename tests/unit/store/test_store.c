/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that a store gives back what was written, and says clearly what it refuses. */
#include <sys/wait.h>

#include "store/database/database.h"
#include "store/database/row_format.h"
#include "store/files/summed_json.h"
#include "store/files/written.h"
#include "tests/unit/store/store_fixture.h"
#include "tests/unit/store/sync_counter.h"

static void test_rows_come_back_as_written_even_after_reopening(void **state)
{
    struct store_fixture *f = *state;
    const uint32_t count = 1000;

    fixture_open(f);
    fixture_write_all(f, 7, 0, count, 1);
    assert_int_equal(fixture_count_right(f, 7, 0, count, 1), count);
    fixture_write_all(f, 7, 100, 200, 2); /* over rows in the write buffers */
    fixture_close(f);
    fixture_open(f);
    assert_int_equal(fixture_count_right(f, 7, 0, 100, 1), 100);
    assert_int_equal(fixture_count_right(f, 7, 100, 200, 2), 100);
    assert_int_equal(fixture_count_right(f, 7, 200, count, 1), count - 200);
    assert_int_equal(fixture_count_found(f, 8, 0, count), 0);
}

static void test_rows_never_written_are_absent_and_no_error(void **state)
{
    struct store_fixture *f = *state;
    struct store_stats stats;

    fixture_open(f);
    fixture_write_all(f, 1, 0, 10, 1);
    assert_int_equal(fixture_count_found(f, 1, 0, 1000), 10);
    store_stats(f->store, &stats);
    assert_int_equal(stats.rows_read, 1000);
    assert_int_equal(stats.rows_absent, 990);
    assert_int_equal(stats.rows_written, 10);
    assert_int_equal(stats.row_bytes_written, 10 * (12 + 12 + FIXTURE_ROW_BYTES));
}

static void test_row_of_other_lengths_is_corrupt_and_its_neighbours_are_not(void **state)
{
    struct store_fixture *f = *state;
    unsigned char bytes[3][FIXTURE_ROW_BYTES] = { 0 };
    struct store_row rows[3];
    struct err_msg msg;

    f->config.data.directory_count = 1;
    f->config.data.shards_per_directory = 1;
    fixture_open(f);
    fixture_write_all(f, 1, 0, 3, 1);
    for (uint32_t i = 0; i < 3; i++)
        rows[i] = (struct store_row){ .table_id = 1,
                                      .id = i,
                                      .weight_bytes = FIXTURE_WEIGHT_BYTES - (i == 1 ? 4 : 0),
                                      .state_bytes = FIXTURE_STATE_BYTES + (i == 1 ? 4 : 0),
                                      .bytes = bytes[i] };
    assert_int_equal(store_read(f->store, 0, rows, 3, &msg), EMBTIER_CORRUPT);
    assert_non_null(strstr(msg.text, "table 1 row 1: stored with"));
    assert_int_equal(rows[0].err, EMBTIER_OK);
    assert_int_equal(rows[1].err, EMBTIER_CORRUPT);
    assert_false(rows[1].found);
    assert_int_equal(rows[2].err, EMBTIER_OK);
    assert_true(rows[0].found && rows[2].found);
}

/* Reserved bytes that are not zero are of a later format, or damage. */
static void test_row_of_another_format_is_corrupt(void **state)
{
    struct store_row row = { .table_id = 1, .id = 2, .weight_bytes = 4, .state_bytes = 0 };
    const unsigned char value[16] = { STORED_ROW_VERSION, 0, 0, 0, 4 };
    struct err_msg msg;

    (void)state;
    must(stored_row_check("db", &row, (const char *)value, sizeof(value), &msg), &msg);
    for (uint32_t i = 0; i < 4; i++) {
        unsigned char other[sizeof(value)];

        memcpy(other, value, sizeof(value));
        other[i] ^= 0x80;
        assert_int_equal(stored_row_check("db", &row, (const char *)other, sizeof(other), &msg),
                         EMBTIER_CORRUPT);
        assert_non_null(strstr(msg.text, "db: table 1 row 2: stored in format "));
    }
}

static void test_a_demand_of_any_size_is_told_in_full(void **state)
{
    static const struct {
        uint64_t bytes;
        const char *words;
    } cases[] = {
        { UINT64_C(1) << 62, "rows: 4398046511104 MiB are needed" },
        { (UINT64_C(1) << 62) + 1, "rows: 4398046511105 MiB are needed" },
        { UINT64_MAX - MIB + 1, "rows: 17592186044415 MiB are needed" },
        { UINT64_MAX - MIB + 2, "rows: 17592186044416 MiB are needed" },
        { UINT64_MAX, "rows: 17592186044416 MiB are needed" },
    };
    struct store_fixture *f = *state;

    fixture_open(f);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct store_demand demand = { .bytes = cases[i].bytes };
        struct err_msg msg;

        assert_int_equal(store_check_demand(f->store, &demand, "rows", &msg), EMBTIER_NO_SPACE);
        if (!strstr(msg.text, cases[i].words))
            fail_msg("%s; expected: %s", msg.text, cases[i].words);
    }
}

static void test_longest_row_is_stored(void **state)
{
    struct store_fixture *f = *state;
    unsigned char *out = test_malloc(STORED_ROW_BYTES_MAX), *in = test_malloc(STORED_ROW_BYTES_MAX);
    struct store_row row = { .table_id = 1,
                             .id = UINT64_MAX,
                             .weight_bytes = 4 * EMBTIER_DIM_MAX,
                             .state_bytes = 8 * EMBTIER_DIM_MAX,
                             .bytes = in };
    struct err_msg msg;

    f->config.data.directory_count = 1;
    f->config.data.shards_per_directory = 1;
    fixture_open(f);
    for (uint32_t i = 0; i < STORED_ROW_BYTES_MAX; i++)
        in[i] = (unsigned char)(i * 7);
    must(store_write(f->store, 0, &row, 1, &msg), &msg);
    must(store_flush(f->store, 0, &msg), &msg);
    row.bytes = out;
    must(store_read(f->store, 0, &row, 1, &msg), &msg);
    assert_true(row.found);
    assert_memory_equal(in, out, STORED_ROW_BYTES_MAX);
    test_free(in);
    test_free(out);
}

static void test_store_refuses_other_number_of_shards(void **state)
{
    struct store_fixture *f = *state;

    fixture_open(f);
    fixture_close(f);
    f->config.data.shards_per_directory = 8;
    fixture_refused(f, EMBTIER_MISMATCH, "data.shards_per_directory: 8, but the store of ");
    fixture_refused(f, EMBTIER_MISMATCH, " was made with 2; allowed: 2, which cannot change");
}

static void test_store_refuses_other_number_of_directories(void **state)
{
    struct store_fixture *f = *state;

    fixture_open(f);
    fixture_close(f);
    f->config.data.directory_count = 1;
    fixture_refused(f, EMBTIER_MISMATCH, "data.directories: 1 is named, but the store of ");
    fixture_refused(f, EMBTIER_MISMATCH, " has 2; allowed: all of them and no others");
}

static void test_store_refuses_new_directory_beside_old_one(void **state)
{
    struct store_fixture *f = *state;

    fixture_open(f);
    fixture_close(f);
    fixture_remove(f, 1, "");
    fixture_make_directory(f, 1);
    fixture_refused(f, EMBTIER_MISMATCH, "/d1: no embtier.json, but ");
}

static void test_store_refuses_directories_of_two_stores(void **state)
{
    struct store_fixture *f = *state, *other = fixture_new();
    char from[300], to[300];

    fixture_open(f);
    fixture_close(f);
    fixture_open(other);
    fixture_close(other);
    fixture_remove(f, 1, "");
    snprintf(from, sizeof(from), "%s/d1", other->root);
    snprintf(to, sizeof(to), "%s/d1", f->root);
    assert_int_equal(rename(from, to), 0);
    fixture_refused(f, EMBTIER_MISMATCH, "belongs to store ");
    fixture_destroy(other);
}

static void test_store_takes_directories_in_any_order(void **state)
{
    struct store_fixture *f = *state;
    char *first;

    fixture_open(f);
    fixture_write_all(f, 3, 0, 500, 1);
    fixture_close(f);
    first = f->directories[0];
    f->directories[0] = f->directories[1];
    f->directories[1] = first;
    fixture_open(f);
    assert_int_equal(fixture_count_right(f, 3, 0, 500, 1), 500);
    assert_string_equal(store_first_directory(f->store), first);
}

static void test_store_refuses_same_directory_twice(void **state)
{
    struct store_fixture *f = *state;

    f->directories[1] = f->directories[0];
    fixture_refused(f, EMBTIER_CONFIG, "are the same");
}

static void test_store_refuses_foreign_directory_and_leaves_it_alone(void **state)
{
    struct store_fixture *f = *state;
    char path[300];

    snprintf(path, sizeof(path), "%s/d0/holiday.jpg", f->root);
    assert_true(close(open(path, O_CREAT | O_WRONLY, 0600)) == 0);
    fixture_refused(f, EMBTIER_MISMATCH, "not empty (holiday.jpg)");
    snprintf(path, sizeof(path), "%s/d0/LOCK", f->root);
    assert_int_equal(access(path, F_OK), -1);
}

static void test_store_refuses_missing_directory(void **state)
{
    struct store_fixture *f = *state;

    fixture_remove(f, 1, "");
    fixture_refused(f, EMBTIER_NOT_FOUND,
                    "/d1: No such file or directory: is a disk not mounted? If");
}

static void test_store_refuses_newer_format(void **state)
{
    struct store_fixture *f = *state;

    fixture_open(f);
    fixture_close(f);
    fixture_forge_text(f, 0, "embtier.json", "\"format_version\": 5", "\"format_version\": 6");
    fixture_refused(
        f, EMBTIER_VERSION,
        "format version 6, this program reads 5: a newer embtierd made it: start that one");
}

/* The rows of an older store lie in other shards. The start leaves its files as they are. */
static void test_store_refuses_older_format_and_leaves_it_alone(void **state)
{
    struct store_fixture *f = *state;
    struct err_msg msg;
    char path[300];

    fixture_open(f);
    fixture_close(f);
    fixture_remove(f, 0, "buckets.json");
    fixture_remove(f, 1, "buckets.json");
    fixture_forge_text(f, 0, "embtier.json", "\"format_version\": 5", "\"format_version\": 4");
    fixture_forge_text(f, 1, "embtier.json", "\"format_version\": 5", "\"format_version\": 4");
    fixture_refused(f, EMBTIER_VERSION,
                    "format version 4, this program reads 5: an older one made it, and it cannot "
                    "be converted: export its tables with that one");
    assert_int_equal(store_check(&f->config, &msg), EMBTIER_VERSION);
    snprintf(path, sizeof(path), "%s/d0/buckets.json", f->root);
    assert_int_equal(access(path, F_OK), -1);
}

static void test_store_refuses_damaged_identity(void **state)
{
    struct store_fixture *f = *state;

    fixture_open(f);
    fixture_close(f);
    fixture_truncate(f, 1, "embtier.json", 20);
    fixture_refused(f, EMBTIER_CORRUPT,
                    "/d1/embtier.json:2: damaged: put the file back from a copy");
    fixture_truncate(f, 1, "embtier.json", 0);
    fixture_refused(f, EMBTIER_CORRUPT, ": put the file back from a copy of this directory");
}

/* Otherwise the user would look for another embtierd. */
static void test_a_turned_bit_of_the_version_is_damage_and_no_other_format(void **state)
{
    struct store_fixture *f = *state;

    fixture_open(f);
    fixture_close(f);
    fixture_replace_text(f, 0, "embtier.json", "\"format_version\": 5", "\"format_version\": 7");
    fixture_refused(f, EMBTIER_CORRUPT, "/d0/embtier.json: damaged: its checksum is");
}

/* With another hash key, rows would be looked for in other shards and not be found. */
static void test_store_refuses_identity_with_another_text(void **state)
{
    struct store_fixture *f = *state;

    f->config.data.directory_count = 1;
    fixture_open(f);
    fixture_close(f);
    fixture_replace_text(f, 0, "embtier.json", "\"directory_index\"", "\"directory_index\" ");
    fixture_refused(f, EMBTIER_CORRUPT, "embtier.json: damaged: its checksum is");
    fixture_refused(f, EMBTIER_CORRUPT, ": put the file back from a copy of this directory");
}

static void as_being_made(struct store_fixture *f, unsigned index)
{
    struct err_msg msg;
    char path[300];
    json_t *root;

    snprintf(path, sizeof(path), "%s/embtier.json", f->made[index]);
    root = json_load_file(path, 0, NULL);
    assert_non_null(root);
    assert_int_equal(json_object_set_new(root, "state", json_string("making")), 0);
    assert_int_equal(json_object_set_new(root, SUMMED_JSON_KEY, json_string(SUMMED_JSON_NONE)), 0);
    must(summed_json_write(f->made[index], "embtier.json", root, &msg), &msg);
    json_decref(root);
}

static void test_second_process_is_told_which_one_has_the_store(void **state)
{
    struct store_fixture *f = *state;
    char expected[64];
    int status;
    pid_t child;

    fixture_open(f);
    snprintf(expected, sizeof(expected), "LOCK: in use by process %d", (int)getpid());
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct store *store = NULL;
        struct err_msg msg = { { 0 } };
        const enum embtier_err err =
            store_open(&(struct store_opts){ .config = &f->config }, &store, &msg);

        _exit(err == EMBTIER_LOCKED && strstr(msg.text, expected) ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void test_half_made_store_is_completed(void **state)
{
    struct store_fixture *f = *state;

    /* As if the maker had died after the first embtier.json … */
    fixture_open(f);
    fixture_close(f);
    as_being_made(f, 0);
    fixture_remove(f, 0, "shard-0001");
    fixture_remove(f, 0, "buckets.json");
    fixture_remove(f, 0, "catalog.json");
    fixture_remove(f, 1, "");
    fixture_make_directory(f, 1);
    fixture_open(f);
    fixture_write_all(f, 1, 0, 100, 1);
    fixture_close(f);
    /* … and as if it had died between the last two. */
    as_being_made(f, 1);
    fixture_open(f);
    assert_int_equal(fixture_count_right(f, 1, 0, 100, 1), 100);
    fixture_close(f);
    fixture_open(f);
}

static void test_mistake_in_rocksdb_options_is_named(void **state)
{
    struct store_fixture *f = *state;
    char options[] = "bytes_per_sync=4096;no_such_option=3";

    f->config.rocksdb.options = options;
    fixture_refused(f, EMBTIER_CONFIG, "no_such_option");
}

static void test_rocksdb_options_are_taken(void **state)
{
    struct store_fixture *f = *state;
    char line[200], options[] = "bytes_per_sync=4096;compression=kLZ4Compression";

    f->config.rocksdb.options = options;
    fixture_open(f);
    fixture_write_all(f, 1, 0, 100, 1);
    fixture_close(f);
    assert_true(fixture_shell(line, sizeof(line), "grep -h -e '^ *bytes_per_sync=4096' %s/%s",
                              f->made[0], "shard-0000/replay/OPTIONS-*") > 0);
    assert_true(fixture_shell(line, sizeof(line), "grep -h -e '^ *compression=kLZ4' %s/%s",
                              f->made[0], "shard-0000/replay/OPTIONS-*") > 0);
}

static void test_too_small_write_buffers_are_refused(void **state)
{
    struct store_fixture *f = *state;

    f->config.rocksdb.memtable_bytes = 100 * KIB;
    fixture_refused(f, EMBTIER_CONFIG, "rocksdb.memtable_bytes: 100KiB is too little for 4 shards");
}

static void test_write_buffers_stay_within_their_budget(void **state)
{
    struct store_fixture *f = *state;
    struct store_stats stats;

    f->config.rocksdb.memtable_bytes = 2 * MIB;
    fixture_open(f);
    for (uint64_t id = 0; id < 40000; id += 500) {
        fixture_write_all(f, 1, id, id + 500, 1);
        store_stats(f->store, &stats);
        /* A write buffer counts as full only after the batch that filled it. */
        assert_in_range(stats.memtable_bytes, 0, f->config.rocksdb.memtable_bytes * 5 / 4);
    }
    assert_true(stats.written.flush_bytes > 0);
}

static void test_rows_can_be_read_with_and_without_direct_io(void **state)
{
    struct store_fixture *f = *state;
    struct store_stats stats;

    f->config.rocksdb.direct_io = SWITCH_OFF;
    fixture_open(f);
    store_stats(f->store, &stats);
    assert_false(stats.direct_io);
    fixture_write_all(f, 1, 0, 1000, 1);
    fixture_close(f);
    f->config.rocksdb.direct_io = SWITCH_AUTO;
    fixture_open(f);
    assert_int_equal(fixture_count_right(f, 1, 0, 1000, 1), 1000);
}

static uint32_t shards_unclean(struct store_fixture *f)
{
    struct store_stats stats;

    store_stats(f->store, &stats);
    return stats.shards_unclean;
}

/* A figure of what a stop wrote can still be kept beside the rows. */
static void test_a_store_that_is_shut_has_written_all_and_is_still_ours(void **state)
{
    struct store_fixture *const f = *state;
    struct err_msg msg = { { 0 } };
    uint64_t before;

    fixture_open(f);
    fixture_write_all(f, 1, 0, 1000, 1);
    before = written_below(0);
    must(store_shut(f->store, true, &msg), &msg);
    assert_true(written_below(0) > before + 1000 * FIXTURE_ROW_BYTES / 4);
    assert_true(store_is_in_use(&f->config));
    store_free(TAKE(f->store));
    assert_false(store_is_in_use(&f->config));
    fixture_open(f);
    assert_int_equal(shards_unclean(f), 0);
    assert_int_equal(fixture_count_right(f, 1, 0, 1000, 1), 1000);
    must(store_shut(f->store, false, &msg), &msg);
    store_free(TAKE(f->store)); /* does not make that end a clean one */
    fixture_open(f);
    assert_int_equal(shards_unclean(f), store_shard_count(f->store));
    fixture_close(f);
}

static enum embtier_err write_back(struct store_fixture *f, uint64_t id)
{
    unsigned char bytes[FIXTURE_ROW_BYTES] = { 0 };
    const struct store_row row = { .table_id = 9,
                                   .id = id,
                                   .weight_bytes = FIXTURE_WEIGHT_BYTES,
                                   .state_bytes = FIXTURE_STATE_BYTES,
                                   .bytes = bytes };
    struct err_msg msg;

    return store_write_back(f->store, 0, &row, 1, &msg);
}

/* Shard 0 lies in the first directory. */
static void test_write_back_is_held_to_its_bytes_and_other_writes_are_not(void **state)
{
    struct store_fixture *const f = *state;
    const char *const directory = f->config.data.directories[0];

    fixture_open(f);
    store_hold(f->store, directory, true, FIXTURE_ROW_BYTES); /* from the next call on */
    assert_int_equal(write_back(f, 1), EMBTIER_BUSY);
    store_hold(f->store, directory, true, FIXTURE_ROW_BYTES + 1);
    assert_int_equal(write_back(f, 1), EMBTIER_OK);
    assert_int_equal(write_back(f, 2), EMBTIER_OK); /* more than its bytes */
    assert_int_equal(write_back(f, 3), EMBTIER_BUSY);
    store_hold(f->store, directory, true, FIXTURE_ROW_BYTES - 1); /* they are paid for */
    assert_int_equal(write_back(f, 3), EMBTIER_BUSY);
    fixture_write_all(f, 1, 0, 100, 1); /* a job's rows */
    assert_int_equal(fixture_count_right(f, 1, 0, 100, 1), 100);
    store_hold(f->store, f->config.data.directories[1], true, 0); /* the other directory */
    store_hold(f->store, directory, false, 0);
    assert_int_equal(write_back(f, 3), EMBTIER_OK);
    assert_int_equal(write_back(f, 4), EMBTIER_OK);
    fixture_close(f);
}

/* The caller had rows that it lost, and the next start must know. */
static void test_close_that_was_not_complete_is_no_clean_end(void **state)
{
    struct store_fixture *const f = *state;
    struct err_msg msg = { { 0 } };

    fixture_open(f);
    assert_int_equal(shards_unclean(f), 0);
    must(store_close(TAKE(f->store), false, &msg), &msg);
    fixture_open(f);
    assert_int_equal(shards_unclean(f), store_shard_count(f->store));
    store_free(TAKE(f->store)); /* a start that failed does not change that */
    fixture_open(f);
    assert_int_equal(shards_unclean(f), store_shard_count(f->store));
    fixture_close(f);
    fixture_open(f);
    assert_int_equal(shards_unclean(f), 0);
    store_free(TAKE(f->store)); /* nor does it undo a clean end */
    fixture_open(f);
    assert_int_equal(shards_unclean(f), 0);
    fixture_close(f);
}

static void test_start_that_is_refused_does_not_undo_a_clean_end(void **state)
{
    struct store_fixture *const f = *state;
    char line[8];

    fixture_open(f);
    fixture_write_all(f, 1, 0, 1000, 1);
    fixture_close(f);
    fixture_shell(line, sizeof(line), "cd %s/shard-0000/replay && mv CURRENT away", f->made[0]);
    fixture_refused(f, EMBTIER_CORRUPT, "shard-0000/replay");
    fixture_shell(line, sizeof(line), "cd %s/shard-0000/replay && mv away CURRENT", f->made[0]);
    fixture_open(f);
    assert_int_equal(shards_unclean(f), 0);
    assert_int_equal(fixture_count_right(f, 1, 0, 1000, 1), 1000);
    fixture_close(f);
}

static void test_logs_of_synced_rows_are_on_disk(void **state)
{
    struct store_fixture *const f = *state;
    struct err_msg msg = { { 0 } };
    uint32_t shards[4];
    unsigned before;

    f->config.rocksdb.io_uring = SWITCH_OFF;
    fixture_open(f);
    before = atomic_load(&log_syncs);
    fixture_write_all(f, 1, 0, 100, 1);
    fixture_write_all(f, FIXTURE_LOGGED, 0, 100, 1);
    assert_int_equal(atomic_load(&log_syncs), before);
    for (uint32_t i = 0; i < ARRAY_LEN(shards); i++)
        shards[i] = i;
    assert_int_equal(store_shard_count(f->store), ARRAY_LEN(shards));
    must(store_sync_logs(f->store, shards, ARRAY_LEN(shards), &msg), &msg);
    assert_int_equal(atomic_load(&log_syncs), before + ARRAY_LEN(shards));
    must(store_sync_logs(f->store, shards, ARRAY_LEN(shards), &msg), &msg); /* nothing new */
    assert_int_equal(atomic_load(&log_syncs), before + ARRAY_LEN(shards));
    fixture_close(f);
}

static void test_files_take_little_space_beforehand(void **state)
{
    struct store_fixture *f = *state;
    char found[400];

    f->config.rocksdb.memtable_bytes = 512 * MIB; /* 32 MiB per write buffer */
    fixture_open(f);
    fixture_write_all(f, FIXTURE_SYNCED, 0, 1000, 1);
    assert_int_equal(fixture_shell(found, sizeof(found),
                                   "du -k %s/*/*/*.log %s/*/*/MANIFEST-* | "
                                   "awk '/MANIFEST/ && $1 > 128 || $1 > 2048'",
                                   f->made[0], f->made[0]),
                     0);
    fixture_close(f);
}

#define STORE_TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        STORE_TEST(test_rows_come_back_as_written_even_after_reopening),
        STORE_TEST(test_rows_never_written_are_absent_and_no_error),
        STORE_TEST(test_row_of_other_lengths_is_corrupt_and_its_neighbours_are_not),
        cmocka_unit_test(test_row_of_another_format_is_corrupt),
        STORE_TEST(test_a_demand_of_any_size_is_told_in_full),
        STORE_TEST(test_longest_row_is_stored),
        STORE_TEST(test_store_refuses_other_number_of_shards),
        STORE_TEST(test_store_refuses_other_number_of_directories),
        STORE_TEST(test_store_refuses_new_directory_beside_old_one),
        STORE_TEST(test_store_refuses_directories_of_two_stores),
        STORE_TEST(test_store_takes_directories_in_any_order),
        STORE_TEST(test_store_refuses_same_directory_twice),
        STORE_TEST(test_store_refuses_foreign_directory_and_leaves_it_alone),
        STORE_TEST(test_store_refuses_missing_directory),
        STORE_TEST(test_store_refuses_newer_format),
        STORE_TEST(test_store_refuses_older_format_and_leaves_it_alone),
        STORE_TEST(test_a_turned_bit_of_the_version_is_damage_and_no_other_format),
        STORE_TEST(test_store_refuses_damaged_identity),
        STORE_TEST(test_store_refuses_identity_with_another_text),
        STORE_TEST(test_second_process_is_told_which_one_has_the_store),
        STORE_TEST(test_half_made_store_is_completed),
        STORE_TEST(test_mistake_in_rocksdb_options_is_named),
        STORE_TEST(test_rocksdb_options_are_taken),
        STORE_TEST(test_too_small_write_buffers_are_refused),
        STORE_TEST(test_write_buffers_stay_within_their_budget),
        STORE_TEST(test_rows_can_be_read_with_and_without_direct_io),
        STORE_TEST(test_a_store_that_is_shut_has_written_all_and_is_still_ours),
        STORE_TEST(test_write_back_is_held_to_its_bytes_and_other_writes_are_not),
        STORE_TEST(test_close_that_was_not_complete_is_no_clean_end),
        STORE_TEST(test_start_that_is_refused_does_not_undo_a_clean_end),
        STORE_TEST(test_files_take_little_space_beforehand),
        STORE_TEST(test_logs_of_synced_rows_are_on_disk),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
