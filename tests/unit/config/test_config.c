/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that the configuration file means what it says, and that each mistake is reported with
 * file, line, key, the fault and the allowed values. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text/bytes.h"
#include "base/yaml/yaml_doc.h"
#include "config/config_keys.h"
#include "config/config_load.h"
#include "daemon/budget/budget.h"

static const struct machine big_machine = { .memory_bytes = 64 * GIB, .core_count = 16 };

static enum embtier_err parse_on(const char *text, const struct machine *machine,
                                 struct config **ret_config, struct err_msg *msg)
{
    msg->text[0] = '\0';
    return config_parse("e.yaml", text, strlen(text), machine, budget_unbudgeted, ret_config, msg);
}

static struct config *parsed_on(const char *text, const struct machine *machine)
{
    struct config *config = NULL;
    struct err_msg msg;

    if (parse_on(text, machine, &config, &msg) != EMBTIER_OK)
        fail_msg("%s\n%s", text, msg.text);
    return config;
}

static struct config *parsed(const char *text)
{
    return parsed_on(text, &big_machine);
}

/* Compares the whole message, or its beginning if @expected ends in "...". */
static void assert_mistake(const char *text, const char *expected)
{
    const size_t length = strlen(expected);
    struct config *config = (struct config *)&config;
    struct err_msg msg;

    assert_int_equal(parse_on(text, &big_machine, &config, &msg), EMBTIER_CONFIG);
    assert_ptr_equal(config, &config); /* not touched */
    assert_null(strchr(msg.text, '\n'));
    if (length > 3 && strcmp(expected + length - 3, "...") == 0) {
        if (strncmp(msg.text, expected, length - 3) != 0)
            fail_msg("\n got: %s\nwant: %s", msg.text, expected);
    } else {
        assert_string_equal(msg.text, expected);
    }
    assert_non_null(strstr(msg.text, "; allowed: "));
}

static void assert_defaults(const struct config *config)
{
    assert_int_equal(config->data.directory_count, 1);
    assert_true(config->data.is_default);
    assert_int_equal(config->data.shards_per_directory, 4);
    assert_int_equal(config->data.reserve_bytes, 0);
    assert_int_equal(config->lanes.count, 4); /* 16 cores, but 4 shards */
    assert_int_equal(config->lanes.readers_per_lane, 4);
    assert_int_equal(config->lanes.request_bytes, 64 * MIB);
    assert_int_equal(config->lanes.ticket_bytes, 64 * MIB);
    assert_int_equal(config->lanes.ticket_seconds, 120);
    assert_int_equal(config->lanes.group_seconds, 600);
    assert_int_equal(config->lanes.write_queue_bytes, 64 * MIB);
    assert_int_equal(config->cache.tier_count, 1);
    assert_string_equal(config->cache.tiers[0].name, "dram");
    assert_int_equal(config->cache.tiers[0].kind, TIER_KIND_DRAM);
    assert_int_equal(config->cache.tiers[0].bytes, GIB);
    assert_int_equal(config->rocksdb.memtable_bytes, 128 * MIB);
    assert_int_equal(config->rocksdb.metadata_cache_bytes, 128 * MIB);
    assert_int_equal(config->rocksdb.background_threads, 2);
    assert_int_equal(config->rocksdb.bloom_bits_per_key, 10);
    assert_int_equal(config->rocksdb.compaction_parallel, 1);
    assert_int_equal(config->rocksdb.direct_io, SWITCH_AUTO);
    assert_null(config->rocksdb.options);
    assert_int_equal(config->checkpoints.interval_seconds, 600);
    assert_int_equal(config->checkpoints.keep, 2);
    assert_int_equal(config->checkpoints.transfer_bytes, 256 * MIB);
    assert_int_equal(config->checkpoints.max_checkpoints, 1024);
    assert_int_equal(config->checkpoints.max_user_checkpoints, 0); /* shared between users */
    assert_true(config->socket.is_default);
    assert_int_equal(config->socket.mode, 0660);
    assert_int_equal(config->socket.max_arena_bytes, GIB);
    assert_int_equal(config->socket.max_total_arena_bytes, 4 * GIB);
    assert_int_equal(config->socket.max_user_arena_bytes, 0);
    assert_int_equal(config->socket.max_sessions, 1024);
    assert_int_equal(config->socket.max_user_sessions, 0);
    assert_int_equal(config->socket.max_batch_rows, 1048576);
    assert_int_equal(config->log.level, LOG_LEVEL_INFO);
}

static void test_files_that_say_nothing_are_the_defaults(void **state)
{
    static const char *const texts[] = { "",
                                         "\n\n",
                                         "# nothing\n",
                                         "---\n",
                                         "--- # nothing\n...\n",
                                         "{}",
                                         "data:\nlanes:\n  # count: 2\ncache:\nsocket: ~\n",
                                         "cache: {tiers: null}\nrocksdb: {options: null}\n",
                                         "lanes: {count: }\nlog:\n  level: ~\n" };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        _cleanup_(config_freep) struct config *config = parsed(texts[i]);

        assert_defaults(config);
        assert_string_equal(config->source, "e.yaml");
    }
}

static void test_no_file_is_the_defaults(void **state)
{
    _cleanup_(config_freep) struct config *config = NULL;

    (void)state;
    assert_int_equal(config_load_on(NULL, &big_machine, budget_unbudgeted, &config, NULL),
                     EMBTIER_OK);
    assert_defaults(config);
    assert_null(config->source);
}

