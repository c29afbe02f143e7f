/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that metrics are written as the formats of Prometheus and OpenMetrics say. */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "daemon/control/snapshot.h"
#include "daemon/http/exposition.h"
#include "daemon/http/page.h"

static const struct metric_description rows = { "some_rows", "Rows", "", true };
static const struct metric_description bytes = { "some_bytes", "Bytes", "tier", false };
static const struct metric_description seconds = { "some_seconds", "Time", "", true };

static void expect(struct page *page, const char *text)
{
    assert_false(page->is_cut);
    assert_string_equal(page->text, text);
    page_free(page);
}

static void test_a_counter_ends_with_total(void **state)
{
    struct page page = { 0 };

    (void)state;
    exposition_head(&page, EXPOSITION_TEXT, &rows);
    exposition_sample(&page, &rows, "", 7);
    expect(&page, "# HELP embtier_some_rows_total Rows\n"
                  "# TYPE embtier_some_rows_total counter\n"
                  "embtier_some_rows_total 7\n");
    exposition_head(&page, EXPOSITION_OPENMETRICS, &rows);
    exposition_sample(&page, &rows, "", 7);
    expect(&page, "# HELP embtier_some_rows Rows\n"
                  "# TYPE embtier_some_rows counter\n"
                  "embtier_some_rows_total 7\n");
}

static void test_a_gauge_has_its_name_and_label(void **state)
{
    struct page page = { 0 };

    (void)state;
    exposition_head(&page, EXPOSITION_TEXT, &bytes);
    exposition_sample(&page, &bytes, "dram", 1024);
    exposition_sample(&page, &bytes, "pmem", 0);
    expect(&page, "# HELP embtier_some_bytes Bytes\n"
                  "# TYPE embtier_some_bytes gauge\n"
                  "embtier_some_bytes{tier=\"dram\"} 1024\n"
                  "embtier_some_bytes{tier=\"pmem\"} 0\n");
}

static void test_openmetrics_names_units(void **state)
{
    struct page page = { 0 };

    (void)state;
    exposition_head(&page, EXPOSITION_OPENMETRICS, &bytes);
    exposition_head(&page, EXPOSITION_OPENMETRICS, &seconds);
    expect(&page, "# HELP embtier_some_bytes Bytes\n"
                  "# TYPE embtier_some_bytes gauge\n"
                  "# UNIT embtier_some_bytes bytes\n"
                  "# HELP embtier_some_seconds Time\n"
                  "# TYPE embtier_some_seconds counter\n"
                  "# UNIT embtier_some_seconds seconds\n");
}

static void test_foreign_text_is_escaped(void **state)
{
    const struct metric_description odd = { "odd", "a\\b\n\"c\"", "name", false };
    struct page page = { 0 };

    (void)state;
    exposition_head(&page, EXPOSITION_TEXT, &odd);
    exposition_sample(&page, &odd, "x\"} 1\ny\\", 2);
    expect(&page, "# HELP embtier_odd a\\\\b\\n\"c\"\n"
                  "# TYPE embtier_odd gauge\n"
                  "embtier_odd{name=\"x\\\"} 1\\ny\\\\\"} 2\n");
    exposition_head(&page, EXPOSITION_OPENMETRICS, &odd);
    expect(&page, "# HELP embtier_odd a\\\\b\\n\\\"c\\\"\n"
                  "# TYPE embtier_odd gauge\n");
}

static void test_numbers_are_those_of_prometheus(void **state)
{
    static const struct {
        double value;
        const char *text;
    } numbers[] = {
        { 0, "0" },
        { -1, "-1" },
        { 1234567890123.0, "1234567890123" },
        { 0.25, "0.25" },
        { 1.5e-7, "1.5e-07" },
        { 1e300, "1e+300" },
        { (double)INFINITY, "+Inf" },
        { -(double)INFINITY, "-Inf" },
        { (double)NAN, "NaN" },
    };
    const struct metric_description one = { "one", "One", "", false };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        struct page page = { 0 };
        char line[64];

        snprintf(line, sizeof(line), "embtier_one %s\n", numbers[i].text);
        exposition_sample(&page, &one, "", numbers[i].value);
        expect(&page, line);
    }
}

