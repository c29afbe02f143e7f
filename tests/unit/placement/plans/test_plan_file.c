/* SPDX-License-Identifier: Apache-2.0 */
/* test_plan_file.c: is a saved plan the plan that it was, and does a bad one end in a clear error?
 */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#include "placement/plan/plan_file.h"
#include "tests/unit/placement/plans/plan_fixture.h"
#include "tests/unit/placement/trace_fixture.h"

struct text {
    char *text;
    size_t bytes;
};

static struct text text_of(const struct plan *plan)
{
    struct text text = { 0 };
    FILE *const file = open_memstream(&text.text, &text.bytes);

    assert_non_null(file);
    plan_file_write(plan, file);
    assert_int_equal(fclose(file), 0);
    return text;
}

/* ---- Whole plans ---- */

static void assert_same_plans(const struct plan *a, const struct plan *b)
{
    struct plan whole = *b;

    assert_int_equal(a->table_count, b->table_count);
    assert_int_equal(a->memory_count, b->memory_count);
    assert_memory_equal(a->tables, b->tables, a->table_count * sizeof(*a->tables));
    assert_memory_equal(a->memories, b->memories, a->memory_count * sizeof(*a->memories));
    whole.tables = a->tables;
    whole.memories = a->memories;
    whole.file = a->file; /* one of them was not read from a file */
    assert_memory_equal(a, &whole, sizeof(whole));
}

static void test_loads_the_same_bits(void **state)
{
    struct random random = { 7 };
    struct err_msg msg;

    (void)state;
    for (uint32_t i = 0; i < 200; i++) {
        const uint32_t gpus = (uint32_t)random_below(&random, 4);
        const uint32_t tiers = (uint32_t)random_below(&random, PLAN_TIERS_MAX + 1);
        struct plan *const saved =
            draw_plan(&random, 1 + (uint32_t)random_below(&random, 20), gpus, tiers);
        struct plan *loaded = NULL;
        const struct text first = text_of(saved);
        struct text second;

        if (plan_file_parse("a.plan", first.text, first.bytes, &loaded, &msg) != EMBTIER_OK)
            fail_msg("%s\n%s", msg.text, first.text);
        assert_same_plans(saved, loaded);
        second = text_of(loaded);
        assert_int_equal(first.bytes, second.bytes);
        assert_memory_equal(first.text, second.text, first.bytes);
        plan_free(saved);
        plan_free(loaded);
        free(first.text);
        free(second.text);
    }
}

static void test_saves_a_file_once(void **state)
{
    const struct trace_fixture *const fixture = *state;
    struct random random = { 8 };
    _cleanup_(plan_freep) struct plan *saved = draw_plan(&random, 5, 1, 2);
    _cleanup_(plan_freep) struct plan *loaded = NULL;
    struct err_msg msg;

    assert_int_equal(plan_file_save(saved, fixture->path, &msg), EMBTIER_OK);
    saved->generation++;
    assert_int_equal(plan_file_save(saved, fixture->path, &msg), EMBTIER_EXISTS);
    assert_int_equal(plan_file_load(fixture->path, &loaded, &msg), EMBTIER_OK);
    assert_int_equal(loaded->generation, saved->generation - 1);
    unlink(fixture->path);
    saved->tables[0].dim = 0; /* an impossible plan leaves no file */
    assert_int_equal(plan_file_save(saved, fixture->path, &msg), EMBTIER_INVALID);
    assert_string_equal(msg.text, "tables[0].dim: 0; allowed: 1 to 8192");
    assert_int_equal(access(fixture->path, F_OK), -1);
}

