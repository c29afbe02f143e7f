/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that the screen of `embtier status` has room for all, and that the most important comes
 * first. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/macros.h"
#include "tools/cli/status/screen.h"

#define TABLES 100
#define HUGE   1e18

/* A server with many tables, whose figures are all as wide as can be. */
struct fixture {
    struct overview overview;
    struct embtier_plan_info plan;
    struct embtier_table_info tables[TABLES];
    const struct embtier_table_info *pointers[TABLES];
    char names[TABLES][EMBTIER_TABLE_NAME_MAX + 1];
};

static struct fixture *fixture_new(size_t tiers, size_t warnings)
{
    static const char *const names[] = { "dram", "dram_huge", "pmem", "cxl" };
    static const char head[] = { 't', 'a', 'b', 'l', 'e' };
    struct fixture *const f = calloc(1, sizeof(*f));

    assert_non_null(f);
    f->plan = (struct embtier_plan_info){ UINT64_MAX, 1, 1700000000000, UINT64_MAX, 7, 100 };
    f->overview = (struct overview){
        .version = "0.1.0",
        .uptime_s = 86400.0 * 400,
        .health = warnings > 0 ? HEALTH_BAD : HEALTH_OK,
        .warning_count = warnings,
        .clients = { HUGE, HUGE, { NULL }, 0 },
        .requests = HUGE,
        .set_rows = HUGE,
        .pushed_rows = HUGE,
        .lookups = { HUGE, HUGE, HUGE, HUGE, HUGE },
        .tier_count = tiers,
        .arrays = { HUGE, HUGE, HUGE, HUGE },
        .ssd = { HUGE, HUGE, HUGE, HUGE, HUGE, 1, HUGE / 3, HUGE },
        .checkpoint = { HUGE, HUGE, HUGE },
        .plan = &f->plan,
        .tables = f->pointers,
        .table_count = TABLES,
    };
    for (size_t t = 0; t < tiers; t++)
        f->overview.tiers[t] = (struct overview_tier){ names[t], HUGE, HUGE, HUGE, HUGE, HUGE };
    for (size_t w = 0; w < warnings; w++) {
        f->overview.warnings[w].rule = &health_rules[w % health_rule_count];
        memset(f->overview.warnings[w].why.text, 'w', 70);
        memset(f->overview.warnings[w].why.text + 71, 'y', 70);
        f->overview.warnings[w].why.text[70] = ' ';
    }
    for (size_t i = 0; i < TABLES; i++) {
        memset(f->names[i], 'n', EMBTIER_TABLE_NAME_MAX);
        memcpy(f->names[i], head, sizeof(head));
        f->names[i][5] = (char)('0' + i / 10);
        f->names[i][6] = (char)('0' + i % 10);
        f->tables[i] = (struct embtier_table_info){ .name = f->names[i],
                                                    .rows = UINT64_MAX / 4096,
                                                    .dim = 1000,
                                                    .weight_bytes = 4000,
                                                    .lookup_rows = UINT64_MAX,
                                                    .missed_lookup_rows = UINT64_MAX / 2,
                                                    .updated_rows = UINT64_MAX,
                                                    .flush_bytes = UINT64_MAX / 2 };
        f->pointers[i] = &f->tables[i];
    }
    return f;
}

static char *print(const struct fixture *f, const struct screen_opts *opts)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *const out = open_memstream(&text, &bytes);

    assert_non_null(out);
    assert_true(screen_print(&f->overview, opts, out));
    assert_int_equal(fclose(out), 0);
    return text;
}

static size_t lines_of(const char *text, size_t *ret_widest)
{
    size_t lines = 0;

    *ret_widest = 0;
    for (const char *line = text; *line; lines++) {
        const size_t bytes = strcspn(line, "\n");

        *ret_widest = MAX(*ret_widest, bytes);
        line += bytes + 1;
    }
    return lines;
}

static void assert_has_lines(const char *text, const char *const *lines)
{
    for (; *lines; lines++)
        if (!strstr(text, *lines))
            fail_msg("not to be seen: %s%s", *lines, text);
}

/* Counts have most characters below a million. */
static void test_no_rate_is_cut_off(void **state)
{
    static const char *const whole[] = {
        "\nrequests    999,999; rows: 999,999 looked up, 999,999 set, 999,999 pushed\n",
        "\nper second  888,888; rows: 888,888 looked up, 888,888 set, 888,888 pushed\n", NULL
    };
    struct fixture *const f = fixture_new(1, 0);
    struct overview before = f->overview;
    char *text;

    (void)state;
    f->overview.requests = f->overview.lookups.rows = f->overview.set_rows =
        f->overview.pushed_rows = 999999;
    before.requests = before.lookups.rows = before.set_rows = before.pushed_rows = 111111;
    text = print(f, &(struct screen_opts){ .before = &before, .seconds = 1 });
    assert_has_lines(text, whole);
    free(text);
    free(f);
}

