/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that an export stops when there is nothing more to write, and writes where no signals come.
 * It must not ask for more room than its rows may need. The scan is of the test; the rest is the
 * library's own. */
#include "tests/unit/client/client_fixture.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "client/files/tensor_file.h"
#include "client/lib/load.h"
#include "client/lib/table.h"

#define ROWS 100
#define DIM  4

/* The scan's results, and the test's view of the writer. */
static struct table_spec spec;
static uint64_t expected_rows;
static uint32_t calls_left; /* calls of embtier_scan_next() until it fails or has no more */
static bool fails;
static uint64_t most_rows;
static uint32_t adds, ends;
static bool signals_come; /* to the thread that writes rows */

enum embtier_err __wrap_embtier_scan_open(struct embtier *server, const char *table,
                                          const struct embtier_scan_options *options,
                                          struct embtier_scan **ret_scan);
enum embtier_err __wrap_embtier_scan_next(struct embtier_scan *scan,
                                          struct embtier_scan_rows *ret_rows);
void __wrap_embtier_scan_close(struct embtier_scan *scan);
uint64_t __wrap_embtier_scan_row_count(const struct embtier_scan *scan);
uint64_t __wrap_embtier_scan_checkpoint(const struct embtier_scan *scan);
const struct table_spec *__wrap_scan_table_spec(const struct embtier_scan *scan);
enum embtier_err __real_tensor_writer_new(const struct tensor_writer_opts *opts,
                                          struct tensor_writer **ret_writer, struct err_msg *msg);
enum embtier_err __wrap_tensor_writer_new(const struct tensor_writer_opts *opts,
                                          struct tensor_writer **ret_writer, struct err_msg *msg);
enum embtier_err __real_tensor_writer_add(struct tensor_writer *w, uint32_t index,
                                          const void *first, size_t stride, uint32_t rows,
                                          struct err_msg *msg);
enum embtier_err __wrap_tensor_writer_add(struct tensor_writer *w, uint32_t index,
                                          const void *first, size_t stride, uint32_t rows,
                                          struct err_msg *msg);
enum embtier_err __real_tensor_writer_end(struct tensor_writer *w, const char *const *metadata,
                                          struct tensor_written *ret_written, struct err_msg *msg);
enum embtier_err __wrap_tensor_writer_end(struct tensor_writer *w, const char *const *metadata,
                                          struct tensor_written *ret_written, struct err_msg *msg);

enum embtier_err __wrap_embtier_scan_open(struct embtier *server, const char *table,
                                          const struct embtier_scan_options *options,
                                          struct embtier_scan **ret_scan)
{
    (void)server;
    (void)table;
    (void)options;
    *ret_scan = (struct embtier_scan *)&spec; /* no code looks inside */
    return EMBTIER_OK;
}

enum embtier_err __wrap_embtier_scan_next(struct embtier_scan *scan,
                                          struct embtier_scan_rows *ret_rows)
{
    static uint64_t ids[ROWS];
    static float rows[ROWS][DIM];

    (void)scan;
    if (calls_left == 0 && fails)
        return EMBTIER_CORRUPT;
    *ret_rows = (struct embtier_scan_rows){
        .count = calls_left > 0 ? ROWS : 0, .ids = ids, .rows = rows, .row_bytes = sizeof(rows[0])
    };
    calls_left -= calls_left > 0;
    return EMBTIER_OK;
}

void __wrap_embtier_scan_close(struct embtier_scan *scan)
{
    (void)scan;
}

uint64_t __wrap_embtier_scan_row_count(const struct embtier_scan *scan)
{
    (void)scan;
    return expected_rows;
}

uint64_t __wrap_embtier_scan_checkpoint(const struct embtier_scan *scan)
{
    (void)scan;
    return FAKE_CHECKPOINT;
}

const struct table_spec *__wrap_scan_table_spec(const struct embtier_scan *scan)
{
    (void)scan;
    return &spec;
}

enum embtier_err __wrap_tensor_writer_new(const struct tensor_writer_opts *opts,
                                          struct tensor_writer **ret_writer, struct err_msg *msg)
{
    most_rows = opts->most_rows;
    return __real_tensor_writer_new(opts, ret_writer, msg);
}

enum embtier_err __wrap_tensor_writer_add(struct tensor_writer *w, uint32_t index,
                                          const void *first, size_t stride, uint32_t rows,
                                          struct err_msg *msg)
{
    sigset_t blocked;

    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    signals_come = signals_come || !sigismember(&blocked, SIGINT) ||
                   !sigismember(&blocked, SIGXFSZ) || !sigismember(&blocked, SIGRTMIN);
    adds++;
    return __real_tensor_writer_add(w, index, first, stride, rows, msg);
}

