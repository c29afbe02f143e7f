/* SPDX-License-Identifier: Apache-2.0 */
/* Tests rates, on answers of a server that is made up here: it stands in for the client's library.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/macros.h"
#include "tools/cli/top/rates.h"

struct embtier_status {
    uint64_t uptime_ms;
    struct embtier_metric metrics[2];
};

struct embtier_table_list {
    size_t count;
    struct embtier_table_info tables[3];
};

struct embtier_session_list {
    size_t count;
    struct embtier_session sessions[2];
};

uint64_t embtier_status_uptime_ms(const struct embtier_status *status)
{
    return status->uptime_ms;
}

size_t embtier_status_count(const struct embtier_status *status)
{
    return ARRAY_LEN(status->metrics);
}

const struct embtier_metric *embtier_status_at(const struct embtier_status *status, size_t index)
{
    return &status->metrics[index];
}

size_t embtier_table_list_count(const struct embtier_table_list *list)
{
    return list->count;
}

const struct embtier_table_info *embtier_table_list_at(const struct embtier_table_list *list,
                                                       size_t index)
{
    return &list->tables[index];
}

size_t embtier_session_list_count(const struct embtier_session_list *list)
{
    return list->count;
}

const struct embtier_session *embtier_session_list_at(const struct embtier_session_list *list,
                                                      size_t index)
{
    return &list->sessions[index];
}

static struct embtier_status status_at(uint64_t uptime_ms, double gets, double sets)
{
    return (struct embtier_status){ uptime_ms,
                                    { { "request_rows", "", 1, "op", "get", gets },
                                      { "request_rows", "", 1, "op", "set", sets } } };
}

static void test_a_rate_is_a_difference_over_a_time(void **state)
{
    (void)state;
    assert_true(rate(10, 40, 2) == 15);
    assert_true(rate(10, 10, 2) == 0);
    assert_true(isnan(rate(10, 40, 0)));
    assert_true(isnan(rate(10, 40, NAN)));
    assert_true(isnan(rate(40, 10, 2)));
    assert_true(isnan(rate(NAN, 10, 2)));
    assert_true(isnan(rate(10, NAN, 2)));
}

static void test_metrics_are_timed_by_the_servers_clock_and_tables_by_ours(void **state)
{
    struct embtier_status first = status_at(1000, 100, 7);
    struct embtier_status second = status_at(3000, 700, 7);
    const struct sample before = { .reading.status = &first, .tables_ns = 5000000000 };
    const struct sample now = { .reading.status = &second, .tables_ns = 9000000000 };
    struct rates rates = rates_between(&before, &now);

    (void)state;
    assert_true(rates.metric_seconds == 2);
    assert_true(rates.table_seconds == 4);
    assert_true(rates_metric(&rates, "request_rows", "get") == 300);
    assert_true(rates_metric(&rates, "request_rows", "set") == 0);
    assert_true(rates_metric(&rates, "request_rows", NULL) == 300);
    assert_true(isnan(rates_metric(&rates, "request_rows", "push")));
}

static void test_the_first_answer_has_no_rates(void **state)
{
    struct embtier_status only = status_at(3000, 700, 7);
    const struct sample now = { .reading.status = &only };
    const struct rates rates = rates_between(NULL, &now);

    (void)state;
    assert_true(isnan(rates.metric_seconds) && isnan(rates.table_seconds));
    assert_true(isnan(rates_metric(&rates, "request_rows", "get")));
}

static void test_a_restarted_server_has_no_rates(void **state)
{
    struct embtier_status first = status_at(5000, 100, 7);
    struct embtier_status second = status_at(4000, 700, 8);
    const struct sample before = { .reading.status = &first };
    const struct sample now = { .reading.status = &second };
    const struct rates rates = rates_between(&before, &now);

    (void)state;
    assert_null(rates.before);
    assert_true(isnan(rates_metric(&rates, "request_rows", "get")));
}

static void test_tables_and_sessions_are_matched_by_number_wherever_they_are(void **state)
{
    struct embtier_status first = status_at(1000, 0, 0);
    struct embtier_status second = status_at(2000, 0, 0);
    struct embtier_table_list tables = {
        3, { { .table_id = 4 }, { .table_id = 9 }, { .table_id = 5 } }
    };
    struct embtier_session_list sessions = { 2, { { .number = 11 }, { .number = 12 } } };
    const struct embtier_table_info table = { .table_id = 9 }, new_table = { .table_id = 10 };
    const struct embtier_session session = { .number = 12 }, new_session = { .number = 13 };
    const struct sample before = { .reading = { .status = &first, .tables = &tables },
                                   .sessions = &sessions };
    const struct sample now = { .reading.status = &second };
    const struct rates rates = rates_between(&before, &now);

    (void)state;
    for (size_t index = 0; index < 7; index++) {
        assert_ptr_equal(rates_table_before(&rates, &table, index), &tables.tables[1]);
        assert_null(rates_table_before(&rates, &new_table, index));
    }
    assert_ptr_equal(rates_session_before(&rates, &session), &sessions.sessions[1]);
    assert_null(rates_session_before(&rates, &new_session));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_rate_is_a_difference_over_a_time),
        cmocka_unit_test(test_metrics_are_timed_by_the_servers_clock_and_tables_by_ours),
        cmocka_unit_test(test_the_first_answer_has_no_rates),
        cmocka_unit_test(test_a_restarted_server_has_no_rates),
        cmocka_unit_test(test_tables_and_sessions_are_matched_by_number_wherever_they_are),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