static void test_the_screen_is_never_larger_than_80x24(void **state)
{
    (void)state;
    for (size_t tiers = 1; tiers <= TIERS_MAX; tiers++) {
        for (size_t warnings = 0; warnings <= OVERVIEW_WARNINGS_MAX; warnings++) {
            struct fixture *const f = fixture_new(tiers, warnings);
            const struct overview before = f->overview;
            const struct screen_opts opts = { .before = &before, .seconds = 1 };
            char *const text = print(f, &opts);
            size_t widest;
            const size_t lines = lines_of(text, &widest);

            if (lines > SCREEN_LINES || widest > SCREEN_COLUMNS)
                fail_msg("%zu x %zu, %zu warnings:\n%s", widest, lines, warnings, text);
            assert_null(strchr(text, '\033'));
            assert_non_null(strstr(text, " OF 100 TABLES "));
            assert_non_null(strstr(text, "table00"));
            assert_non_null(strstr(text, " pushed\nper second "));
            assert_int_equal(strstr(text, "\nbad      writes_blocked:") != NULL, warnings > 0);
            assert_int_equal(strstr(text, " more: embtier status --all\n") != NULL, warnings > 1);
            free(text);
            free(f);
        }
    }
}

static void test_ten_tables_are_shown_and_the_rest_is_counted(void **state)
{
    struct fixture *const f = fixture_new(2, 0);
    char *const text = print(f, &(struct screen_opts){ 0 });

    (void)state;
    assert_non_null(strstr(text, "table09"));
    assert_null(strstr(text, "table10"));
    assert_non_null(strstr(text, "\n10 OF 100 TABLES "));
    free(text);
    free(f);
}

static void test_all_tables_and_warnings_are_shown_if_wanted(void **state)
{
    struct fixture *const f = fixture_new(2, health_rule_count);
    char *const text = print(f, &(struct screen_opts){ .all = true });

    (void)state;
    for (size_t i = 0; i < TABLES; i++)
        assert_non_null(strstr(text, f->names[i]));
    for (size_t r = 0; r < health_rule_count; r++) {
        assert_non_null(strstr(text, health_rules[r].name));
        assert_non_null(strstr(text, health_rules[r].advice));
    }
    assert_null(strstr(text, "more:"));
    assert_non_null(strstr(text, "\nTABLE "));
    free(text);
    free(f);
}

static void test_what_a_server_does_not_tell_is_a_dash(void **state)
{
    struct fixture *const f = fixture_new(1, 0);
    const double unknown = (double)NAN;
    char *text;

    (void)state;
    f->overview.clients.sessions = unknown;
    f->overview.ssd.room_bytes = unknown;
    f->overview.checkpoint.id = f->overview.checkpoint.age_s = unknown;
    f->overview.checkpoint.interval_s = unknown;
    memset(&f->overview.lookups, 0, sizeof(f->overview.lookups));
    f->overview.tiers[0].lookup_rows = 0;
    f->overview.plan = NULL;
    f->overview.table_count = 0;
    text = print(f, &(struct screen_opts){ 0 });
    assert_non_null(strstr(text, "\nclients     - sessions"));
    assert_non_null(strstr(text, " - free for rows\n"));
    assert_non_null(strstr(text, "\ncheckpoint  none\n"));
    assert_non_null(strstr(text, "\nserved by   no rows yet\n"));
    assert_null(strstr(text, "\nplan"));
    assert_null(strstr(text, "nan"));
    free(text);
    free(f);
}

static void test_rates_come_with_an_earlier_look(void **state)
{
    struct fixture *const f = fixture_new(1, 0);
    struct overview before = f->overview;
    char *text;

    (void)state;
    f->overview.requests = 1500;
    before.requests = 500;
    text = print(f, &(struct screen_opts){ .before = &before, .seconds = 2 });
    assert_non_null(strstr(text, "\nrequests    1,500; rows: "));
    assert_non_null(strstr(text, "\nper second  500; rows: 0 looked up, 0 set, 0 pushed\n"));
    free(text);
    text = print(f, &(struct screen_opts){ .before = &before, .seconds = 0 });
    assert_non_null(strstr(text, "\nrequests    1,500; rows: "));
    assert_null(strstr(text, "\nper second"));
    free(text);
    free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_screen_is_never_larger_than_80x24),
        cmocka_unit_test(test_no_rate_is_cut_off),
        cmocka_unit_test(test_ten_tables_are_shown_and_the_rest_is_counted),
        cmocka_unit_test(test_all_tables_and_warnings_are_shown_if_wanted),
        cmocka_unit_test(test_what_a_server_does_not_tell_is_a_dash),
        cmocka_unit_test(test_rates_come_with_an_earlier_look),
    };

    return cmocka_run_group_tests_name("status_screen", tests, NULL, NULL);
}
