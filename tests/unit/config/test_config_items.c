/* SPDX-License-Identifier: Apache-2.0 */
/* test_config_items.c: is each value told by its name as its file would have it, and does a change
 * leave all others as they are? */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text/bytes.h"
#include "config/config_items.h"
#include "config/config_load.h"
#include "daemon/budget/budget.h"

static const struct machine machine = { .memory_bytes = 64 * GIB,
                                        .core_count = 16,
                                        .descriptor_limit = 65536 };

static struct config *parsed(const char *text)
{
    struct config *config = NULL;
    struct err_msg msg = { { 0 } };

    if (config_parse("e.yaml", text, strlen(text), &machine, budget_unbudgeted, &config, &msg) !=
        EMBTIER_OK)
        fail_msg("%s\n%s", text, msg.text);
    return config;
}

static const char full[] = "data:\n"
                           "  directories: [/data/a b, '/data/\"c\"']\n"
                           "  reserve_bytes: 1048577\n"
                           "lanes: {count: 3}\n"
                           "cache:\n"
                           "  tiers:\n"
                           "    - bytes: 96MiB\n"
                           "    - {kind: file, path: /pmem, bytes: 64MiB, array_bytes: 4MiB}\n"
                           "rocksdb: {options: 'max_subcompactions=2; x=\"y\"', direct_io: off}\n"
                           "rpc: {listen: ['tcp://127.0.0.1:0'], insecure: no}\n"
                           "socket: {mode: 0600, path: /run/e.sock}\n"
                           "log: {level: debug}\n";

static void assert_value(const struct config *config, const char *name, const char *value,
                         bool in_file)
{
    struct err_msg msg = { { 0 } };
    struct config_item item;

    if (config_find_item(config, name, &item, &msg) != EMBTIER_OK)
        fail_msg("%s", msg.text);
    if (strcmp(item.value, value) != 0 || item.in_file != in_file)
        fail_msg("%s is %s, %d", name, item.value, item.in_file);
}

static void test_values_are_as_a_file_has_them(void **state)
{
    _cleanup_(config_freep) struct config *config = parsed(full);

    (void)state;
    assert_value(config, "data.directories[0]", "/data/a b", true);
    assert_value(config, "data.directories[1]", "/data/\"c\"", true);
    assert_value(config, "data.shards_per_directory", "4", false);
    assert_value(config, "data.reserve_bytes", "1048577", true);
    assert_value(config, "lanes.count", "3", true);
    assert_value(config, "lanes.request_bytes", "64MiB", false);
    assert_value(config, "cache.tiers[0].name", "dram", false);
    assert_value(config, "cache.tiers[0].bytes", "96MiB", true);
    assert_value(config, "cache.tiers[0].max_bytes", "1536MiB", false);
    assert_value(config, "cache.tiers[0].path", "", false);
    assert_value(config, "cache.tiers[1].kind", "file", true);
    assert_value(config, "cache.tiers[1].numa_node", "", false);
    assert_value(config, "rocksdb.direct_io", "off", true);
    assert_value(config, "rocksdb.io_uring", "auto", false);
    assert_value(config, "rpc.listen[0]", "tcp://127.0.0.1:0", true);
    assert_value(config, "rpc.insecure", "no", true);
    assert_value(config, "socket.mode", "0600", true);
    assert_value(config, "socket.max_user_sessions", "", false);
    assert_value(config, "tls.key", "", false);
    assert_value(config, "log.level", "debug", true);
}

struct values {
    char *text[256];
    size_t count;
};

static enum embtier_err keep(void *context, const struct config_item *item)
{
    struct values *const values = context;

    assert_true(values->count < ARRAY_LEN(values->text));
    assert_true(asprintf(&values->text[values->count++], "%s=%s", item->name, item->value) > 0);
    return EMBTIER_OK;
}

static void free_values(struct values *values)
{
    for (size_t i = 0; i < values->count; i++)
        free(values->text[i]);
}

/* Returns how many values of @a and @b differ. */
static uint32_t differences(const struct config *a, const struct config *b)
{
    struct values first = { .count = 0 }, second = { .count = 0 };
    uint32_t count = 0;

    assert_int_equal(config_each_item(a, keep, &first), EMBTIER_OK);
    assert_int_equal(config_each_item(b, keep, &second), EMBTIER_OK);
    assert_int_equal(first.count, second.count);
    for (size_t i = 0; i < first.count; i++)
        count += strcmp(first.text[i], second.text[i]) != 0;
    free_values(&first);
    free_values(&second);
    return count;
}

