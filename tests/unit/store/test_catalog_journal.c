/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that a change in a catalog of many tables costs only that change, and that it holds
 * whichever of its calls is the last. A damaged journal must be refused, a torn one accepted. */
#include "store/catalog.h"

#include "tests/forms.h"
#include "tests/unit/store/store_fixture.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "store/catalog_journal.h"
#include "store/files/durable_file.h"

#define MANY           70                /* a catalog this large has a journal */
#define LAST_LINE_STEP BY_BUILD(3, 7, 3) /* bits */

/* The linker puts these in place of the C library's functions. The process ends before one of the
 * calls, or calls fail from there on. */
static int calls_left = -1; /* -1: neither happens */
static int failure;         /* errno; 0: the process ends */

static bool call_fails(void)
{
    if (calls_left < 0 || calls_left-- > 0)
        return false;
    if (failure == 0)
        _exit(0);
    calls_left = 0; /* from now on all calls fail */
    errno = failure;
    return true;
}

#define WRAP(type, name, parameters, arguments)                                                    \
    type __real_##name parameters;                                                                 \
    type __wrap_##name parameters;                                                                 \
    type __wrap_##name parameters                                                                  \
    {                                                                                              \
        return call_fails() ? -1 : __real_##name arguments;                                        \
    }

WRAP(int, fsync, (int fd), (fd))
WRAP(int, rename, (const char *from, const char *to), (from, to))
WRAP(int, link, (const char *from, const char *to), (from, to))
WRAP(int, unlink, (const char *path), (path))
WRAP(int, unlinkat, (int folder, const char *path, int flags), (folder, path, flags))
WRAP(int, ftruncate, (int fd, off_t bytes), (fd, bytes))
WRAP(ssize_t, write, (int fd, const void *bytes, size_t count), (fd, bytes, count))

static struct table_spec spec_make(const char *name)
{
    struct table_spec spec = { .rows = 1000,
                               .dim = 8,
                               .dtype = EMBTIER_DTYPE_F32,
                               .optimizer = EMBTIER_OPTIMIZER_NONE,
                               .init = EMBTIER_INIT_ZEROS,
                               .rounds_to_nearest = true,
                               .durability = EMBTIER_DURABILITY_REPLAY,
                               .init_version = 1 };

    snprintf(spec.name, sizeof(spec.name), "%s", name);
    return spec;
}

static struct catalog *must_open(const struct store_fixture *f)
{
    struct catalog *catalog = NULL;
    struct err_msg msg = { { 0 } };

    must(catalog_open(f->made[0], &catalog, &msg), &msg);
    return catalog;
}

static enum embtier_err add(struct catalog *catalog, uint32_t number, struct err_msg *msg)
{
    struct table_spec spec;
    char name[24];
    uint32_t id;

    snprintf(name, sizeof(name), "table_%u", number);
    spec = spec_make(name);
    return catalog_add(catalog, &spec, CATALOG_NOBODY, CATALOG_LIVE, &id, msg);
}

static void must_add(struct catalog *catalog, uint32_t first, uint32_t count)
{
    struct err_msg msg = { { 0 } };

    for (uint32_t i = first; i < first + count; i++)
        must(add(catalog, i, &msg), &msg);
}

/* Returns the whole catalog as text, to compare two of them. */
static char *all_of(const struct catalog *catalog)
{
    char *text = NULL;
    size_t bytes;
    FILE *const file = open_memstream(&text, &bytes);

    assert_non_null(file);
    for (uint32_t i = 0; i < catalog_count(catalog); i++) {
        const struct catalog_table *const table = catalog_at(catalog, i);
        const struct catalog_table *const found = catalog_find(catalog, table->spec.name);

        fprintf(file, "%u %d %s;", table->table_id, table->state, table->spec.name);
        assert_true(found == table || (table->state == CATALOG_DROPPING && found != table));
    }
    assert_int_equal(fclose(file), 0);
    return text;
}

