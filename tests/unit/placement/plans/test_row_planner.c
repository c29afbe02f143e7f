/* SPDX-License-Identifier: Apache-2.0 */
/* Plans that cut tables by hotness, against fine grids of cuts of small random cases, with times
 * that are computed here from their definitions; never worse than whole tables; rules and limits.
 */
#include "placement/plan/plan_diff.h"
#include "placement/planner/row_search.h"
#include "tests/forms.h"
#include "tests/unit/placement/plans/row_fixture.h"

#define SEED   20261128
#define CASES  BY_BUILD(100, 6, 100)
#define EQUALS BY_BUILD(12, 2, 12)
/* The search proves nothing. It must come this close to the best cuts of the grid, and nearly
 * always reach them. */
#define GAP_EACH   0.02
#define MISSED_MAX 2
#define POINTS     64 /* as the planner has for few tables */

struct prepared {
    struct planner_case c;
    struct hot_reuse *hots[MANY_TABLES];
};

static void measure_hot(struct prepared *p)
{
    for (uint32_t i = 0; i < p->c.profile->table_count; i++)
        assert_int_equal(hot_reuse_new(p->c.profile, i, POINTS, &p->hots[i]), EMBTIER_OK);
}

static void clear(struct prepared *p)
{
    for (uint32_t i = 0; i < p->c.profile->table_count; i++)
        hot_reuse_free(p->hots[i]);
    measured_profile_free(p->c.profile);
}

static struct plan *cut_plan(const struct planner_case *c)
{
    struct planner_opts opts = opts_of(c);

    opts.row_wise = true;
    return plan_of(&opts);
}

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-6 * fmax(fabs(a), fabs(b));
}

static uint32_t count_split(const struct plan *plan)
{
    uint32_t split = 0;

    for (uint32_t i = 0; i < plan->table_count; i++)
        split += plan->tables[i].part_count > 1;
    return split;
}

/* ---- The best cuts ---- */

static void check_figures(const struct prepared *p, const struct plan *plan)
{
    const struct cost cost = plan_cut_cost(&p->c, p->hots, plan);
    const double batches_per_s = plan->samples_per_s / plan->samples_per_batch;
    double reads = 0, writes = 0;

    for (uint32_t i = 0; i < plan->table_count; i++)
        for (uint32_t k = 0; k < plan->tables[i].part_count; k++) {
            reads += plan->tables[i].parts[k].reads_per_s;
            writes += plan->tables[i].parts[k].writes_bytes_per_day;
        }
    assert_true(cost.fits);
    assert_true(near(plan->time_s, cost.time_s));
    assert_true(near(reads, cost.reads * batches_per_s));
    assert_true(near(writes, cost.written_bytes * batches_per_s * 86400));
}

static void test_plans_are_nearly_the_best_of_a_grid(void **state)
{
    struct random random = { SEED };
    uint32_t missed = 0, split = 0, better = 0;
    double worst = 0;

    (void)state;
    printf("seed %d\n", SEED);
    for (uint32_t i = 0; i < CASES; i++) {
        struct prepared p = { 0 };
        struct row_grid grid = { .c = &p.c, .hots = p.hots, .best_s = INFINITY };
        struct planner_opts opts;

        draw_row_case(&random, &p.c, 1 + i % 2, i / 2 % 3 == 2 && i % 2 ? 2 : i / 2 % 3 > 0, 10000,
                      3);
        measure_hot(&p);
        opts = opts_of(&p.c);
        grid_table(&grid, 0);
        {
            _cleanup_(plan_freep) struct plan *whole = plan_of(&opts);
            _cleanup_(plan_freep) struct plan *plan = cut_plan(&p.c);
            const double gap = plan->time_s / grid.best_s - 1;

            check_figures(&p, plan);
            assert_true(plan->time_s <= whole->time_s * (1 + 1e-9));
            assert_true(plan->bound_s <= grid.best_s * (1 + 1e-6));
            split += count_split(plan) > 0;
            better += plan->time_s < 0.9 * whole->time_s;
            missed += gap > 1e-6;
            worst = fmax(worst, gap);
            if (gap > GAP_EACH)
                printf("case %u: %g s, %g on the grid of %u, %g whole\n", i, plan->time_s,
                       grid.best_s, grid.tried, whole->time_s);
        }
        clear(&p);
    }
    printf("%u of %u are not the best of their grid, at worst by %g; %u are cut, %u are much "
           "better than whole tables\n",
           missed, CASES, worst, split, better);
    assert_true(missed <= MISSED_MAX && worst <= GAP_EACH);
    assert_true(split > CASES / 3 && better > CASES / 5);
}