/* The most tables, each with the most parts and the longest texts and figures. */
static void test_loads_the_longest_plan(void **state)
{
    struct random random = { 9 };
    _cleanup_(plan_freep) struct plan *saved = draw_plan(&random, PLAN_TABLES_MAX, 0, 4);
    _cleanup_(plan_freep) struct plan *loaded = NULL;
    const double figure = 1.2345678901234567e-123;
    struct text text;
    struct err_msg msg;

    (void)state;
    for (uint32_t i = 0; i < PLAN_TABLES_MAX; i++) {
        struct plan_table *const table = &saved->tables[i];

        memset(table->name, 'n', EMBTIER_TABLE_NAME_MAX - 5);
        snprintf(table->name + EMBTIER_TABLE_NAME_MAX - 5, 6, "%05" PRIu32, i);
        memset(table->reason, '"', sizeof(table->reason) - 1);
        for (uint32_t k = 0; k < table->part_count; k++)
            table->parts[k].time_s = table->parts[k].reads_per_s = figure;
    }
    text = text_of(saved);
    if (plan_file_parse("a.plan", text.text, text.bytes, &loaded, &msg) != EMBTIER_OK)
        fail_msg("%s", msg.text);
    assert_same_plans(saved, loaded);
    free(text.text);
}

/* ---- Mistakes ---- */

#define HEAD                                                                                       \
    "format: embtier-plan\n"                                                                       \
    "version: 1\n"                                                                                 \
    "generation: 2\n"                                                                              \
    "samples_per_s: 1e6\n"                                                                         \
    "samples_per_batch: 1000\n"                                                                    \
    "time_s: 0.001\n"                                                                              \
    "bound_s: 0.0009\n"                                                                            \
    "gpu_count: 1\n"                                                                               \
    "table_count: 2\n"                                                                             \
    "inputs:\n"                                                                                    \
    "  - {name: \"profile\", hash: \"0123456789abcdef\"}\n"
#define HBM                                                                                        \
    "  - {name: hbm, gpu: 0, capacity_bytes: 1600, array_bytes: 1600, cache_bytes: 0, "            \
    "bandwidth_bytes_per_s: 1e12, read_bytes: 5, time_s: 1e-6}\n"
#define DRAM                                                                                       \
    "  - {name: dram, capacity_bytes: 1MiB, array_bytes: 3200, cache_bytes: 1000, "                \
    "bandwidth_bytes_per_s: 1e11, read_bytes: 5, time_s: 1e-6}\n"
#define SSD                                                                                        \
    "  - {name: ssd, capacity_bytes: 1GiB, array_bytes: 6400, cache_bytes: 0, "                    \
    "bandwidth_bytes_per_s: 1e9, read_bytes: 5, time_s: 1e-6}\n"
#define MEMORIES "memories:\n" HBM DRAM SSD
#define USERS                                                                                      \
    "  - name: \"users\"\n"                                                                        \
    "    rows: 400\n"                                                                              \
    "    dim: 4\n"                                                                                 \
    "    dtype: f32\n"                                                                             \
    "    optimizer: none\n"                                                                        \
    "    gpu: 0\n"                                                                                 \
    "    read_bytes: 12\n"                                                                         \
    "    reason: \"hot\"\n"                                                                        \
    "    parts:\n"                                                                                 \
    "      - {home: hbm, rows: 100, bytes: 1600, lookup_share: 0.5, time_s: 0, reads_per_s: 0, "   \
    "writes_bytes_per_day: 0}\n"                                                                   \
    "      - {home: array, tier: dram, rows: 200, bytes: 3200, lookup_share: 0.25, time_s: 0, "    \
    "reads_per_s: 0, writes_bytes_per_day: 0}\n"                                                   \
    "      - {home: cache, rows: 100, lookup_share: 0.25, hit_rates: [0.5], cache_bytes: [90], "   \
    "time_s: 0, reads_per_s: 7, writes_bytes_per_day: 9}\n"
#define WORDS                                                                                      \
    "  - {name: words, rows: unbounded, dim: 4, dtype: f32, optimizer: none, gpu: 0, "             \
    "read_bytes: 1, parts: [{home: cache, rows: rest, lookup_share: 0, hit_rates: [0], "           \
    "cache_bytes: [0], time_s: 0, reads_per_s: 0, writes_bytes_per_day: 0}]}\n"
#define PLAN HEAD MEMORIES "tables:\n" USERS WORDS

static enum embtier_err parse(const char *text, size_t bytes, struct err_msg *ret_msg)
{
    _cleanup_(plan_freep) struct plan *plan = NULL;

