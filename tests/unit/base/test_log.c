/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that a log line stays one line of logfmt, whatever comes from outside, and that an error's
 * text is right. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/log/log.h"

/* Sends standard error to a file during a test. */
static int saved_stderr;

static int catch_stderr(void **state)
{
    FILE *file = tmpfile();

    if (!file)
        return -1;
    *state = file;
    saved_stderr = dup(STDERR_FILENO);
    return dup2(fileno(file), STDERR_FILENO) < 0 ? -1 : 0;
}

static int restore_stderr(void **state)
{
    dup2(saved_stderr, STDERR_FILENO);
    close(saved_stderr);
    log_set_level(LOG_LEVEL_INFO);
    return fclose(*state);
}

static const char *caught(FILE *file, char buffer[8192])
{
    const ssize_t got = pread(fileno(file), buffer, 8191, 0);

    assert_true(got >= 0);
    buffer[got] = '\0';
    return buffer;
}

static void test_line_is_time_level_message_and_pairs(void **state)
{
    char buffer[8192];

    log_info("table created", "table=%s rows=%d", "clicks", 1000);
    assert_int_equal(strncmp(caught(*state, buffer), "ts=20", 5), 0);
    assert_non_null(strstr(buffer, "Z level=info msg=\"table created\" table=clicks rows=1000\n"));
    assert_ptr_equal(strchr(buffer, '\n'), buffer + strlen(buffer) - 1);
}

static void test_no_pairs_leaves_no_space_at_the_end(void **state)
{
    char buffer[8192];

    log_error("stopped", "%s", "");
    assert_non_null(strstr(caught(*state, buffer), " level=error msg=\"stopped\"\n"));
}

static void test_lines_above_the_level_are_not_written(void **state)
{
    char buffer[8192];

    log_debug("fine", "a=%d", 1);
    log_set_level(LOG_LEVEL_ERROR);
    log_warn("hm", "a=%d", 1);
    assert_string_equal(caught(*state, buffer), "");
    log_set_level(LOG_LEVEL_DEBUG);
    log_debug("fine", "a=%d", 1);
    assert_non_null(strstr(caught(*state, buffer), "level=debug"));
}

static void test_quoted_value_cannot_forge_a_line(void **state)
{
    char buffer[8192];
    char *at;
    int lines = 0;

    log_info("opened", "path=%s", LOG_QUOTED("a\"b\\c\nts=1 level=error\x7f\x1b[0m"));
    caught(*state, buffer);
    assert_non_null(strstr(buffer, "path=\"a\\\"b\\\\c\\nts=1 level=error\\u007f\\u001b[0m\"\n"));
    for (at = buffer; *at; at++)
        lines += *at == '\n';
    assert_int_equal(lines, 1);
}

/* A damaged file may give such a value. */
static void test_quoted_value_is_utf_8(void **state)
{
    char buffer[8192];

    log_info("opened", "path=%s", LOG_QUOTED("\xc3\xa4 \xe9z \xf0\x9f\x8c\xb1 \xed\xa0\x80 \xc3"));
    caught(*state, buffer);
    assert_non_null(strstr(buffer, "path=\"\xc3\xa4 \\xe9z \xf0\x9f\x8c\xb1 \\xed\\xa0\\x80 "
                                   "\\xc3\"\n"));
}

static void test_long_values_are_cut_inside_their_quotes(void **state)
{
    struct log_quoted quoted;
    char value[2000];

    (void)state;
    memset(value, '"', sizeof(value) - 1);
    value[sizeof(value) - 1] = '\0';
    log_quote(&quoted, value);
    assert_in_range(strlen(quoted.text), 400, sizeof(quoted.text) - 1);
    assert_int_equal(quoted.text[0], '"');
    assert_string_equal(quoted.text + strlen(quoted.text) - 3, "\\\"\"");
}

static void test_very_long_line_still_ends_in_a_newline(void **state)
{
    char value[6000];
    char buffer[8192];

    memset(value, 'x', sizeof(value) - 1);
    value[sizeof(value) - 1] = '\0';
    log_info("long", "v=%s", value);
    caught(*state, buffer);
    assert_in_range(strlen(buffer), 4000, 4096);
    assert_int_equal(buffer[strlen(buffer) - 1], '\n');
}

static void test_levels_are_read_by_word(void **state)
{
    enum log_level level = LOG_LEVEL_WARN;

    (void)state;
    assert_int_equal(log_level_parse("Debug", &level), -1);
    assert_int_equal(level, LOG_LEVEL_WARN);
    assert_int_equal(log_level_parse("debug", &level), 0);
    assert_int_equal(level, LOG_LEVEL_DEBUG);
}

static void test_every_error_has_a_name_and_a_text(void **state)
{
    (void)state;
#define X(name, number, text)                                                                      \
    assert_string_equal(err_name(number), #name);                                                  \
    assert_string_equal(err_text(number), text);
    EMBTIER_ERR_TABLE(X)
#undef X
    assert_string_equal(err_name((enum embtier_err)999), "UNKNOWN");
    assert_int_equal(err_from_errno(0), EMBTIER_OK);
    assert_int_equal(err_from_errno(ENOSPC), EMBTIER_NO_SPACE);
    assert_int_equal(err_from_errno(EIO), EMBTIER_IO);
    assert_int_equal(err_from_errno(12345), EMBTIER_IO);
}

static void test_messages_carry_their_error_and_fit(void **state)
{
    struct err_msg msg;
    char value[2000];

    (void)state;
    assert_int_equal(err_set(&msg, EMBTIER_TOO_LARGE, "%d rows", 5), EMBTIER_TOO_LARGE);
    assert_string_equal(msg.text, "5 rows");
    assert_int_equal(err_set_errno(&msg, ENOENT, "open %s", "/x"), EMBTIER_NOT_FOUND);
    assert_string_equal(msg.text, "open /x: No such file or directory");
    assert_int_equal(err_set(NULL, EMBTIER_IO, "x"), EMBTIER_IO);
    assert_int_equal(err_set_errno(NULL, EACCES, "x"), EMBTIER_PERMISSION);
    memset(value, 'x', sizeof(value) - 1);
    value[sizeof(value) - 1] = '\0';
    assert_int_equal(err_set_errno(&msg, EIO, "%s", value), EMBTIER_IO);
    assert_int_equal(strlen(msg.text), sizeof(msg.text) - 1);
}

int main(void)
{
#define CATCHING(test) cmocka_unit_test_setup_teardown(test, catch_stderr, restore_stderr)
    const struct CMUnitTest tests[] = {
        CATCHING(test_line_is_time_level_message_and_pairs),
        CATCHING(test_no_pairs_leaves_no_space_at_the_end),
        CATCHING(test_lines_above_the_level_are_not_written),
        CATCHING(test_quoted_value_cannot_forge_a_line),
        CATCHING(test_quoted_value_is_utf_8),
        CATCHING(test_very_long_line_still_ends_in_a_newline),
        cmocka_unit_test(test_long_values_are_cut_inside_their_quotes),
        cmocka_unit_test(test_levels_are_read_by_word),
        cmocka_unit_test(test_every_error_has_a_name_and_a_text),
        cmocka_unit_test(test_messages_carry_their_error_and_fit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
