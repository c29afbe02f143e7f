/* SPDX-License-Identifier: Apache-2.0 */
/* Tests which errors of the system the store tells apart in RocksDB's texts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <rocksdb/c.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "store/rocksdb/rocksdb_err.h"

#define LIMIT_BYTES (1 << 20) /* more than its LOG has: an error there aborts RocksDB */

static void limit_files(rlim_t bytes)
{
    const struct rlimit limit = { .rlim_cur = bytes, .rlim_max = RLIM_INFINITY };

    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* Writes as RocksDB itself does, without our file system. Does not close the database: Debian's
 * build asserts that a log could be written. */
static int write_too_much(const rocksdb_options_t *options, const char *path)
{
    static const char value[4 * LIMIT_BYTES];
    rocksdb_writeoptions_t *const write = rocksdb_writeoptions_create();
    struct err_msg msg = { { 0 } };
    char *error = NULL;
    rocksdb_t *const db = rocksdb_open(options, path, &error);

    if (error)
        return 1;
    signal(SIGXFSZ, SIG_IGN);
    limit_files(LIMIT_BYTES);
    rocksdb_put(db, write, "key", 3, value, sizeof(value), &error);
    limit_files(RLIM_INFINITY);
    if (!error || !strstr(error, strerror(EFBIG)))
        return 2;
    return rocksdb_err_take(error, "here", &msg) == EMBTIER_NO_SPACE ? 0 : 3;
}

static void test_a_file_that_is_too_long_is_no_space(void **state)
{
    char path[] = "/tmp/embtier-rocksdb-err-XXXXXX";
    rocksdb_options_t *const options = rocksdb_options_create();
    char *error = NULL;
    int status;
    pid_t child;

    (void)state;
    assert_non_null(mkdtemp(path));
    rocksdb_options_set_create_if_missing(options, 1);
    child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(write_too_much(options, path));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    rocksdb_destroy_db(options, path, &error);
    rocksdb_options_destroy(options);
    assert_null(error);
}

static void test_errors_are_told_by_the_text_at_their_end(void **state)
{
    static const struct {
        const char *subcode;
        int errnum;
        enum embtier_err err;
    } cases[] = {
        { "", ENOSPC, EMBTIER_NO_SPACE },
        { "", EDQUOT, EMBTIER_NO_SPACE },
        { "", EFBIG, EMBTIER_NO_SPACE },
        { "No space left on device: ", ENOSPC, EMBTIER_NO_SPACE },
        { "No space left on device: ", EDQUOT, EMBTIER_NO_SPACE },
        { "No such file or directory: ", ENOENT, EMBTIER_CORRUPT },
        { "", EIO, EMBTIER_IO },
        { "", EBADF, EMBTIER_IO },
    };
    static const char *const where[] = {
        "While pwrite to file at offset 1048576: /d/shard-0000/replay/000008.sst",
        "While appending to file: /d/shard-0000/logged/MANIFEST-000005",
        "While fsync: /d/File too large/Disk quota exceeded/000004.log",
    };
    char text[300];

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        for (size_t j = 0; j < sizeof(where) / sizeof(where[0]); j++) {
            snprintf(text, sizeof(text), "IO error: %s%s: %s", cases[i].subcode, where[j],
                     strerror(cases[i].errnum));
            assert_int_equal(rocksdb_err(text), cases[i].err);
        }
    assert_int_equal(rocksdb_err("Corruption: bad block: File too large"), EMBTIER_CORRUPT);
    assert_int_equal(rocksdb_err("IO error: "), EMBTIER_IO);
    assert_int_equal(rocksdb_err("File too large"), EMBTIER_INTERNAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_file_that_is_too_long_is_no_space),
        cmocka_unit_test(test_errors_are_told_by_the_text_at_their_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
