/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that the parts of the descriptor budget never exceed the process's limit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "config/config_descriptors.h"
#include "config/config_load.h"
#include "config/config_shards.h"
#include "daemon/budget/budget.h"

static enum embtier_err plan(uint64_t limit, const char *text, struct config **ret_config,
                             struct err_msg *msg)
{
    const struct machine machine = { .memory_bytes = 64 * GIB,
                                     .core_count = 16,
                                     .descriptor_limit = limit };

    return config_parse("test.yaml", text, strlen(text), &machine, budget_unbudgeted, ret_config,
                        msg);
}

/* Returns the most descriptors that the store, exports and sessions may use. */
static uint64_t parts_of(const struct config *config)
{
    const uint64_t shards =
        (uint64_t)config->data.directory_count * config->data.shards_per_directory;

    return (uint64_t)config->socket.max_sessions * SESSION_DESCRIPTORS +
           shards * 2 * config->descriptors.table_files +
           (config->descriptors.scans * shards + 1) *
               ((uint64_t)config->descriptors.read_files + 2) +
           shards * 24 + config->lanes.count * (uint64_t)config->lanes.readers_per_lane;
}

static void check_plan(uint64_t limit, unsigned shards, unsigned lanes, const char *sessions)
{
    struct config *config = NULL;
    struct err_msg msg = { { 0 } };
    char text[200];
    enum embtier_err err;

    snprintf(text, sizeof(text), "data: {shards_per_directory: %u}\nlanes: {count: %u}\n%s", shards,
             lanes, sessions);
    err = plan(limit, text, &config, &msg);
    if (err == EMBTIER_OK) {
        assert_in_range(parts_of(config), 0, limit - 1);
        assert_true(config->descriptors.scans >= 1 && config->descriptors.scans <= 8);
        assert_true(config->descriptors.read_files >= 10);
        assert_true(config->descriptors.table_files >= 10);
        assert_int_equal(config_descriptors_check(config, limit, &msg), EMBTIER_OK);
    } else if (!strstr(msg.text,
                       "file descriptors are needed")) { /* this many lanes need more DRAM */
        assert_non_null(strstr(msg.text, "cache.tiers"));
    }
    config_free(config);
}

static void test_parts_never_come_to_more_than_the_limit(void **state)
{
    static const char *const sessions[] = { "", "socket: {max_sessions: 1}",
                                            "socket: {max_sessions: 100}",
                                            "socket: {max_sessions: 65536}" };

    (void)state;
    for (uint64_t limit = 64; limit < 3000000; limit += limit / 5)
        for (unsigned shards = 1; shards <= 1024; shards *= 4)
            for (size_t i = 0; i < ARRAY_LEN(sessions); i++)
                check_plan(limit, shards, MIN(shards, 8u), sessions[i]);
}

static void test_sessions_are_fewer_only_by_default_and_with_few_descriptors(void **state)
{
    static const struct {
        uint64_t limit;
        const char *text;
        unsigned sessions; /* 0: refused; 1: fewer than the default */
    } cases[] = { { 1048576, "", 1024 },
                  { 0, "", 1024 }, /* unknown limit */
                  { 1024, "", 1 },
                  { 1024, "socket: {max_sessions: 20}", 20 },
                  { 1024, "socket: {max_sessions: 1024}", 0 },
                  { 1048576, "socket: {max_sessions: 65536}", 65536 },
                  { 100, "", 0 } };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct config *config = NULL;
        struct err_msg msg = { { 0 } };
        const enum embtier_err err = plan(cases[i].limit, cases[i].text, &config, &msg);

        assert_int_equal(err, cases[i].sessions > 0 ? EMBTIER_OK : EMBTIER_CONFIG);
        if (cases[i].sessions == 1) {
            assert_in_range(config->socket.max_sessions, SESSIONS_LEAST, SESSIONS_DEFAULT - 1);
            assert_true(config->descriptors.has_fewer_sessions);
        } else if (cases[i].sessions > 0) {
            assert_int_equal(config->socket.max_sessions, cases[i].sessions);
            assert_false(config->descriptors.has_fewer_sessions);
        } else {
            assert_non_null(strstr(msg.text, "LimitNOFILE"));
        }
        config_free(config);
    }
}

/* Buckets may move to more shards than the configuration has. */
static void test_more_shards_get_a_share_or_are_refused(void **state)
{
    struct config *config = NULL;
    struct err_msg msg = { { 0 } };
    struct config next;

    (void)state;
    assert_int_equal(plan(16384, "data: {shards_per_directory: 4}", &config, &msg), EMBTIER_OK);
    assert_int_equal(config_shard_count(config), 4);
    assert_int_equal(config_for_shards(config, 64, &next, &msg), EMBTIER_OK);
    assert_int_equal(config_shard_count(&next), 64);
    assert_true(next.descriptors.table_files < config->descriptors.table_files);
    assert_int_equal(next.socket.max_sessions, config->socket.max_sessions);
    next.machine.descriptor_limit = 16384;
    assert_int_equal(config_for_shards(&next, 1024, &next, &msg), EMBTIER_CONFIG);
    assert_non_null(strstr(msg.text, "1024 shards"));
    config_free(config);
}

/* The store may have other directories than the file names. */
static void test_other_directories_get_a_share_or_are_refused(void **state)
{
    struct config *config = NULL, *named = NULL;
    struct err_msg msg = { { 0 } };

    (void)state;
    assert_int_equal(plan(1024, "data: {directories: [/a]}\nlanes: {count: 2}", &config, &msg),
                     EMBTIER_OK);
    assert_int_equal(plan(1024, "data: {directories: [/a, /b]}\nlanes: {count: 2}", &named, &msg),
                     EMBTIER_OK);
    config->data.directory_count = 2;
    assert_int_equal(config_fit_directories(config, &msg), EMBTIER_OK);
    assert_int_equal(config->socket.max_sessions, named->socket.max_sessions);
    assert_int_equal(config->descriptors.table_files, named->descriptors.table_files);
    config->data.directory_count = 20;
    assert_int_equal(config_fit_directories(config, &msg), EMBTIER_CONFIG);
    config->data.directory_count = 1;
    config_free(config);
    config_free(named);
    assert_int_equal(
        plan(1024, "data: {directories: [/a]}\nsocket: {max_sessions: 9}", &config, &msg),
        EMBTIER_OK);
    assert_int_equal(config_fit_directories(config, &msg), EMBTIER_OK);
    assert_int_equal(config->socket.max_sessions, 9);
    config_free(config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts_never_come_to_more_than_the_limit),
        cmocka_unit_test(test_sessions_are_fewer_only_by_default_and_with_few_descriptors),
        cmocka_unit_test(test_more_shards_get_a_share_or_are_refused),
        cmocka_unit_test(test_other_directories_get_a_share_or_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
