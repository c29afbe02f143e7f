/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that a checkpoint is there in full or not at all, and that damage in one is found. Calls
 * may fail, or the process die, while it is made, deleted or restored.
 *
 * Each call that changes the file system is a site; the linker wraps these calls to count them. One
 * of them fails, or the process dies before it. A plain run tries some sites, and all of them with
 * EMBTIER_TEST_LONG=1. */
#include "store/checkpoint/checkpoint.h"

#include "tests/unit/store/store_fixture.h"

#include <errno.h>
#include <glob.h>
#include <sys/wait.h>

#include "store/files/durable_file.h"
#include "store/files/file_tree.h"
#include "store/rocksdb/rocksdb_ext.h"
#include "tests/forms.h"

#define ROWS        400
#define EXIT_KILLED 77
#define SITES       10

/* ---- Sites ---- */

static uint32_t sites;   /* sites met so far */
static uint32_t fail_at; /* the site that fails; 0: none */
static bool dies;        /* die instead of failing */
static uint32_t part_fail_at;

/* Starts counting sites here. */
static void count_sites(void)
{
    sites = 0;
    fail_at = part_fail_at;
}

static bool site_fails(void)
{
    if (++sites != fail_at)
        return false;
    if (dies)
        _exit(EXIT_KILLED);
    errno = EIO;
    return true;
}

#define SITE(name, parameters, arguments)                                                          \
    int __real_##name parameters;                                                                  \
    int __wrap_##name parameters;                                                                  \
    int __wrap_##name parameters                                                                   \
    {                                                                                              \
        return site_fails() ? -1 : __real_##name arguments;                                        \
    }
SITE(fsync, (int fd), (fd))
SITE(rename, (const char *from, const char *to), (from, to))
SITE(link, (const char *from, const char *to), (from, to))
SITE(unlink, (const char *path), (path))
SITE(mkdir, (const char *path, mode_t mode), (path, mode))
SITE(rmdir, (const char *path), (path))

/* ---- Parts, each in its own process, since RocksDB does not survive a fork ---- */

/* Checkpoint 1 has version 1 of all rows; the store has version 2. */
static void make_store(struct store_fixture *f)
{
    fixture_open(f);
    fixture_write_all(f, 1, 0, ROWS, 1);
    fixture_write_all(f, FIXTURE_LOGGED, 0, ROWS, 1);
    assert_int_equal(fixture_checkpoint(f), 1);
    fixture_write_all(f, 1, 0, ROWS, 2);
    fixture_write_all(f, FIXTURE_LOGGED, 0, ROWS, 2);
}

/* As fixture_checkpoint(), but may fail. */
static enum embtier_err make_checkpoint(struct store_fixture *f, struct err_msg *msg)
{
    _cleanup_(checkpoint_draft_freep) struct checkpoint_draft *draft = NULL;
    _cleanup_(catalog_freep) struct catalog *catalog = NULL;
    struct checkpoint_info info = { 0 };

    TRY(catalog_open(store_first_directory(f->store), &catalog, msg));
    TRY(checkpoint_begin(store_shelf(f->store), &draft, msg));
    TRY(store_capture(f->store, draft, false, UINT64_MAX, NULL, msg));
    TRY(store_capture(f->store, draft, true, UINT64_MAX, NULL, msg));
    return checkpoint_commit(draft, catalog, NULL, &info, NULL, NULL, NULL, msg);
}

static void part_make(struct store_fixture *f)
{
    struct err_msg msg = { { 0 } };

    fixture_open(f);
    fixture_write_all(f, 1, 0, ROWS, 3);
    fixture_write_all(f, FIXTURE_LOGGED, 0, ROWS, 3);
    count_sites();
    must(make_checkpoint(f, &msg), &msg);
}

static void part_delete(struct store_fixture *f)
{
    struct err_msg msg = { { 0 } };

    fixture_open(f);
    count_sites();
    must(checkpoint_delete(store_shelf(f->store), 1, &msg), &msg);
}