/* Cuts of whole tables cost what the model of whole tables says of their places. */
static void test_whole_tables_cost_the_same_in_both_models(void **state)
{
    struct random random = { SEED + 1 };
    uint32_t compared = 0;

    (void)state;
    for (uint32_t i = 0; i < EQUALS; i++) {
        _cleanup_(workload_freep) struct workload *workload = NULL;
        _cleanup_(planning_freep) struct planning *planning = NULL;
        _cleanup_(row_planning_freep) struct row_planning *rows = NULL;
        struct planner_case c;

        draw_planner_case(&random, &c, 4, i % 3);
        assert_int_equal(workload_new(c.profile, c.optimizers, 0, &workload, NULL), EMBTIER_OK);
        assert_int_equal(planning_new(workload, &c.machine, &c.rules, NULL, &planning, NULL),
                         EMBTIER_OK);
        assert_int_equal(row_planning_new(planning, &rows, NULL), EMBTIER_OK);
        for (uint32_t k = 0; k < 60; k++) {
            struct evaluation whole = { 0 }, cut = { 0 };
            struct split_cut cuts[4];
            uint32_t places[4];
            enum embtier_err err;

            for (uint32_t t = 0; t < 4; t++) {
                places[t] = (uint32_t)random_below(&random, model_place_count(&planning->model));
                cuts[t] = planning_cut_of(planning, t, places[t]);
            }
            err = planning_evaluate(planning, places, &whole, NULL);
            assert_int_equal(row_planning_evaluate(rows, cuts, &cut, NULL), err);
            if (err != EMBTIER_OK)
                continue;
            compared++;
            assert_true(near(whole.time_s, cut.time_s) && near(whole.sum_s, cut.sum_s));
            assert_true(near(whole.reads, cut.reads));
            assert_true(near(whole.written_bytes, cut.written_bytes));
            assert_memory_equal(whole.cache_bytes, cut.cache_bytes, sizeof(whole.cache_bytes));
        }
        measured_profile_free(c.profile);
    }
    printf("%u compared\n", compared);
    assert_true(compared > 8 * EQUALS);
}

/* ---- Rules ---- */

/* Two tables of more than 40,000 rows, a third of which are looked up; GPUs and DRAM hold some of
 * these. */
static void make_tight(struct prepared *p)
{
    struct random random = { SEED + 3 };

    draw_row_case(&random, &p->c, 2, 2, 40000, 1.3);
    measure_hot(p);
    p->c.machine.hbm_bytes = 4 * MIB;
    p->c.machine.tiers[0].bytes = 7 * MIB;
}

static const struct plan_part *find_part(const struct plan *plan, uint32_t table,
                                         enum plan_home home)
{
    for (uint32_t i = 0; i < plan->tables[table].part_count; i++)
        if (plan->tables[table].parts[i].home == home)
            return &plan->tables[table].parts[i];
    return NULL;
}

