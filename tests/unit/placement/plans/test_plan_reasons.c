/* SPDX-License-Identifier: Apache-2.0 */
/* test_plan_reasons.c: is each sentence about a table true of the plan that it stands in? */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#include <stdlib.h>

#include "base/text/bytes.h"
#include "placement/plan/plan_reasons.h"
#include "tests/unit/placement/plans/plan_fixture.h"

/* Sentences are compared with the numbers by other code than that which chose them. */
struct claims {
    uint32_t no_room, idle_array, colder, hottest, room, no_lookups, unbounded, cold, no_array,
        shares, split, sets_time, split_it;
};

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static bool is_ssd(const struct plan_memory *memory)
{
    return strcmp(memory->name, PLAN_SSD) == 0;
}

/* Memories come sorted by speed, but all GPUs' memories are as fast. */
static bool is_faster(const struct plan *plan, uint32_t a, uint32_t b)
{
    return a < b && plan->memories[b].gpu == PLAN_NO_GPU;
}

static bool is_whole(const struct plan_table *table)
{
    return table->part_count == 1 && table->rows != EMBTIER_UNBOUNDED;
}

static double bytes_of(const struct plan_table *table)
{
    return (double)table->rows * (double)plan_row_bytes(table);
}

static bool has_bytes(const struct plan_table *table, const char *before, double bytes)
{
    struct bytes_text text;
    char what[80];

    snprintf(what, sizeof(what), "%s%s", before, format_bytes_rounded(&text, bytes));
    return strstr(table->reason, what) != NULL;
}

static double share_read(const struct plan_table *table)
{
    return table->read_bytes / bytes_of(table);
}

static bool has(const char *text, const char *format, double number)
{
    char what[64];

    snprintf(what, sizeof(what), format, number);
    return strstr(text, what) != NULL;
}

/* A batch may read a row many times, and so more than the table's bytes. */
static void assert_reads(const struct plan_table *table)
{
    const double share = share_read(table);

    assert_non_null(strstr(table->reason, "each batch reads "));
    assert_null(strstr(table->reason, "e+"));
    assert_true(share < 1 ? has(table->reason, "each batch reads %.3g%% of ", 100 * share)
                          : has(table->reason, share < 100 ? " %.1f times" : " %.0f times", share));
}

/* Arrays leave less room in all memories that are faster than the table's (or in all, if it is
 * cached), and the one that is named has the most. The cache takes part of that room. */
static void assert_no_room(const struct plan *plan, const struct plan_table *table)
{
    const uint32_t own = plan_memory_of(plan, table->parts);
    uint64_t most = 0;

    for (uint32_t i = 0; i < plan->memory_count; i++) {
        const struct plan_memory *const memory = &plan->memories[i];
        const uint64_t left = memory->capacity_bytes - memory->array_bytes;

        if (is_ssd(memory) || !is_faster(plan, i, own) ||
            (memory->gpu != PLAN_NO_GPU && memory->gpu != table->gpu))
            continue;
        assert_true((double)left < bytes_of(table));
        most = MAX(most, left);
    }
    assert_true(has_bytes(table, "its ", bytes_of(table)));
    assert_true(has_bytes(table, " are more than the ", (double)most));
}

static void assert_density(const struct plan *plan, const struct plan_table *table, bool is_hot)
{
    const uint32_t own = plan_memory_of(plan, table->parts);
    bool has_any = false;

    assert_reads(table);
    for (uint32_t i = 0; i < plan->table_count; i++) {
        const struct plan_table *const other = &plan->tables[i];
        const uint32_t memory = plan_memory_of(plan, other->parts);

        if (!is_whole(other))
            continue;
        has_any |= is_hot ? is_faster(plan, own, memory) : is_faster(plan, memory, own);
        if (is_hot && is_faster(plan, own, memory))
            assert_true(share_read(other) <= share_read(table));
        if (!is_hot && is_faster(plan, memory, own))
            assert_true(share_read(other) >= share_read(table));
    }
    assert_true(has_any);
}

static void assert_hits(const struct plan *plan, const struct plan_table *table, const char *whose)
{
    const struct plan_part *const part = &table->parts[table->part_count - 1];
    double hits = 0;

    for (uint32_t i = 0; i < plan->tier_count; i++)
        hits += part->hit_rates[i];
    assert_true(has(table->reason, "%.3g%% of ", 100 * MIN(hits, 1.0)));
    assert_non_null(strstr(table->reason, whose));
}