/* Goes back to the checkpoint after a crash. */
static void part_go_back(struct store_fixture *f)
{
    count_sites();
    fixture_open(f);
}

/* Restores the checkpoint at a user's request. */
static void part_restore(struct store_fixture *f)
{
    struct err_msg msg = { { 0 } };

    count_sites();
    must(store_open(&(struct store_opts){ .config = &f->config, .restore_id = 1 }, &f->store, &msg),
         &msg);
}

/* Runs the part. Writes the number of sites if it comes to its end. */
static int part_main(const char *part, const char *root, uint32_t at)
{
    struct store_fixture *const f = fixture_at(root);

    part_fail_at = at;
    dies = true;
    if (strcmp(part, "make") == 0)
        part_make(f);
    else if (strcmp(part, "delete") == 0)
        part_delete(f);
    else if (strcmp(part, "go_back") == 0)
        part_go_back(f);
    else
        part_restore(f);
    fail_at = 0;
    if (write(STDOUT_FILENO, &sites, sizeof(sites)) != sizeof(sites))
        return 1;
    _exit(0); /* does not close the store, as if the process had died a moment later */
}

/* Runs a part that dies before site @at; 0: it does not die. Returns the number of sites if the
 * part came to its end, else 0. */
static uint32_t run_part(const struct store_fixture *f, const char *part, uint32_t at)
{
    uint32_t count = 0;
    int pipes[2], status;
    char number[16];
    pid_t child;

    snprintf(number, sizeof(number), "%u", at);
    assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(pipes[1], STDOUT_FILENO);
        fixture_exec_self(f, part, number);
    }
    close(pipes[1]);
    assert_int_equal(waitpid(child, &status, 0), child);
    if (read(pipes[0], &count, sizeof(count)) != sizeof(count))
        count = 0;
    close(pipes[0]);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), count > 0 ? 0 : EXIT_KILLED);
    return count;
}

/* ---- State afterwards ---- */

static uint32_t newest_id(const struct store_fixture *f, uint32_t *ret_count)
{
    struct err_msg msg = { { 0 } };
    uint64_t *ids = NULL;
    uint32_t newest;

    must(checkpoint_list(store_shelf(f->store), &ids, ret_count, &msg), &msg);
    newest = *ret_count > 0 ? (uint32_t)ids[*ret_count - 1] : 0;
    free(ids);
    return newest;
}

static void verify(const struct store_fixture *f, uint64_t id)
{
    struct checkpoint_record *record = NULL;
    struct err_msg msg = { { 0 } };

    must(checkpoint_read(store_shelf(f->store), id, &record, &msg), &msg);
    must(checkpoint_verify(store_shelf(f->store), record, NULL, NULL, NULL, &msg), &msg);
    checkpoint_record_free(record);
}

static void check_rows(struct store_fixture *f, uint32_t table, uint32_t version)
{
    assert_int_equal(fixture_count_right(f, table, 0, ROWS, version), ROWS);
}

static size_t count_folders(const struct store_fixture *f)
{
    char pattern[300];
    glob_t found;
    size_t count;

    snprintf(pattern, sizeof(pattern), "%s/d*/checkpoints/*", f->root);
    count = glob(pattern, 0, NULL, &found) == 0 ? found.gl_pathc : 0;
    globfree(&found);
    return count;
}

/* ---- Tests ---- */

/* Runs the part to its end, then once for each site (or some of them) where it dies. Calls @check
 * after each run. */