static void test_defaults_fit_a_small_machine(void **state)
{
    const struct machine small = { .memory_bytes = GIB, .core_count = 1 };
    _cleanup_(config_freep) struct config *config = parsed_on("", &small);

    (void)state;
    /* A quarter would be more than is left. */
    assert_in_range(config->cache.tiers[0].bytes, 128 * MIB, 256 * MIB - 1);
    assert_in_range(config->socket.max_total_arena_bytes, 128 * MIB, 256 * MIB - 1);
    assert_int_equal(config->socket.max_arena_bytes, config->socket.max_total_arena_bytes / 4 * 3);
    assert_int_equal(config->socket.max_user_arena_bytes, 0);
    assert_int_equal(config->lanes.count, 1);
}

static void test_defaults_fit_machines_of_a_gigabyte_and_more(void **state)
{
    const uint32_t cores[] = { 1, 2, 4, 64 };

    (void)state;
    for (uint64_t bytes = GIB; bytes <= 64 * GIB; bytes += bytes / 4) {
        for (size_t i = 0; i < ARRAY_LEN(cores); i++) {
            const struct machine machine = { .memory_bytes = bytes, .core_count = cores[i] };
            _cleanup_(config_freep) struct config *config = parsed_on("", &machine);

            assert_in_range(config->cache.tiers[0].bytes, 64 * MIB, bytes / 4);
            if (bytes >= 5 * GIB)
                assert_int_equal(config->cache.tiers[0].bytes, GIB);
        }
    }
}

static void test_the_machine_this_runs_on_takes_the_defaults(void **state)
{
    _cleanup_(config_freep) struct config *config = NULL;
    struct err_msg msg = { { 0 } };

    (void)state;
    if (config_load(NULL, budget_unbudgeted, &config, &msg) != EMBTIER_OK)
        fail_msg("%s", msg.text);
    assert_in_range(config->machine.core_count, 1, 1 << 20);
    assert_in_range(config->machine.memory_bytes, 16 * MIB, UINT64_C(1) << 50);
}

static const char every_key[] =
    "data:\n"
    "  directories: [/a/b, '/c d']\n"
    "  shards_per_directory: 8\n"
    "  reserve_bytes: 3GiB\n"
    "lanes: {count: 3, readers_per_lane: 5, request_bytes: 32MiB, write_queue_bytes: "
    "1.5MiB, ticket_bytes: 3MiB, ticket_seconds: 9, group_seconds: 8}\n"
    "cache:\n"
    "  tiers:\n"
    "    - {name: hot, kind: dram_huge, bytes: 2GiB}\n"
    "    - {kind: file, bytes: 100GB, path: /pm}\n"
    "    - name: cxl\n"
    "      kind: numa\n"
    "      numa_node: 2\n"
    "      bytes: 4GiB\n"
    "    - {kind: dax_kmem, bytes: 6MiB}\n"
    "rocksdb:\n"
    "  memtable_bytes: 7MiB\n"
    "  metadata_cache_bytes: 8388608\n"
    "  background_threads: 9\n"
    "  bloom_bits_per_key: 0\n"
    "  compaction_parallel: 2\n"
    "  direct_io: on\n"
    "  options: \"max_open_files=100;write_buffer_size=1\"\n"
    "checkpoints: {interval_seconds: 5, keep: 6, transfer_bytes: 70MiB,\n"
    "              max_user_checkpoints: 4}\n"
    "endurance: {capacity_bytes: 7TB, rated_written_bytes: 14000TB, rated_years: 3, max_dwpd: "
    "0.25}\n"
    "socket:\n"
    "  path: /run/x.sock\n"
    "  mode: 0600\n"
    "  max_arena_bytes: 1MiB\n"
    "  max_total_arena_bytes: 3MiB\n"
    "  max_user_arena_bytes: 2MiB\n"
    "  max_sessions: 7\n"
    "  max_user_sessions: 6\n"
    "  max_batch_rows: 100\n"
    "log: {level: debug}\n";

