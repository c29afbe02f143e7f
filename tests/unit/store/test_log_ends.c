/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that the store tells damage in a log from the unfinished end that a power loss leaves. The
 * difference is how far the log had been synced. */
#include <jansson.h>
#include <signal.h>
#include <sys/wait.h>

#include "store/database/logs/log_marks.h"
#include "store/files/summed_json.h"
#include "tests/unit/store/store_fixture.h"

#define ROWS   400
#define SECTOR 512

/* Runs this program once more to do @part and die, since RocksDB does not survive a fork. */
static void run_part(const struct store_fixture *f, const char *part)
{
    const pid_t child = fork();
    int status;

    assert_true(child >= 0);
    if (child == 0)
        fixture_exec_self(f, part, NULL);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void make_one_shard(struct store_fixture *f)
{
    f->config.data.directory_count = 1;
    f->config.data.shards_per_directory = 1;
}

static void write_and_die(struct store_fixture *f, const char *part)
{
    make_one_shard(f);
    fixture_open(f);
    if (strcmp(part, "unsynced") != 0) {
        for (uint32_t version = 1; version <= 4; version++) {
            fixture_write_all(f, FIXTURE_SYNCED, 0, ROWS, version);
            if (version == 1 && strcmp(part, "flushed") == 0)
                fixture_flush_all(f); /* begins another log */
        }
        store_mark_log(f->store, 0);
    } else { /* synced up to version 1 */
        fixture_write_all(f, FIXTURE_SYNCED, 0, ROWS, 1);
        for (uint32_t version = 2; version <= 4; version++)
            fixture_write_all(f, FIXTURE_LOGGED, 0, ROWS, version);
    }
    raise(SIGKILL);
}

/* Finds the longest log. */
static void find_log(const struct store_fixture *f, char ret_log[static 400])
{
    assert_true(
        fixture_shell(ret_log, 400, "ls -S %s/shard-0000/logged/*.log | head -1", f->made[0]) > 0);
    ret_log[strcspn(ret_log, "\n")] = '\0';
}

/* Makes a store whose process died, and finds its log. */
static void die(struct store_fixture *f, const char *part, char ret_log[static 400])
{
    make_one_shard(f);
    fixture_open(f);
    fixture_close(f);
    run_part(f, part);
    find_log(f, ret_log);
}

static off_t bytes_of(const char *path)
{
    struct stat info;

    assert_int_equal(stat(path, &info), 0);
    return info.st_size;
}

static void overwrite(const char *path, off_t at, const void *bytes, size_t count)
{
    const int fd = open(path, O_WRONLY);

    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, bytes, count, at), count);
    assert_int_equal(close(fd), 0);
}

static void make_file(const char *path, const void *bytes, size_t count)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);

    assert_true(fd >= 0);
    assert_int_equal(close(fd), 0);
    overwrite(path, 0, bytes, count);
}

static void make_hole(const char *path, off_t at)
{
    static const char zeros[SECTOR];

    overwrite(path, at / SECTOR * SECTOR, zeros, sizeof(zeros));
}

/* Each row must have one of its versions, and at least the synced version. */
static void check_rows(struct store_fixture *f)
{
    uint64_t right;

    fixture_open(f);
    right = ROWS - fixture_count_found(f, FIXTURE_LOGGED, 0, ROWS);
    for (uint32_t version = 2; version <= 4; version++)
        right += fixture_count_right(f, FIXTURE_LOGGED, 0, ROWS, version);
    assert_int_equal(right, ROWS);
    assert_int_equal(fixture_count_right(f, FIXTURE_SYNCED, 0, ROWS, 1), ROWS);
}

static void test_holes_behind_what_was_synced_are_cut_off(void **state)
{
    char log[400];

    (void)state;
    for (unsigned percent = 30; percent < 100; percent += 10) {
        struct store_fixture *const f = fixture_new();

        die(f, "unsynced", log);
        make_hole(log, bytes_of(log) * percent / 100);
        make_hole(log, bytes_of(log) * (percent + 100) / 200);
        check_rows(f);
        fixture_checkpoint(f);
        fixture_close(f);
        fixture_open(f); /* opens without complaint */
        fixture_destroy(f);
    }
}

/* Holes are tried up to the last sector before the last mark. */
static void test_holes_before_it_are_refused_wherever_they_are(void **state)
{
    char log[400];

    (void)state;
    for (unsigned percent = 0; percent < 100; percent += 9) {
        struct store_fixture *const f = fixture_new();

        die(f, "synced", log);
        assert_true(bytes_of(log) > 65536); /* several blocks of the log */
        make_hole(log, (bytes_of(log) - SECTOR) * percent / 100);
        fixture_refused(f, EMBTIER_CORRUPT, "had been synced");
        fixture_destroy(f);
    }
}

/* A later log's mark says how long this one must be. */
static void test_older_log_that_is_not_whole_is_refused(void **state)
{
    struct store_fixture *const f = *state;
    unsigned char start[7 + LOG_MARK_BYTES] = "0123456"; /* stands for a record's head */
    char log[400], next[440];
    struct log_marks marks = { 0 };

    make_one_shard(f);
    fixture_open(f);
    marks.hasher = *store_hasher(f->store);
    fixture_close(f);
    die(f, "unsynced", log);
    log_mark_make(&marks, &(struct log_position){ 1, 900000, 0 }, start + 7);
    snprintf(next, sizeof(next), "%s/shard-0000/logged/900000.log", f->made[0]);
    make_file(next, start, sizeof(start));
    assert_int_equal(truncate(log, bytes_of(log) - 100), 0);
    fixture_refused(f, EMBTIER_CORRUPT, strrchr(log, '/') + 1);
}