static void test_hot_rows_bring_their_remap(void **state)
{
    struct prepared p = { 0 };

    (void)state;
    make_tight(&p);
    {
        _cleanup_(plan_freep) struct plan *plan = cut_plan(&p.c);
        uint32_t parts = 0;

        for (uint32_t i = 0; i < plan->table_count; i++)
            for (uint32_t k = 0; k < plan->tables[i].part_count; k++) {
                const struct plan_part *const part = &plan->tables[i].parts[k];

                if (part->home == PLAN_CACHE || plan->tables[i].part_count == 1)
                    continue;
                parts++;
                assert_true((double)part->bytes == part_bytes(&p.c, i, (double)part->rows));
                assert_true(part->bytes >= part->rows * (plan_row_bytes(&plan->tables[i]) + 16));
                assert_int_equal(part->bytes % (2 * MIB), 0);
            }
        assert_true(parts > 0);
        assert_true(strstr(plan->tables[0].reason, "split by hotness: ") ||
                    strstr(plan->tables[1].reason, "split by hotness: "));
    }
    clear(&p);
}

static void test_an_unsplit_table_is_whole(void **state)
{
    struct prepared p = { 0 };
    bool unsplit[2] = { false };

    (void)state;
    make_tight(&p);
    for (uint32_t i = 0; i < 3; i++) {
        _cleanup_(plan_freep) struct plan *plan = NULL;

        p.c.rules.unsplit = unsplit;
        unsplit[0] = i > 0;
        unsplit[1] = i > 1;
        plan = cut_plan(&p.c);
        assert_int_equal(count_split(plan), 2 - i);
        assert_true(plan->tables[0].unsplit == (i > 0) && plan->tables[1].unsplit == (i > 1));
        check_figures(&p, plan);
    }
    clear(&p);
}

static void test_pins_and_forbidden_memories_hold(void **state)
{
    struct prepared p = { 0 };
    struct model_rule *rule;

    (void)state;
    make_tight(&p);
    rule = add_rule(&p.c, MODEL_PIN);
    rule->table = 0;
    rule->memory = machine_find_memory(&p.c.machine, "cache");
    rule->gpu = 1;
    rule = add_rule(&p.c, MODEL_FORBID);
    rule->table = 1;
    rule->memory = machine_find_memory(&p.c.machine, "dram");
    {
        _cleanup_(plan_freep) struct plan *plan = cut_plan(&p.c);

        assert_int_equal(plan->tables[0].part_count, 1);
        assert_int_equal(plan->tables[0].parts[0].home, PLAN_CACHE);
        assert_int_equal(plan->tables[0].gpu, 1);
        assert_null(find_part(plan, 1, PLAN_ARRAY));
        assert_non_null(find_part(plan, 1, PLAN_HBM));
        assert_non_null(find_part(plan, 1, PLAN_CACHE));
    }
    clear(&p);
}

static void test_tables_that_are_kept_together_share_a_gpu(void **state)
{
    struct prepared p = { 0 };

    (void)state;
    make_tight(&p);
    for (uint32_t with = 0; with < 2; with++) {
        _cleanup_(plan_freep) struct plan *plan = NULL;

        if (with)
            add_rule(&p.c, MODEL_TOGETHER)->other = 1;
        plan = cut_plan(&p.c);
        assert_int_equal(plan->tables[0].gpu == plan->tables[1].gpu, with);
    }
    clear(&p);
}

static void test_reserved_bytes_stay_free(void **state)
{
    struct prepared p = { 0 };
    struct model_rule *rule;

    (void)state;
    make_tight(&p);
    rule = add_rule(&p.c, MODEL_RESERVE);
    rule->memory = machine_find_memory(&p.c.machine, "hbm");
    rule->gpu = 0;
    rule->bytes = 1;
    rule = add_rule(&p.c, MODEL_RESERVE);
    rule->memory = machine_find_memory(&p.c.machine, "dram");
    rule->bytes = MIB;
    p.c.rules.cache_least_bytes[0] = 2 * MIB;
    {
        _cleanup_(plan_freep) struct plan *plan = cut_plan(&p.c);

        assert_int_equal(plan->memories[0].array_bytes, 0); /* two slabs are not there any more */
        assert_int_equal(plan->memories[1].array_bytes, 4 * MIB);
        assert_true(plan->memories[2].array_bytes <= 5 * MIB);
        assert_int_equal(plan->memories[2].array_bytes + plan->cache_bytes[0], 6 * MIB);
    }
    clear(&p);
}