static void assert_same_after_opening(const struct store_fixture *f, struct catalog *catalog)
{
    char *const before = all_of(catalog);
    struct catalog *const again = must_open(f);
    char *const after = all_of(again);

    assert_string_equal(after, before);
    catalog_free(again);
    free(before);
    free(after);
}

/* Returns the journal's path, which the caller frees, or NULL if there is none. */
static char *journal_of(const struct store_fixture *f)
{
    DIR *const folder = opendir(f->made[0]);
    const struct dirent *file;
    char *path = NULL;

    assert_non_null(folder);
    while ((file = readdir(folder))) {
        if (!strstr(file->d_name, ".jsonl") || strstr(file->d_name, DURABLE_FILE_SUFFIX))
            continue;
        assert_null(path);
        assert_true(asprintf(&path, "%s/%s", f->made[0], file->d_name) > 0);
    }
    closedir(folder);
    return path;
}

static char *read_all(const char *path, size_t *ret_bytes)
{
    const int fd = open(path, O_RDONLY);
    struct stat info;
    char *bytes;

    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &info), 0);
    bytes = calloc(1, (size_t)info.st_size + 1);
    assert_non_null(bytes);
    assert_int_equal(read(fd, bytes, (size_t)info.st_size), info.st_size);
    close(fd);
    *ret_bytes = (size_t)info.st_size;
    return bytes;
}

static void write_to(const char *path, const char *bytes, size_t count)
{
    const int fd = open(path, O_WRONLY | O_TRUNC | O_CREAT, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, count), count);
    close(fd);
}

static void assert_refused(const struct store_fixture *f, const char *words)
{
    struct catalog *catalog = NULL;
    struct err_msg msg = { { 0 } };
    const enum embtier_err err = catalog_open(f->made[0], &catalog, &msg);

    if (err != EMBTIER_CORRUPT || !strstr(msg.text, words))
        fail_msg("%s: %s; expected … %s …", err_name(err), msg.text, words);
}

static void test_a_change_writes_no_more_the_more_tables_there_are(void **state)
{
    const struct store_fixture *f = *state;
    struct catalog *catalog = must_open(f);
    struct err_msg msg = { { 0 } };
    uint64_t before, bytes, most = 0, sum = 0;
    const uint32_t count = 3000, more = 1000;

    must_add(catalog, 0, count);
    for (uint32_t i = count; i < count + more; i++) {
        before = durable_file_written_bytes();
        must_add(catalog, i, 1);
        bytes = durable_file_written_bytes() - before;
        sum += bytes;
        most += bytes > 8192;
    }
    assert_true(most <= 1); /* only when the journal has grown as long as the catalog */
    assert_true(sum / more < 16384);
    for (uint32_t i = 1; i <= 10; i++) {
        must(catalog_set_state(catalog, i, CATALOG_DROPPING, &msg), &msg);
        must(catalog_remove(catalog, i, &msg), &msg);
    }
    assert_int_equal(catalog_count(catalog), count + more - 10);
    assert_same_after_opening(f, catalog);
    catalog_free(catalog);
}

