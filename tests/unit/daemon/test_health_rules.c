/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that each rule of health is broken by its condition, and by nothing less. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/err.h"
#include "daemon/control/metrics.h"
#include "daemon/health/health.h"

#define FIGURES_MAX 8
#define HOUR        3600.0
#define YEAR        (365.25 * 24 * HOUR)
#define GB          ((double)GIB)

/* Figures of a server; the last one has no name. */
struct server {
    double uptime_s;
    struct {
        const char *name;
        double value;
    } figures[FIGURES_MAX];
};

/* A rule that names a metric that does not exist would never be broken. */
static void assert_is_metric(const char *name)
{
    for (size_t i = 0; i < METRIC_COUNT; i++)
        if (strcmp(metric_descriptions[i].name, name) == 0)
            return;
    fail_msg("there is no metric %s", name);
}

static double read_figure(const void *context, const char *name, const char *label_value)
{
    const struct server *const server = context;

    (void)label_value;
    assert_is_metric(name);
    for (size_t i = 0; i < FIGURES_MAX && server->figures[i].name; i++)
        if (strcmp(server->figures[i].name, name) == 0)
            return server->figures[i].value;
    return (double)NAN;
}

struct found {
    const struct health_rule *rules[32];
    size_t count;
};

static void note(void *context, const struct health_rule *rule, const char *why)
{
    struct found *const found = context;

    assert_true(strlen(why) > 0 && !strstr(why, "nan") && !strchr(why, '\n'));
    assert_true(found->count < ARRAY_LEN(found->rules));
    found->rules[found->count++] = rule;
}

static struct found check(const struct server *server, enum health *ret_health)
{
    const struct health_figures figures = { read_figure, server, server->uptime_s };
    struct found found = { .count = 0 };

    *ret_health = health_check(&figures, note, &found);
    return found;
}