static void test_every_key_is_read(void **state)
{
    _cleanup_(config_freep) struct config *config = parsed(every_key);
    const struct tier_spec *tiers = config->cache.tiers;

    (void)state;
    assert_int_equal(config->data.directory_count, 2);
    assert_string_equal(config->data.directories[0], "/a/b");
    assert_string_equal(config->data.directories[1], "/c d");
    assert_false(config->data.is_default);
    assert_int_equal(config->data.shards_per_directory, 8);
    assert_int_equal(config->data.reserve_bytes, 3 * GIB);
    assert_int_equal(config->lanes.count, 3);
    assert_int_equal(config->lanes.readers_per_lane, 5);
    assert_int_equal(config->lanes.request_bytes, 32 * MIB);
    assert_int_equal(config->lanes.write_queue_bytes, 1536 * KIB);
    assert_int_equal(config->lanes.ticket_bytes, 3 * MIB);
    assert_int_equal(config->lanes.ticket_seconds, 9);
    assert_int_equal(config->lanes.group_seconds, 8);
    assert_int_equal(config->cache.tier_count, 4);
    assert_string_equal(tiers[0].name, "hot");
    assert_int_equal(tiers[0].kind, TIER_KIND_DRAM_HUGE);
    assert_int_equal(tiers[0].bytes, 2 * GIB);
    assert_string_equal(tiers[1].name, "file");
    assert_int_equal(tiers[1].kind, TIER_KIND_FILE);
    assert_int_equal(tiers[1].bytes, UINT64_C(100000000000));
    assert_string_equal(tiers[1].path, "/pm");
    assert_int_equal(tiers[2].kind, TIER_KIND_NUMA);
    assert_int_equal(tiers[2].numa_node, 2);
    assert_int_equal(tiers[3].kind, TIER_KIND_DAX_KMEM);
    assert_int_equal(tiers[3].bytes, 6 * MIB);
    assert_int_equal(config->rocksdb.memtable_bytes, 7 * MIB);
    assert_int_equal(config->rocksdb.metadata_cache_bytes, 8 * MIB);
    assert_int_equal(config->rocksdb.background_threads, 9);
    assert_int_equal(config->rocksdb.bloom_bits_per_key, 0);
    assert_int_equal(config->rocksdb.compaction_parallel, 2);
    assert_int_equal(config->rocksdb.direct_io, SWITCH_ON);
    assert_string_equal(config->rocksdb.options, "max_open_files=100;write_buffer_size=1");
    assert_int_equal(config->checkpoints.interval_seconds, 5);
    assert_int_equal(config->checkpoints.keep, 6);
    assert_int_equal(config->checkpoints.transfer_bytes, 70 * MIB);
    assert_int_equal(config->endurance.capacity_bytes, UINT64_C(7000000000000));
    assert_int_equal(config->endurance.rated_written_bytes, UINT64_C(14000000000000000));
    assert_int_equal(config->endurance.rated_years, 3);
    assert_true(config->endurance.max_dwpd == 0.25);
    assert_string_equal(config->socket.path, "/run/x.sock");
    assert_false(config->socket.is_default);
    assert_int_equal(config->socket.mode, 0600);
    assert_int_equal(config->socket.max_arena_bytes, MIB);
    assert_int_equal(config->socket.max_total_arena_bytes, 3 * MIB);
    assert_int_equal(config->socket.max_sessions, 7);
    assert_int_equal(config->socket.max_user_sessions, 6);
    assert_int_equal(config->socket.max_user_arena_bytes, 2 * MIB);
    assert_int_equal(config->checkpoints.max_user_checkpoints, 4);
    assert_int_equal(config->socket.max_batch_rows, 100);
    assert_int_equal(config->log.level, LOG_LEVEL_DEBUG);
}

static void test_an_arena_may_be_as_large_as_one_user_may_have(void **state)
{
    static const struct {
        const char *text;
        uint64_t arena;
        uint64_t user;
    } cases[] = {
        { "socket: {max_total_arena_bytes: 1GiB}", 768 * MIB, 0 },
        { "socket: {max_total_arena_bytes: 1GiB, max_arena_bytes: 768MiB}", 768 * MIB, 0 },
        { "socket: {max_total_arena_bytes: 1GiB, max_arena_bytes: 1GiB}", GIB, GIB },
        { "socket: {max_total_arena_bytes: 1GiB, max_user_arena_bytes: 1GiB}", GIB, GIB },
        { "socket: {max_total_arena_bytes: 1GiB, max_user_arena_bytes: 8MiB}", 8 * MIB, 8 * MIB },
        { "socket: {max_total_arena_bytes: 2GiB}", GIB, 0 },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        _cleanup_(config_freep) struct config *config = parsed(cases[i].text);

        assert_int_equal(config->socket.max_arena_bytes, cases[i].arena);
        assert_int_equal(config->socket.max_user_arena_bytes, cases[i].user);
    }
}

static void test_unknown_key_names_file_line_and_key(void **state)
{
    (void)state;
    assert_mistake("lanes:\n  count: 2\n  reader_per_lane: 3\n",
                   "e.yaml:3: lanes.reader_per_lane: unknown key, did you mean "
                   "`readers_per_lane`?; allowed: count, readers_per_lane, request_bytes, "
                   "write_queue_bytes, ticket_bytes, ticket_seconds, "
                   "group_seconds");
    assert_mistake(
        "\nlane: {}\n",
        "e.yaml:2: lane: unknown key, did you mean `lanes`?; allowed: "
        "data, lanes, cache, rocksdb, checkpoints, endurance, socket, rpc, tls, access, http, log");
    assert_mistake("log:\n\n\n  colour: red\n",
                   "e.yaml:4: log.colour: unknown key; allowed: level, slow_request_ms");
    assert_mistake("cache:\n  tiers:\n  - bytes: 1GiB\n  - size: 5\n",
                   "e.yaml:4: cache.tiers[1].size: unknown key; allowed: name, kind, bytes, "
                   "max_bytes, array_bytes, path, "
                   "numa_node");
    assert_mistake("\"lanes\\0x\": {}\n", "e.yaml:1: lanes: unknown key...");
    assert_mistake("\"a\\nb\": {}\n", "e.yaml:1: a\\nb: unknown key; allowed: data...");
}