    ret_msg->text[0] = '\0';
    return plan_file_parse("a.plan", text, bytes, &plan, ret_msg);
}

/* Replaces the first @what of PLAN. */
static char *changed(const char *what, const char *by)
{
    const char *const at = strstr(PLAN, what);
    char *text = NULL;

    if (!at)
        fail_msg("no '%s'", what);
    else
        assert_true(asprintf(&text, "%.*s%s%s", (int)(at - PLAN), PLAN, by, at + strlen(what)) > 0);
    return text;
}

static void test_reads_what_people_write(void **state)
{
    _cleanup_(plan_freep) struct plan *plan = NULL;
    struct err_msg msg = { { 0 } };

    (void)state;
    if (plan_file_parse("a.plan", PLAN, strlen(PLAN), &plan, &msg) != EMBTIER_OK)
        fail_msg("%s", msg.text);
    assert_int_equal(plan->memories[1].capacity_bytes, MIB);
    assert_int_equal(plan->tier_count, 1);
    assert_int_equal(plan->cache_bytes[0], 1000);
    assert_int_equal(plan->inputs[0].hash, UINT64_C(0x0123456789abcdef));
    assert_int_equal(plan->tables[0].parts[0].gpu, 0);
    assert_int_equal(plan->tables[0].parts[1].gpu, PLAN_NO_GPU);
    assert_int_equal(plan->tables[1].rows, EMBTIER_UNBOUNDED);
    assert_string_equal(plan->tables[1].reason, "");
}

static void test_knows_the_lines_of_its_keys(void **state)
{
    static const char deep[] = "/a/very/long/path/of/a/plan/that/somebody/keeps";
    struct err_msg msg = { { 0 } };
    struct plan *plan = NULL;
    char source[1000];

    (void)state;
    assert_int_equal(plan_file_parse("a.plan", PLAN, strlen(PLAN), &plan, &msg), EMBTIER_OK);
    assert_string_equal(PLAN_PLACE(plan, NULL, "generation"), "a.plan:3: generation: ");
    assert_string_equal(PLAN_PLACE(plan, NULL, "memories[%d].array_bytes", 1),
                        "a.plan:14: memories[1].array_bytes: ");
    assert_string_equal(PLAN_PLACE(plan, &plan->tables[0], "dim"), "a.plan:19: tables[0].dim: ");
    assert_string_equal(PLAN_PLACE(plan, &plan->tables[0], "parts[%d].tier", 1),
                        "a.plan:27: tables[0].parts[1].tier: ");
    assert_string_equal(PLAN_PLACE(plan, &plan->tables[1], "parts[0].tier"),
                        "a.plan:29: tables[1].parts[0].tier: "); /* the line of the part */
    plan_free(plan);

    for (size_t used = 0; used + sizeof(deep) < sizeof(source);) /* a long path keeps its end */
        used += (size_t)snprintf(source + used, sizeof(source) - used, "%s", deep);
    assert_int_equal(plan_file_parse(source, PLAN, strlen(PLAN), &plan, &msg), EMBTIER_OK);
    assert_non_null(strstr(PLAN_PLACE(plan, &plan->tables[0], "parts[%d].writes_bytes_per_day", 2),
                           "keeps:28: tables[0].parts[2].writes_bytes_per_day: "));
    plan_free(plan);

    assert_int_equal(plan_new(1, 1, &plan), EMBTIER_OK);
    assert_string_equal(PLAN_PLACE(plan, &plan->tables[0], "dim"), ""); /* made in memory */
    plan_free(plan);
}

/* A plan in JSON, which is YAML too, tells its version before its keys are looked at. */
static void test_a_newer_plan_in_json(void **state)
{
    static const char text[] = "{\"format\": \"embtier-plan\",\n \"version\": 2, \"key\": 1}";
    struct plan *plan = NULL;
    struct err_msg msg;

    (void)state;
    assert_int_equal(plan_file_parse("a.plan", text, strlen(text), &plan, &msg), EMBTIER_VERSION);
    assert_non_null(strstr(msg.text, "a.plan:2: version: 2 is newer than 1"));
    assert_null(plan);
}

