/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that text grows up to its limit and is refused above, and whose requests are local. */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#include <stdlib.h>
#include <string.h>

#include "daemon/control/snapshot.h"
#include "daemon/http/history.h"
#include "daemon/http/page.h"
#include "daemon/http/readers_host.h"

static void test_text_grows(void **state)
{
    struct page page = { 0 };

    (void)state;
    for (uint32_t i = 0; i < 10000; i++)
        page_printf(&page, "%05u\n", i);
    assert_false(page.is_cut);
    assert_int_equal(page.bytes, 60000);
    assert_memory_equal(page.text, "00000\n00001\n", 12);
    assert_string_equal(page.text + page.bytes - 6, "09999\n");
    page_free(&page);
    assert_null(page.text);
}

static void test_text_has_a_limit(void **state)
{
    char *const much = calloc(1, PAGE_BYTES_MAX);
    struct page page = { 0 };

    (void)state;
    assert_non_null(much);
    page_add(&page, much, PAGE_BYTES_MAX);
    assert_false(page.is_cut);
    page_add(&page, "x", 1);
    assert_true(page.is_cut);
    assert_int_equal(page.bytes, PAGE_BYTES_MAX);
    page_free(&page);
    page_printf(&page, "%600s", "x"); /* no line is that long */
    assert_true(page.is_cut);
    page_free(&page);
    free(much);
}

static void add_point(struct history *history, struct snapshot *snapshot, uint64_t number)
{
    snapshot->uptime_ms = number;
    snapshot->count = 3;
    snapshot->figures[0] =
        (struct snapshot_figure){ .id = METRIC_lookup_rows, .label_value = "ssd", .value = 1 };
    snapshot->figures[1] =
        (struct snapshot_figure){ .id = METRIC_lookup_rows, .label_value = "dram", .value = 2 };
    snapshot->figures[2] =
        (struct snapshot_figure){ .id = METRIC_sessions, .value = (double)number };
    history_add(history, snapshot);
}

static void test_history_keeps_the_last_hour(void **state)
{
    static struct history history;
    static struct snapshot snapshot;
    struct page page = { 0 };

    (void)state;
    history_write(&history, 7, &page);
    assert_non_null(strstr(page.text, "\"uptime_ms\":[],"));
    page_free(&page);
    for (uint64_t i = 0; i < HISTORY_POINTS + 39; i++)
        add_point(&history, &snapshot, i);
    assert_int_equal(history.count, HISTORY_POINTS);
    history_write(&history, 500, &page);
    assert_false(page.is_cut);
    assert_non_null(strstr(page.text, "{\"now_ms\":500,\"uptime_ms\":[39,40,"));
    assert_non_null(strstr(page.text, ",398,399],\"series\":{\"get_rows\":[0,"));
    assert_non_null(strstr(page.text, "\"lookup_rows\":[3,3,"));
    assert_non_null(strstr(page.text, "\"ssd_rows\":[1,1,"));
    assert_non_null(strstr(page.text, "\"sessions\":[39,40,"));
    page_free(&page);
}

static void test_hosts_of_this_machine_are_local(void **state)
{
    static const char *const local[] = { "localhost",  "LocalHost:7420", "127.0.0.1:7420",  "[::1]",
                                         "[::1]:7420", "10.0.0.7",       "own.example:7420" };
    static const char *const foreign[] = { "",
                                           ":7420",
                                           "evil.example",
                                           "evil.example:7420",
                                           "localhost.evil.example",
                                           "127.0.0.1.evil.example",
                                           "[evil.example]" };

    (void)state;
    assert_true(readers_host_is_local(NULL, "own.example"));
    for (size_t i = 0; i < ARRAY_LEN(local); i++)
        assert_true(readers_host_is_local(local[i], "own.example"));
    for (size_t i = 0; i < ARRAY_LEN(foreign); i++)
        assert_false(readers_host_is_local(foreign[i], "own.example"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_grows),
        cmocka_unit_test(test_text_has_a_limit),
        cmocka_unit_test(test_history_keeps_the_last_hour),
        cmocka_unit_test(test_hosts_of_this_machine_are_local),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
