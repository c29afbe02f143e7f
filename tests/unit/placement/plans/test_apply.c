/* SPDX-License-Identifier: Apache-2.0 */
/* test_apply.c: do the steps of a plan bring all tables to their places, with no tier too full at
 * any time? Are plans refused that are not for this server? */
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

#include "base/macros.h"
#include "base/spec/array_shape.h"
#include "base/yaml/yaml_doc.h"
#include "placement/apply/apply.h"
#include "placement/plan/plan_file.h"
#include "placement/random.h"

#define TABLES_MAX 12
#define CASES      3000
#define ROW_BYTES  256
#define SLAB_ROWS  7000 /* of ROW_BYTES; they take a slab of array memory */

struct world {
    struct plan *plan;
    struct apply_server server;
    struct apply_held tables[TABLES_MAX];
};

/* ---- Servers and plans ---- */

static void add_tier(struct world *world, const char *name, uint64_t slabs)
{
    struct apply_tier *const tier = &world->server.tiers[world->server.tier_count++];

    snprintf(tier->name, sizeof(tier->name), "%s", name);
    tier->array_bytes = tier->free_bytes = slabs * ARRAY_SLAB_BYTES;
}

/* As table_arrays.c counts. */
static uint64_t bytes_at(const struct apply_held *table, struct apply_place place)
{
    switch (place.home) {
    case EMBTIER_HOME_ARRAY:
        return array_shape_of(table->rows, ROW_BYTES).bytes;
    case EMBTIER_HOME_SPLIT:
        return split_shape_of(place.hot_rows, ROW_BYTES).bytes;
    case EMBTIER_HOME_CACHE:
        break;
    }
    return 0;
}

static void add_table(struct world *world, uint64_t slabs, struct apply_place place)
{
    struct apply_held *const table = &world->tables[world->server.table_count];

    *table = (struct apply_held){ .rows = slabs * SLAB_ROWS,
                                  .dim = ROW_BYTES / 4,
                                  .dtype = EMBTIER_DTYPE_F32,
                                  .optimizer = EMBTIER_OPTIMIZER_NONE,
                                  .row_bytes = ROW_BYTES,
                                  .place = place };
    snprintf(table->name, sizeof(table->name), "t%u", world->server.table_count++);
    world->server.tables = world->tables;
    if (place.tier != APPLY_NO_TIER)
        world->server.tiers[place.tier].free_bytes -= bytes_at(table, place);
}

static void split_table(const struct world *world, struct plan_table *table, uint32_t tier,
                        uint64_t hot_rows)
{
    table->part_count = 2;
    table->parts[0].home = PLAN_ARRAY;
    table->parts[0].rows = hot_rows;
    snprintf(table->parts[0].tier, sizeof(table->parts[0].tier), "%s",
             world->server.tiers[tier].name);
    table->parts[1].home = PLAN_CACHE;
    table->parts[1].rows = table->rows - hot_rows;
}

/* A plan that wants table @i in @places[i]; tier -1 of an array stands for a GPU. */
static void make_plan(struct world *world, const struct apply_place *places)
{
    assert_int_equal(plan_new(world->server.table_count, 1, &world->plan), EMBTIER_OK);
    for (uint32_t i = 0; i < world->server.table_count; i++) {
        struct plan_table *const table = &world->plan->tables[i];
        struct plan_part *const part = &table->parts[0];

        memcpy(table->name, world->tables[i].name, sizeof(table->name));
        table->rows = world->tables[i].rows;
        table->dim = world->tables[i].dim;
        table->dtype = world->tables[i].dtype;
        table->optimizer = world->tables[i].optimizer;
        table->part_count = 1;
        part->home = PLAN_CACHE;
        if (places[i].home == EMBTIER_HOME_ARRAY && places[i].tier == APPLY_NO_TIER)
            part->home = PLAN_HBM;
        else if (places[i].home == EMBTIER_HOME_ARRAY) {
            part->home = PLAN_ARRAY;
            snprintf(part->tier, sizeof(part->tier), "%s",
                     world->server.tiers[places[i].tier].name);
        } else if (places[i].home == EMBTIER_HOME_SPLIT)
            split_table(world, table, places[i].tier, places[i].hot_rows);
    }
}