static const struct {
    const char *rule;
    enum health health;
    struct server broken, kept;
} cases[] = {
    { "writes_blocked",
      HEALTH_BAD,
      { 0, { { "write_error", EMBTIER_IO } } },
      { 0, { { "write_error", EMBTIER_OK } } } },
    { "disk_full",
      HEALTH_BAD,
      { 0, { { "store_room_bytes", 0 }, { "store_stored_bytes", 5 } } },
      { 0, { { "store_room_bytes", 1 }, { "store_stored_bytes", 0 } } } },
    { "disk_full",
      HEALTH_BAD,
      { 0, { { "store_room_bytes", 9 }, { "store_space_refusals", 3 }, { "store_refusing", 1 } } },
      { 0,
        { { "store_room_bytes", 9 }, { "store_space_refusals", 3 }, { "store_refusing", 0 } } } },
    { "replay_refused",
      HEALTH_BAD,
      { 0, { { "replay_refused", 1 } } },
      { 0, { { "replay_refused", 0 } } } },
    { "rows_unreadable",
      HEALTH_BAD,
      { 0, { { "failed_rows", 1 } } },
      { 0, { { "failed_rows", 0 } } } },
    { "disk_nearly_full",
      HEALTH_WARNING,
      { 0, { { "store_room_bytes", 9.9 * GB }, { "store_stored_bytes", 90.1 * GB } } },
      { 0, { { "store_room_bytes", 10 * GB }, { "store_stored_bytes", 90 * GB } } } },
    { "reserve_short",
      HEALTH_WARNING,
      { 0, { { "store_reserve_bytes", 100 }, { "store_reserve_held_bytes", 99 } } },
      { 0, { { "store_reserve_bytes", 100 }, { "store_reserve_held_bytes", 100 } } } },
    { "write_queue_full",
      HEALTH_WARNING,
      { 0, { { "write_queue_bytes", 90 }, { "write_queue_capacity_bytes", 100 } } },
      { 0, { { "write_queue_bytes", 89 }, { "write_queue_capacity_bytes", 100 } } } },
    { "compaction_behind",
      HEALTH_WARNING,
      { 0, { { "store_pending_compaction_bytes", 2 * GB }, { "store_stored_bytes", GB } } },
      { 0, { { "store_pending_compaction_bytes", 2 * GB }, { "store_stored_bytes", 2 * GB } } } },
    { "compaction_behind",
      HEALTH_WARNING,
      { 0, { { "store_pending_compaction_bytes", GB }, { "store_stored_bytes", 0 } } },
      { 0, { { "store_pending_compaction_bytes", GB - 1 }, { "store_stored_bytes", 0 } } } },
    { "cache_pinned",
      HEALTH_WARNING,
      { 0,
        { { "cache_pinned_rows", 50 },
          { "cache_rows", 100 },
          { "cache_used_bytes", 90 },
          { "cache_capacity_bytes", 100 } } },
      { 0,
        { { "cache_pinned_rows", 50 },
          { "cache_rows", 100 },
          { "cache_used_bytes", 89 },
          { "cache_capacity_bytes", 100 } } } },
    { "cache_pinned",
      HEALTH_WARNING,
      { 0,
        { { "cache_pinned_rows", 50 },
          { "cache_rows", 100 },
          { "cache_used_bytes", 99 },
          { "cache_capacity_bytes", 100 } } },
      { 0,
        { { "cache_pinned_rows", 49 },
          { "cache_rows", 100 },
          { "cache_used_bytes", 99 },
          { "cache_capacity_bytes", 100 } } } },
    { "checkpoint_failed",
      HEALTH_WARNING,
      { 0, { { "checkpoint_failures_in_row", 1 } } },
      { 0, { { "checkpoint_failures_in_row", 0 } } } },
    { "checkpoint_late",
      HEALTH_WARNING,
      { 5000,
        { { "checkpoint_interval_seconds", 600 },
          { "checkpoint_unsaved_bytes", 1 },
          { "checkpoint_newest_seconds", 1801 } } },
      { 5000,
        { { "checkpoint_interval_seconds", 600 },
          { "checkpoint_unsaved_bytes", 1 },
          { "checkpoint_newest_seconds", 1800 } } } },
    { "checkpoint_late", /* nothing was updated, so no other is made */
      HEALTH_WARNING,
      { 1801, { { "checkpoint_interval_seconds", 600 }, { "checkpoint_unsaved_bytes", 1 } } },
      { 9000,
        { { "checkpoint_interval_seconds", 600 },
          { "checkpoint_unsaved_bytes", 0 },
          { "checkpoint_newest_seconds", 9000 } } } },
    { "checkpoint_late", /* the server makes none by itself */
      HEALTH_WARNING,
      { 1801, { { "checkpoint_interval_seconds", 600 }, { "checkpoint_unsaved_bytes", 1 } } },
      { 1801, { { "checkpoint_interval_seconds", 0 }, { "checkpoint_unsaved_bytes", 1 } } } },
    { "reload_failed",
      HEALTH_WARNING,
      { 0, { { "access_reload_failed", 1 } } },
      { 0, { { "access_reload_failed", 0 } } } },
    { "ssd_wears_out",
      HEALTH_WARNING,
      { HOUR,
        { { "store_rated_written_bytes", 5 * YEAR },
          { "store_rated_years", 5 },
          { "store_written_bytes", 1.01 * HOUR } } },
      { HOUR,
        { { "store_rated_written_bytes", 5 * YEAR },
          { "store_rated_years", 5 },
          { "store_written_bytes", 0.99 * HOUR } } } },
    { "ssd_wears_out", /* too young to tell */
      HEALTH_WARNING,
      { HOUR,
        { { "store_rated_written_bytes", YEAR },
          { "store_rated_years", 5 },
          { "store_written_bytes", HOUR } } },
      { HOUR - 1,
        { { "store_rated_written_bytes", YEAR },
          { "store_rated_years", 5 },
          { "store_written_bytes", HOUR } } } },
    { "write_back_held",
      HEALTH_WARNING,
      { 0, { { "device_write_back_held", 1 }, { "device_max_dwpd_exceeded", 1 } } },
      { 0, { { "device_write_back_held", 0 }, { "device_max_dwpd_exceeded", 0 } } } },
    { "drive_over_limit",
      HEALTH_WARNING,
      { 0, { { "device_write_back_held", 0 }, { "device_max_dwpd_exceeded", 1 } } },
      { 0, { { "device_write_back_held", 0 }, { "device_max_dwpd_exceeded", 0 } } } },
    { "reshard_failed",
      HEALTH_WARNING,
      { 0, { { "reshard_failed", 1 }, { "reshard_buckets", 9 }, { "reshard_moved_buckets", 3 } } },
      { 0,
        { { "reshard_failed", 0 }, { "reshard_buckets", 9 }, { "reshard_moved_buckets", 3 } } } },
    { "reshard_stuck",
      HEALTH_WARNING,
      { 0, { { "reshard_idle_seconds", 300 } } },
      { 0, { { "reshard_idle_seconds", 299 } } } },
    { "log_lost",
      HEALTH_WARNING,
      { 0, { { "log_dropped_lines", 1 } } },
      { 0, { { "log_dropped_lines", 0 } } } },
};