static void at_sites(const char *part, void (*prepare)(struct store_fixture *f),
                     void (*check)(struct store_fixture *f, bool was_done))
{
    uint32_t count = 0, step = 1;

    for (uint32_t at = 0; at <= count; at += at == 0 ? 1 : step) {
        struct store_fixture *const f = fixture_new();
        uint32_t done;

        prepare(f);
        done = run_part(f, part, at);
        if (at == 0) { /* the run that counts the sites */
            assert_true(done > 0);
            count = done;
            if (!is_long_form())
                step = MAX(count / SITES, 1u);
        } else {
            assert_int_equal(done, 0);
        }
        check(f, at == 0);
        fixture_destroy(f);
    }
    printf("%s: %u sites, every %u\n", part, count, step);
}

static void prepare_closed(struct store_fixture *f)
{
    make_store(f);
    fixture_close(f);
}

static void prepare_crashed(struct store_fixture *f)
{
    struct err_msg msg = { { 0 } };

    make_store(f);
    must(store_close(TAKE(f->store), false, &msg), &msg);
}

static void check_made(struct store_fixture *f, bool was_done)
{
    uint32_t count, newest;

    fixture_open(f);
    newest = newest_id(f, &count);
    assert_int_equal(count, newest);
    assert_true(newest == 2 || (newest == 1 && !was_done));
    assert_int_equal(count_folders(f), 2 * count); /* nothing else is left */
    verify(f, newest);
    check_rows(f, 1, newest == 2 ? 3 : 1);
    check_rows(f, FIXTURE_LOGGED, 3);
    assert_int_equal(fixture_checkpoint(f), newest + 1);
}

static void test_killed_while_it_is_made_it_is_there_or_is_not(void **state)
{
    (void)state;
    at_sites("make", prepare_closed, check_made);
}

static void prepare_two(struct store_fixture *f)
{
    make_store(f);
    assert_int_equal(fixture_checkpoint(f), 2);
    fixture_close(f);
}

static void check_deleted(struct store_fixture *f, bool was_done)
{
    uint32_t count;

    fixture_open(f);
    assert_int_equal(newest_id(f, &count), 2);
    assert_true(count == 1 || (count == 2 && !was_done));
    assert_int_equal(count_folders(f), 2 * count);
    verify(f, 2);
    if (count == 2)
        verify(f, 1);
    check_rows(f, 1, 2);
}

static void test_killed_while_it_is_deleted_it_is_there_or_is_not(void **state)
{
    (void)state;
    at_sites("delete", prepare_two, check_deleted);
}

static void check_gone_back(struct store_fixture *f, bool was_done)
{
    (void)was_done;
    fixture_open(f);
    check_rows(f, 1, 1);
    check_rows(f, FIXTURE_LOGGED, 2);
    verify(f, 1);
}

static void test_killed_on_the_way_back_the_next_start_goes_on(void **state)
{
    (void)state;
    at_sites("go_back", prepare_crashed, check_gone_back);
}

static void check_restored(struct store_fixture *f, bool was_done)
{
    uint32_t version;

    fixture_open(f);
    version = fixture_count_right(f, 1, 0, ROWS, 1) == ROWS ? 1 : 2;
    assert_true(version == 1 || !was_done); /* or the restore had not begun */
    check_rows(f, 1, version);
    check_rows(f, FIXTURE_LOGGED, version);
}

static void test_killed_while_all_is_restored_the_next_start_goes_on(void **state)
{
    (void)state;
    at_sites("restore", prepare_closed, check_restored);
}

static void test_an_error_anywhere_leaves_what_was_there(void **state)
{
    const uint32_t step = is_long_form() ? 1 : 3;
    struct store_fixture *const f = *state;
    enum embtier_err err = EMBTIER_IO;
    uint32_t at = 0, count = 0, before;

    make_store(f);
    before = newest_id(f, &count);
    dies = false;
    while (at == 0 || sites >= at) {
        struct err_msg msg = { { 0 } };

        at += step;
        sites = 0;
        fail_at = at;
        err = make_checkpoint(f, &msg);
        fail_at = 0;
        if (err == EMBTIER_OK && sites < at)
            break;
        if (err == EMBTIER_OK) { /* the failed call was a link or a removal */
            assert_int_equal(newest_id(f, &count), before + 1);
            before++;
        } else {
            assert_int_equal(err, EMBTIER_IO);
            assert_true(msg.text[0] != '\0');
            assert_int_equal(newest_id(f, &count), before);
        }
        verify(f, before);
        must(checkpoint_sweep(store_shelf(f->store), &msg), &msg);
    }
    printf("%u sites\n", sites);
    check_rows(f, 1, 2);
    check_rows(f, FIXTURE_LOGGED, 2);
    verify(f, newest_id(f, &count));
}

