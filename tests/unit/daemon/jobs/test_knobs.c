/* SPDX-License-Identifier: Apache-2.0 */
/* test_knobs.c: are the two tables of live knobs the same, and does the file of the server change
 * only as it should? */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text/bytes.h"
#include "config/config_items.h"
#include "config/config_load.h"
#include "daemon/budget/budget.h"
#include "daemon/jobs/knobs/knob_file.h"
#include "daemon/jobs/knobs/knobs_live.h"

static void test_each_live_key_has_a_place_where_it_works(void **state)
{
    uint32_t live = 0;

    (void)state;
    for (uint32_t i = 0; i < config_key_count; i++) {
        char name[CONFIG_ITEM_NAME_MAX + 1];
        uint32_t rows = 0;

        snprintf(name, sizeof(name), "%s.%s", config_keys[i].section, config_keys[i].name);
        for (uint32_t row = 0; row < knobs_live_count; row++)
            rows += strcmp(knobs_live_table[row].name, name) == 0;
        if (rows != (config_keys[i].when == CONFIG_LIVE))
            fail_msg("%s has %u rows in knobs_live.c", name, rows);
        live += config_keys[i].when == CONFIG_LIVE;
    }
    for (uint32_t i = 0; i < config_tier_key_count; i++) {
        uint32_t rows = 0;

        for (uint32_t row = 0; row < knobs_live_count; row++) {
            const char *const name = knobs_live_table[row].name;

            rows += strncmp(name, "cache.tiers[", 12) == 0 &&
                    strcmp(strchr(name, ']') + 2, config_tier_keys[i].name) == 0;
        }
        assert_int_equal(rows, config_tier_keys[i].when == CONFIG_LIVE ? TIERS_MAX : 0);
        live += rows;
    }
    assert_int_equal(live, knobs_live_count);
}

/* ---- The file ---- */

struct place {
    char folder[64];
    char path[96];
    struct config *config;
    uint64_t check_ms; /* 0: a check may take any time */
};

static int set_up(void **state)
{
    static const struct machine machine = { .memory_bytes = 64 * GIB, .core_count = 16 };
    struct place *const place = calloc(1, sizeof(*place));
    struct err_msg msg = { { 0 } };

    snprintf(place->folder, sizeof(place->folder), "/tmp/embtier-knobs-XXXXXX");
    assert_non_null(mkdtemp(place->folder));
    snprintf(place->path, sizeof(place->path), "%s/e.yaml", place->folder);
    assert_int_equal(config_parse("", "", 0, &machine, budget_unbudgeted, &place->config, &msg),
                     EMBTIER_OK);
    *state = place;
    return 0;
}

static int tear_down(void **state)
{
    struct place *const place = *state;
    char command[128];

    snprintf(command, sizeof(command), "rm -r %s", place->folder);
    assert_int_equal(system(command), 0); // NOLINT(cert-env33-c)
    config_free(place->config);
    free(place);
    return 0;
}

static void put(const struct place *place, const char *text, mode_t mode)
{
    FILE *const file = fopen(place->path, "we");

    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(place->path, mode), 0);
}

static void assert_text(const struct place *place, const char *wanted)
{
    char text[512] = "";
    FILE *const file = fopen(place->path, "re");

    assert_non_null(file);
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    assert_int_equal(fclose(file), 0);
    assert_string_equal(text, wanted);
}

/* Nothing is left beside the file. */
static void assert_alone(const struct place *place, int names)
{
    DIR *const folder = opendir(place->folder);

    assert_non_null(folder);
    while (readdir(folder)) // NOLINT(concurrency-mt-unsafe)
        names--;
    closedir(folder);
    assert_int_equal(names, -2);
}

static enum embtier_err prepare(const struct place *place, const char *checker, const char *name,
                                const char *value, struct knob_file **ret_file, struct err_msg *msg)
{
    return knob_file_new(&(struct knob_file_opts){ .path = place->path,
                                                   .checker = checker,
                                                   .check_ms = place->check_ms,
                                                   .config = place->config },
                         name, value, ret_file, msg);
}

static void must_set(const struct place *place, const char *name, const char *value)
{
    _cleanup_(knob_file_freep) struct knob_file *file = NULL;
    struct err_msg msg = { { 0 } };

    if (prepare(place, "/bin/true", name, value, &file, &msg) != EMBTIER_OK ||
        knob_file_finish(file, &msg) != EMBTIER_OK)
        fail_msg("%s", msg.text);
}