static void test_all_kinds_of_changes_come_back_and_ids_do_not(void **state)
{
    const struct store_fixture *f = *state;
    struct catalog *catalog = must_open(f);
    const uint32_t made[] = { 5, 6, 7 };
    struct err_msg msg = { { 0 } };
    struct table_spec spec = spec_make("made");
    uint32_t id = 0, last = 0;
    char *path;

    must_add(catalog, 0, MANY);
    must(catalog_set_state(catalog, 5, CATALOG_CREATING, &msg), &msg);
    must(catalog_set_state(catalog, 6, CATALOG_CREATING, &msg), &msg);
    must(catalog_set_state(catalog, 7, CATALOG_CREATING, &msg), &msg);
    must(catalog_set_live(catalog, &(struct catalog_made){ made, 3 }, &msg), &msg);
    must(catalog_set_state(catalog, 9, CATALOG_DROPPING, &msg), &msg);
    must(add(catalog, 8, &msg), &msg); /* its name is free again */
    assert_int_equal(add(catalog, 8, &msg), EMBTIER_EXISTS);
    must(catalog_remove(catalog, 9, &msg), &msg);
    must(catalog_add(catalog, &spec, CATALOG_NOBODY, CATALOG_LIVE, &last, &msg), &msg);
    must(catalog_set_state(catalog, last, CATALOG_DROPPING, &msg), &msg);
    must(catalog_remove(catalog, last, &msg), &msg);
    assert_same_after_opening(f, catalog);
    catalog_free(catalog);
    catalog = must_open(f);
    must(catalog_add(catalog, &spec, CATALOG_NOBODY, CATALOG_LIVE, &id, &msg), &msg);
    assert_int_equal(id, last + 1);
    assert_int_equal(catalog_remove(catalog, last, &msg), EMBTIER_NO_TABLE);
    assert_same_after_opening(f, catalog);

    path = journal_of(f);
    assert_non_null(path);
    free(path);
    must(catalog_fold(catalog, &msg), &msg);
    assert_null(journal_of(f));
    assert_same_after_opening(f, catalog);
    must_add(catalog, 500, 2);
    assert_same_after_opening(f, catalog);
    catalog_free(catalog);
}

static void test_a_copy_is_whole_and_has_no_journal(void **state)
{
    const struct store_fixture *f = *state;
    struct catalog *const catalog = must_open(f);
    struct catalog *copy = NULL;
    struct err_msg msg = { { 0 } };
    char *before, *after;

    must_add(catalog, 0, MANY);
    must(catalog_copy(catalog, f->made[1], NULL, &msg), &msg);
    must(catalog_read(f->made[1], &copy, &msg), &msg);
    before = all_of(catalog);
    after = all_of(copy);
    assert_string_equal(after, before);
    free(before);
    free(after);
    catalog_free(copy);
    catalog_free(catalog);
}

/* Makes a catalog whose journal has some lines. @ret_last: where the last line begins. */
static char *make_journal(const struct store_fixture *f, char **ret_path, size_t *ret_bytes,
                          size_t *ret_last)
{
    struct catalog *const catalog = must_open(f);
    char *bytes;

    must_add(catalog, 0, MANY);
    catalog_free(catalog);
    *ret_path = journal_of(f);
    assert_non_null(*ret_path);
    bytes = read_all(*ret_path, ret_bytes);
    *ret_last = *ret_bytes - 1;
    while (bytes[*ret_last - 1] != '\n')
        --*ret_last;
    return bytes;
}

static void test_the_torn_end_of_a_journal_is_left_out(void **state)
{
    const struct store_fixture *f = *state;
    char *path = NULL;
    size_t bytes = 0, last = 0;
    char *const journal = make_journal(f, &path, &bytes, &last);
    const size_t lengths[] = { last + 1, last + 2, (last + bytes) / 2, bytes - 2, bytes - 1 };
    size_t catalog_bytes;
    char *const whole_path = path_join(f->made[0], CATALOG_FILE);
    char *const whole = read_all(whole_path, &catalog_bytes);

    for (size_t i = 0; i < ARRAY_LEN(lengths); i++) {
        struct catalog *catalog;

        write_to(path, journal, lengths[i]);
        catalog = must_open(f);
        assert_int_equal(catalog_count(catalog), MANY - 1);
        must_add(catalog, MANY + 5, 3);
        assert_int_equal(catalog_count(catalog), MANY + 2);
        assert_same_after_opening(f, catalog);
        catalog_free(catalog);
        free(path);
        path = journal_of(f);
        unlink(path);
        free(path);
        assert_true(asprintf(&path, "%s/catalog-000001.jsonl", f->made[0]) > 0);
        write_to(whole_path, whole, catalog_bytes);
    }
    free(whole_path);
    free(whole);
    free(path);
    free(journal);
}

