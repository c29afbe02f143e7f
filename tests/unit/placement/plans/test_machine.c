/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptions of machines and rules: values are what the file says, and each mistake is named with
 * file, line, key and the values allowed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "placement/machine/machine_file.h"
#include "placement/machine/rules.h"
#include "tests/unit/placement/trace_fixture.h"

#define GPUS  "gpus: {count: 2, hbm_bytes: 40GB, hbm_bandwidth_bytes_per_s: 1600GB}\n"
#define TIERS "tiers: [{name: dram, bytes: 192GB, bandwidth_bytes_per_s: 200GB}]\n"
#define SSD   "ssd: {bytes: 8TB, read_bandwidth_bytes_per_s: 6GB}\n"

static void write_text(const struct trace_fixture *fixture, const char *text)
{
    FILE *const file = fopen(fixture->path, "w");

    assert_non_null(file);
    assert_int_not_equal(fputs(text, file), EOF);
    assert_int_equal(fclose(file), 0);
}

static struct machine loaded(void **state, const char *text)
{
    const struct trace_fixture *const fixture = *state;
    struct machine machine = { 0 };
    struct err_msg msg = { { 0 } };

    write_text(fixture, text);
    if (machine_file_load(fixture->path, &machine, &msg) != EMBTIER_OK)
        fail_msg("%s", msg.text);
    return machine;
}

/* Expects `PATH:WHERE`, and @rest somewhere behind it. */
static void expect_text(const struct trace_fixture *fixture, const struct err_msg *msg,
                        const char *where, const char *rest)
{
    char begin[400];

    snprintf(begin, sizeof(begin), "%s:%s", fixture->path, where);
    if (strncmp(msg->text, begin, strlen(begin)) != 0 || !strstr(msg->text, rest))
        fail_msg("%s\nis not %s ... %s", msg->text, begin, rest);
}

static void refused(void **state, const char *text, const char *where, const char *rest)
{
    const struct trace_fixture *const fixture = *state;
    struct machine machine = { 0 };
    struct err_msg msg = { { 0 } };

    write_text(fixture, text);
    assert_int_equal(machine_file_load(fixture->path, &machine, &msg), EMBTIER_CONFIG);
    expect_text(fixture, &msg, where, rest);
}

static void test_a_machine_is_what_its_file_says(void **state)
{
    const struct machine machine =
        loaded(state, GPUS "lanes: 5\n"
                           "tiers:\n"
                           "  - {name: dram, bytes: 192GiB, bandwidth_bytes_per_s: 200GB}\n"
                           "  - {name: pmem, bytes: 1TB, bandwidth_bytes_per_s: 30.5GB}\n"
                           "ssd:\n"
                           "  bytes: 8TB\n"
                           "  read_bandwidth_bytes_per_s: 6GB\n"
                           "  write_bandwidth_bytes_per_s: 2GB\n"
                           "  read_iops: 1.5e6\n"
                           "  block_bytes: 512\n"
                           "  drive_writes_per_day: 0.5\n"
                           "  drive_bytes: 10TB\n"
                           "  write_amplification: 4.5\n");

    assert_int_equal(machine.lanes, 5);
    assert_int_equal(machine_cache_least_bytes(&machine, 0), 20 * MIB);
    assert_int_equal(machine_cache_least_bytes(&machine, 1), 10 * MIB);
    assert_int_equal(machine.gpu_count, 2);
    assert_int_equal(machine.hbm_bytes, 40000000000);
    assert_true(machine.hbm_bandwidth_bytes_per_s == 1.6e12);
    assert_int_equal(machine.tier_count, 2);
    assert_int_equal(machine.tiers[0].bytes, 192 * GIB);
    assert_string_equal(machine.tiers[1].name, "pmem");
    assert_true(machine.tiers[1].bandwidth_bytes_per_s == 30.5e9);
    assert_int_equal(machine.ssd.bytes, 8000000000000);
    assert_true(machine.ssd.read_iops == 1.5e6 && machine.ssd.block_bytes == 512);
    assert_true(machine.ssd.write_bandwidth_bytes_per_s == 2e9);
    assert_true(machine.ssd.write_amplification == 4.5);
    assert_true(machine_writes_per_day(&machine) == 5e12);
    assert_int_equal(machine_find_memory(&machine, "hbm"), 0);
    assert_int_equal(machine_find_memory(&machine, "pmem"), 2);
    assert_int_equal(machine_find_memory(&machine, "cache"), 3);
    assert_int_equal(machine_find_memory(&machine, "ssd"), MACHINE_NO_MEMORY);
    assert_int_equal(machine_memory_count(&machine), 4);
}