static void test_only_the_value_changes(void **state)
{
    const struct place *const place = *state;
    struct stat info;

    put(place, "# mine\nlog:\n  level: info # quiet\n", 0640);
    must_set(place, "log.level", "debug");
    assert_text(place, "# mine\nlog:\n  level: debug # quiet\n");
    assert_int_equal(stat(place->path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0640);
    must_set(place, "log.level", "debug"); /* it has it */
    must_set(place, "lanes.count", "2");
    assert_text(place, "# mine\nlog:\n  level: debug # quiet\nlanes:\n  count: 2\n");
    assert_alone(place, 1);
}

static void test_another_owner_is_kept(void **state)
{
    const struct place *const place = *state;
    struct stat info;

    if (geteuid() != 0)
        skip();
    put(place, "log: {level: info}\n", 0664);
    assert_int_equal(chown(place->path, 1234, 2345), 0);
    must_set(place, "log.level", "warn");
    assert_int_equal(stat(place->path, &info), 0);
    assert_int_equal(info.st_uid, 1234);
    assert_int_equal(info.st_gid, 2345);
    assert_int_equal(info.st_mode & 0777, 0664);
}

static void test_a_symbolic_link_stays(void **state)
{
    struct place *const place = *state;
    char other[96];
    struct stat info;

    put(place, "log: {level: info}\n", 0600);
    snprintf(other, sizeof(other), "%s/other.yaml", place->folder);
    assert_int_equal(rename(place->path, other), 0);
    assert_int_equal(symlink("other.yaml", place->path), 0);
    must_set(place, "log.level", "warn");
    assert_int_equal(lstat(place->path, &info), 0);
    assert_true(S_ISLNK(info.st_mode));
    assert_text(place, "log: {level: warn}\n");
    assert_alone(place, 2);
}

static void assert_refused(const struct place *place, const char *checker, const char *name,
                           const char *value, enum embtier_err err, const char *part)
{
    struct knob_file *file = NULL;
    struct err_msg msg = { { 0 } };

    assert_int_equal(prepare(place, checker, name, value, &file, &msg), err);
    assert_null(file);
    if (!strstr(msg.text, part))
        fail_msg("%s", msg.text);
}

static void test_a_file_that_cannot_be_changed_stays(void **state)
{
    const struct place *const place = *state;
    static const char text[] = "lanes:\n  count: 2\n";

    put(place, text, 0444);
    assert_refused(place, NULL, "log.level", "warn", EMBTIER_PERMISSION, "is read-only");
    put(place, text, 0644);
    assert_refused(place, NULL, "lanes.count", "100", EMBTIER_CONFIG, "e.yaml:2: lanes.count: ");
    assert_refused(place, "/bin/false", "log.level", "warn", EMBTIER_CONFIG, "e.yaml is as it was");
    assert_refused(place, "/nowhere/embtierd", "log.level", "warn", EMBTIER_NOT_FOUND,
                   "cannot start /nowhere/embtierd");
    assert_refused(place, NULL, "cache.tiers[0].bytes", "1GiB", EMBTIER_NOT_FOUND,
                   "does not have this item");
    assert_text(place, text);
    assert_alone(place, 1);
}

/* Makes a program that checks. */
static void put_checker(const struct place *place, const char *text, char ret_script[96])
{
    FILE *file;

    snprintf(ret_script, 96, "%s/check", place->folder);
    file = fopen(ret_script, "we");
    assert_non_null(file);
    assert_true(fprintf(file, "#!/bin/sh\n%s", text) > 0);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(ret_script, 0755), 0);
}

static void test_a_check_that_does_not_end_is_ended(void **state)
{
    static const char text[] = "lanes:\n  count: 2\n";
    struct place *const place = *state;
    char script[96];

    put(place, text, 0644);
    place->check_ms = 50;
    put_checker(place, "exec sleep 1000\n", script);
    assert_refused(place, script, "log.level", "warn", EMBTIER_TIMEOUT,
                   "has not checked the configuration within 50 ms");
    put_checker(place, "exec 2>&-\nexec sleep 1000\n", script); /* it has said everything */
    assert_refused(place, script, "log.level", "warn", EMBTIER_TIMEOUT, "e.yaml is as it was");
    put_checker(place, "kill -USR1 $$\n", script);
    place->check_ms = 60000;
    assert_refused(place, script, "log.level", "warn", EMBTIER_CONFIG, "was ended by SIGUSR1");
    assert_text(place, text);
}

static void test_the_mistake_that_a_check_finds_names_the_file(void **state)
{
    const struct place *const place = *state;
    char script[96];

    put(place, "lanes:\n  count: 2\n", 0644);
    put_checker(place,
                "grep -q 'level: warn' $3 || echo unread >&2\n"
                "echo 'embtierd: warning: w' >&2\n"
                "echo 'embtierd: /proc/self/fd/3:2: lanes.count: no' >&2\nexit 1\n",
                script);
    assert_refused(place, script, "log.level", "warn", EMBTIER_CONFIG, "e.yaml:2: lanes.count: no");
}

static void test_a_change_by_another_program_is_kept(void **state)
{
    const struct place *const place = *state;
    _cleanup_(knob_file_freep) struct knob_file *file = NULL;
    struct err_msg msg = { { 0 } };

    put(place, "lanes:\n  count: 2\n", 0644);
    assert_int_equal(prepare(place, NULL, "log.level", "warn", &file, &msg), EMBTIER_OK);
    put(place, "lanes:\n  count: 3 # theirs\n", 0644);
    assert_int_equal(knob_file_finish(file, &msg), EMBTIER_BUSY);
    assert_text(place, "lanes:\n  count: 3 # theirs\n");
}

#define FILE_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_live_key_has_a_place_where_it_works),
        FILE_TEST(test_only_the_value_changes),
        FILE_TEST(test_another_owner_is_kept),
        FILE_TEST(test_a_symbolic_link_stays),
        FILE_TEST(test_a_file_that_cannot_be_changed_stays),
        FILE_TEST(test_a_check_that_does_not_end_is_ended),
        FILE_TEST(test_the_mistake_that_a_check_finds_names_the_file),
        FILE_TEST(test_a_change_by_another_program_is_kept),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