static void test_repeated_key_names_both_lines(void **state)
{
    (void)state;
    assert_mistake("lanes:\n  count: 2\n  readers_per_lane: 2\n  count: 3\n",
                   "e.yaml:4: lanes.count: is given twice, first in line 2; allowed: once");
    assert_mistake("log: {level: info}\nlanes: {}\nlog: {}\n",
                   "e.yaml:3: log: is given twice, first in line 1; allowed: once");
}

static void test_wrong_shapes_are_told(void **state)
{
    (void)state;
    assert_mistake("- a\n- b\n",
                   "e.yaml:1: is a list, where a mapping of keys is needed; allowed: data, lanes, "
                   "cache, rocksdb, checkpoints, endurance, socket, rpc, tls, access, http, log");
    assert_mistake("hello\n", "e.yaml:1: is a single value, where a mapping...");
    assert_mistake("lanes: 5\n", "e.yaml:1: lanes: is a single value, where...");
    assert_mistake("lanes: [5]\n", "e.yaml:1: lanes: is a list, where a mapping...");
    assert_mistake("lanes:\n  count: [1]\n",
                   "e.yaml:2: lanes.count: is a list; allowed: one value");
    assert_mistake("lanes:\n  count:\n    a: 1\n",
                   "e.yaml:3: lanes.count: is a mapping of keys; allowed: one value");
    assert_mistake("data:\n  directories: /a\n",
                   "e.yaml:2: data.directories: is not a list; allowed...");
    assert_mistake("data: {directories: []}",
                   "e.yaml:1: data.directories: has too few items; allowed: at least 1");
    assert_mistake("cache:\n  tiers: [1GiB]\n",
                   "e.yaml:2: cache.tiers[0]: is a single value, where a mapping...");
    assert_mistake("cache: {tiers: [{bytes: 4MiB}, {}, {}, {}, {}]}\n",
                   "e.yaml:1: cache.tiers: has too many items; allowed: at most 4");
    assert_mistake("? [a]\n: b\n", "e.yaml:1: a key that is not a word; allowed: data...");
    assert_mistake("data: {directories: [/a, '']}", "e.yaml:1: data.directories[1]: is empty...");
    assert_mistake("socket:\n  path: \"\"", "e.yaml:2: socket.path: is empty...");
    assert_mistake("socket: {path: \"a\\0b\"}", "e.yaml:1: socket.path: holds a NUL character...");
}

static void test_what_is_not_yaml_names_the_line(void **state)
{
    (void)state;
    assert_mistake("lanes:\n\tcount: 1\n", "e.yaml:2: lanes: not valid YAML: ...");
    assert_mistake("lanes: {count: 1\nlog: [\n", "e.yaml:2: lanes: not valid YAML: ...");
    assert_mistake("log: \"never closed\n\n", "e.yaml:3: log: not valid YAML: ...");
    assert_mistake("a: b: c\n", "e.yaml:1: ...");
    assert_mistake("%\n", "e.yaml:1: not valid YAML: ...");
    assert_mistake("log: {level: info}\n\n\xff\xfe\n", "e.yaml:3: ...");
    assert_mistake("---\nlog: {}\n---\nlog: {}\n",
                   "e.yaml:3: a second document starts; allowed: one");
    assert_mistake("log: &x {level: info}\nlanes: *x\n",
                   "e.yaml:2: lanes: is an alias (*name); allowed: the value itself");
}

static void test_nul_and_huge_files_are_refused(void **state)
{
    static const char with_nul[] = "log:\n  level: in\0fo\n";
    struct config *config = NULL;
    struct err_msg msg;
    char *huge = malloc(YAML_DOC_BYTES_MAX + 1);

    (void)state;
    assert_int_equal(config_parse("e.yaml", with_nul, sizeof(with_nul) - 1, &big_machine,
                                  budget_unbudgeted, &config, &msg),
                     EMBTIER_CONFIG);
    assert_string_equal(msg.text, "e.yaml:2: not valid YAML: a NUL character; allowed: text");
    assert_non_null(huge);
    memset(huge, '#', YAML_DOC_BYTES_MAX + 1);
    assert_int_equal(config_parse("e.yaml", huge, YAML_DOC_BYTES_MAX + 1, &big_machine,
                                  budget_unbudgeted, &config, &msg),
                     EMBTIER_CONFIG);
    assert_string_equal(msg.text,
                        "e.yaml:1: the file is too large; allowed: at most 1048576 bytes");
    /* Deep nesting must end the walk, not the stack. */
    memset(huge, '[', YAML_DOC_BYTES_MAX);
    assert_int_equal(config_parse("e.yaml", huge, YAML_DOC_BYTES_MAX, &big_machine,
                                  budget_unbudgeted, &config, &msg),
                     EMBTIER_CONFIG);
    free(huge);
    assert_null(config);
}