static void test_a_hole_in_what_was_written_last_is_a_torn_end_and_elsewhere_damage(void **state)
{
    const struct store_fixture *f = *state;
    char *path = NULL;
    size_t bytes = 0, last = 0;
    char *const journal = make_journal(f, &path, &bytes, &last);
    char *const holed = malloc(bytes);
    const size_t sector = (last + 511) / 512 * 512;
    struct catalog *catalog;

    assert_non_null(holed);
    memcpy(holed, journal, bytes);
    memset(holed + last, 0, bytes - last);
    write_to(path, holed, bytes);
    catalog = must_open(f);
    assert_int_equal(catalog_count(catalog), MANY - 1);
    catalog_free(catalog);
    if (sector > last && sector < bytes) { /* the line's first sector alone */
        memcpy(holed, journal, bytes);
        memset(holed + last, 0, sector - last);
        write_to(path, holed, bytes);
        catalog = must_open(f);
        assert_int_equal(catalog_count(catalog), MANY - 1);
        catalog_free(catalog);
    }
    memcpy(holed, journal, bytes);
    memset(holed + 512, 0, 512);
    write_to(path, holed, bytes);
    assert_refused(f, "damaged");
    free(holed);
    free(path);
    free(journal);
}

static void test_a_bit_that_has_turned_is_found(void **state)
{
    const struct store_fixture *f = *state;
    char *path = NULL;
    size_t bytes = 0, last = 0;
    char *const journal = make_journal(f, &path, &bytes, &last);

    /* Each byte of the last line has at least one turned bit. */
    for (size_t bit = 0; bit < 8 * bytes; bit += bit / 8 < last ? 101 : LAST_LINE_STEP) {
        journal[bit / 8] = (char)(journal[bit / 8] ^ (1 << bit % 8));
        write_to(path, journal, bytes);
        assert_refused(f, "damaged");
        journal[bit / 8] = (char)(journal[bit / 8] ^ (1 << bit % 8));
    }
    for (unsigned bit = 0; bit < 8; bit++) { /* the last newline too */
        journal[bytes - 1] = (char)('\n' ^ (1 << bit));
        write_to(path, journal, bytes);
        assert_refused(f, "damaged");
    }
    free(path);
    free(journal);
}

static void test_a_journal_that_is_missing_or_lacks_a_line_is_refused(void **state)
{
    const struct store_fixture *f = *state;
    char *path = NULL;
    size_t bytes = 0, last = 0, second;
    char *const journal = make_journal(f, &path, &bytes, &last);
    char *const other = malloc(2 * bytes);

    assert_non_null(other);
    second = (size_t)(strchr(journal, '\n') - journal) + 1;
    second = (size_t)(strchr(journal + second, '\n') - journal) + 1;
    write_to(path, journal + second, bytes - second);
    assert_refused(f, "a line is missing");
    memcpy(other, journal, bytes);
    memcpy(other + bytes, journal + last, bytes - last);
    write_to(path, other, 2 * bytes - last);
    assert_refused(f, "a line is missing");
    write_to(path, journal, 0);
    assert_refused(f, "it is empty");
    assert_int_equal(unlink(path), 0);
    assert_refused(f, "catalog-000001.jsonl: missing");
    free(other);
    free(path);
    free(journal);
}

/* Adds a line whose checksum is right. */
static void add_change(const struct store_fixture *f, struct catalog_journal *journal,
                       const char *key, uint32_t table_id, const struct table_spec *spec)
{
    const struct catalog_table table = {
        .table_id = table_id, .state = CATALOG_LIVE, .owner = CATALOG_NOBODY, .spec = *spec
    };
    struct err_msg msg = { { 0 } };

    must(catalog_journal_add(f->made[0], journal,
                             json_pack("{s:o}", key, catalog_table_to_json(&table)), &msg),
         &msg);
}