static void test_prices_add_up_if_all_are_known(void **state)
{
    const struct machine machine =
        loaded(state, "gpus: {count: 2, hbm_bytes: 40GB, hbm_bandwidth_bytes_per_s: 1600GB, "
                      "hbm_cost_per_gb: 20, hbm_power_w_per_gb: 0.5}\n"
                      "tiers: [{name: dram, bytes: 192GB, bandwidth_bytes_per_s: 200GB, "
                      "cost_per_gb: 4}]\n"
                      "ssd: {bytes: 1TB, drive_bytes: 2TB, read_bandwidth_bytes_per_s: 6GB, "
                      "cost_per_gb: 0.1, power_w_per_gb: 0.01}\n");

    assert_true(fabs(machine_cost(&machine) - (2 * 40 * 20 + 192 * 4 + 2000 * 0.1)) < 1e-9);
    assert_true(machine_power_w(&machine) == MACHINE_UNKNOWN); /* DRAM's is missing */
}

static void test_limits_may_be_missing(void **state)
{
    const struct machine machine = loaded(state, TIERS SSD);

    assert_int_equal(machine.lanes, 1);
    assert_int_equal(machine.gpu_count, 0);
    assert_int_equal(machine_find_memory(&machine, "hbm"), MACHINE_NO_MEMORY);
    assert_int_equal(machine_find_memory(&machine, "dram"), 0);
    assert_int_equal(machine.ssd.block_bytes, 4096);
    assert_true(machine.ssd.read_iops == 0 && isinf(machine_writes_per_day(&machine)));
    assert_int_equal(machine.ssd.drive_bytes, machine.ssd.bytes);
}

