/* SPDX-License-Identifier: Apache-2.0 */
/* test_rocksdb_versions.c: tests that a start warns of a RocksDB that embtier's tests have not run
 * with. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/log/log.h"
#include "store/rocksdb/rocksdb_ext.h"
#include "tests/unit/store/store_fixture.h"

/* The linker puts these in place of the store's functions. */
const char *__wrap_rocksdb_ext_version(void);
const char *__real_rocksdb_ext_version(void);
void __wrap_log_line(enum log_level level, const char *message, const char *pairs, ...)
    PRINTF_LIKE(3, 4);

static const char *installed; /* NULL: the real version */
static unsigned warnings;
static char last_warning[300];

const char *__wrap_rocksdb_ext_version(void)
{
    return installed ? installed : __real_rocksdb_ext_version();
}

void __wrap_log_line(enum log_level level, const char *message, const char *pairs, ...)
{
    va_list args;
    int length;

    if (level != LOG_LEVEL_WARN || !strstr(message, "RocksDB"))
        return;
    warnings++;
    length = snprintf(last_warning, sizeof(last_warning), "%s ", message);
    va_start(args, pairs);
    vsnprintf(last_warning + length, sizeof(last_warning) - (size_t)length, pairs, args);
    va_end(args);
}

static void test_versions_are_told_apart_by_major_and_minor(void **state)
{
    static const char *const tried[] = { "7.8", "7.8.0", "7.8.3", "9.10.0" };
    static const char *const others[] = { "7.7.3", "7.80.1", "17.8.3", "9.1.0", "10.9.10",
                                          "78",    "7",      "",       "x" };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(tried); i++)
        if (!rocksdb_ext_is_tried(tried[i]))
            fail_msg("%s is one of those that were tried", tried[i]);
    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        if (rocksdb_ext_is_tried(others[i]))
            fail_msg("%s is none of those that were tried", others[i]);
}

static unsigned warnings_of_a_start(struct store_fixture *f, const char *version)
{
    installed = version;
    warnings = 0;
    fixture_open(f);
    fixture_close(f);
    installed = NULL;
    return warnings;
}

static void test_a_start_warns_of_a_version_that_was_not_tried(void **state)
{
    assert_int_equal(warnings_of_a_start(*state, "7.8.3"), 0);
    assert_int_equal(warnings_of_a_start(*state, "99.1.0"), 1);
    assert_non_null(strstr(last_warning, "tests have not run with"));
    assert_non_null(strstr(last_warning, "version=99.1.0"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_versions_are_told_apart_by_major_and_minor),
        cmocka_unit_test_setup_teardown(test_a_start_warns_of_a_version_that_was_not_tried,
                                        fixture_setup, fixture_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