static void test_bad_values_tell_what_is_allowed(void **state)
{
    (void)state;
    assert_mistake("lanes:\n  count: 0\n",
                   "e.yaml:2: lanes.count: `0` is not possible; allowed: 1 to 64");
    assert_mistake("lanes: {count: 65}", "e.yaml:1: lanes.count: `65` is not possible...");
    assert_mistake("lanes: {count: -1}", "e.yaml:1: lanes.count: `-1` is not possible...");
    assert_mistake("lanes: {count: 0x4}", "e.yaml:1: lanes.count: `0x4` is not possible...");
    assert_mistake("lanes: {count: 4.0}", "e.yaml:1: lanes.count: `4.0` is not possible...");
    assert_mistake("lanes: {count: many}", "e.yaml:1: lanes.count: `many` is not possible...");
    assert_mistake("lanes: {count: 99999999999999999999999}",
                   "e.yaml:1: lanes.count: `99999999999999999999999` is not possible...");
    assert_mistake("lanes: {request_bytes: 64MIB}",
                   "e.yaml:1: lanes.request_bytes: `64MIB` is not possible; allowed: 1MiB to "
                   "16384TiB, written like 4096 or 1.5GiB");
    assert_mistake("lanes: {request_bytes: 1}", "e.yaml:1: lanes.request_bytes: `1` is not...");
    assert_mistake("lanes: {request_bytes: 99999999999TiB}", "e.yaml:1: lanes.request_bytes: ...");
    assert_mistake("rocksdb:\n  direct_io: maybe\n", "e.yaml:2: rocksdb.direct_io: `maybe` is not "
                                                     "possible; allowed: auto, on, off");
    assert_mistake("log:\n  level: Info\n", "e.yaml:2: log.level: `Info` is not possible; allowed: "
                                            "error, warn, info, debug");
    assert_mistake("socket: {mode: 0689}", "e.yaml:1: socket.mode: `0689` is not possible; "
                                           "allowed: 0000 to 0777, octal");
    assert_mistake("socket: {mode: 1777}", "e.yaml:1: socket.mode: `1777` is not possible...");
    assert_mistake("cache: {tiers: [{kind: hbm, bytes: 1GiB}]}",
                   "e.yaml:1: cache.tiers[0].kind: `hbm` is not possible; allowed: dram, "
                   "dram_huge, dax_kmem, file, numa");
    assert_mistake("cache: {tiers: [{name: a b, bytes: 1GiB}]}",
                   "e.yaml:1: cache.tiers[0].name: `a b` is not possible; allowed: 1 to 31 of A-Z "
                   "a-z 0-9 _ -");
    assert_mistake("log: {level: \"a\\tb\\n0123456789012345678901234567890123456789012345678901234"
                   "567890123456789\"}",
                   "e.yaml:1: log.level: "
                   "`a\\tb\\n012345678901234567890123456789012345678901234567890123456789... (74 "
                   "bytes)` is "
                   "not possible...");
}

static void test_tiers_must_make_sense(void **state)
{
    (void)state;
    assert_mistake("cache:\n  tiers:\n  - name: a\n",
                   "e.yaml:3: cache.tiers[0].bytes: is missing; allowed: at least 16MiB");
    assert_mistake("cache:\n  tiers:\n  - bytes: 1GiB\n    kind: numa\n    numa_node: 0\n",
                   "e.yaml:4: cache.tiers[0].kind: the first tier is `numa`; allowed: dram, "
                   "dram_huge");
    assert_mistake("cache:\n  tiers:\n  - {bytes: 1GiB}\n  - {kind: file, bytes: 1GiB}\n",
                   "e.yaml:4: cache.tiers[1].path: is missing; allowed: a directory, for kind "
                   "file");
    assert_mistake("cache:\n  tiers:\n  - bytes: 1GiB\n    path: /a\n",
                   "e.yaml:4: cache.tiers[0].path: kind dram has no path; allowed: only with kind "
                   "file");
    assert_mistake("cache:\n  tiers:\n  - {bytes: 1GiB}\n  - {kind: numa, bytes: 1GiB}\n",
                   "e.yaml:4: cache.tiers[1].numa_node: is missing...");
    assert_mistake("cache:\n  tiers:\n  - {bytes: 1GiB, numa_node: 0}\n",
                   "e.yaml:3: cache.tiers[0].numa_node: kind dram has no NUMA node...");
    assert_mistake(
        "cache:\n  tiers:\n  - {bytes: 1GiB, name: x}\n"
        "  - bytes: 1GiB\n    kind: dax_kmem\n    name: x\n",
        "e.yaml:6: cache.tiers[1].name: tier 0 has the name `x` too; allowed: a name of its own");
    assert_mistake("lanes: {count: 4}\ncache:\n  tiers:\n  - {bytes: 8MiB}\n",
                   "e.yaml:4: cache.tiers[0].bytes: 8MiB is too little for 4 lanes; allowed: at "
                   "least 16MiB");
}

static void test_arrays_leave_memory_to_the_cache(void **state)
{
    (void)state;
    assert_mistake(
        "lanes: {count: 2}\ncache:\n  tiers:\n  - {bytes: 64MiB, array_bytes: 60MiB}\n",
        "e.yaml:4: cache.tiers[0].array_bytes: 60MiB of 64MiB leave too little to the row "
        "cache of 2 lanes; allowed: at most 56MiB");
    assert_mistake("lanes: {count: 2}\ncache:\n  tiers:\n  - {bytes: 64MiB, array_bytes: 1TiB}\n",
                   "e.yaml:4: cache.tiers[0].array_bytes: 1TiB of 64MiB leave too little...");
    assert_mistake(
        "cache:\n  tiers:\n  - {bytes: 1GiB, array_bytes: 1MiB}\n",
        "e.yaml:3: cache.tiers[0].array_bytes: 1MiB is too little for an array; allowed: 0, "
        "and at least 2MiB");
    assert_mistake("cache:\n  tiers:\n  - {bytes: 1GiB, name: array}\n",
                   "e.yaml:3: cache.tiers[0].name: `array` means something else in statistics...");
}