/* ---- The plan in force ---- */

static uint64_t moved(const struct plan *before, const struct plan *after)
{
    _cleanup_(plan_diff_freep) struct plan_diff *diff = NULL;

    assert_int_equal(plan_diff_new(before, after, &diff), EMBTIER_OK);
    return diff->bytes_moved;
}

/* Hotness has changed, so that other cuts would be better. */
static void test_no_more_bytes_move_than_allowed(void **state)
{
    const uint64_t allowed[] = { 0, MIB, UINT64_MAX };
    struct prepared p = { 0 };
    double times_s[3];

    (void)state;
    make_tight(&p);
    {
        _cleanup_(plan_freep) struct plan *old = cut_plan(&p.c);
        struct planner_opts opts;

        p.c.machine.tiers[0].bytes = 24 * MIB;
        opts = opts_of(&p.c);
        opts.row_wise = true;
        opts.previous = old;
        for (uint32_t i = 0; i < ARRAY_LEN(allowed); i++) {
            _cleanup_(plan_freep) struct plan *plan = NULL;

            p.c.rules.moved_bytes_max = allowed[i];
            plan = plan_of(&opts);
            assert_int_equal(plan->generation, 2);
            assert_true(moved(old, plan) <= allowed[i]);
            assert_true(i < 2 || moved(old, plan) > 0);
            times_s[i] = plan->time_s;
        }
        assert_true(times_s[0] >= times_s[1] && times_s[1] >= times_s[2]);
        assert_true(times_s[0] > times_s[2]);
    }
    clear(&p);
}

/* A plan of whole tables that follows one of cut tables counts rows that move, too. */
static void test_whole_tables_after_cuts_move_rows(void **state)
{
    struct prepared p = { 0 };
    struct err_msg msg = { { 0 } };

    (void)state;
    make_tight(&p);
    {
        _cleanup_(plan_freep) struct plan *old = cut_plan(&p.c);
        struct planner_opts opts = opts_of(&p.c);
        struct planner_warnings warnings;
        struct plan *plan = NULL;

        assert_int_equal(count_split(old), 2);
        opts.previous = old;
        p.c.rules.moved_bytes_max = 0;
        assert_int_equal(planner_make(&opts, &plan, &warnings, &msg), EMBTIER_INVALID);
        assert_non_null(strstr(msg.text, "moved_bytes_max: "));
    }
    clear(&p);
}

/* ---- Limits that are stretched, and by how much ---- */

static void expect_refusal(struct prepared *p, const char *words)
{
    struct planner_opts opts = opts_of(&p->c);
    struct planner_warnings warnings;
    struct plan *plan = NULL;
    struct err_msg msg = { { 0 } };

    opts.row_wise = true;
    assert_int_equal(planner_make(&opts, &plan, &warnings, &msg), EMBTIER_INVALID);
    if (!strstr(msg.text, words))
        fail_msg("%s\nlacks %s", msg.text, words);
}

static void test_each_limit_says_by_how_much_it_is_missed(void **state)
{
    struct prepared p = { 0 };
    struct cost cost;
    double pace, writes;

    (void)state;
    make_tight(&p);
    {
        _cleanup_(plan_freep) struct plan *plan = cut_plan(&p.c);

        cost = plan_cut_cost(&p.c, p.hots, plan);
        pace = plan->samples_per_s;
    }
    assert_true(cost.reads > 0 && cost.written_bytes > 0);
    p.c.rules.target_samples_per_s = 1000 * pace;
    expect_refusal(&p, "target: seconds that a batch may take at the target: ");
    p.c.rules.target_samples_per_s = pace / 2;
    p.c.machine.ssd.read_iops = 1;
    expect_refusal(&p, "; read_iops by ");
    p.c.machine.ssd.write_bandwidth_bytes_per_s = 1;
    expect_refusal(&p, "; write_bandwidth by ");
    p.c.machine.ssd.drive_writes_per_day = 1e-6;
    expect_refusal(&p, "; drive_writes by ");
    p.c.machine.ssd.read_iops = p.c.machine.ssd.write_bandwidth_bytes_per_s = 0;
    writes = 1e-6 * (double)p.c.machine.ssd.drive_bytes;
    {
        char words[64];

        snprintf(words, sizeof(words), "allowed: %.6g, which is ", writes);
        expect_refusal(&p, words);
        expect_refusal(&p, "drive_writes: bytes written to SSD under its warranty: ");
    }
    clear(&p);
}