static const struct apply_place cached = { EMBTIER_HOME_CACHE, APPLY_NO_TIER, 0 };
static const struct apply_place on_gpu = { EMBTIER_HOME_ARRAY, APPLY_NO_TIER, 0 };

static struct apply_place array_in(uint32_t tier)
{
    return (struct apply_place){ EMBTIER_HOME_ARRAY, tier, 0 };
}

static struct apply_place split_in(uint32_t tier, uint64_t hot_rows)
{
    return (struct apply_place){ EMBTIER_HOME_SPLIT, tier, hot_rows };
}

static struct apply *must_apply(struct world *world, bool without_gpu)
{
    const struct apply_opts opts = { .without_gpu = without_gpu };
    struct apply *apply = NULL;
    struct err_msg msg = { { 0 } };

    if (apply_new(world->plan, &world->server, &opts, &apply, &msg) != EMBTIER_OK)
        fail_msg("%s", msg.text);
    return apply;
}

static void must_refuse(struct world *world, enum embtier_err wanted, const char *text)
{
    const struct apply_opts opts = { .without_gpu = false };
    struct apply *apply = NULL;
    struct err_msg msg = { { 0 } };

    assert_int_equal(apply_new(world->plan, &world->server, &opts, &apply, &msg), wanted);
    if (!strstr(msg.text, text))
        fail_msg("'%s' is not in: %s", text, msg.text);
    assert_null(apply);
}

/* ---- A server that takes the steps ---- */

static bool is_same_place(struct apply_place a, struct apply_place b)
{
    return a.home == b.home && a.tier == b.tier && a.hot_rows == b.hot_rows;
}

/* Keeps its own account of each tier, and refuses as a server would. @has_other: of each table,
 * whether its hot rows are not those of the plan. */
static void run_steps(struct apply *apply, struct apply_place *places, const bool *has_other,
                      const struct apply_held *tables, uint32_t *ret_steps, uint32_t *trials)
{
    uint64_t used[TIERS_MAX] = { 0 };
    struct apply_step step;

    for (uint32_t i = 0; i < apply->server->table_count; i++)
        if (places[i].tier != APPLY_NO_TIER)
            used[places[i].tier] += bytes_at(&tables[i], places[i]);
    for (*ret_steps = 0; apply_next(apply, &step); ++*ret_steps) {
        const uint32_t i = (uint32_t)(step.move->table - tables);
        struct apply_place *const place = &places[i];

        assert_true(*ret_steps < 4 * TABLES_MAX);
        if (is_same_place(*place, step.to)) {
            assert_true(apply_is_trial(&step));
            ++*trials;
            if (has_other[i])
                apply_has_other_rows(&step);
            else
                apply_done(apply, &step);
            assert_true(step.move->was_there == !has_other[i]);
            continue;
        }
        assert_false(apply_is_trial(&step));
        /* A server splits no split table anew. */
        assert_false(place->home == EMBTIER_HOME_SPLIT && step.to.home == EMBTIER_HOME_SPLIT);
        /* Both arrays exist while rows move. */
        if (step.to.tier != APPLY_NO_TIER) {
            used[step.to.tier] += bytes_at(&tables[i], step.to);
            assert_true(used[step.to.tier] <= apply->server->tiers[step.to.tier].array_bytes);
        }
        if (place->tier != APPLY_NO_TIER)
            used[place->tier] -= bytes_at(&tables[i], *place);
        *place = step.to;
        apply_done(apply, &step);
    }
}

/* A split of half a table takes fewer slabs than the whole table. */
static struct apply_place draw_place(struct random *random, uint64_t *room, uint64_t slabs)
{
    const uint32_t tier = (uint32_t)random_below(random, 3);

    if (tier == 2 || room[tier] < slabs)
        return cached;
    room[tier] -= slabs;
    return random_below(random, 3) == 0
               ? split_in(tier, slabs * SLAB_ROWS / (2 + random_below(random, 2)))
               : array_in(tier);
}