static void test_lanes_and_shards_must_fit_together(void **state)
{
    (void)state;
    assert_mistake("data:\n  shards_per_directory: 2\nlanes:\n  count: 3\n",
                   "e.yaml:4: lanes.count: 3 lanes, but 2 shards; allowed: at most one lane per "
                   "shard");
    assert_mistake("data:\n  directories: [/a, /b]\n  shards_per_directory: 1000\n",
                   "e.yaml:3: data.shards_per_directory: 1000 shards in each of 2 directories make "
                   "2000 shards; allowed: 1024 in all");
    assert_mistake(
        "data:\n  directories:\n  - /a\n  - /b\n  - /a/\n",
        "e.yaml:5: data.directories[2]: `/a/` is listed twice; allowed: each directory once");
}

static void test_small_cache_means_fewer_lanes(void **state)
{
    _cleanup_(config_freep) struct config *config =
        parsed("data: {shards_per_directory: 8}\ncache: {tiers: [{bytes: 13MiB}]}");

    (void)state;
    assert_int_equal(config->lanes.count, 3);
}

static void test_more_memory_than_the_machine_has_says_both_numbers(void **state)
{
    (void)state;
    assert_mistake(
        "cache:\n  tiers:\n  - name: big\n    bytes: 1000TiB\n",
        "e.yaml:4: cache.tiers[0].bytes: all memory together is 1000.00TiB (tiers "
        "1000TiB, requests 64MiB, tickets 64MiB, write queue 64MiB, RocksDB 256MiB, "
        "shared arenas 4GiB, exports and imports 256MiB; plus lanes 4 x 44MiB, "
        "databases 8 x 512KiB, compaction 84MiB, sessions 42MiB, the rest 56MiB); "
        "allowed: at most the machine's 64GiB: lower cache.tiers[0].bytes or another budget");
    assert_mistake("\nsocket:\n  max_total_arena_bytes: 80GiB\n",
                   "e.yaml:3: socket.max_total_arena_bytes: all memory together is 82.04GiB...");
    assert_mistake("cache: {tiers: [{bytes: 30GiB}, {kind: dax_kmem, bytes: 31GiB}]}",
                   "e.yaml:1: cache.tiers[1].bytes: all memory together is 66.04GiB (tiers "
                   "61GiB...");
    /* Not memory, so any size is allowed. */
    config_free(parsed("cache: {tiers: [{bytes: 4GiB}, {kind: file, path: /a, bytes: 9TiB}]}"));
    assert_mistake("socket:\n  max_total_arena_bytes: 1GiB\n  max_arena_bytes: 2GiB\n",
                   "e.yaml:3: socket.max_arena_bytes: 2GiB is more than "
                   "socket.max_total_arena_bytes; allowed: at most 1GiB");
}

/* Returns the total of all memory that the message names: whole MiB if the budgets are. */
static uint64_t sum_mib_of(const char *text)
{
    const struct machine small = { .memory_bytes = 16 * MIB, .core_count = 1 };
    const char *const words = "all memory together is ";
    struct config *config = NULL;
    struct err_msg msg;
    const char *at;
    struct bytes_text sum;
    char number[32];
    uint64_t bytes;

    assert_int_equal(parse_on(text, &small, &config, &msg), EMBTIER_CONFIG);
    at = strstr(msg.text, words);
    assert_non_null(at);
    at += strlen(words);
    snprintf(number, sizeof(number), "%.*s", (int)strcspn(at, " "), at);
    assert_int_equal(parse_bytes(number, &bytes), EMBTIER_OK);
    assert_string_equal(format_bytes(&sum, bytes), number);
    assert_int_equal(bytes % MIB, 0);
    return bytes / MIB;
}

#define BUDGETS(lanes, readers, shards, sessions, threads)                                         \
    "data: {shards_per_directory: " #shards "}\n"                                                  \
    "lanes: {count: " #lanes ", readers_per_lane: " #readers "}\n"                                 \
    "socket: {max_total_arena_bytes: 64MiB, max_sessions: " #sessions "}\n"                        \
    "rocksdb: {background_threads: " #threads ", compaction_parallel: 2}\n"                        \
    "cache: {tiers: [{bytes: 64MiB}]}\n"

static void test_memory_that_no_budget_names_is_counted(void **state)
{
    const uint64_t sum_mib = sum_mib_of(BUDGETS(1, 2, 8, 64, 2));
    struct machine machine = { .memory_bytes = sum_mib * MIB, .core_count = 1 };
    struct config *config = NULL;
    struct err_msg msg;

    (void)state;
    config_free(parsed_on(BUDGETS(1, 2, 8, 64, 2), &machine));
    machine.memory_bytes--;
    assert_int_equal(parse_on(BUDGETS(1, 2, 8, 64, 2), &machine, &config, &msg), EMBTIER_CONFIG);
    assert_non_null(strstr(msg.text, "; plus lanes 1 x "));
    assert_non_null(strstr(msg.text, ", databases 16 x "));
    assert_int_equal(sum_mib_of("lanes: {request_bytes: 1MiB}"),
                     sum_mib_of("lanes: {request_bytes: 16MiB}"));
    assert_in_range(sum_mib_of(BUDGETS(2, 2, 8, 64, 2)), sum_mib + 20, sum_mib + 60);
    assert_in_range(sum_mib_of(BUDGETS(1, 6, 8, 64, 2)), sum_mib + 4, sum_mib + 20);
    assert_in_range(sum_mib_of(BUDGETS(1, 2, 32, 64, 2)), sum_mib + 12, sum_mib + 200);
    assert_in_range(sum_mib_of(BUDGETS(1, 2, 8, 1088, 2)), sum_mib + 16, sum_mib + 64);
    assert_in_range(sum_mib_of(BUDGETS(1, 2, 8, 64, 3)), sum_mib + 40, sum_mib + 120);
}