static void test_missing_bytes_are_named(void **state)
{
    struct prepared p = { 0 };
    struct model_rule *rule;

    (void)state;
    make_tight(&p);
    for (uint32_t i = 0; i < 2; i++) {
        rule = add_rule(&p.c, MODEL_FORBID);
        rule->table = i;
        rule->memory = machine_find_memory(&p.c.machine, "cache");
    }
    p.c.machine.hbm_bytes = 2 * MIB;
    p.c.machine.tiers[0].bytes = 4 * MIB;
    expect_refusal(&p, "but all levels have 8MiB, ");
    expect_refusal(&p, " too few; the largest is table 't");
    clear(&p);
}

/* A table that fits into no memory whole, and may not be cached, is cut over two. */
static void test_cuts_fit_where_whole_tables_do_not(void **state)
{
    struct prepared p = { 0 };
    struct planner_opts opts;
    struct planner_warnings warnings;
    struct plan *none = NULL;
    struct model_rule *rule;
    double bytes;

    (void)state;
    make_tight(&p);
    bytes = case_array_bytes(&p.c, 0);
    rule = add_rule(&p.c, MODEL_FORBID);
    rule->memory = machine_find_memory(&p.c.machine, "cache");
    p.c.machine.hbm_bytes = (uint64_t)bytes - 2 * MIB;
    p.c.machine.tiers[0].bytes = (uint64_t)bytes - 2 * MIB;
    opts = opts_of(&p.c);
    assert_int_equal(planner_make(&opts, &none, &warnings, NULL), EMBTIER_INVALID);
    {
        _cleanup_(plan_freep) struct plan *plan = cut_plan(&p.c);

        assert_int_equal(plan->tables[0].part_count, 2);
        assert_null(find_part(plan, 0, PLAN_CACHE));
        check_figures(&p, plan);
    }
    clear(&p);
}

/* ---- Whole tables ---- */

static void test_whole_tables_stay_where_no_cut_helps(void **state)
{
    struct prepared p = { 0 };
    struct planner_opts opts;
    struct planner_warnings warnings;
    struct err_msg msg;

    (void)state;
    make_tight(&p);
    p.c.machine.hbm_bytes = 64 * MIB;
    opts = opts_of(&p.c);
    opts.row_wise = true;
    {
        _cleanup_(plan_freep) struct plan *plan = NULL;

        assert_int_equal(planner_make(&opts, &plan, &warnings, &msg), EMBTIER_OK);
        assert_int_equal(count_split(plan), 0);
        assert_non_null(strstr(warnings.rows_say.text, "no table is cut: no cut makes a better"));
    }
    /* A model that cannot be cut: tiers that are not the fastest first. */
    p.c.machine.tiers[0].bandwidth_bytes_per_s = 1e15;
    {
        _cleanup_(plan_freep) struct plan *plan = NULL;

        assert_int_equal(planner_make(&opts, &plan, &warnings, &msg), EMBTIER_OK);
        assert_int_equal(count_split(plan), 0);
        assert_non_null(strstr(warnings.rows_say.text, "level 'dram': bandwidth_bytes_per_s"));
    }
    clear(&p);
}

static void test_equal_input_gives_an_equal_plan(void **state)
{
    struct prepared p = { 0 };

    (void)state;
    make_tight(&p);
    {
        _cleanup_(plan_freep) struct plan *first = cut_plan(&p.c);
        _cleanup_(plan_freep) struct plan *second = cut_plan(&p.c);

        assert_memory_equal(first->tables, second->tables, 2 * sizeof(*first->tables));
        assert_true(first->time_s == second->time_s && first->bound_s == second->bound_s);
    }
    clear(&p);
}