static void check_array(const struct plan *plan, const struct plan_table *table,
                        struct claims *claims)
{
    assert_true(is_whole(table) && table->parts->home != PLAN_CACHE);
    if (begins(table->reason, "fits nowhere faster: ")) {
        claims->no_room++;
        assert_no_room(plan, table);
    } else if (begins(table->reason, "colder: ")) {
        claims->colder++;
        assert_density(plan, table, false);
    } else if (begins(table->reason, "hottest bytes: ")) {
        claims->hottest++;
        assert_density(plan, table, true);
    } else if (begins(table->reason, "no lookups, but ")) {
        claims->idle_array++;
        assert_true(table->read_bytes == 0);
        assert_true(has_bytes(table, " has room for all ", bytes_of(table)));
    } else {
        claims->room++;
        assert_true(begins(table->reason, "each batch reads "));
        assert_reads(table);
        assert_true(has_bytes(table, " has room for all ", bytes_of(table)));
        assert_non_null(
            strstr(table->reason, plan->memories[plan_memory_of(plan, table->parts)].name));
    }
}

static void check_cached(const struct plan *plan, const struct plan_table *table,
                         struct claims *claims)
{
    assert_true(table->part_count == 1 && table->parts->home == PLAN_CACHE);
    if (begins(table->reason, "no lookups: ")) {
        claims->no_lookups++;
        assert_true(table->parts->lookup_share == 0);
        return;
    }
    assert_hits(plan, table, "% of its lookups hit the cache");
    if (begins(table->reason, "unbounded: ")) {
        claims->unbounded++;
        assert_int_equal(table->rows, EMBTIER_UNBOUNDED);
    } else if (begins(table->reason, "well served by the cache; ")) {
        claims->cold++;
        assert_true(plan_part_hit_rate(plan, table->parts) >= 0.9);
    } else if (begins(table->reason, "fits in no array: ")) {
        claims->no_array++;
        assert_no_room(plan, table);
    } else {
        claims->shares++;
        assert_true(begins(table->reason, "shares the cache; "));
    }
}

static void check_split(const struct plan *plan, const struct plan_table *table,
                        struct claims *claims)
{
    const struct plan_part *const last = &table->parts[table->part_count - 1];

    claims->split++;
    assert_true(begins(table->reason, "split by hotness: "));
    for (uint32_t i = 0; i < table->part_count; i++) {
        const struct plan_part *const part = &table->parts[i];
        char what[100];

        snprintf(what, sizeof(what), i == 0 ? "%s takes %.3g%% of its lookups" : "%s %.3g%%",
                 plan->memories[plan_memory_of(plan, part)].name, 100 * part->lookup_share);
        if (part->home != PLAN_CACHE)
            assert_non_null(strstr(table->reason, what));
    }
    if (table->rows != EMBTIER_UNBOUNDED)
        assert_true(has(table->reason, " with %.3g%% of its rows",
                        100 * (double)table->parts->rows / (double)table->rows));
    if (last->home == PLAN_CACHE) {
        if (table->parts[table->part_count - 1].lookup_share > 0)
            assert_hits(plan, table, "% of the other lookups hit the cache");
        else
            assert_non_null(strstr(table->reason, "; no lookups are left for the cache"));
    }
}

static double time_of(const struct plan_table *table)
{
    double time = 0;

    for (uint32_t i = 0; i < table->part_count; i++)
        time += table->parts[i].time_s;
    return time;
}

static double load_of(const struct plan *plan, uint32_t gpu)
{
    double load = 0;

    for (uint32_t i = 0; i < plan->table_count; i++)
        if (plan->tables[i].gpu == gpu)
            load += time_of(&plan->tables[i]);
    return load;
}

/* Cutting the table could put its hottest rows into faster memory. */
static bool may_be_split(const struct plan *plan, const struct plan_table *table)
{
    const uint32_t own = plan_memory_of(plan, table->parts);

    for (uint32_t i = 0; i < plan->table_count; i++)
        if (plan->tables[i].part_count > 1)
            return false;
    for (uint32_t i = 0; i < own; i++)
        if (is_faster(plan, i, own) &&
            (plan->memories[i].gpu == PLAN_NO_GPU || plan->memories[i].gpu == table->gpu))
            return table->rows != 1 && !table->unsplit;
    return false;
}

static void check_time(const struct plan *plan, const struct plan_table *table,
                       struct claims *claims)
{
    const double load = load_of(plan, table->gpu);
    const char *const at = strstr(table->reason, "; sets the time, ");

    for (uint32_t gpu = 0; at && gpu < plan->gpu_count; gpu++)
        assert_true(load_of(plan, gpu) <= load);
    if (!at)
        return;
    claims->sets_time++;
    claims->split_it += strstr(at, ": split it") != NULL;
    assert_true(time_of(table) >= 0.5 * load);
    assert_true(has(at, "%.3g%% of that of ", 100 * time_of(table) / load));
    assert_int_equal(strstr(at, ": split it") != NULL, may_be_split(plan, table));
    assert_int_equal(strstr(at, "slowest GPU") != NULL, plan->gpu_count > 0);
}