/* Tiers so full that tables are in each other's way. */
static void test_steps_bring_all_tables_to_their_places(void **state)
{
    struct random random = { 1 };
    uint32_t detours = 0, trials = 0;

    (void)state;
    for (uint32_t c = 0; c < CASES; c++) {
        struct world world = { .plan = NULL };
        uint64_t slabs[TABLES_MAX], before[2] = { 6, 9 }, after[2] = { 6, 9 };
        struct apply_place places[TABLES_MAX], wanted[TABLES_MAX];
        bool has_other[TABLES_MAX];
        const uint32_t count = 1 + (uint32_t)random_below(&random, TABLES_MAX);
        uint32_t steps;

        add_tier(&world, "dram", before[0]);
        add_tier(&world, "pmem", before[1]);
        for (uint32_t i = 0; i < count; i++) {
            slabs[i] = 1 + random_below(&random, 4);
            places[i] = draw_place(&random, before, slabs[i]);
            wanted[i] = draw_place(&random, after, slabs[i]);
            add_table(&world, slabs[i], places[i]);
        }
        make_plan(&world, wanted);
        {
            _cleanup_(apply_freep) struct apply *apply = must_apply(&world, false);

            for (uint32_t i = 0; i < count; i++) { /* they were sorted by name */
                has_other[i] = random_below(&random, 2) == 0;
                places[i] = world.tables[i].place;
            }
            assert_int_equal(apply->move_count + apply->same_count, count);
            run_steps(apply, places, has_other, world.tables, &steps, &trials);
            assert_int_equal(apply_left(apply), 0);
            detours += steps - apply->move_count;
            for (uint32_t i = 0; i < count; i++) {
                const uint32_t old = (uint32_t)strtoul(world.tables[i].name + 1, NULL, 10);

                assert_true(is_same_place(places[i], wanted[old]));
            }
        }
        plan_free(world.plan);
    }
    assert_true(detours > CASES / 100); /* else the tiers were not full enough */
    assert_true(trials > CASES / 100);
}

/* A gap may be too small, though free bytes suffice. */
static void test_a_refused_step_is_tried_again_when_more_is_free(void **state)
{
    struct world world = { .plan = NULL };
    const struct apply_place wanted[] = { array_in(0), cached };
    struct apply_step step;
    struct apply *apply;

    (void)state;
    add_tier(&world, "dram", 4);
    add_table(&world, 2, cached);
    add_table(&world, 1, array_in(0));
    make_plan(&world, wanted);
    apply = must_apply(&world, false);
    assert_true(apply_next(apply, &step)); /* what gives memory back comes first */
    assert_string_equal(step.move->table->name, "t1");
    apply_done(apply, &step);
    assert_true(apply_next(apply, &step));
    assert_string_equal(step.move->table->name, "t0");
    apply_refused(apply, &step);
    assert_false(apply_next(apply, &step));
    assert_int_equal(apply_left(apply), 1);
    apply_free(apply);
    plan_free(world.plan);
}