static enum embtier_err ignore_change(void *context, const json_t *change, struct err_msg *msg)
{
    (void)context;
    (void)change;
    (void)msg;
    return EMBTIER_OK;
}

/* A checksum proves that the line is as it was written, and not that its writer was right. */
static void test_a_change_to_a_table_that_cannot_be_is_refused(void **state)
{
    static const char *const keys[] = { "add", "change" };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        struct store_fixture *const f = fixture_new();
        struct catalog *const catalog = must_open(f);
        struct table_spec spec = spec_make(i == 0 ? "new" : "table_69");
        struct catalog_journal journal;
        struct err_msg msg = { { 0 } };

        must_add(catalog, 0, MANY);
        catalog_free(catalog);
        must(catalog_journal_read(f->made[0], 1, ignore_change, NULL, &journal, &msg), &msg);
        spec.dim = 0;
        add_change(f, &journal, keys[i], i == 0 ? MANY + 1 : MANY, &spec);
        assert_refused(f, "a change in its journal, to table 7");
        fixture_destroy(f);
    }
}

static void test_a_journal_that_the_catalog_does_not_name_is_not_read(void **state)
{
    const struct store_fixture *f = *state;
    struct catalog *catalog;
    struct err_msg msg = { { 0 } };
    char *path = NULL;
    size_t bytes = 0, last = 0;
    char *const journal = make_journal(f, &path, &bytes, &last);

    catalog = must_open(f);
    must(catalog_remove(catalog, 3, &msg), &msg);
    must(catalog_fold(catalog, &msg), &msg);
    write_to(path, journal, bytes); /* as a crash before the removal leaves it */
    assert_same_after_opening(f, catalog);
    must_add(catalog, 900, 2);
    assert_same_after_opening(f, catalog);
    catalog_free(catalog);
    free(path);
    free(journal);
}

/* Steps of a process that ends before one of its calls. The parent knows how many were
 * acknowledged. */
#define STEPS  12
#define BEFORE 62 /* tables before the steps, of which the third makes a journal */

/* Opens a catalog of BEFORE tables. Only the first one is made table by table. */
static struct catalog *must_open_before(const struct store_fixture *f)
{
    static char whole[65536];
    static size_t bytes;
    char *const path = path_join(f->made[0], CATALOG_FILE);
    struct catalog *catalog;

    if (bytes > 0)
        write_to(path, whole, bytes);
    catalog = must_open(f);
    if (bytes == 0) {
        char *made;

        must_add(catalog, 0, BEFORE);
        made = read_all(path, &bytes);
        assert_true(bytes <= sizeof(whole));
        memcpy(whole, made, bytes);
        free(made);
    }
    assert_int_equal(catalog_count(catalog), BEFORE);
    free(path);
    return catalog;
}

static enum embtier_err step(struct catalog *catalog, uint32_t number, struct err_msg *msg)
{
    switch (number) {
    case 4:
        return catalog_set_state(catalog, 4, CATALOG_DROPPING, msg);
    case 5:
        return catalog_remove(catalog, 4, msg);
    case 8:
        return catalog_fold(catalog, msg);
    default:
        return add(catalog, 1000 + number, msg);
    }
}

static char *expected_after(uint32_t steps)
{
    struct store_fixture *const f = fixture_new();
    struct catalog *const catalog = must_open_before(f);
    struct err_msg msg = { { 0 } };
    char *text;

    for (uint32_t i = 0; i < steps; i++)
        must(step(catalog, i, &msg), &msg);
    text = all_of(catalog);
    catalog_free(catalog);
    fixture_destroy(f);
    return text;
}

static void run_steps(const struct store_fixture *f, int call, uint32_t *acknowledged)
{
    struct catalog *const catalog = must_open_before(f);
    struct err_msg msg;

    calls_left = call;
    for (uint32_t i = 0; i < STEPS; i++) {
        if (step(catalog, i, &msg) != EMBTIER_OK)
            _exit(1);
        *acknowledged = i + 1;
    }
    _exit(2); /* no more calls to end at */
}