static void test_is_true_of_its_plan(void **state)
{
    struct claims claims = { 0 };
    struct random random = { 31 };

    (void)state;
    for (uint32_t i = 0; i < 400; i++) {
        const uint32_t gpus = (uint32_t)random_below(&random, 3);
        const uint32_t tiers = (uint32_t)random_below(&random, PLAN_TIERS_MAX + 1);
        _cleanup_(plan_freep) struct plan *plan =
            draw_plan(&random, 1 + (uint32_t)random_below(&random, 12), gpus, tiers);
        struct err_msg msg;

        for (uint32_t k = 0; k < plan->table_count; k++)
            plan->tables[k].reason[0] = '\0';
        plan_explain(plan, false);
        assert_int_equal(plan_check(plan, &msg), EMBTIER_OK);
        for (uint32_t k = 0; k < plan->table_count; k++) {
            const struct plan_table *const table = &plan->tables[k];

            if (table->part_count > 1)
                check_split(plan, table, &claims);
            else if (table->parts->home == PLAN_CACHE)
                check_cached(plan, table, &claims);
            else
                check_array(plan, table, &claims);
            check_time(plan, table, &claims);
        }
    }
    /* Each sentence was made, so each was checked. */
    for (size_t i = 0; i < sizeof(claims) / sizeof(uint32_t); i++)
        if (((const uint32_t *)&claims)[i] == 0)
            fail_msg("sentence %zu was never made", i);
}

/* ---- A plan made by hand ---- */

static void put_memory(struct plan *plan, uint32_t number, const char *name, uint64_t left)
{
    struct plan_memory *const memory = &plan->memories[number];

    snprintf(memory->name, sizeof(memory->name), "%s", name);
    memory->gpu = number == 0 ? 0 : PLAN_NO_GPU;
    memory->bandwidth_bytes_per_s = 1e9;
    memory->capacity_bytes = memory->array_bytes + left;
}

/* Puts a table of @rows rows of 4 bytes whole into a memory of the plan. */
static void put_table(struct plan *plan, uint32_t number, enum plan_home home, uint64_t rows,
                      double read_bytes)
{
    struct plan_table *const table = &plan->tables[number];
    struct plan_part *const part = table->parts;

    *table = (struct plan_table){ .rows = rows, .dim = 1, .dtype = EMBTIER_DTYPE_F32 };
    table->part_count = 1;
    snprintf(table->name, sizeof(table->name), "t%" PRIu32, number);
    table->read_bytes = read_bytes;
    *part = (struct plan_part){ .home = home, .gpu = PLAN_NO_GPU, .rows = rows };
    part->lookup_share = 1;
    if (home == PLAN_HBM)
        part->gpu = 0;
    if (home == PLAN_ARRAY)
        snprintf(part->tier, sizeof(part->tier), "dram");
    if (home == PLAN_CACHE)
        part->hit_rates[0] = 0.95;
    else
        part->bytes = 4 * rows;
    plan->memories[home].array_bytes += part->bytes;
    plan->memories[2].array_bytes += 4 * rows; /* SSD has all rows */
}