/* The log was flushed. Neither its deletion nor its end reached the disk. */
static void test_log_that_is_not_needed_any_more_is_let_alone(void **state)
{
    struct store_fixture *const f = *state;
    static const char damaged[] = { 1, 2, 3, 4, 4, 0, 1, 5, 6, 7, 8, 9 };
    char old[400];

    make_one_shard(f);
    fixture_open(f);
    find_log(f, old);
    fixture_close(f);
    run_part(f, "flushed");
    unlink(old); /* if RocksDB has not done so yet */
    make_file(old, damaged, sizeof(damaged));
    fixture_open(f);
    assert_int_equal(fixture_count_right(f, FIXTURE_SYNCED, 0, ROWS, 4), ROWS);
}

/* Only the process died. Its rows were safe in the system's memory, so wrong bytes are damage. */
static void test_wrong_bytes_are_damage_until_the_machine_has_been_started_again(void **state)
{
    struct store_fixture *const f = *state;
    char log[400], folder[400];
    json_t *note;

    die(f, "unsynced", log);
    overwrite(log, bytes_of(log) / 2, "oops", 4);
    fixture_refused(f, EMBTIER_CORRUPT, "bytes are wrong");
    note = json_pack("{s:s, s:i, s:s}", SUMMED_JSON_KEY, SUMMED_JSON_NONE, "first_log", 1, "boot",
                     "another");
    snprintf(folder, sizeof(folder), "%s/shard-0000", f->made[0]);
    assert_int_equal(summed_json_write(folder, "logged.marks", note, NULL), EMBTIER_OK);
    json_decref(note);
    check_rows(f);
}

static void test_log_of_an_earlier_version_has_no_marks(void **state)
{
    struct store_fixture *const f = *state;
    char log[400];

    die(f, "unsynced", log);
    fixture_remove(f, 0, "shard-0000/logged.marks");
    make_hole(log, bytes_of(log) / 2);
    fixture_refused(f, EMBTIER_CORRUPT, "shard-0000/logged");
}

static void test_marks_are_found_anywhere_and_cannot_be_forged(void **state)
{
    static const unsigned char keys[2][ROW_HASH_KEY_BYTES] = { { 1 }, { 2 } };
    const struct log_position one = { 5, 7, 1000 }, two = { 6, 7, 3000 }, before = { 5, 6, 9000 };
    unsigned char bytes[300] = { 0 };
    struct log_position found = { 0 };
    struct log_marks marks = { .shard = 3 }, others[2];

    (void)state;
    row_hasher_init(&marks.hasher, keys[0]);
    others[0] = others[1] = marks;
    row_hasher_init(&others[0].hasher, keys[1]);
    others[1].shard = 4;
    log_mark_make(&marks, &two, bytes + 3);
    log_mark_make(&marks, &one, bytes + 50);
    log_mark_make(&marks, &before, bytes + sizeof(bytes) - LOG_MARK_BYTES);
    log_marks_find(&marks, bytes, sizeof(bytes), &found);
    assert_true(found.log == 7 && found.bytes == 3000);
    for (unsigned i = 0; i < 2; i++) {
        found = (struct log_position){ 0 };
        log_marks_find(&others[i], bytes, sizeof(bytes), &found);
        assert_true(found.log == 0 && found.bytes == 0);
    }
    for (unsigned bit = 0; bit < LOG_MARK_BYTES * 8; bit++) {
        found = (struct log_position){ 0 };
        bytes[3 + bit / 8] ^= (unsigned char)(1 << bit % 8);
        log_marks_find(&marks, bytes, sizeof(bytes), &found);
        bytes[3 + bit / 8] ^= (unsigned char)(1 << bit % 8);
        assert_true(found.log == 7 && found.bytes == 1000);
    }
    found = (struct log_position){ 0 };
    log_marks_find(&marks, bytes, 34, &found); /* all marks are cut short */
    assert_int_equal(found.log, 0);
    assert_true(log_position_covers(&two, 7, 2999) && log_position_covers(&two, 6, UINT64_MAX));
    assert_false(log_position_covers(&two, 7, 3000) || log_position_covers(&two, 8, 0) ||
                 log_position_covers(&two, 5, 0));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_holes_behind_what_was_synced_are_cut_off),
        cmocka_unit_test(test_holes_before_it_are_refused_wherever_they_are),
        cmocka_unit_test_setup_teardown(test_older_log_that_is_not_whole_is_refused, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(
            test_wrong_bytes_are_damage_until_the_machine_has_been_started_again, fixture_setup,
            fixture_teardown),
        cmocka_unit_test_setup_teardown(test_log_that_is_not_needed_any_more_is_let_alone,
                                        fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_log_of_an_earlier_version_has_no_marks, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test(test_marks_are_found_anywhere_and_cannot_be_forged),
    };

    if (argc == 3) {
        setenv("CMOCKA_TEST_ABORT", "1", 1); /* a failed assert ends the process */
        write_and_die(fixture_at(argv[2]), argv[1]);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