static void test_figures_of_a_metric_stand_together(void **state)
{
    const struct snapshot_figure figures[] = {
        { METRIC_cache_rows, "dram", 1 },
        { METRIC_lanes, "", 2 },
        { METRIC_cache_rows, "pmem", 3 },
    };
    struct page page = { 0 };
    const char *found;

    (void)state;
    exposition_write(&page, EXPOSITION_OPENMETRICS, figures, ARRAY_LEN(figures), NULL, NULL);
    found = strstr(page.text, "embtier_cache_rows{tier=\"dram\"} 1\n"
                              "embtier_cache_rows{tier=\"pmem\"} 3\n");
    assert_non_null(found);
    assert_null(strstr(found, "# TYPE embtier_cache_rows"));
    assert_non_null(strstr(page.text, "embtier_lanes 2\n"));
    assert_null(strstr(page.text, "embtier_sessions")); /* it has no figure */
    assert_string_equal(page.text + page.bytes - strlen("# EOF\n"), "# EOF\n");
    page_free(&page);
}

static void test_a_histogram_has_cumulative_buckets(void **state)
{
    static struct latencies latencies;
    struct page page = { 0 };
    const char *found;

    (void)state;
    latency_add(&latencies.of[OP_GET][TRANSPORT_TLS], 1000);
    latency_add(&latencies.of[OP_GET][TRANSPORT_TLS], 1500); /* both ranges of an octave … */
    latency_add(&latencies.of[OP_GET][TRANSPORT_TLS], 2000); /* … are one bucket */
    latency_add(&latencies.of[OP_GET][TRANSPORT_TLS], UINT64_C(20) * 1000000000);
    exposition_write(&page, EXPOSITION_TEXT, NULL, 0, &latencies, NULL);
    found = strstr(page.text, "# TYPE embtier_request_seconds histogram\n"
                              "embtier_request_seconds_bucket{op=\"get\",transport=\"tls\","
                              "le=\"1.024e-06\"} 1\n"
                              "embtier_request_seconds_bucket{op=\"get\",transport=\"tls\","
                              "le=\"2.048e-06\"} 3\n");
    assert_non_null(found);
    assert_non_null(strstr(found,
                           "le=\"8.589934592\"} 3\n"
                           "embtier_request_seconds_bucket{op=\"get\",transport=\"tls\","
                           "le=\"+Inf\"} 4\n"
                           "embtier_request_seconds_sum{op=\"get\",transport=\"tls\"} "
                           "20.0000045\n"
                           "embtier_request_seconds_count{op=\"get\",transport=\"tls\"} 4\n"));
    assert_null(strstr(page.text, "op=\"set\""));
    page_free(&page);
}

static void test_the_format_is_the_one_asked_for(void **state)
{
    (void)state;
    assert_int_equal(exposition_accepted(NULL), EXPOSITION_TEXT);
    assert_int_equal(exposition_accepted("*/*"), EXPOSITION_TEXT);
    assert_int_equal(exposition_accepted("text/plain;version=0.0.4"), EXPOSITION_TEXT);
    assert_int_equal(exposition_accepted("Application/OpenMetrics-Text;version=1.0.0,*/*;q=0.1"),
                     EXPOSITION_OPENMETRICS);
}

/* A name is one that Prometheus takes, and `_total` is a counter's alone. */
static void test_names_of_the_table_are_names(void **state)
{
    static const char *const ends[] = { "_total", "_count", "_sum", "_bucket", "_info" };

    (void)state;
    for (uint32_t id = 0; id < METRIC_COUNT; id++) {
        const struct metric_description *const metric = &metric_descriptions[id];
        const size_t length = strlen(metric->name);

        assert_int_equal(strspn(metric->name, "abcdefghijklmnopqrstuvwxyz_"), length);
        assert_true(strlen(metric->help) > 0);
        for (size_t i = 0; i < ARRAY_LEN(ends) && id != METRIC_build_info; i++)
            assert_true(length < strlen(ends[i]) ||
                        strcmp(metric->name + length - strlen(ends[i]), ends[i]) != 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_counter_ends_with_total),
        cmocka_unit_test(test_a_gauge_has_its_name_and_label),
        cmocka_unit_test(test_openmetrics_names_units),
        cmocka_unit_test(test_foreign_text_is_escaped),
        cmocka_unit_test(test_numbers_are_those_of_prometheus),
        cmocka_unit_test(test_figures_of_a_metric_stand_together),
        cmocka_unit_test(test_a_histogram_has_cumulative_buckets),
        cmocka_unit_test(test_the_format_is_the_one_asked_for),
        cmocka_unit_test(test_names_of_the_table_are_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