static void test_mistakes_of_a_machine(void **state)
{
    static const struct {
        const char *text, *where, *rest;
    } cases[] = {
        { "", "1: tiers: is missing", "allowed: 1 to 4 tiers" },
        { TIERS, "1: ssd: is missing", "allowed: the drives" },
        { "gpus: {count: 0, hbm_bytes: 1GB, hbm_bandwidth_bytes_per_s: 1GB}\n" TIERS SSD,
          "1: gpus.count: `0` is not possible", "allowed: a whole number, 1 to 64" },
        { "gpus: {count: 1.5, hbm_bytes: 1GB, hbm_bandwidth_bytes_per_s: 1GB}\n" TIERS SSD,
          "1: gpus.count: `1.5` is not possible", "a whole number" },
        { "gpus: {count: 1, hbm_bytes: 1GB}\n" TIERS SSD,
          "1: gpus.hbm_bandwidth_bytes_per_s: is missing", "allowed: 1B to" },
        { TIERS "\nssd: {bytes: -1, read_bandwidth_bytes_per_s: 6GB}\n",
          "3: ssd.bytes: `-1` is not possible", "allowed: 1B to" },
        { TIERS "ssd: {bytes: 1TB, read_bandwidth_bytes_per_s: nan}\n",
          "2: ssd.read_bandwidth_bytes_per_s: `nan` is not possible", "allowed" },
        { TIERS "ssd: {bytes: 1TB, read_bandwidth_bytes_per_s: 6GB, read_iops: nan}\n",
          "2: ssd.read_iops: `nan` is not possible", "allowed: 1 to 1e+12" },
        { TIERS "ssd: {bytes: 1TB, read_bandwidth_bytes_per_s: 6GB, read_iops: 1e999}\n",
          "2: ssd.read_iops: `1e999` is not possible", "allowed" },
        { TIERS "ssd: {bytes: 20000TB, read_bandwidth_bytes_per_s: 6GB}\n",
          "2: ssd.bytes: `20000TB` is not possible", "to 8192TiB" },
        { TIERS "ssd: {bytes: 1TB, read_bandwith_bytes_per_s: 6GB}\n",
          "2: ssd.read_bandwith_bytes_per_s: unknown key", "`read_bandwidth_bytes_per_s`?" },
        { TIERS "ssd: {bytes: 1TB, read_bandwidth_bytes_per_s: 6GB, drive_writes_per_day: 1}\n",
          "2: ssd.write_amplification: is missing", "1 to 1000" },
        { TIERS "ssd: {bytes: 2TiB, read_bandwidth_bytes_per_s: 6GB, drive_bytes: 1TiB}\n",
          "2: ssd.drive_bytes: 1TiB is less", "allowed: ssd.bytes, 2TiB, or more" },
        { "lanes: 0\n" TIERS SSD, "1: lanes: `0` is not possible", "a whole number, 1 to 64" },
        { "lanes: 3\n"
          "tiers:\n- {name: a, bytes: 12MiB, bandwidth_bytes_per_s: 2GB}\n"
          "- {name: b, bytes: 5MiB, bandwidth_bytes_per_s: 1GB}\n" SSD,
          "4: tiers[1].bytes: 5MiB is too little for the cache of 3 lanes (`lanes`)",
          "allowed: at least 6MiB" },
        { "lanes: 1\ntiers: [{name: a, bytes: 3MiB, bandwidth_bytes_per_s: 2GB}]\n" SSD,
          "2: tiers[0].bytes: 3MiB is too little for the cache of 1 lane (`lanes`)",
          "allowed: at least 4MiB" },
        { "tiers: [{bytes: 1GB, bandwidth_bytes_per_s: 1GB}]\n" SSD, "1: tiers[0].name: is missing",
          "allowed: a name" },
        { "tiers: [{name: ssd, bytes: 1GB, bandwidth_bytes_per_s: 1GB}]\n" SSD,
          "1: tiers[0].name: `ssd` is the name of another", "allowed: any other" },
        { "tiers:\n- {name: a, bytes: 1GB, bandwidth_bytes_per_s: 1GB}\n"
          "- {name: a, bytes: 1GB, bandwidth_bytes_per_s: 1GB}\n" SSD,
          "3: tiers[1].name: tier 0 has the name `a` too", "a name of its own" },
        { "tiers:\n- {name: a, bytes: 1GB, bandwidth_bytes_per_s: 1GB}\n"
          "- {name: b, bytes: 1GB, bandwidth_bytes_per_s: 2GB}\n" SSD,
          "3: tiers[1].bandwidth_bytes_per_s: `b` is faster", "the fastest tier first" },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        refused(state, cases[i].text, cases[i].where, cases[i].rest);
}

/* ---- Rules ---- */

static const char *const names[] = { "users", "items", "shops" };

static enum embtier_err load_rules(void **state, const char *text, struct rules **ret_rules,
                                   struct err_msg *msg)
{
    const struct machine machine = loaded(state, GPUS TIERS SSD);

    write_text(*state, text);
    return rules_file_load(((struct trace_fixture *)*state)->path, &machine, names,
                           ARRAY_LEN(names), ret_rules, msg);
}

/* Compares behind the file's name. */
static void expect_place(const struct trace_fixture *fixture, const char *place, const char *words)
{
    const size_t skipped = strlen(fixture->path);

    assert_memory_equal(place, fixture->path, skipped);
    assert_string_equal(place + skipped, words);
}

static void test_messages_can_name_the_keys_of_both_files(void **state)
{
    const struct machine machine =
        loaded(state, "gpus:\n  {count: 1,\n  hbm_bytes: 40GB, hbm_bandwidth_bytes_per_s: 1600GB}\n"
                      "tiers:\n  - name: dram\n    bytes: 192GB\n"
                      "    bandwidth_bytes_per_s: 200GB\n"
                      "ssd:\n  bytes: 8TB\n  read_bandwidth_bytes_per_s: 6GB\n"
                      "  read_iops: 1e6\n");
    _cleanup_(rules_freep) struct rules *rules = NULL;
    struct err_msg msg = { { 0 } };

    expect_place(*state, machine.places.hbm_bytes.text, ":3: gpus.hbm_bytes");
    expect_place(*state, machine.places.tier_bytes[0].text, ":6: tiers[0].bytes");
    expect_place(*state, machine.places.ssd_bytes.text, ":9: ssd.bytes");
    expect_place(*state, machine.places.read_iops.text, ":11: ssd.read_iops");
    if (load_rules(state, "moved_bytes_max: 1GiB\ntarget_samples_per_s: 1e6\n", &rules, &msg) !=
        EMBTIER_OK)
        fail_msg("%s", msg.text);
    expect_place(*state, rules->target_place.text, ":2: target_samples_per_s");
    expect_place(*state, rules->moved_place.text, ":1: moved_bytes_max");
}

static void test_rules_are_what_their_file_says(void **state)
{
    _cleanup_(rules_freep) struct rules *rules = NULL;
    struct err_msg msg = { { 0 } };
    const struct model_rule *rule;

    if (load_rules(state,
                   "target_samples_per_s: 2.5e5\n"
                   "moved_bytes_max: 1GiB\n"
                   "least_gain: 0.25\n"
                   "limits: {read_iops: warning, drive_writes: error}\n"
                   "pin: [{table: users, memory: hbm, gpu: 1}, {table: items, gpu: 0}]\n"
                   "forbid: [{table: shops, memory: cache}]\n"
                   "together: [{tables: [users, items, shops]}]\n"
                   "reserve: [{memory: dram, bytes: 1GB}]\n"
                   "cache_least: [{memory: dram, bytes: 2GB}]\n"
                   "unsplit: [items]\n",
                   &rules, &msg) != EMBTIER_OK)
        fail_msg("%s", msg.text);
    assert_true(rules->target_samples_per_s == 2.5e5);
    assert_int_equal(rules->moved_bytes_max, GIB);
    assert_true(rules->least_gain == 0.25);
    assert_true(rules->warns[LIMIT_READ_IOPS] && !rules->warns[LIMIT_DRIVE_WRITES]);
    assert_int_equal(rules->cache_least_bytes[0], 2000000000);
    assert_int_equal(rules->rule_count, 6);
    assert_true(!rules->unsplit[0] && rules->unsplit[1] && !rules->unsplit[2]);
    rule = rules->rules;
    assert_int_equal(rule[0].kind, MODEL_PIN);
    assert_true(rule[0].table == 0 && rule[0].memory == 0 && rule[0].gpu == 1);
    assert_true(rule[1].table == 1 && rule[1].memory == MODEL_ANY && rule[1].gpu == 0);
    assert_int_equal(rule[2].kind, MODEL_FORBID);
    assert_true(rule[2].table == 2 && rule[2].memory == 2 && rule[2].gpu == MODEL_ANY);
    assert_true(rule[3].kind == MODEL_TOGETHER && rule[3].table == 0 && rule[3].other == 1);
    assert_true(rule[4].table == 0 && rule[4].other == 2);
    assert_true(rule[5].kind == MODEL_RESERVE && rule[5].memory == 1 &&
                rule[5].bytes == 1000000000);
    /* Messages name a rule by its place. */
    assert_non_null(strstr(rule[1].name, ":5: pin[1]"));
    assert_non_null(strstr(rule[4].name, ":7: together[0]"));
    assert_non_null(strstr(rule[5].name, ":8: reserve[0]"));
}

static void test_an_empty_file_has_no_rules(void **state)
{
    _cleanup_(rules_freep) struct rules *rules = NULL;
    struct err_msg msg = { { 0 } };

    assert_int_equal(load_rules(state, "# none\n", &rules, &msg), EMBTIER_OK);
    assert_int_equal(rules->rule_count, 0);
    assert_int_equal(rules->moved_bytes_max, UINT64_MAX);
    assert_true(rules->least_gain == RULES_LEAST_GAIN);
}

static void test_mistakes_of_rules(void **state)
{
    static const struct {
        const char *text, *where, *rest;
    } cases[] = {
        { "pin: [{memory: hbm}]\n", "1: pin[0].table: is missing", "allowed: a table" },
        { "pin:\n- {table: users, memory: hbm}\n- {table: uers, memory: hbm}\n",
          "3: pin[1].table: there is no table `uers`", "such as `users`" },
        { "pin: [{table: users, memory: hmb}]\n", "1: pin[0].memory: `hmb` cannot be here",
          "allowed: hbm, dram, cache" },
        { "pin: [{table: users}]\n", "1: pin[0].memory: is missing", "allowed: hbm" },
        { "pin: [{table: users, gpu: 2}]\n", "1: pin[0].gpu: `2` is not possible", "0 to 1" },
        { "forbid: [{table: users, memory: ssd}]\n", "1: forbid[0].memory: `ssd` cannot be here",
          "allowed: hbm, dram, cache" },
        { "together: [{tables: [users]}]\n", "1: together[0].tables: has too few", "at least 2" },
        { "unsplit: [users,\n  x]\n", "2: unsplit[1]: there is no table `x`", "such as `users`" },
        { "together: [{tables: [users, x]}]\n", "1: together[0].tables[1]: there is no table `x`",
          "allowed" },
        { "reserve: [{memory: cache, bytes: 1GB}]\n", "1: reserve[0].memory: `cache` cannot",
          "allowed: hbm, dram" },
        { "reserve: [{memory: dram, gpu: 0, bytes: 1GB}]\n", "1: reserve[0].gpu: all GPUs share",
          "only with hbm" },
        { "reserve: [{memory: dram}]\n", "1: reserve[0].bytes: is missing", "allowed: 1B" },
        { "cache_least: [{memory: hbm, bytes: 1GB}]\n", "1: cache_least[0].memory: `hbm` cannot",
          "allowed: dram" },
        { "cache_least: [{memory: dram, bytes: 193GiB}]\n",
          "1: cache_least[0].bytes: 193GiB is more", "to 178.81GiB" },
        { "cache_least: [{memory: dram, bytes: 1GB}, {memory: dram, bytes: 1GB}]\n",
          "1: cache_least[1].memory: `dram` is given twice", "once" },
        { "limits: {target: ignore}\n", "1: limits.target: `ignore` is not possible",
          "allowed: error, warning" },
        { "target_samples_per_s: -5\n", "1: target_samples_per_s: `-5` is not possible", "1e-06" },
        { "moved_bytes_max: many\n", "1: moved_bytes_max: `many` is not possible", "allowed" },
        { "least_gain: 1.5\n", "1: least_gain: ", "0 to 1" },
        { "pins: []\n", "1: pins: unknown key", "did you mean `pin`?" },
        { "pin: {table: users}\n", "1: pin: is not a list", "allowed: a list" },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        _cleanup_(rules_freep) struct rules *rules = NULL;
        struct err_msg msg = { { 0 } };

        assert_int_equal(load_rules(state, cases[i].text, &rules, &msg), EMBTIER_CONFIG);
        expect_text(*state, &msg, cases[i].where, cases[i].rest);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, trace_fixture_new, trace_fixture_free)
    const struct CMUnitTest tests[] = {
        TEST(test_a_machine_is_what_its_file_says),
        TEST(test_messages_can_name_the_keys_of_both_files),
        TEST(test_limits_may_be_missing),
        TEST(test_prices_add_up_if_all_are_known),
        TEST(test_mistakes_of_a_machine),
        TEST(test_rules_are_what_their_file_says),
        TEST(test_an_empty_file_has_no_rules),
        TEST(test_mistakes_of_rules),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