static void test_killed_before_any_call_all_that_was_acknowledged_is_there(void **state)
{
    uint32_t *const acknowledged = mmap(NULL, sizeof(*acknowledged), PROT_READ | PROT_WRITE,
                                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char *expected[STEPS + 1];
    int status = 0, call = 0;

    (void)state;
    assert_true(acknowledged != MAP_FAILED);
    for (uint32_t i = 0; i <= STEPS; i++)
        expected[i] = expected_after(i);
    for (; !WIFEXITED(status) || WEXITSTATUS(status) != 2; call++) {
        struct store_fixture *const f = fixture_new();
        struct catalog *catalog;
        pid_t pid;
        char *now;

        *acknowledged = 0;
        pid = fork();
        if (pid == 0)
            run_steps(f, call, acknowledged);
        assert_true(pid > 0 && waitpid(pid, &status, 0) == pid);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) != 1);
        catalog = must_open(f);
        now = all_of(catalog);
        if (strcmp(now, expected[*acknowledged]) != 0 &&
            (*acknowledged == STEPS || strcmp(now, expected[*acknowledged + 1]) != 0))
            fail_msg("call %d, after %u steps: %s", call, *acknowledged, now);
        must_add(catalog, 2000, 3);
        assert_same_after_opening(f, catalog);
        free(now);
        catalog_free(catalog);
        fixture_destroy(f);
    }
    assert_true(call > 40);
    for (uint32_t i = 0; i <= STEPS; i++)
        free(expected[i]);
    munmap(acknowledged, sizeof(*acknowledged));
}

/* All calls fail from some call on, and then succeed again. */
static void test_calls_that_fail_change_nothing_and_do_no_harm(void **state)
{
    const int failures[] = { ENOSPC, EIO, EDQUOT };
    bool more = true;

    (void)state;
    for (int call = 0; more; call++) {
        struct store_fixture *const f = fixture_new();
        struct catalog *const catalog = must_open_before(f);
        struct err_msg msg = { { 0 } };

        failure = failures[call % 3];
        calls_left = call;
        more = false;
        for (uint32_t i = 0; i < STEPS; i++) {
            const enum embtier_err err = step(catalog, i, &msg);

            if (err == EMBTIER_OK)
                continue;
            more = true;
            assert_int_equal(err, failure == EIO ? EMBTIER_IO : EMBTIER_NO_SPACE);
            calls_left = -1; /* calls succeed again */
            if (i != 5)      /* its table may stay dropping */
                must(step(catalog, i, &msg), &msg);
            assert_same_after_opening(f, catalog);
        }
        calls_left = -1;
        must_add(catalog, 3000, 2);
        assert_same_after_opening(f, catalog);
        catalog_free(catalog);
        fixture_destroy(f);
    }
    failure = 0;
}

#define JOURNAL_TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        JOURNAL_TEST(test_a_change_writes_no_more_the_more_tables_there_are),
        JOURNAL_TEST(test_all_kinds_of_changes_come_back_and_ids_do_not),
        JOURNAL_TEST(test_a_copy_is_whole_and_has_no_journal),
        JOURNAL_TEST(test_the_torn_end_of_a_journal_is_left_out),
        JOURNAL_TEST(test_a_hole_in_what_was_written_last_is_a_torn_end_and_elsewhere_damage),
        JOURNAL_TEST(test_a_bit_that_has_turned_is_found),
        JOURNAL_TEST(test_a_journal_that_is_missing_or_lacks_a_line_is_refused),
        cmocka_unit_test(test_a_change_to_a_table_that_cannot_be_is_refused),
        JOURNAL_TEST(test_a_journal_that_the_catalog_does_not_name_is_not_read),
        cmocka_unit_test(test_killed_before_any_call_all_that_was_acknowledged_is_there),
        cmocka_unit_test(test_calls_that_fail_change_nothing_and_do_no_harm),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