static const struct {
    const char *what, *by, *message;
    enum embtier_err err;
} mistakes[] = {
    { "embtier-plan", "embtier-pan", "a.plan:1: format: not embtier-plan", EMBTIER_CONFIG },
    { "version: 1", "version: 2",
      "a.plan:2: version: 2 is newer than 1, which this embtier reads: update it",
      EMBTIER_VERSION },
    { "version: 1\n", "version: 99999999999999999999\nnew_key: 1\n",
      "a.plan:2: version: 4294967295 is newer than 1", EMBTIER_VERSION },
    { "version: 1", "version: one", "a.plan:2: version: `one`", EMBTIER_CONFIG },
    { "generation: 2", "generation: 0", "a.plan:3: generation: 0; allowed: 1 to", EMBTIER_CONFIG },
    { "generation: 2\n", "", "a.plan:1: generation: is missing; allowed: a whole number",
      EMBTIER_CONFIG },
    { "samples_per_s: 1e6", "samples_per_s: .nan", "a.plan:4: samples_per_s: `.nan`",
      EMBTIER_CONFIG },
    { "samples_per_s: 1e6", "samples_per_s: 1e999", "a.plan:4: samples_per_s: `1e999`",
      EMBTIER_CONFIG },
    { "samples_per_s: 1e6", "samples_per_s: -1", "a.plan:4: samples_per_s: -1; allowed: 0 to",
      EMBTIER_CONFIG },
    { "samples_per_batch: 1000", "samples_per_batch: 0", "a.plan:5: samples_per_batch: 0",
      EMBTIER_CONFIG },
    { "bound_s: 0.0009", "bound_s: 0.002", "a.plan:7: bound_s: 0.002; allowed: 0 to 0.001",
      EMBTIER_CONFIG },
    { "gpu_count: 1", "gpu_count: 65", "a.plan:8: gpu_count: 65; allowed: 0 to 64",
      EMBTIER_CONFIG },
    { "gpu_count: 1", "gpu_count: 0", "a.plan:13: memories[0].gpu: 0; allowed: below gpu_count",
      EMBTIER_CONFIG },
    { "table_count: 2", "table_count: 3",
      "a.plan:9: table_count: 3, but the file has 2 tables; allowed: their number, unless the "
      "file was cut short",
      EMBTIER_CONFIG },
    { "table_count: 2", "table_count: 4294967296", "a.plan:9: table_count: `4294967296`",
      EMBTIER_CONFIG },
    { "0123456789abcdef", "0123456789abcde", "a.plan:11: inputs[0].hash: ", EMBTIER_CONFIG },
    { "cache_bytes: 1000", "cache_bytes: 1MiB",
      "a.plan:14: memories[1].capacity_bytes: 1048576 (1MiB) does not hold 3200", EMBTIER_CONFIG },
    { "capacity_bytes: 1600", "capacity_bytes: 1599",
      "a.plan:13: memories[0].capacity_bytes: 1599 (1.56KiB) does not hold 1600 (1.56KiB) of "
      "arrays and 0 (0B) of cache",
      EMBTIER_CONFIG },
    { "array_bytes: 3200", "array_bytes: 3201",
      "a.plan:14: memories[1].array_bytes: 3201; allowed: 3200, the sum of the parts there",
      EMBTIER_CONFIG },
    { "array_bytes: 6400", "array_bytes: 6399",
      "a.plan:15: memories[2].array_bytes: 6399; allowed: from 6400, all rows", EMBTIER_CONFIG },
    { "array_bytes: 6400", "array_bytes: 2GiB",
      "a.plan:15: memories[2].capacity_bytes: ", EMBTIER_CONFIG },
    { "array_bytes: 1600", "array_bytes: -1600", "a.plan:13: memories[0].array_bytes: `-1600`",
      EMBTIER_CONFIG },
    { "1e12, read_bytes: 5", "0, read_bytes: 5",
      "a.plan:13: memories[0].bandwidth_bytes_per_s: 0; allowed: above 0", EMBTIER_CONFIG },
    { "name: ssd", "name: dram", "a.plan:15: memories[2].name: memories[1] has the name 'dram' too",
      EMBTIER_CONFIG },
    { "name: dram", "name: d/ram", "a.plan:14: memories[1].name: not the name of a memory",
      EMBTIER_CONFIG },
    { "cache_bytes: 0, bandwidth_bytes_per_s: 1e9", "cache_bytes: 1, bandwidth_bytes_per_s: 1",
      "a.plan:15: memories[2].cache_bytes: 1; allowed: 0", EMBTIER_CONFIG },
    { DRAM SSD, SSD DRAM, "a.plan:15: memories[2].name: 'dram' follows 'ssd'", EMBTIER_CONFIG },
    { DRAM, DRAM "  - {name: a}\n", "a.plan:15: memories[2].capacity_bytes: is missing",
      EMBTIER_CONFIG },
    { "name: \"users\"", "name: \"us ers\"", "a.plan:17: tables[0].name: not the name",
      EMBTIER_CONFIG },
    { "name: words", "name: users", "a.plan:29: tables[1].name: a table before has the name",
      EMBTIER_CONFIG },
    { "rows: 400", "rows: 401",
      "a.plan:25: tables[0].parts: 400 rows in all; allowed: the table's rows, 401",
      EMBTIER_CONFIG },
    { "rows: 400", "rows: -400", "a.plan:18: tables[0].rows: `-400`", EMBTIER_CONFIG },
    { "    rows: 400\n", "", "a.plan:17: tables[0].rows: is missing", EMBTIER_CONFIG },
    { "    rows: 400\n", "    rows: 400\n    rows: 400\n",
      "a.plan:19: tables[0].rows: is given "
      "twice, first in line 18",
      EMBTIER_CONFIG },
    { "dim: 4", "dim: 8193", "a.plan:19: tables[0].dim: 8193; allowed: 1 to 8192", EMBTIER_CONFIG },
    { "dtype: f32", "dtype: f64",
      "a.plan:20: tables[0].dtype: `f64` is not possible; allowed: "
      "f32, f16, bf16",
      EMBTIER_CONFIG },
    { "optimizer: none", "optimizer: lion", "a.plan:21: tables[0].optimizer: `lion`",
      EMBTIER_CONFIG },
    { "    gpu: 0\n", "    gpu: 1\n", "a.plan:22: tables[0].gpu: 1; allowed: 0 to 0",
      EMBTIER_CONFIG },
    { "    gpu: 0\n", "", "a.plan:17: tables[0].gpu: is missing; allowed: 0 to 0", EMBTIER_CONFIG },
    { "\"hot\"", "\"hot\\n\"", "a.plan:24: tables[0].reason: not plain", EMBTIER_CONFIG },
    { "\"hot\"", "\"hot\\e[2J\"", "a.plan:24: tables[0].reason: not plain", EMBTIER_CONFIG },
    { "home: hbm", "home: gpu",
      "a.plan:26: tables[0].parts[0].home: `gpu` is not possible; "
      "allowed: hbm, array, cache",
      EMBTIER_CONFIG },
    { "home: hbm", "home: array", "a.plan:26: tables[0].parts[0].tier: is missing",
      EMBTIER_CONFIG },
    { "home: array, tier: dram", "home: hbm", "a.plan:27: tables[0].parts[1].home: out of order",
      EMBTIER_CONFIG },
    { "home: hbm", "home: cache",
      "a.plan:26: tables[0].parts[0].bytes: is no key of a part with "
      "this home",
      EMBTIER_CONFIG },
    { "tier: dram", "tier: pmem",
      "a.plan:27: tables[0].parts[1].tier: 'pmem' is no tier of this "
      "plan",
      EMBTIER_CONFIG },
    { "tier: dram", "tier: ssd", "a.plan:27: tables[0].parts[1].tier: 'ssd' is no tier",
      EMBTIER_CONFIG },
    { "rows: 100, bytes: 1600", "rows: 101, bytes: 1600",
      "a.plan:26: tables[0].parts[0].bytes: 1600; allowed: at least 16 for each of 101 rows",
      EMBTIER_CONFIG },
    { "rows: 100, bytes: 1600", "rows: 18446744073709551615, bytes: 1600",
      "a.plan:26: tables[0].parts[0].bytes: 1600; allowed: at least 16 for each of",
      EMBTIER_CONFIG },
    { "rows: 100, bytes: 1600, ", "rows: 100, ",
      "a.plan:26: tables[0].parts[0].bytes: is missing; allowed: bytes", EMBTIER_CONFIG },
    { "rows: 100, bytes: 1600, ", "rows: rest, bytes: 1600, ",
      "a.plan:26: tables[0].parts[0].rows: no rows", EMBTIER_CONFIG },
    { "rows: 100, lookup_share: 0.25", "rows: 18446744073709551615, lookup_share: 0.25",
      "a.plan:25: tables[0].parts: over 18446744073709551615 rows in all", EMBTIER_CONFIG },
    { "lookup_share: 0.5", "lookup_share: 0.6",
      "a.plan:25: tables[0].parts: lookup_share is 1.1 in all; allowed: 1", EMBTIER_CONFIG },
    { "lookup_share: 0.5", "lookup_share: 1.5",
      "a.plan:26: tables[0].parts[0].lookup_share: 1.5; allowed: 0 to 1", EMBTIER_CONFIG },
    { "hit_rates: [0.5]", "hit_rates: [0.5, 0.25]",
      "a.plan:28: tables[0].parts[2].hit_rates: 2 numbers; allowed: 1, one for each tier",
      EMBTIER_CONFIG },
    { "hit_rates: [0.5], ", "", "a.plan:28: tables[0].parts[2].hit_rates: 0 numbers",
      EMBTIER_CONFIG },
    { "hit_rates: [0.5]", "hit_rates: [1.5]", "a.plan:28: tables[0].parts[2].hit_rates[0]: 1.5",
      EMBTIER_CONFIG },
    { "hit_rates: [0.5]", "hit_rates: [nan]", "a.plan:28: tables[0].parts[2].hit_rates[0]: `nan`",
      EMBTIER_CONFIG },
    { "hit_rates: [0.5]", "hit_rates: [[[[[[[[[[",
      "a.plan:28: tables[0].parts[2].hit_rates[0]: is a list; allowed: one value", EMBTIER_CONFIG },
    { "cache_bytes: [90]", "cache_bytes: [1001]",
      "a.plan:28: tables[0].parts[2].cache_bytes[0]: 1001; allowed: 0 to 1000", EMBTIER_CONFIG },
    { "rows: rest", "rows: 7", "a.plan:29: tables[1].parts[0].rows: 7; allowed: rest",
      EMBTIER_CONFIG },
    { "{home: cache, rows: rest, ", "{home: hbm, rows: rest, bytes: 1, ",
      "a.plan:29: tables[1].parts[0].hit_rates: is no key", EMBTIER_CONFIG },
    { "    gpu: 0\n", "    gpu: 0\n    unsplit: true\n",
      "a.plan:26: tables[0].parts: 3 parts; allowed: 1, as unsplit forbids to split this table",
      EMBTIER_CONFIG },
    { "    gpu: 0\n", "    gpu: 0\n    unsplit: yes\n",
      "a.plan:23: tables[0].unsplit: `yes` is not possible; allowed: true, false", EMBTIER_CONFIG },
    { "rows: 100, bytes: 1600", "rows: 0, bytes: 1600", "a.plan:26: tables[0].parts[0].rows: `0`",
      EMBTIER_CONFIG },
    { "read_bytes: 12", "read_bites: 12",
      "a.plan:23: tables[0].read_bites: unknown key, did you mean `read_bytes`?", EMBTIER_CONFIG },
    { "read_bytes: 12", "read_bytes: &a 12\n    x: *a", "a.plan:24: tables[0].x: unknown key",
      EMBTIER_CONFIG },
};