/* Replaces a text in the record, and corrects its checksum. */
static void forge_record(const char *folder, const char *from, const char *to)
{
    struct err_msg msg = { { 0 } };
    struct rocksdb_ext_sum *sum;
    char *text = NULL, *at, *forged = NULL;
    size_t head;

    must(durable_file_read(folder, CHECKPOINT_RECORD_FILE, &text, &msg), &msg);
    head = (size_t)(strchr(text, '\n') + 1 - text);
    at = strstr(text, from);
    assert_non_null(at);
    assert_true(asprintf(&forged, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from)) > 0);
    sum = rocksdb_ext_sum_new();
    rocksdb_ext_sum_add(sum, forged + head, strlen(forged) - head - 1);
    snprintf(forged, head + 1, "crc32c %08x", rocksdb_ext_sum_end(sum));
    forged[head - 1] = '\n';
    must(durable_file_write(folder, CHECKPOINT_RECORD_FILE, forged, &msg), &msg);
    free(forged);
    free(text);
}

static void expect_refused(struct store_fixture *f, enum embtier_err expected, const char *words)
{
    struct checkpoint_record *record = NULL;
    struct err_msg msg = { { 0 } };
    const enum embtier_err err = checkpoint_read(store_shelf(f->store), 1, &record, &msg);

    if (err != expected || !strstr(msg.text, words))
        fail_msg("%s: %s; expected %s: … %s …", err_name(err), msg.text, err_name(expected), words);
}