static void assert_change(const char *text, const char *name, const char *value, const char *wanted,
                          uint32_t changed)
{
    _cleanup_(config_freep) struct config *config = parsed(text);
    _cleanup_(config_freep) struct config *next = NULL;
    struct err_msg msg = { { 0 } };

    if (config_change(config, name, value, &next, &msg) != EMBTIER_OK)
        fail_msg("%s: %s: %s", name, value, msg.text);
    assert_value(next, name, wanted, true);
    assert_int_equal(differences(config, next), changed);
}

/* Values that the machine's memory decides must not follow from the new one. */
static void test_a_change_leaves_all_other_values(void **state)
{
    (void)state;
    assert_change("", "rocksdb.memtable_bytes", "1.5GiB", "1536MiB", 1);
    assert_change("", "rocksdb.memtable_bytes", "2GiB", "2GiB", 1);
    assert_change("", "lanes.ticket_seconds", "120", "120", 0);
    assert_change(full, "socket.max_sessions", "7", "7", 1);
    assert_change(full, "log.level", "info", "info", 1);
    assert_change(full, "cache.tiers[1].bytes", "80MiB", "80MiB", 1);
    assert_change(full, "data.directories[1]", "/data/d", "/data/d", 1);
}

static void test_null_stands_for_the_default(void **state)
{
    _cleanup_(config_freep) struct config *config = parsed("lanes: {ticket_seconds: 7}\n");
    _cleanup_(config_freep) struct config *next = NULL;
    struct err_msg msg = { { 0 } };

    (void)state;
    if (config_change(config, "lanes.ticket_seconds", "null", &next, &msg) != EMBTIER_OK)
        fail_msg("%s", msg.text);
    assert_value(next, "lanes.ticket_seconds", "120", false);
    assert_int_equal(differences(config, next), 1);
}

static void assert_refused(const char *name, const char *value, enum embtier_err err,
                           const char *part)
{
    _cleanup_(config_freep) struct config *config = parsed("lanes: {count: 2}\n");
    struct config *next = NULL;
    struct err_msg msg = { { 0 } };

    assert_int_equal(config_change(config, name, value, &next, &msg), err);
    assert_null(next);
    if (!strstr(msg.text, part) || strstr(msg.text, "change:"))
        fail_msg("%s", msg.text);
}

static void test_wrong_values_are_refused_as_in_a_file(void **state)
{
    (void)state;
    assert_refused("lanes.ticket_seconds", "5min", EMBTIER_INVALID,
                   "lanes.ticket_seconds: `5min` is not possible; allowed: 1 to 86400");
    assert_refused("lanes.ticket_seconds", "", EMBTIER_INVALID, "is not possible");
    assert_refused("rocksdb.memtable_bytes", "12 Mb", EMBTIER_INVALID, "written like 4096");
    assert_refused("rocksdb.memtable_bytes", "1KiB", EMBTIER_INVALID, "1MiB to ");
    assert_refused("log.level", "loud", EMBTIER_INVALID, "error, warn, info, debug");
    assert_refused("socket.max_arena_bytes", "1TiB", EMBTIER_INVALID,
                   "socket.max_arena_bytes: 1TiB is more than socket.max_total_arena_bytes");
    assert_refused("rocksdb.memtable_bytes", "1TiB", EMBTIER_INVALID, "");
    assert_refused("socket.max_sessions", "65536", EMBTIER_INVALID, "file descriptors are needed");
    assert_refused("rocksdb.memtable_byte", "1GiB", EMBTIER_NOT_FOUND,
                   "`rocksdb.memtable_byte`; the nearest name is `rocksdb.memtable_bytes`");
    assert_refused("ticket_secs", "1", EMBTIER_NOT_FOUND, "`lanes.ticket_seconds`");
    assert_refused("cache.tiers[4].bytes", "1GiB", EMBTIER_NOT_FOUND, "`cache.tiers[0].bytes`");
}

static void test_only_names_that_are_near_are_suggested(void **state)
{
    static const char *const far[] = { "foo.bar", "nope", "", "x", "lanes", "tls.keys.all" };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(far); i++) {
        char part[80];

        snprintf(part, sizeof(part), "there is no knob `%s`; `embtier knob list` has all", far[i]);
        assert_refused(far[i], "1", EMBTIER_NOT_FOUND, part);
    }
    assert_refused("keeep", "1", EMBTIER_NOT_FOUND, "; the nearest name is `checkpoints.keep`;");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_are_as_a_file_has_them),
        cmocka_unit_test(test_a_change_leaves_all_other_values),
        cmocka_unit_test(test_null_stands_for_the_default),
        cmocka_unit_test(test_wrong_values_are_refused_as_in_a_file),
        cmocka_unit_test(test_only_names_that_are_near_are_suggested),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