static void test_refusals(void **state)
{
    struct world world = { .plan = NULL };
    const struct apply_place wanted[] = { array_in(0), cached };
    struct plan_table *table;

    (void)state;
    add_tier(&world, "dram", 4);
    add_table(&world, 2, cached);
    add_table(&world, 3, array_in(0));
    make_plan(&world, wanted);
    table = &world.plan->tables[0];

    table->dim++;
    must_refuse(&world, EMBTIER_MISMATCH,
                "table 't0' has dim 65 in the plan, and 64 on the server");
    table->dim--;
    table->rows = EMBTIER_UNBOUNDED;
    must_refuse(&world, EMBTIER_MISMATCH,
                "has rows unbounded in the plan, and 14000 on the server");
    table->rows = 2 * SLAB_ROWS;
    table->dtype = EMBTIER_DTYPE_F16;
    must_refuse(&world, EMBTIER_MISMATCH, "has dtype f16 in the plan, and f32 on the server");
    table->dtype = EMBTIER_DTYPE_F32;
    table->optimizer = EMBTIER_OPTIMIZER_ADAM;
    must_refuse(&world, EMBTIER_MISMATCH, "has optimizer adam in the plan, and none on the server");
    must_refuse(&world, EMBTIER_MISMATCH, "`embtier plan make --optimizer none`");
    world.tables[1].optimizer = EMBTIER_OPTIMIZER_SGD;
    must_refuse(&world, EMBTIER_MISMATCH, "`embtier plan make --optimizer none,t1=sgd`");
    world.tables[1].optimizer = EMBTIER_OPTIMIZER_NONE;
    table->optimizer = EMBTIER_OPTIMIZER_NONE;
    table->part_count = 2; /* both are in arrays */
    table->parts[1] = table->parts[0];
    must_refuse(&world, EMBTIER_UNSUPPORTED,
                "table 't0' has 2 ranges in arrays and none in the cache, but a server has");
    table->part_count = 3;
    table->parts[2].home = PLAN_CACHE;
    must_refuse(&world, EMBTIER_UNSUPPORTED, "table 't0' has 2 ranges in arrays, but a server has");
    table->part_count = 1;
    memcpy(table->parts[0].tier, "cxl", 4);
    must_refuse(&world, EMBTIER_INVALID,
                "in tier 'cxl', which the server does not have; it has dram");
    memcpy(table->parts[0].tier, "dram", 5);
    table->parts[0].home = PLAN_HBM;
    must_refuse(&world, EMBTIER_UNSUPPORTED, "in the memory of GPU 0");
    table->parts[0].home = PLAN_ARRAY;
    memcpy(table->name, "tx", 3);
    must_refuse(&world, EMBTIER_NO_TABLE, "the server has no table 'tx'");
    memcpy(table->name, "t0", 3);
    world.plan->tables[1].parts[0].home = PLAN_ARRAY;
    memcpy(world.plan->tables[1].parts[0].tier, "dram", 5);
    must_refuse(&world, EMBTIER_TOO_LARGE,
                "tier 'dram' keeps 8MiB for arrays, and they would take 10MiB, 2MiB more: raise "
                "cache.tiers[0].array_bytes to 10MiB, with bytes of at least 14MiB as the row "
                "cache needs 4MiB");
    world.tables[0].rows = world.plan->tables[0].rows = EMBTIER_UNBOUNDED - 1;
    must_refuse(&world, EMBTIER_TOO_LARGE, "table 't0' has too many rows for an array");
    plan_free(world.plan);
}

/* Arrays that the plan does not mention stay where they are, so only their names tell the user why
 * a plan that fits the tier has no room. */
static void test_unplanned_arrays_that_take_the_room_are_named(void **state)
{
    struct world world = { .plan = NULL };
    const struct apply_place wanted[] = { array_in(0) };
    char many[600] = "";

    (void)state;
    add_tier(&world, "dram", 5);
    add_tier(&world, "pmem", 8);
    add_table(&world, 2, cached);
    add_table(&world, 1, array_in(0));
    add_table(&world, 3, array_in(0));
    add_table(&world, 4, array_in(1));
    add_table(&world, 1, cached);
    world.server.table_count = 1;
    make_plan(&world, wanted);
    world.server.table_count = 5;
    world.server.lanes = 3;
    must_refuse(&world, EMBTIER_TOO_LARGE,
                "tier 'dram' keeps 10MiB for arrays, and they would take 12MiB, 2MiB more: raise "
                "cache.tiers[0].array_bytes to 12MiB, with bytes of at least 24MiB as the row "
                "cache needs 12MiB, and restart the server, or make a plan for less; arrays that "
                "the plan does not mention take 8MiB of that: 't2' (6MiB), 't1' (2MiB)");
    memset(many, 'n', EMBTIER_TABLE_NAME_MAX);
    memcpy(world.tables[2].name, many, EMBTIER_TABLE_NAME_MAX);
    memcpy(world.tables[1].name, many, EMBTIER_TABLE_NAME_MAX);
    world.tables[1].name[0] = 'm';
    strcat(many, "' (6MiB) and 1 more");
    must_refuse(&world, EMBTIER_TOO_LARGE, many);
    plan_free(world.plan);
}