static void test_records_of_others_are_refused(void **state)
{
    static const struct {
        const char *from, *to;
        enum embtier_err err;
        const char *words;
    } cases[] = {
        { "\"format_version\":1", "\"format_version\":3", EMBTIER_VERSION, "format version 3" },
        { "\"little\"", "\"big\"", EMBTIER_UNSUPPORTED, "big-endian" },
        { "\"store_uuid\":\"", "\"store_uuid\":\"0123", EMBTIER_CORRUPT, "no record" },
        { "\"shard_count\":4", "\"shard_count\":8", EMBTIER_MISMATCH, "8 shards" },
        { "\"id\":1", "\"id\":7", EMBTIER_MISMATCH, "checkpoint 7" },
        { "\"shard\":3", "\"shard\":4", EMBTIER_CORRUPT, "no record" },
        { "[[\"", "[[\"../", EMBTIER_CORRUPT, "no record" },
        { "[[\"", "[[\"a/", EMBTIER_CORRUPT, "no record" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct store_fixture *const f = fixture_new();
        char folder[300];

        make_store(f);
        snprintf(folder, sizeof(folder), "%s/checkpoints/000001", f->made[0]);
        forge_record(folder, cases[i].from, cases[i].to);
        expect_refused(f, cases[i].err, cases[i].words);
        fixture_destroy(f);
    }
}

/* Flips a bit of every seventh byte, each bit in turn, and cuts the record short at each of these
 * bytes. */
static void test_a_damaged_record_is_found_out(void **state)
{
    struct store_fixture *const f = *state;
    struct err_msg msg = { { 0 } };
    char folder[300], *text = NULL;
    size_t bytes;

    make_store(f);
    snprintf(folder, sizeof(folder), "%s/checkpoints/000001", f->made[0]);
    must(durable_file_read(folder, CHECKPOINT_RECORD_FILE, &text, &msg), &msg);
    bytes = strlen(text);
    for (size_t i = 0; i < bytes; i += 7) {
        struct checkpoint_record *record = NULL;
        char *const damaged = strdup(text);

        damaged[i] ^= (char)(1 << i / 7 % 8); /* a zero byte ends the text there */
        must(durable_file_write(folder, CHECKPOINT_RECORD_FILE, damaged, &msg), &msg);
        assert_int_equal(checkpoint_read(store_shelf(f->store), 1, &record, &msg), EMBTIER_CORRUPT);
        memcpy(damaged, text, bytes);
        damaged[i] = '\0';
        must(durable_file_write(folder, CHECKPOINT_RECORD_FILE, damaged, &msg), &msg);
        assert_int_equal(checkpoint_read(store_shelf(f->store), 1, &record, &msg), EMBTIER_CORRUPT);
        free(damaged);
    }
    must(durable_file_write(folder, CHECKPOINT_RECORD_FILE, text, &msg), &msg);
    verify(f, 1);
    free(text);
}

/* A flipped bit in any other file: checkpoint_verify() finds it. */
static void test_damaged_files_are_found_out(void **state)
{
    struct store_fixture *const f = *state;
    struct checkpoint_record *record = NULL;
    struct err_msg msg = { { 0 } };
    char pattern[300];
    glob_t found;

    make_store(f);
    must(checkpoint_read(store_shelf(f->store), 1, &record, &msg), &msg);
    snprintf(pattern, sizeof(pattern), "%s/d?/checkpoints/000001/shard-*/*/*", f->root);
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    assert_true(found.gl_pathc > 16);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        const char *const path = found.gl_pathv[i];
        struct stat info;
        uint8_t byte;
        int fd;

        assert_int_equal(stat(path, &info), 0);
        if (info.st_size == 0)
            continue;
        fd = open(path, O_RDWR);
        assert_int_equal(pread(fd, &byte, 1, info.st_size / 2), 1);
        byte ^= (uint8_t)(1 << i % 8);
        assert_int_equal(pwrite(fd, &byte, 1, info.st_size / 2), 1);
        assert_int_equal(checkpoint_verify(store_shelf(f->store), record, NULL, NULL, NULL, &msg),
                         EMBTIER_CORRUPT);
        assert_non_null(strstr(msg.text, path));
        byte ^= (uint8_t)(1 << i % 8);
        assert_int_equal(pwrite(fd, &byte, 1, info.st_size / 2), 1);
        close(fd);
    }
    verify(f, 1);
    globfree(&found);
    checkpoint_record_free(record);
}

/* The store begins neither a user's restore nor a crash's if it cannot complete it. */
static void test_what_cannot_be_restored_leaves_all_as_it_was(void **state)
{
    struct store_fixture *const f = *state;
    struct err_msg msg = { { 0 } };
    char pattern[300];
    glob_t found;
    FILE *file;

    prepare_closed(f);
    snprintf(pattern, sizeof(pattern), "%s/d1/checkpoints/000001/shard-0003/*/MANIFEST-*", f->root);
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    assert_int_equal(found.gl_pathc, 2);
    for (size_t i = 0; i < 2; i++) {
        int first; /* of a checksum, so it may be any byte */

        file = fopen(found.gl_pathv[i], "r+e");
        assert_non_null(file);
        first = fgetc(file);
        rewind(file);
        assert_int_equal(fputc(first ^ 1, file), first ^ 1);
        assert_int_equal(fclose(file), 0);
    }
    assert_int_equal(
        store_open(&(struct store_opts){ .config = &f->config, .restore_id = 1 }, &f->store, &msg),
        EMBTIER_CORRUPT);
    assert_non_null(strstr(msg.text, found.gl_pathv[1]));
    fixture_open(f);
    check_rows(f, 1, 2);
    check_rows(f, FIXTURE_LOGGED, 2);
    must(store_serve(f->store, &msg), &msg);
    must(store_close(TAKE(f->store), false, &msg), &msg);
    fixture_refused(f, EMBTIER_CORRUPT, "--restore");
    fixture_refused(f, EMBTIER_CORRUPT, found.gl_pathv[1]);
    globfree(&found);
}