static void test_names_each_mistake(void **state)
{
    struct err_msg msg;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(mistakes); i++) {
        _cleanup_(freep) char *text = changed(mistakes[i].what, mistakes[i].by);
        const enum embtier_err err = parse(text, strlen(text), &msg);

        if (err != mistakes[i].err ||
            strncmp(msg.text, mistakes[i].message, strlen(mistakes[i].message)) != 0)
            fail_msg("%s > %s: %s: %s", mistakes[i].what, mistakes[i].by, err_name(err), msg.text);
    }
}

/* ---- Mistakes that no file can have ---- */

/* Finds a table that lies in HBM and in the cache. Returns its cached part. */
static struct plan_part *hbm_and_cache(struct plan *plan, struct plan_table **ret_table)
{
    for (uint32_t i = 0; i < plan->table_count; i++) {
        struct plan_table *const table = &plan->tables[i];

        *ret_table = table;
        if (table->part_count == 2 && table->parts[0].home == PLAN_HBM &&
            table->parts[1].home == PLAN_CACHE)
            return &table->parts[1];
    }
    fail_msg("no such table");
    return NULL;
}

static void assert_mistake(const struct plan *plan, const char *expected)
{
    struct plan_mistake mistake = { { 0 }, { 0 } };
    char found[600];

    assert_int_equal(plan_find_mistake(plan, &mistake), EMBTIER_INVALID);
    snprintf(found, sizeof(found), "%s: %s", mistake.key, mistake.text);
    if (!strstr(found, expected))
        fail_msg("%s, not %s", found, expected);
}