static void test_tables_for_gpus_take_arrays_with_room_or_the_cache(void **state)
{
    struct world world = { .plan = NULL };
    const struct apply_place wanted[] = { on_gpu, array_in(0), on_gpu, cached };
    struct apply *apply;

    (void)state;
    add_tier(&world, "dram", 4);
    add_tier(&world, "pmem", 2);
    add_table(&world, 2, cached);
    add_table(&world, 3, cached);
    add_table(&world, 2, cached);
    add_table(&world, 1, cached);
    make_plan(&world, wanted);
    apply = must_apply(&world, true);
    assert_int_equal(apply->gpu_count, 2);
    assert_int_equal(apply->move_count, 2); /* t1 to dram, t0 to pmem; t2 finds no room */
    assert_string_equal(apply->moves[0].table->name, "t1");
    assert_int_equal(apply->moves[0].to.tier, 0);
    assert_string_equal(apply->moves[1].table->name, "t0");
    assert_int_equal(apply->moves[1].to.tier, 1);
    assert_int_equal(apply->same_count, 2);
    apply_free(apply);
    plan_free(world.plan);
}

/* The hot rows of two ranges become those of one, if there is room, else the second one stays. */
static void test_hot_rows_for_gpus_join_those_in_an_array(void **state)
{
    const uint64_t rows = 6 * SLAB_ROWS;

    (void)state;
    for (uint64_t slabs = 1; slabs <= 5; slabs += 2) {
        const struct apply_place wanted[] = { split_in(0, 2 * SLAB_ROWS) };
        struct world world = { .plan = NULL };
        struct plan_table *table;
        struct apply *apply;

        add_tier(&world, "dram", slabs);
        add_table(&world, 6, cached);
        make_plan(&world, wanted);
        table = &world.plan->tables[0];
        table->parts[2] = table->parts[1];
        table->parts[1] = table->parts[0];
        table->parts[0].home = PLAN_HBM;
        table->parts[0].rows = 3 * SLAB_ROWS;
        table->parts[2].rows = rows - 5 * SLAB_ROWS;
        table->part_count = 3;
        must_refuse(&world, EMBTIER_UNSUPPORTED, "in the memory of GPU 0");
        apply = must_apply(&world, true);
        assert_int_equal(apply->move_count, slabs > 1);
        if (slabs > 1) {
            assert_int_equal(apply->moves[0].to.home, EMBTIER_HOME_SPLIT);
            assert_int_equal(apply->moves[0].to.hot_rows, (slabs > 4 ? 5 : 2) * SLAB_ROWS);
            assert_int_equal(apply->moves[0].rows, apply->moves[0].to.hot_rows);
        }
        apply_free(apply);
        plan_free(world.plan);
    }
}

/* With no range in the cache, the whole table becomes an array. */
static void test_a_table_of_a_gpu_and_an_array_becomes_an_array(void **state)
{
    struct world world = { .plan = NULL };
    const struct apply_place wanted[] = { split_in(0, 2 * SLAB_ROWS) };
    struct plan_part *parts;
    struct apply *apply;

    (void)state;
    add_tier(&world, "dram", 8);
    add_table(&world, 6, cached);
    make_plan(&world, wanted);
    parts = world.plan->tables[0].parts;
    parts[1] = parts[0];
    parts[0].home = PLAN_HBM;
    apply = must_apply(&world, true);
    assert_int_equal(apply->move_count, 1);
    assert_true(is_same_place(apply->moves[0].to, array_in(0)));
    apply_free(apply);
    plan_free(world.plan);
}

/* Arrays of tables that are to leave for a GPU's memory are room for others. */
static void test_arrays_of_tables_for_gpus_are_free_for_others(void **state)
{
    struct world world = { .plan = NULL };
    const struct apply_place wanted[] = { array_in(0), array_in(0), on_gpu, on_gpu };
    struct apply *apply;

    (void)state;
    add_tier(&world, "dram", 4);
    add_tier(&world, "pmem", 3);
    add_table(&world, 2, cached);
    add_table(&world, 2, cached);
    add_table(&world, 3, array_in(0));
    add_table(&world, 2, array_in(1));
    make_plan(&world, wanted);
    must_refuse(&world, EMBTIER_UNSUPPORTED, "table 't2' is to be in the memory of GPU 0");
    apply = must_apply(&world, true);
    assert_int_equal(apply->move_count, 4);
    assert_string_equal(apply->moves[2].table->name, "t2"); /* pmem, as t3 is to leave it */
    assert_int_equal(apply->moves[2].to.tier, 1);
    assert_string_equal(apply->moves[3].table->name, "t3"); /* its old place is t2's now */
    assert_int_equal(apply->moves[3].to.home, EMBTIER_HOME_CACHE);
    apply_free(apply);
    plan_free(world.plan);
}