static void test_memory_of_exports_and_imports_is_counted(void **state)
{
    (void)state;
    assert_int_equal(sum_mib_of("checkpoints: {transfer_bytes: 100MiB}") + 50,
                     sum_mib_of("checkpoints: {transfer_bytes: 150MiB}"));
    assert_mistake("\ncheckpoints:\n  transfer_bytes: 100GiB\n",
                   "e.yaml:3: checkpoints.transfer_bytes: all memory together is 100.67GiB...");
}

static void test_memory_of_exports_is_enough_for_one(void **state)
{
    const struct machine small = { .memory_bytes = GIB, .core_count = 1 };
    struct config *config;

    (void)state;
    assert_mistake("checkpoints: {transfer_bytes: 64MiB}",
                   "e.yaml:1: checkpoints.transfer_bytes: 64MiB is too little to export a table of "
                   "4 shards; allowed: at least 65MiB");
    config_free(parsed("checkpoints: {transfer_bytes: 65MiB}"));
    assert_mistake("data: {shards_per_directory: 128}\ncheckpoints: {transfer_bytes: 95MiB}",
                   "e.yaml:2: checkpoints.transfer_bytes: 95MiB is too little to export a table of "
                   "128 shards; allowed: at least 96MiB");
    config = parsed("data: {shards_per_directory: 1024}");
    assert_int_equal(config->checkpoints.transfer_bytes, 320 * MIB);
    config_free(config);
    config = parsed_on("", &small);
    assert_int_equal(config->checkpoints.transfer_bytes, 65 * MIB);
    config_free(config);
}

static void test_a_long_file_name_leaves_the_message_whole(void **state)
{
    struct config *config = NULL;
    struct err_msg msg;
    char name[2000];

    (void)state;
    memset(name, 'd', sizeof(name));
    strcpy(name + sizeof(name) - 8, "/e.yaml");
    assert_int_equal(
        config_parse(name, "lanes: 1", 8, &big_machine, budget_unbudgeted, &config, &msg),
        EMBTIER_CONFIG);
    assert_non_null(
        strstr(msg.text, "/e.yaml:1: lanes: is a single value, where a mapping of keys is needed; "
                         "allowed: count, readers_per_lane, request_bytes, write_queue_bytes, "
                         "ticket_bytes, ticket_seconds, group_seconds"));
}

static void test_bytes_are_read_with_their_units(void **state)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = { { "0", 0 },
                 { "4096", 4096 },
                 { "7B", 7 },
                 { "192GiB", UINT64_C(192) << 30 },
                 { "192 GiB", UINT64_C(192) << 30 },
                 { "1.5MiB", 1536 * KIB },
                 { "0.1kB", 100 },
                 { "1TB", UINT64_C(1000000000000) },
                 { "3TiB", UINT64_C(3) << 40 },
                 { "1KiB", 1024 },
                 { "2.000", 2 },
                 { "18446744073709551615", UINT64_MAX },
                 { "16777215TiB", UINT64_C(16777215) << 40 } };
    static const char *const bad[] = { "",      " ",     "GiB",    "-1",         "+1",   "1.5",
                                       "1.",    ".5GiB", "1..5GB", "1.2.3GB",    "1gib", "1 G",
                                       "1GiBs", "0x10",  "1e9",    "1GiB ",      "inf",  "nan",
                                       "1K",    "1_000", " 1",     "16777216TiB" };
    uint64_t bytes = 77;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        assert_int_equal(parse_bytes(good[i].text, &bytes), EMBTIER_OK);
        assert_int_equal(bytes, good[i].bytes);
    }
    bytes = 77;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        if (parse_bytes(bad[i], &bytes) != EMBTIER_INVALID)
            fail_msg("`%s` was taken", bad[i]);
    assert_int_equal(parse_bytes("18446744073709551616", &bytes), EMBTIER_INVALID);
    assert_int_equal(parse_bytes("99999999999999999999999999999999999999999", &bytes),
                     EMBTIER_INVALID);
    assert_int_equal(parse_bytes("0.00000000000000000000000000000000000000001GiB", &bytes),
                     EMBTIER_INVALID);
    assert_int_equal(bytes, 77);
}

static void test_bytes_are_written_as_people_read_them(void **state)
{
    (void)state;
    assert_string_equal(BYTES_TEXT(0), "0B");
    assert_string_equal(BYTES_TEXT(1023), "1023B");
    assert_string_equal(BYTES_TEXT(64 * MIB), "64MiB");
    assert_string_equal(BYTES_TEXT(1536 * KIB), "1536KiB");
    assert_string_equal(BYTES_TEXT(UINT64_C(25142689792)), "23.42GiB");
    assert_string_equal(BYTES_TEXT(UINT64_MAX), "16777216.00TiB");
}