/* Breaks a number, finds the mistake, and mends it. */
#define assert_breaks(plan, member, value, expected)                                               \
    do {                                                                                           \
        const __typeof__(member) kept = (member);                                                  \
        (member) = (value);                                                                        \
        assert_mistake(plan, expected);                                                            \
        (member) = kept;                                                                           \
    } while (0)

static void test_checks_a_plan_that_was_made(void **state)
{
    struct random random = { 12 };
    _cleanup_(plan_freep) struct plan *plan = draw_plan(&random, 100, 2, 2);
    struct plan_table *table = NULL;
    struct plan_part *const cached = hbm_and_cache(plan, &table), *const array = table->parts;
    struct err_msg msg;

    (void)state;
    cached->hit_rates[1] = 0.4;
    assert_breaks(plan, cached->hit_rates[0], 0.8, ".hit_rates: 1.2 in all; allowed: at most 1");
    assert_breaks(plan, cached->hit_rates[2], 0.1, ".hit_rates[2]: 0.1; allowed: 0 to 0");
    assert_breaks(plan, cached->bytes, 1, ".bytes: 1; allowed: 0 in the cache");
    assert_breaks(plan, cached->gpu, 0, ".home: not in the memory of the table's GPU");
    assert_breaks(plan, cached->tier[0], 'x', ".tier: only an array is in a tier");
    assert_breaks(plan, cached->time_s, NAN, ".time_s: nan; allowed: 0 to");
    assert_breaks(plan, cached->reads_per_s, -1, ".reads_per_s: -1; allowed: 0 to");
    assert_breaks(plan, cached->writes_bytes_per_day, INFINITY, ".writes_bytes_per_day: inf");
    assert_breaks(plan, array->gpu, 1 - array->gpu, ".home: not in the memory of the table's GPU");
    assert_breaks(plan, array->hit_rates[0], 0.5, ".hit_rates[0]: 0.5; allowed: 0 to 0");
    assert_breaks(plan, table->part_count, 7, ".parts: 7; allowed: 1 to 6");
    assert_breaks(plan, table->dtype, 9, ".dtype: unknown");
    assert_breaks(plan, table->optimizer, 99, ".optimizer: unknown");
    assert_breaks(plan, table->gpu, 2, ".gpu: 2; allowed: 0 to 1");
    assert_breaks(plan, plan->cache_bytes[1], 7, "memories: tier-1 has ");
    assert_breaks(plan, plan->tier_count, 1, "memories: 2 tiers; allowed: 1");
    assert_breaks(plan, plan->memory_count, PLAN_MEMORIES_MAX + 1,
                  "memories: 70; allowed: 1 to 69");
    assert_breaks(plan, plan->table_count, PLAN_TABLES_MAX + 1, "tables: 8193; allowed: 1 to 8192");
    assert_breaks(plan, plan->time_s, NAN, "time_s: nan");
    cached->hit_rates[0] = 0;
    assert_int_equal(plan_check(plan, &msg), EMBTIER_OK);
}