enum embtier_err __wrap_tensor_writer_end(struct tensor_writer *w, const char *const *metadata,
                                          struct tensor_written *ret_written, struct err_msg *msg)
{
    ends++;
    return __real_tensor_writer_end(w, metadata, ret_written, msg);
}

/* ---- One export ---- */

struct folder {
    char path[64];
    char export[80];
};

static void make_folder(struct folder *folder)
{
    strcpy(folder->path, "/tmp/embtier-test-export-XXXXXX");
    assert_non_null(mkdtemp(folder->path));
    snprintf(folder->export, sizeof(folder->export), "%s/export", folder->path);
}

/* Removes the folder with all that an export left there. */
static void remove_folder(const struct folder *folder)
{
    DIR *const dir = opendir(folder->export);
    char name[600];

    for (struct dirent *entry = dir ? readdir(dir) : NULL; entry; entry = readdir(dir)) {
        snprintf(name, sizeof(name), "%s/%s", folder->export, entry->d_name);
        (void)!unlink(name);
    }
    if (dir)
        closedir(dir);
    (void)!rmdir(folder->export);
    assert_int_equal(rmdir(folder->path), 0); /* nothing else is left */
}

static enum embtier_err export(struct fixture *fixture, const struct folder *folder,
                               uint64_t file_bytes, struct embtier_exported *ret_exported) {
    const struct embtier_export_options options = { .struct_bytes = sizeof(options),
                                                    .checkpoint = FAKE_CHECKPOINT,
                                                    .file_bytes = file_bytes };

    spec = (struct table_spec){ .name = "words",
                                .rows = EMBTIER_UNBOUNDED,
                                .dim = DIM,
                                .dtype = EMBTIER_DTYPE_F32,
                                .optimizer = EMBTIER_OPTIMIZER_NONE,
                                .init = EMBTIER_INIT_ZEROS,
                                .durability = EMBTIER_DURABILITY_REPLAY,
                                .init_version = 1 };
    most_rows = 0;
    adds = ends = 0;
    signals_come = false;
    return embtier_export(fixture->server, "words", folder->export, &options, NULL, NULL,
                          ret_exported);
}

static void test_rows_are_written_where_no_signals_come(void **state)
{
    struct fixture *fixture = *state;
    struct embtier_exported exported = { 0 };
    sigset_t before, after;
    struct folder folder;

    make_folder(&folder);
    expected_rows = 3 * ROWS;
    calls_left = 3;
    fails = false;
    sigemptyset(&before);
    sigaddset(&before, SIGUSR1);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    assert_int_equal(export(fixture, &folder, 0, &exported), EMBTIER_OK);
    assert_int_equal(exported.rows, 3 * ROWS);
    assert_int_equal(exported.parts, 1);
    assert_true(adds > 0 && !signals_come);
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    assert_true(sigismember(&after, SIGUSR1) == 1 && sigismember(&after, SIGINT) == 0);
    remove_folder(&folder);
}

static void test_a_file_whose_rows_end_with_a_failure_is_not_finished(void **state)
{
    struct fixture *fixture = *state;
    struct folder folder;

    make_folder(&folder);
    expected_rows = 3 * ROWS;
    calls_left = 2;
    fails = true;
    assert_int_equal(export(fixture, &folder, 0, NULL), EMBTIER_CORRUPT);
    assert_true(adds > 0);
    assert_int_equal(ends, 0);
    remove_folder(&folder);
}

static void test_there_is_room_for_what_may_come_and_not_for_all_that_was_said(void **state)
{
    struct fixture *fixture = *state;
    struct embtier_exported exported = { 0 };
    struct folder folder;

    for (int turn = 0; turn < 3; turn++) {
        make_folder(&folder);
        expected_rows = turn == 0 ? 0 : turn == 1 ? ROWS : UINT64_C(1000000000);
        calls_left = 3;
        fails = false;
        assert_int_equal(export(fixture, &folder, turn < 2 ? UINT64_MAX : 2 * MIB, &exported),
                         EMBTIER_OK);
        assert_int_equal(exported.rows, 3 * ROWS);
        assert_int_equal(exported.parts, 1);
        assert_in_range(most_rows, 3 * ROWS, 4 * MIB);
        remove_folder(&folder);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_rows_are_written_where_no_signals_come, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_a_file_whose_rows_end_with_a_failure_is_not_finished,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(
            test_there_is_room_for_what_may_come_and_not_for_all_that_was_said, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