/* The hot rows of a table without a number of rows may lie in arrays. */
static void test_hot_rows_of_an_unbounded_table_leave_the_cache(void **state)
{
    struct prepared p = { 0 };

    (void)state;
    make_tight(&p);
    p.c.profile->tables[0].table.rows = EMBTIER_UNBOUNDED;
    {
        _cleanup_(plan_freep) struct plan *plan = cut_plan(&p.c);

        assert_int_equal(plan->tables[0].part_count, 2);
        assert_int_equal(plan->tables[0].parts[1].home, PLAN_CACHE);
        assert_int_equal(plan->tables[0].parts[1].rows, 0);
        assert_true(plan->tables[0].parts[0].rows > 1000);
    }
    clear(&p);
}

/* Makes the CDF one of coming lookups, some of which are of rows that were not seen. */
static void see_rows_once(struct measured_table *table)
{
    const double seen = table->cdf.rows[table->cdf.point_count - 1];
    const double lookups = (double)table->summary.lookups;
    const struct access_cdf past = { 2, { seen / 100, seen }, { 1 - seen * 0.99 / lookups, 1 } };

    assert_true(lookups > 1.01 * seen);
    table->summary.rows = seen;
    access_cdf_make_coming(&past, lookups, INFINITY, &table->cdf);
    assert_true(table->cdf.rows[table->cdf.point_count - 1] > 1.5 * seen);
}

/* Rows that were never looked up have no ids that anyone knows. */
static void test_no_unseen_rows_of_an_unbounded_table_are_hot(void **state)
{
    struct prepared p = { 0 };

    (void)state;
    make_tight(&p);
    p.c.profile->tables[0].table.rows = EMBTIER_UNBOUNDED;
    see_rows_once(&p.c.profile->tables[0]);
    p.c.machine.gpu_count = 0;
    p.c.machine.tiers[0].bytes = 1024 * MIB;
    {
        _cleanup_(plan_freep) struct plan *plan = cut_plan(&p.c);
        const double seen = p.c.profile->tables[0].summary.rows;

        assert_int_equal(plan->tables[0].parts[0].home, PLAN_ARRAY);
        assert_true((double)plan->tables[0].parts[0].rows <= seen);
        assert_true((double)plan->tables[0].parts[0].rows > 0.9 * seen);
    }
    clear(&p);
}

/* Returns the number of the table's arrays, and adds them to those of each tier. */
static uint32_t count_arrays(const struct plan_table *table, const struct planner_case *c,
                             uint32_t *used)
{
    uint32_t arrays = 0;

    for (uint32_t k = 0; k < table->part_count; k++) {
        if (table->parts[k].home != PLAN_ARRAY)
            continue;
        arrays++;
        used[strcmp(table->parts[k].tier, c->machine.tiers[0].name) != 0]++;
    }
    return arrays;
}

/* A server has the hot rows of a table in one tier. Many slabs in both tiers are worth having. */
static void test_no_table_has_hot_rows_in_two_tiers(void **state)
{
    struct random random = { SEED + 5 };
    uint32_t used[2] = { 0 };

    (void)state;
    for (uint32_t i = 0; i < EQUALS; i++) {
        struct prepared p = { 0 };

        draw_row_case(&random, &p.c, 2, 0, 40000, 1.3);
        measure_hot(&p);
        p.c.machine.tier_count = 2;
        p.c.machine.tiers[0].bytes = (7 + i % 3) * MIB;
        p.c.machine.tiers[1] = (struct machine_tier){
            .name = "pmem",
            .bytes = 16 * MIB,
            .bandwidth_bytes_per_s = p.c.machine.tiers[0].bandwidth_bytes_per_s / 2,
        };
        {
            _cleanup_(plan_freep) struct plan *plan = cut_plan(&p.c);

            for (uint32_t t = 0; t < plan->table_count; t++)
                assert_true(count_arrays(&plan->tables[t], &p.c, used) <= 1);
        }
        clear(&p);
    }
    assert_true(used[0] > 0 && used[1] > 0);
}