static void test_refuses_a_file_cut_short(void **state)
{
    const size_t bytes = strlen(PLAN);
    struct err_msg msg;

    (void)state;
    for (size_t i = 0; i + 1 < bytes; i++) {
        _cleanup_(freep) char *text = strndup(PLAN, i); /* sanitizers see reads behind its end */

        if (parse(text, i, &msg) != EMBTIER_CONFIG)
            fail_msg("%zu bytes are a plan:\n%s", i, text);
        assert_memory_equal(msg.text, "a.plan:", 7);
    }
    assert_int_equal(parse(PLAN, bytes - 1, &msg), EMBTIER_OK); /* without the last newline */
}

/* No change of a byte may crash the reader, or make a plan that cannot be. */
static void test_survives_changed_bytes(void **state)
{
    static const char letters[] = "\n \t-:,[]{}\"'&*#|>%@`09.eE+a~\x7f\xff";
    struct random random = { 11 };
    struct err_msg msg;

    (void)state;
    for (uint32_t i = 0; i < 3000; i++) {
        _cleanup_(plan_freep) struct plan *plan = NULL;
        _cleanup_(freep) char *text = strdup(PLAN);

        for (uint64_t k = 1 + random_below(&random, 3); k > 0; k--)
            text[random_below(&random, strlen(PLAN))] =
                letters[random_below(&random, sizeof(letters) - 1)];
        if (plan_file_parse("a.plan", text, strlen(PLAN), &plan, &msg) == EMBTIER_OK)
            assert_int_equal(plan_check(plan, &msg), EMBTIER_OK);
        else
            assert_memory_equal(msg.text, "a.plan:", 7);
    }
}