/* Gives a plan that was made in memory the lines of its file in YAML, or in JSON. */
static void set_file(struct plan *plan, bool is_json)
{
    static const char yaml[] = "format: embtier-plan\n"
                               "version: 1\n"
                               "generation: 1\n"
                               "samples_per_s: 1\n"
                               "samples_per_batch: 1\n"
                               "time_s: 1\n"
                               "gpu_count: 0\n"
                               "table_count: 1\n"
                               "memories:\n"
                               "  - {name: dram, capacity_bytes: 1GiB, array_bytes: 256, "
                               "cache_bytes: 0, bandwidth_bytes_per_s: 1, read_bytes: 0, "
                               "time_s: 0}\n"
                               "  - {name: ssd, capacity_bytes: 1GiB, array_bytes: 256, "
                               "cache_bytes: 0, bandwidth_bytes_per_s: 1, read_bytes: 0, "
                               "time_s: 0}\n"
                               "tables:\n"
                               "  - name: t0\n"
                               "    rows: 1\n"
                               "    dim: 64\n"
                               "    dtype: f32\n"
                               "    optimizer: none\n"
                               "    read_bytes: 0\n"
                               "    parts:\n"
                               "      - {home: array, tier: dram, rows: 1, bytes: 256, "
                               "lookup_share: 1, time_s: 0, reads_per_s: 0, "
                               "writes_bytes_per_day: 0}\n";
    static const char json[] =
        "{\"format\": \"embtier-plan\", \"version\": 1,\n"
        " \"generation\": 1, \"samples_per_s\": 1, \"samples_per_batch\": 1, \"time_s\": 1,\n"
        " \"gpu_count\": 0, \"table_count\": 1, \"memories\": [\n"
        "  {\"name\": \"dram\", \"capacity_bytes\": \"1GiB\", \"array_bytes\": 256,\n"
        "   \"cache_bytes\": 0, \"bandwidth_bytes_per_s\": 1, \"read_bytes\": 0, \"time_s\": 0},\n"
        "  {\"name\": \"ssd\", \"capacity_bytes\": \"1GiB\", \"array_bytes\": 256,\n"
        "   \"cache_bytes\": 0, \"bandwidth_bytes_per_s\": 1, \"read_bytes\": 0, \"time_s\": 0}],\n"
        " \"tables\": [\n"
        "  {\"name\": \"t0\", \"rows\": 1,\n"
        "   \"dim\": 64,\n"
        "   \"dtype\": \"f32\", \"optimizer\": \"none\", \"read_bytes\": 0,\n"
        "   \"parts\": [\n"
        "    {\"home\": \"array\", \"tier\": \"dram\", \"rows\": 1, \"bytes\": 256,\n"
        "     \"lookup_share\": 1, \"time_s\": 0, \"reads_per_s\": 0,\n"
        "     \"writes_bytes_per_day\": 0}]}]}\n";
    const char *const text = is_json ? json : yaml;
    struct plan *loaded = NULL;
    struct err_msg msg = { { 0 } };

    if (plan_file_parse("a.plan", text, strlen(text), &loaded, &msg) != EMBTIER_OK)
        fail_msg("%s", msg.text);
    yaml_doc_free(plan->file);
    plan->file = TAKE(loaded->file);
    plan_free(loaded);
}