static void test_each_rule_is_broken_by_its_condition_alone(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        enum health health;
        struct found found = check(&cases[i].broken, &health);

        if (found.count != 1 || strcmp(found.rules[0]->name, cases[i].rule) != 0)
            fail_msg("case %zu: %zu rules are broken, not %s alone", i, found.count, cases[i].rule);
        assert_int_equal(health, cases[i].health);
        found = check(&cases[i].kept, &health);
        if (found.count != 0)
            fail_msg("case %zu breaks %s", i, found.rules[0]->name);
        assert_int_equal(health, HEALTH_OK);
    }
}

static void test_each_rule_has_a_case(void **state)
{
    (void)state;
    for (size_t r = 0; r < health_rule_count; r++) {
        size_t i = 0;

        while (i < ARRAY_LEN(cases) && strcmp(cases[i].rule, health_rules[r].name) != 0)
            i++;
        if (i == ARRAY_LEN(cases))
            fail_msg("rule %s has no case", health_rules[r].name);
    }
}

static void test_the_worst_rule_decides_and_comes_first(void **state)
{
    const struct server server = { 0, { { "log_dropped_lines", 3 }, { "failed_rows", 2 } } };
    enum health health;
    const struct found found = check(&server, &health);

    (void)state;
    assert_int_equal(health, HEALTH_BAD);
    assert_int_equal(found.count, 2);
    assert_string_equal(found.rules[0]->name, "rows_unreadable");
    assert_string_equal(found.rules[1]->name, "log_lost");
    for (size_t r = 1; r < health_rule_count; r++)
        assert_true(health_rules[r].health <= health_rules[r - 1].health);
}

static void test_a_server_without_figures_is_well(void **state)
{
    const struct server server = { 1e6, { { NULL, 0 } } };
    enum health health;

    (void)state;
    assert_int_equal(check(&server, &health).count, 0);
    assert_int_equal(health, HEALTH_OK);
    assert_string_equal(health_word(HEALTH_OK), "ok");
    assert_string_equal(health_word(HEALTH_WARNING), "warning");
    assert_string_equal(health_word(HEALTH_BAD), "bad");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_rule_is_broken_by_its_condition_alone),
        cmocka_unit_test(test_each_rule_has_a_case),
        cmocka_unit_test(test_the_worst_rule_decides_and_comes_first),
        cmocka_unit_test(test_a_server_without_figures_is_well),
    };

    return cmocka_run_group_tests_name("health_rules", tests, NULL, NULL);
}