/* Rows that were in the rest. */
static void add_rows_in_second_tier(struct plan_table *table, const struct planner_case *c)
{
    struct plan_part *const part = &table->parts[1];

    assert_int_equal(table->parts[0].home, PLAN_ARRAY);
    assert_int_equal(part->home, PLAN_CACHE);
    table->parts[2] = *part;
    table->part_count = 3;
    part->home = PLAN_ARRAY;
    strcpy(part->tier, c->machine.tiers[1].name);
    part->rows = 1000;
    table->parts[2].rows -= part->rows;
}

/* A plan of an older version, or one edited by hand. As no byte may move, it would be the best. */
static void test_a_plan_in_force_with_hot_rows_in_two_tiers_does_not_stay(void **state)
{
    struct prepared p = { 0 };

    (void)state;
    make_tight(&p);
    p.c.machine.gpu_count = 0;
    p.c.machine.tier_count = 2;
    p.c.machine.tiers[1] = (struct machine_tier){
        .name = "pmem",
        .bytes = 16 * MIB,
        .bandwidth_bytes_per_s = p.c.machine.tiers[0].bandwidth_bytes_per_s / 2,
    };
    p.c.rules.cache_least_bytes[1] = 16 * MIB; /* so that the first plan leaves it empty */
    {
        _cleanup_(plan_freep) struct plan *old = cut_plan(&p.c);
        struct planner_opts opts = opts_of(&p.c);
        struct planner_warnings warnings;
        struct plan *plan = NULL;
        struct err_msg msg = { { 0 } };
        uint32_t i = 0;

        while (old->tables[i].part_count != 2 || old->tables[i].parts[0].home != PLAN_ARRAY)
            assert_true(++i < old->table_count);
        add_rows_in_second_tier(&old->tables[i], &p.c);
        p.c.rules.cache_least_bytes[1] = 0;
        p.c.rules.moved_bytes_max = 0;
        opts.row_wise = true;
        opts.previous = old;
        assert_int_equal(planner_make(&opts, &plan, &warnings, &msg), EMBTIER_INVALID);
        assert_non_null(strstr(msg.text, "moved_bytes_max: "));
        p.c.rules.moved_bytes_max = UINT64_MAX;
        plan = plan_of(&opts);
        for (i = 0; i < plan->table_count; i++)
            assert_true(count_arrays(&plan->tables[i], &p.c, (uint32_t[2]){ 0 }) <= 1);
        plan_free(plan);
    }
    clear(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plans_are_nearly_the_best_of_a_grid),
        cmocka_unit_test(test_whole_tables_cost_the_same_in_both_models),
        cmocka_unit_test(test_hot_rows_bring_their_remap),
        cmocka_unit_test(test_an_unsplit_table_is_whole),
        cmocka_unit_test(test_pins_and_forbidden_memories_hold),
        cmocka_unit_test(test_tables_that_are_kept_together_share_a_gpu),
        cmocka_unit_test(test_reserved_bytes_stay_free),
        cmocka_unit_test(test_no_more_bytes_move_than_allowed),
        cmocka_unit_test(test_whole_tables_after_cuts_move_rows),
        cmocka_unit_test(test_each_limit_says_by_how_much_it_is_missed),
        cmocka_unit_test(test_missing_bytes_are_named),
        cmocka_unit_test(test_cuts_fit_where_whole_tables_do_not),
        cmocka_unit_test(test_whole_tables_stay_where_no_cut_helps),
        cmocka_unit_test(test_equal_input_gives_an_equal_plan),
        cmocka_unit_test(test_hot_rows_of_an_unbounded_table_leave_the_cache),
        cmocka_unit_test(test_no_unseen_rows_of_an_unbounded_table_are_hot),
        cmocka_unit_test(test_no_table_has_hot_rows_in_two_tiers),
        cmocka_unit_test(test_a_plan_in_force_with_hot_rows_in_two_tiers_does_not_stay),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