/* The server changes, and the plan stays as it is in its file. */
static void refuse_with_places(bool is_json)
{
    struct world world = { .plan = NULL };
    const struct apply_place wanted[] = { array_in(0) };
    struct apply_held *const held = &world.tables[0];
    struct plan_table *table;

    add_tier(&world, "dram", 1);
    add_table(&world, 1, cached);
    make_plan(&world, wanted);
    set_file(world.plan, is_json);
    table = &world.plan->tables[0];
    memcpy(world.plan->memories[0].name, "dram", 5);

#define AT(yaml_line, json_line, rest)                                                             \
    (is_json ? "a.plan:" #json_line ": " rest : "a.plan:" #yaml_line ": " rest)
    held->dim++;
    must_refuse(&world, EMBTIER_MISMATCH, AT(15, 10, "tables[0].dim: table 't0' has dim 64"));
    held->dim--;
    held->dtype = EMBTIER_DTYPE_F16;
    must_refuse(&world, EMBTIER_MISMATCH, AT(16, 11, "tables[0].dtype: table 't0' has dtype f32"));
    held->dtype = EMBTIER_DTYPE_F32;
    held->optimizer = EMBTIER_OPTIMIZER_ADAM;
    must_refuse(&world, EMBTIER_MISMATCH, AT(17, 11, "tables[0].optimizer: table 't0' has"));
    must_refuse(&world, EMBTIER_MISMATCH, "`embtier plan make --optimizer adam`");
    held->optimizer = EMBTIER_OPTIMIZER_NONE;
    held->rows++;
    must_refuse(&world, EMBTIER_MISMATCH, AT(14, 9, "tables[0].rows: table 't0' has rows 7000"));
    held->rows--;
    memcpy(held->name, "tx", 3);
    must_refuse(&world, EMBTIER_NO_TABLE, AT(13, 9, "tables[0].name: the server has no table"));
    memcpy(held->name, "t0", 3);
    memcpy(world.server.tiers[0].name, "cxl", 4);
    must_refuse(&world, EMBTIER_INVALID, AT(20, 13, "tables[0].parts[0].tier: table 't0' is to"));
    memcpy(world.server.tiers[0].name, "dram", 5);
    world.server.tiers[0].array_bytes = world.server.tiers[0].free_bytes = 0;
    must_refuse(&world, EMBTIER_TOO_LARGE, AT(10, 4, "memories[0].array_bytes: tier 'dram' keeps"));
    held->rows = table->rows = EMBTIER_UNBOUNDED - 1;
    must_refuse(&world, EMBTIER_TOO_LARGE, AT(19, 12, "tables[0].parts: table 't0' has too many"));
    table->part_count = 2;
    table->parts[1] = table->parts[0];
    must_refuse(&world, EMBTIER_UNSUPPORTED,
                AT(19, 12, "tables[0].parts: table 't0' has 2 ranges"));
    table->parts[0].home = PLAN_HBM;
    must_refuse(&world, EMBTIER_UNSUPPORTED, AT(20, 13, "tables[0].parts[0].home: table 't0' is"));
    table->parts[0].home = PLAN_ARRAY;
    world.plan->gpu_count = 8;
    must_refuse(&world, EMBTIER_UNSUPPORTED, AT(7, 3, "gpu_count: the plan is for 8 GPUs"));
#undef AT
    plan_free(world.plan);
}

static void test_refusals_name_file_line_and_key(void **state)
{
    (void)state;
    refuse_with_places(false);
    refuse_with_places(true);
}

/* The list of optimizers gives way to names and path, so that all words of the message stay. */
static void test_a_refusal_with_long_names_keeps_its_words(void **state)
{
    struct world world = { .plan = NULL };
    struct apply_place wanted[TABLES_MAX];

    (void)state;
    add_tier(&world, "dram", 1);
    for (uint32_t i = 0; i < TABLES_MAX; i++) {
        wanted[i] = cached;
        add_table(&world, 1, cached);
        memset(world.tables[i].name, 'a' + (int)i, EMBTIER_TABLE_NAME_MAX);
        world.tables[i].optimizer = i % 2 ? EMBTIER_OPTIMIZER_SGD : EMBTIER_OPTIMIZER_NONE;
    }
    make_plan(&world, wanted);
    set_file(world.plan, true);
    world.plan->tables[1].optimizer = EMBTIER_OPTIMIZER_ADAM;
    must_refuse(&world, EMBTIER_MISMATCH,
                "' has optimizer adam in the plan, and sgd on the server: make a new one, with "
                "`embtier plan make --optimizer ...`");
    plan_free(world.plan);
}

static void test_a_plan_for_gpus_is_refused_without_them(void **state)
{
    struct world world = { .plan = NULL };
    const struct apply_place wanted[] = { array_in(0) };
    struct apply *apply;

    (void)state;
    add_tier(&world, "dram", 1);
    add_table(&world, 1, cached);
    make_plan(&world, wanted);
    world.plan->gpu_count = 8;
    must_refuse(&world, EMBTIER_UNSUPPORTED, "the plan is for 8 GPUs, and the server has none");
    apply = must_apply(&world, true);
    assert_int_equal(apply->move_count, 1);
    apply_free(apply);
    plan_free(world.plan);
}

/* A run that ends after a detour takes the table back. */
static void test_a_table_that_gave_way_finds_back(void **state)
{
    struct world world = { .plan = NULL };
    const struct apply_place wanted[] = { array_in(1), array_in(0) };
    struct apply_step step;
    struct apply *apply;
    const char *name = "";

    (void)state;
    add_tier(&world, "dram", 1);
    add_tier(&world, "pmem", 1);
    add_table(&world, 1, array_in(0));
    add_table(&world, 1, array_in(1));
    make_plan(&world, wanted);
    apply = must_apply(&world, false);
    assert_int_equal(apply_on_the_way(apply, &name), 0);
    assert_false(apply_next_back(apply, &step));
    assert_true(apply_next(apply, &step));
    assert_int_equal(step.to.home, EMBTIER_HOME_CACHE);
    apply_done(apply, &step);
    assert_int_equal(apply_on_the_way(apply, &name), 1);
    assert_string_equal(name, "t0");
    assert_int_equal(apply_moved(apply), 0);
    assert_true(apply_next_back(apply, &step));
    assert_true(is_same_place(step.to, array_in(0)));
    apply_back_done(apply, &step);
    assert_int_equal(apply_on_the_way(apply, &name), 0);
    assert_int_equal(world.server.tiers[0].free_bytes, 0);
    /* Once the other table has its place, there is no way back. */
    assert_true(apply_next(apply, &step));
    apply_done(apply, &step);
    assert_true(apply_next(apply, &step));
    assert_true(is_same_place(step.to, array_in(0)));
    apply_done(apply, &step);
    assert_false(apply_next_back(apply, &step));
    assert_int_equal(apply_on_the_way(apply, &name), 1);
    apply_free(apply);
    plan_free(world.plan);
}

/* A trace may know fewer hot rows than a plan wants. They take less memory, and fewer bytes move.
 */
static void test_fewer_hot_rows_take_less(void **state)
{
    struct world world = { .plan = NULL };
    const struct apply_place wanted[] = { split_in(0, 3 * SLAB_ROWS) };
    struct apply *apply;

    (void)state;
    add_tier(&world, "dram", 4);
    add_table(&world, 6, cached);
    make_plan(&world, wanted);
    apply = must_apply(&world, false);
    assert_int_equal(apply->moves[0].to_bytes, 3 * ARRAY_SLAB_BYTES);
    apply_limit_hot_rows(apply, &apply->moves[0], SLAB_ROWS);
    assert_int_equal(apply->moves[0].to_bytes, ARRAY_SLAB_BYTES);
    assert_int_equal(apply->row_bytes, (uint64_t)SLAB_ROWS * ROW_BYTES);
    apply_free(apply);
    plan_free(world.plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steps_bring_all_tables_to_their_places),
        cmocka_unit_test(test_a_refused_step_is_tried_again_when_more_is_free),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_refusals_name_file_line_and_key),
        cmocka_unit_test(test_a_refusal_with_long_names_keeps_its_words),
        cmocka_unit_test(test_unplanned_arrays_that_take_the_room_are_named),
        cmocka_unit_test(test_tables_for_gpus_take_arrays_with_room_or_the_cache),
        cmocka_unit_test(test_hot_rows_for_gpus_join_those_in_an_array),
        cmocka_unit_test(test_a_table_of_a_gpu_and_an_array_becomes_an_array),
        cmocka_unit_test(test_arrays_of_tables_for_gpus_are_free_for_others),
        cmocka_unit_test(test_a_plan_for_gpus_is_refused_without_them),
        cmocka_unit_test(test_a_table_that_gave_way_finds_back),
        cmocka_unit_test(test_fewer_hot_rows_take_less),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