/* Such a folder was a complete checkpoint once, or is not ours. The store must not take it for the
 * rest of a checkpoint that was never complete. */
static void test_a_checkpoint_whose_record_is_gone_is_damaged_and_stays(void **state)
{
    struct store_fixture *const f = *state;
    struct checkpoint_record *record = NULL;
    struct err_msg msg = { { 0 } };
    char path[300], foreign[300];

    make_store(f);
    snprintf(foreign, sizeof(foreign), "%s/d0/checkpoints/20261124", f->root);
    assert_int_equal(mkdir(foreign, 0700), 0);
    snprintf(foreign, sizeof(foreign), "%s/d0/checkpoints/20261124/notes", f->root);
    assert_int_equal(creat(foreign, 0600) >= 0, 1);
    must(checkpoint_sweep(store_shelf(f->store), &msg), &msg);
    assert_int_equal(access(foreign, F_OK), 0);
    assert_int_equal(checkpoint_read(store_shelf(f->store), 20261124, &record, &msg),
                     EMBTIER_CORRUPT);
    assert_int_equal(unlink(foreign), 0);

    snprintf(path, sizeof(path), "%s/d0/checkpoints/000001/" CHECKPOINT_RECORD_FILE, f->root);
    assert_int_equal(unlink(path), 0);
    must(store_close(TAKE(f->store), false, &msg), &msg);
    fixture_refused(f, EMBTIER_CORRUPT, path);
    fixture_refused(f, EMBTIER_CORRUPT, "--restore");
    snprintf(path, sizeof(path), "%s/d0/checkpoints/000001/" CATALOG_FILE, f->root);
    assert_int_equal(access(path, F_OK), 0);
}

static void test_files_that_are_shared_are_not_new(void **state)
{
    struct store_fixture *const f = *state;
    struct checkpoint_record *record = NULL;
    struct err_msg msg = { { 0 } };

    make_store(f);
    store_set_busy(f->store, true); /* a compaction would rewrite all files */
    fixture_write_all(f, 1, 0, 20000, 5);
    assert_int_equal(fixture_checkpoint(f), 2);
    fixture_write_all(f, 1, 0, 20, 6);
    assert_int_equal(fixture_checkpoint(f), 3);
    must(checkpoint_read(store_shelf(f->store), 3, &record, &msg), &msg);
    assert_true(record->info.bytes > 20000 * FIXTURE_ROW_BYTES);
    assert_true(record->info.new_bytes < record->info.bytes / 5);
    assert_true(record->info.new_bytes > 20 * FIXTURE_ROW_BYTES);
    checkpoint_record_free(record);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_killed_while_it_is_made_it_is_there_or_is_not),
        cmocka_unit_test(test_killed_while_it_is_deleted_it_is_there_or_is_not),
        cmocka_unit_test(test_killed_on_the_way_back_the_next_start_goes_on),
        cmocka_unit_test(test_killed_while_all_is_restored_the_next_start_goes_on),
        cmocka_unit_test_setup_teardown(test_an_error_anywhere_leaves_what_was_there, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test(test_records_of_others_are_refused),
        cmocka_unit_test_setup_teardown(test_a_damaged_record_is_found_out, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(test_damaged_files_are_found_out, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(test_what_cannot_be_restored_leaves_all_as_it_was,
                                        fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_a_checkpoint_whose_record_is_gone_is_damaged_and_stays,
                                        fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_files_that_are_shared_are_not_new, fixture_setup,
                                        fixture_teardown),
    };

    if (argc == 4)
        return part_main(argv[1], argv[2], (uint32_t)strtoul(argv[3], NULL, 10));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