static void test_says_what_the_numbers_say(void **state)
{
    static const char *const expected[] = {
        "hottest bytes: each batch reads 50% of them; no whole table in slower memory has a larger "
        "share; sets the time, 60% of that of the slowest GPU",
        "colder: each batch reads 25% of its bytes; no whole table in faster memory has a smaller "
        "share",
        "fits nowhere faster: its 4.0 KiB are more than the 2.0 KiB that other arrays leave of hbm",
        "well served by the cache; 95% of its lookups hit the cache",
    };
    static const double times[] = { 6, 1, 2, 1 };
    _cleanup_(plan_freep) struct plan *plan = NULL;
    struct err_msg msg = { { 0 } };

    (void)state;
    assert_int_equal(plan_new(4, 3, &plan), EMBTIER_OK);
    plan->generation = plan->gpu_count = plan->tier_count = 1;
    plan->samples_per_batch = 1;
    put_table(plan, 0, PLAN_HBM, 100, 200);
    put_table(plan, 1, PLAN_ARRAY, 100, 100);
    put_table(plan, 2, PLAN_ARRAY, 1024, 2048);
    put_table(plan, 3, PLAN_CACHE, 1024, 0);
    put_memory(plan, 0, "hbm", 2048);
    put_memory(plan, 1, "dram", 0);
    put_memory(plan, 2, PLAN_SSD, 0);
    for (uint32_t i = 0; i < 4; i++)
        plan->tables[i].parts->time_s = times[i];
    if (plan_check(plan, &msg) != EMBTIER_OK)
        fail_msg("%s", msg.text);
    plan_explain(plan, false);
    for (uint32_t i = 0; i < 4; i++)
        assert_string_equal(plan->tables[i].reason, expected[i]);
    /* Table 1 becomes hotter than the one in HBM, and fits there. */
    plan->tables[1].read_bytes = 240;
    plan->tables[1].reason[0] = '\0';
    plan_explain(plan, false);
    assert_string_equal(plan->tables[1].reason,
                        "hottest bytes: each batch reads 60% of them; no whole table in slower "
                        "memory has a larger share");
    /* A batch may read a row many times. Arrays leave nothing of HBM, but what the cache has of
     * DRAM would do. */
    plan->tables[1].read_bytes = 4800;
    plan->tables[1].reason[0] = plan->tables[3].reason[0] = '\0';
    plan->tables[3].parts->hit_rates[0] = 0.5;
    plan->memories[1].capacity_bytes += 4096;
    plan->memories[1].cache_bytes = plan->cache_bytes[0] = 4096;
    plan_explain(plan, false);
    assert_string_equal(plan->tables[1].reason,
                        "hottest bytes: each batch reads them 12.0 times; no whole table in slower "
                        "memory has a larger share");
    assert_string_equal(plan->tables[3].reason,
                        "shares the cache; 50% of its lookups hit the cache");
}

/* A planner that may cut tables has found no cut that helps. */
static void test_advises_no_cut_that_was_tried(void **state)
{
    struct random random = { 34 };
    uint32_t advised = 0;

    (void)state;
    for (uint32_t i = 0; i < 400; i++) {
        _cleanup_(plan_freep) struct plan *plan =
            draw_plan(&random, 1 + (uint32_t)random_below(&random, 4), 1, 1);

        for (uint32_t cuts = 0; cuts < 2; cuts++) {
            for (uint32_t k = 0; k < plan->table_count; k++)
                plan->tables[k].reason[0] = '\0';
            plan_explain(plan, cuts == 1);
            for (uint32_t k = 0; k < plan->table_count; k++) {
                const bool is_advised = strstr(plan->tables[k].reason, ": split it") != NULL;

                assert_true(cuts == 0 || !is_advised);
                advised += is_advised;
            }
        }
    }
    assert_true(advised > 0);
}

static void test_keeps_reasons_that_are_there(void **state)
{
    struct random random = { 32 };
    _cleanup_(plan_freep) struct plan *plan = draw_plan(&random, 2, 1, 1);

    (void)state;
    snprintf(plan->tables[0].reason, sizeof(plan->tables[0].reason), "pinned by a rule");
    plan->tables[1].reason[0] = '\0';
    plan_explain(plan, false);
    assert_string_equal(plan->tables[0].reason, "pinned by a rule");
    assert_true(plan->tables[1].reason[0] != '\0');
}

/* The longest sentence is not cut: six parts in memories with the longest names. */
static void test_is_never_cut(void **state)
{
    struct random random = { 33 };
    struct plan_table *table;
    uint32_t i = 0;

    (void)state;
    for (uint32_t parts = 0; parts < PLAN_PARTS_MAX; i++) {
        _cleanup_(plan_freep) struct plan *plan = draw_plan(&random, 1, 1, PLAN_TIERS_MAX);

        table = plan->tables;
        parts = table->part_count;
        for (uint32_t k = 0; k < plan->memory_count; k++)
            if (!is_ssd(&plan->memories[k]))
                memset(plan->memories[k].name, 'a' + (int)k, TIER_NAME_MAX);
        for (uint32_t k = 0; k < parts; k++) {
            table->parts[k].time_s = 1;
            if (table->parts[k].home == PLAN_ARRAY)
                memset(table->parts[k].tier, 'a' + table->parts[k].tier[5] - '0' + 1,
                       TIER_NAME_MAX);
            table->parts[k].lookup_share = k == 0 ? 0.123456 : 0.1753088;
        }
        table->reason[0] = '\0';
        plan_explain(plan, false);
        if (parts == PLAN_PARTS_MAX)
            assert_non_null(
                strstr(table->reason, "; sets the time, 100% of that of the slowest GPU"));
        assert_true(i < 100000);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_is_true_of_its_plan),
        cmocka_unit_test(test_says_what_the_numbers_say),
        cmocka_unit_test(test_advises_no_cut_that_was_tried),
        cmocka_unit_test(test_keeps_reasons_that_are_there),
        cmocka_unit_test(test_is_never_cut),
    };

    return cmocka_run_group_tests_name("plan_reasons", tests, NULL, NULL);
}