/* ---- Hostile files ---- */

static void test_refuses_too_much(void **state)
{
    static const struct {
        const char *head, *item, *message;
        uint32_t count;
    } cases[] = {
        { HEAD MEMORIES "tables:\n", WORDS, "has too many items; allowed: at most 8192",
          PLAN_TABLES_MAX + 1 },
        { HEAD "memories:\n", DRAM, "memories: has too many items", PLAN_MEMORIES_MAX + 1 },
        { HEAD "memories:\n", DRAM, "tables: is missing", 1 },
        { HEAD, "  - {name: a, hash: b}\n", "inputs: has too many items", PLAN_INPUTS_MAX + 1 },
        { HEAD "memories:\n", "[", "a.plan:13: memories: ", 1000000 },
        { "tables: ", "[", "is a list, where a mapping of keys is needed", 1000000 },
        { "tables: ", "{", "is not a list", 1000000 },
        { "", "#", "the file is too large", PLAN_FILE_BYTES_MAX + 1 },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const size_t head = strlen(cases[i].head), item = strlen(cases[i].item);
        const size_t bytes = head + item * cases[i].count;
        _cleanup_(freep) char *text = malloc(bytes);
        struct err_msg msg;

        memcpy(text, cases[i].head, head);
        for (uint32_t k = 0; k < cases[i].count; k++)
            memcpy(text + head + item * k, cases[i].item, item);
        assert_int_equal(parse(text, bytes, &msg), EMBTIER_CONFIG);
        if (!strstr(msg.text, cases[i].message))
            fail_msg("%zu: %s", i, msg.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_newer_plan_in_json),
        cmocka_unit_test(test_loads_the_same_bits),
        cmocka_unit_test_setup_teardown(test_saves_a_file_once, trace_fixture_new,
                                        trace_fixture_free),
        cmocka_unit_test(test_loads_the_longest_plan),
        cmocka_unit_test(test_reads_what_people_write),
        cmocka_unit_test(test_knows_the_lines_of_its_keys),
        cmocka_unit_test(test_names_each_mistake),
        cmocka_unit_test(test_checks_a_plan_that_was_made),
        cmocka_unit_test(test_refuses_a_file_cut_short),
        cmocka_unit_test(test_survives_changed_bytes),
        cmocka_unit_test(test_refuses_too_much),
    };

    return cmocka_run_group_tests_name("plan_file", tests, NULL, NULL);
}