static void test_every_default_passes_its_own_check(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < config_key_count + config_tier_key_count; i++) {
        const struct config_key *key =
            i < config_key_count ? &config_keys[i] : &config_tier_keys[i - config_key_count];
        union {
            uint64_t number;
            char text[TIER_PATH_MAX + 1];
        } value;

        if (!config_default_is_computed(key) &&
            config_value_parse(key, key->default_text, &value) != EMBTIER_OK)
            fail_msg("%s.%s: %s", key->section, key->name, key->default_text);
    }
}

static void test_key_list_has_a_line_of_five_columns_for_each_key(void **state)
{
    char *text = NULL;
    size_t text_bytes;
    FILE *out = open_memstream(&text, &text_bytes);
    uint32_t lines = 0;
    uint32_t tabs = 0;

    (void)state;
    assert_non_null(out);
    config_print_keys(out);
    fclose(out);
    for (size_t i = 0; i < text_bytes; i++) {
        lines += text[i] == '\n';
        tabs += text[i] == '\t';
    }
    assert_int_equal(lines, config_key_count + config_tier_key_count);
    assert_int_equal(tabs, 4 * lines);
    assert_non_null(strstr(text, "\ncache.tiers[].bytes\t2MiB to 16384TiB"));
    assert_non_null(strstr(text, "\nlog.level\terror, warn, info, debug\tinfo\t"));
    free(text);
}

/* The sample in docs/ shows every key; uncommenting changes nothing. */
static void test_sample_file_shows_every_default(void **state)
{
    _cleanup_(config_freep) struct config *config = NULL;
    struct err_msg msg = { { 0 } };
    const char *path = SOURCE_ROOT "/docs/embtierd.yaml";

    (void)state;
    if (config_load_on(path, &big_machine, budget_unbudgeted, &config, &msg) != EMBTIER_OK)
        fail_msg("%s", msg.text);
    config->data.is_default = config->socket.is_default = true; /* the sample names them */
    assert_defaults(config);
    for (uint32_t i = 0; i < config_key_count; i++) {
        char key[64];
        char written[64] = "";
        char line[256];
        FILE *file = fopen(path, "re");

        assert_non_null(file);
        snprintf(key, sizeof(key), "  %s:", config_keys[i].name);
        while (fgets(line, sizeof(line), file))
            if (strncmp(line, key, strlen(key)) == 0)
                snprintf(written, sizeof(written), "%s", config_keys[i].name);
        fclose(file);
        assert_string_equal(written, config_keys[i].name);
    }
}

static void test_a_file_that_cannot_be_read_is_named(void **state)
{
    struct config *config = NULL;
    struct err_msg msg;

    (void)state;
    assert_int_equal(config_load("/nonexistent/e.yaml", budget_unbudgeted, &config, &msg),
                     EMBTIER_NOT_FOUND);
    assert_string_equal(msg.text,
                        "/nonexistent/e.yaml: cannot be opened: No such file or directory");
    assert_int_equal(config_load("/", budget_unbudgeted, &config, &msg), EMBTIER_IO);
    assert_string_equal(msg.text, "/: cannot be read: Is a directory");
    assert_null(config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_files_that_say_nothing_are_the_defaults),
        cmocka_unit_test(test_no_file_is_the_defaults),
        cmocka_unit_test(test_defaults_fit_a_small_machine),
        cmocka_unit_test(test_defaults_fit_machines_of_a_gigabyte_and_more),
        cmocka_unit_test(test_the_machine_this_runs_on_takes_the_defaults),
        cmocka_unit_test(test_every_key_is_read),
        cmocka_unit_test(test_an_arena_may_be_as_large_as_one_user_may_have),
        cmocka_unit_test(test_unknown_key_names_file_line_and_key),
        cmocka_unit_test(test_repeated_key_names_both_lines),
        cmocka_unit_test(test_wrong_shapes_are_told),
        cmocka_unit_test(test_what_is_not_yaml_names_the_line),
        cmocka_unit_test(test_nul_and_huge_files_are_refused),
        cmocka_unit_test(test_bad_values_tell_what_is_allowed),
        cmocka_unit_test(test_tiers_must_make_sense),
        cmocka_unit_test(test_arrays_leave_memory_to_the_cache),
        cmocka_unit_test(test_lanes_and_shards_must_fit_together),
        cmocka_unit_test(test_small_cache_means_fewer_lanes),
        cmocka_unit_test(test_more_memory_than_the_machine_has_says_both_numbers),
        cmocka_unit_test(test_memory_that_no_budget_names_is_counted),
        cmocka_unit_test(test_memory_of_exports_and_imports_is_counted),
        cmocka_unit_test(test_memory_of_exports_is_enough_for_one),
        cmocka_unit_test(test_a_long_file_name_leaves_the_message_whole),
        cmocka_unit_test(test_bytes_are_read_with_their_units),
        cmocka_unit_test(test_bytes_are_written_as_people_read_them),
        cmocka_unit_test(test_every_default_passes_its_own_check),
        cmocka_unit_test(test_key_list_has_a_line_of_five_columns_for_each_key),
        cmocka_unit_test(test_sample_file_shows_every_default),
        cmocka_unit_test(test_a_file_that_cannot_be_read_is_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
