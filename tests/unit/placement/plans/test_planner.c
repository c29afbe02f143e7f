/* SPDX-License-Identifier: Apache-2.0 */
/* The planner against all homes of small random cases, with times and limits that are computed here
 * from their definitions; each rule and limit; each refusal. */
#include "base/text/bytes.h"
#include "placement/plan/plan_diff.h"
#include "placement/planner/what_if.h"
#include "tests/forms.h"
#include "tests/unit/placement/plans/planner_fixture.h"

#define SEED    20261128
#define CASES   BY_BUILD(45, 6, 45)
#define LIMITED BY_BUILD(16, 3, 16)
/* The search proves nothing. On these cases it must come this close to the best, and nearly always
 * find it. */
#define GAP_EACH   0.02
#define MISSED_MAX 3
/* The same in the LIMITED cases, where a limit rules the best homes out. */
#define GAP_LIMITED 0.1

static void free_case(struct planner_case *c)
{
    measured_profile_free(c->profile);
}

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-6 * fmax(fabs(a), fabs(b));
}

/* ---- The best homes ---- */

/* Sums over the tables of a plan. */
static double reads_per_s(const struct plan *plan)
{
    double sum = 0;

    for (uint32_t i = 0; i < plan->table_count; i++)
        sum += plan->tables[i].parts[0].reads_per_s;
    return sum;
}

static double writes_per_day(const struct plan *plan)
{
    double sum = 0;

    for (uint32_t i = 0; i < plan->table_count; i++)
        sum += plan->tables[i].parts[0].writes_bytes_per_day;
    return sum;
}

static void check_figures(const struct plan *plan, const struct cost *cost)
{
    const double batches_per_s = plan->samples_per_s / plan->samples_per_batch;

    assert_true(cost->fits);
    assert_true(near(plan->time_s, cost->time_s));
    assert_true(near(plan->samples_per_batch, BAGS));
    assert_true(near(reads_per_s(plan), cost->reads * batches_per_s));
    assert_true(near(writes_per_day(plan), cost->written_bytes * batches_per_s * 86400));
}

/* Returns whether the plan is the best. */
static bool compare(struct random *random, uint32_t tables, uint32_t gpus, double *ret_spread)
{
    struct planner_case c;
    struct planner_opts opts;
    struct brute_force all;
    struct cost cost;

    draw_planner_case(random, &c, tables, gpus);
    opts = opts_of(&c);
    all = all_homes(&c, NULL);
    {
        _cleanup_(plan_freep) struct plan *plan = plan_of(&opts);

        cost = plan_cost(&c, plan);
        check_figures(plan, &cost);
        assert_true(near(plan->samples_per_s * plan->time_s, plan->samples_per_batch));
        assert_true(plan->bound_s <= all.best_s * (1 + 1e-6));
        assert_true(plan->time_s >= all.best_s * (1 - 1e-6));
        assert_true(plan->time_s <= all.best_s * (1 + GAP_EACH));
    }
    *ret_spread = all.worst_s / all.best_s;
    free_case(&c);
    return near(cost.time_s, all.best_s);
}

static void test_plans_are_nearly_the_best_of_all_homes(void **state)
{
    struct random random = { SEED };
    double spread, most = 1;
    uint32_t missed = 0;

    (void)state;
    printf("seed %d\n", SEED);
    for (uint32_t i = 0; i < CASES; i++) {
        const uint32_t gpus = i % 3;

        missed += !compare(&random, gpus == 2 ? 2 : 3 + i % 2, gpus, &spread);
        most = fmax(most, spread);
    }
    printf("%u of %u are not the best\n", missed, CASES);
    assert_true(missed <= MISSED_MAX);
    assert_true(most > 100); /* the homes matter */
}

static void test_equal_input_gives_an_equal_plan(void **state)
{
    struct random random = { SEED + 1 };
    struct planner_case c;
    struct planner_opts opts;

    (void)state;
    draw_planner_case(&random, &c, MANY_TABLES, 2);
    opts = opts_of(&c);
    {
        _cleanup_(plan_freep) struct plan *first = plan_of(&opts);
        _cleanup_(plan_freep) struct plan *second = plan_of(&opts);

        assert_memory_equal(first->tables, second->tables, MANY_TABLES * sizeof(*first->tables));
        assert_memory_equal(first->memories, second->memories,
                            first->memory_count * sizeof(*first->memories));
        assert_true(first->time_s == second->time_s && first->bound_s == second->bound_s);
    }
    free_case(&c);
}

/* ---- Rules ---- */

/* Three tables, room for all of them in DRAM, and a GPU whose memory holds some. */
static void make_roomy(struct planner_case *c)
{
    struct random random = { SEED + 3 };

    draw_planner_case(&random, c, 3, 2);
    c->machine.tier_count = 1;
    c->machine.tiers[0].bytes = 64 * MIB;
    c->machine.hbm_bytes = 16 * MIB;
}

static const struct plan_part *part_of(const struct plan *plan, uint32_t table)
{
    return &plan->tables[table].parts[0];
}

static void test_a_pinned_table_is_where_it_was_pinned(void **state)
{
    struct planner_case c;
    struct planner_opts opts;
    struct model_rule *rule;

    (void)state;
    make_roomy(&c);
    rule = add_rule(&c, MODEL_PIN);
    rule->table = 0;
    rule->memory = machine_find_memory(&c.machine, "cache");
    rule = add_rule(&c, MODEL_PIN);
    rule->table = 1;
    rule->memory = machine_find_memory(&c.machine, "dram");
    rule->gpu = 1;
    opts = opts_of(&c);
    {
        _cleanup_(plan_freep) struct plan *plan = plan_of(&opts);

        assert_int_equal(part_of(plan, 0)->home, PLAN_CACHE);
        assert_int_equal(part_of(plan, 1)->home, PLAN_ARRAY);
        assert_string_equal(part_of(plan, 1)->tier, "dram");
        assert_int_equal(plan->tables[1].gpu, 1);
        assert_int_equal(part_of(plan, 2)->home, PLAN_HBM); /* as no rule keeps it out */
    }
    free_case(&c);
}

static void test_a_forbidden_memory_is_not_used(void **state)
{
    struct planner_case c;
    struct planner_opts opts;
    struct model_rule *rule;

    (void)state;
    make_roomy(&c);
    rule = add_rule(&c, MODEL_FORBID);
    rule->table = 2;
    rule->memory = machine_find_memory(&c.machine, "hbm");
    opts = opts_of(&c);
    {
        _cleanup_(plan_freep) struct plan *plan = plan_of(&opts);

        assert_int_equal(part_of(plan, 2)->home, PLAN_ARRAY);
    }
    free_case(&c);
}

static void test_tables_that_are_kept_together_share_a_place(void **state)
{
    struct planner_case c;
    struct planner_opts opts;
    struct model_rule *rule;

    (void)state;
    make_roomy(&c);
    for (uint32_t with = 0; with < 2; with++) {
        if (with) {
            rule = add_rule(&c, MODEL_TOGETHER);
            rule->table = 0;
            rule->other = 1;
        }
        opts = opts_of(&c);
        {
            _cleanup_(plan_freep) struct plan *plan = plan_of(&opts);
            const bool together = part_of(plan, 0)->home == part_of(plan, 1)->home &&
                                  plan->tables[0].gpu == plan->tables[1].gpu;

            assert_int_equal(together, with); /* apart they balance the GPUs */
        }
    }
    free_case(&c);
}

static void test_reserved_bytes_stay_free(void **state)
{
    struct planner_case c;
    struct planner_opts opts;
    struct model_rule *rule;

    (void)state;
    make_roomy(&c);
    rule = add_rule(&c, MODEL_RESERVE);
    rule->memory = machine_find_memory(&c.machine, "hbm");
    rule->bytes = 16 * MIB;
    rule = add_rule(&c, MODEL_RESERVE);
    rule->memory = machine_find_memory(&c.machine, "dram");
    rule->bytes = 60 * MIB;
    c.rules.cache_least_bytes[0] = 3 * MIB;
    opts = opts_of(&c);
    {
        _cleanup_(plan_freep) struct plan *plan = plan_of(&opts);

        assert_int_equal(plan->memories[0].array_bytes, 0);
        assert_int_equal(plan->memories[1].array_bytes, 0);
        assert_int_equal(plan->memories[2].array_bytes + plan->cache_bytes[0], 4 * MIB);
        assert_int_equal(plan->memories[2].array_bytes, 0); /* 1 MiB is no slab */
    }
    free_case(&c);
}

/* The server refuses arrays that leave its lanes less. */
static void test_arrays_leave_the_cache_what_the_server_needs(void **state)
{
    struct planner_case c;
    struct planner_opts opts;
    struct model_rule *rule;

    (void)state;
    for (uint32_t lanes = 0; lanes <= 15; lanes += 15) {
        make_roomy(&c);
        rule = add_rule(&c, MODEL_RESERVE);
        rule->memory = machine_find_memory(&c.machine, "hbm");
        rule->bytes = c.machine.hbm_bytes;
        c.machine.lanes = lanes;
        c.rules.cache_least_bytes[0] = 3 * MIB; /* it is not added */
        opts = opts_of(&c);
        {
            _cleanup_(plan_freep) struct plan *plan = plan_of(&opts);

            if (lanes > 0)
                assert_int_equal(plan->cache_bytes[0], 64 * MIB - plan->memories[2].array_bytes);
            assert_true((plan->memories[2].array_bytes > 4 * MIB) == (lanes == 0));
            assert_true(plan->memories[2].array_bytes > 0);
        }
        free_case(&c);
    }
}

/* ---- The plan in force ---- */

static void pin_all_to_cache(struct planner_case *c)
{
    for (uint32_t i = 0; i < 3; i++) {
        struct model_rule *const rule = add_rule(c, MODEL_PIN);

        rule->table = i;
        rule->memory = machine_find_memory(&c->machine, "cache");
    }
}

static void test_no_more_bytes_move_than_allowed(void **state)
{
    struct planner_case c;
    struct planner_opts opts;

    (void)state;
    make_roomy(&c);
    pin_all_to_cache(&c);
    opts = opts_of(&c);
    {
        _cleanup_(plan_freep) struct plan *old = plan_of(&opts);
        const double table_bytes = (double)c.profile->tables[1].table.rows * case_row_bytes(&c, 1);
        const uint64_t bytes[] = { 0, (uint64_t)table_bytes, UINT64_MAX };

        c.rules.rule_count = 0;
        opts.previous = old;
        for (uint32_t k = 0; k < 3; k++) {
            _cleanup_(plan_freep) struct plan *plan = NULL;
            _cleanup_(plan_diff_freep) struct plan_diff *diff = NULL;
            uint32_t count = 0;

            c.rules.moved_bytes_max = bytes[k];
            plan = plan_of(&opts);
            assert_int_equal(plan->generation, 2);
            assert_int_equal(plan_diff_new(old, plan, &diff), EMBTIER_OK);
            assert_true(diff->bytes_moved <= bytes[k]);
            for (uint32_t i = 0; i < 3; i++)
                count += part_of(plan, i)->home != PLAN_CACHE;
            assert_true(k == 0 ? count == 0 : count > 0);
            assert_true(k < 2 || count == 3);
        }
    }
    free_case(&c);
}

/* A plan is worth its moves if it is faster by the least gain, and no sooner. */
static void test_small_gains_move_nothing(void **state)
{
    struct planner_case c;
    struct planner_opts opts;

    (void)state;
    make_roomy(&c);
    pin_all_to_cache(&c);
    opts = opts_of(&c);
    {
        _cleanup_(plan_freep) struct plan *old = plan_of(&opts);
        _cleanup_(plan_freep) struct plan *best = NULL;
        double gains[3] = { 0 };

        c.rules.rule_count = 0;
        opts.previous = old;
        best = plan_of(&opts);
        assert_true(best->time_s < old->time_s);
        gains[1] = 0.99 * (1 - best->time_s / old->time_s);
        gains[2] = 1.01 * (1 - best->time_s / old->time_s);
        for (uint32_t i = 0; i < 2 * ARRAY_LEN(gains); i++) {
            _cleanup_(plan_freep) struct plan *plan = NULL;
            _cleanup_(plan_diff_freep) struct plan_diff *diff = NULL;
            struct planner_warnings warnings;
            struct err_msg msg = { { 0 } };
            const bool stays = i % ARRAY_LEN(gains) == 2;

            c.rules.least_gain = gains[i % ARRAY_LEN(gains)];
            opts.row_wise = i >= ARRAY_LEN(gains);
            assert_int_equal(planner_make(&opts, &plan, &warnings, &msg), EMBTIER_OK);
            assert_int_equal(plan_diff_new(old, plan, &diff), EMBTIER_OK);
            assert_true((diff->bytes_moved == 0) == stays);
            assert_true((warnings.stay_says.text[0] != '\0') == stays);
        }
    }
    free_case(&c);
}

/* On a machine with other memories, a plan cannot stay as it is. */
static void test_a_plan_of_another_machine_does_not_stay(void **state)
{
    struct planner_case c;
    struct planner_opts opts;

    (void)state;
    make_roomy(&c);
    opts = opts_of(&c);
    {
        _cleanup_(plan_freep) struct plan *old = plan_of(&opts);
        _cleanup_(plan_freep) struct plan *plan = NULL;
        struct planner_warnings warnings;
        struct err_msg msg = { { 0 } };

        opts.previous = old;
        c.rules.least_gain = 1;
        snprintf(old->tables[0].parts[0].tier, sizeof(old->tables[0].parts[0].tier), "gone");
        old->tables[0].parts[0].home = PLAN_ARRAY;
        assert_int_equal(planner_make(&opts, &plan, &warnings, &msg), EMBTIER_OK);
        assert_string_equal(warnings.stay_says.text, "");
    }
    free_case(&c);
}

/* ---- Limits ---- */

static enum embtier_err make_plan(const struct planner_case *c, struct plan **ret_plan,
                                  struct planner_warnings *ret_warnings, struct err_msg *msg)
{
    const struct planner_opts opts = opts_of(c);

    return planner_make(&opts, ret_plan, ret_warnings, msg);
}

/* All tables are behind a cache that holds little of them. */
static void make_cached(struct planner_case *c)
{
    make_roomy(c);
    c->machine.gpu_count = 0;
    c->machine.tiers[0].bytes = MIB;
}

/* Refused with these words; with a warning of the same words if the limit is made one. */
static void expect_limit(struct planner_case *c, enum rules_limit limit, const char *words)
{
    _cleanup_(plan_freep) struct plan *plan = NULL;
    struct planner_warnings warnings = { 0 };
    struct err_msg msg = { { 0 } };

    assert_int_equal(make_plan(c, &plan, &warnings, &msg), EMBTIER_INVALID);
    if (!strstr(msg.text, words))
        fail_msg("%s\nlacks %s", msg.text, words);
    c->rules.warns[limit] = true;
    if (make_plan(c, &plan, &warnings, &msg) != EMBTIER_OK)
        fail_msg("%s", msg.text);
    assert_int_equal(warnings.count, 1);
    assert_non_null(strstr(warnings.texts[0].text, words));
}

/* The plan without limits, and what it reads and writes. */
static struct cost free_cost(struct planner_case *c, double *ret_samples_per_s)
{
    _cleanup_(plan_freep) struct plan *plan = NULL;
    struct planner_warnings warnings;
    struct err_msg msg = { { 0 } };

    if (make_plan(c, &plan, &warnings, &msg) != EMBTIER_OK)
        fail_msg("%s", msg.text);
    assert_int_equal(warnings.count, 0);
    *ret_samples_per_s = plan->samples_per_s;
    return plan_cost(c, plan);
}

/* With half of the blocks a second that it could use, reads alone take twice the time. */
static void test_reads_of_ssd_take_time(void **state)
{
    _cleanup_(plan_freep) struct plan *plan = NULL;
    struct planner_warnings warnings;
    struct err_msg msg = { { 0 } };
    struct planner_case c;
    struct cost cost;
    double pace, samples;

    (void)state;
    make_cached(&c);
    cost = free_cost(&c, &pace);
    samples = pace * cost.time_s;
    c.machine.ssd.read_iops = cost.reads / cost.time_s / 2;
    assert_int_equal(make_plan(&c, &plan, &warnings, &msg), EMBTIER_OK);
    cost = plan_cost(&c, plan);
    assert_true(near(plan->samples_per_s, samples / cost.time_s));
    assert_true(plan->samples_per_s < pace / 2);
    assert_true(reads_per_s(plan) < c.machine.ssd.read_iops);
    assert_true(near(plan->memories[plan->memory_count - 1].bandwidth_bytes_per_s,
                     c.machine.ssd.read_iops * c.machine.ssd.block_bytes));
    plan_freep(&plan);
    plan = NULL;
    c.rules.target_samples_per_s = pace * 3 / 4;
    assert_int_equal(make_plan(&c, &plan, &warnings, &msg), EMBTIER_INVALID);
    assert_non_null(strstr(msg.text, "target: seconds that a batch may take at the target: "));
    assert_non_null(strstr(msg.text, "; read_iops by "));
    c.rules.warns[LIMIT_READ_IOPS] = true; /* then the drive is as fast as its bandwidth */
    assert_int_equal(make_plan(&c, &plan, &warnings, &msg), EMBTIER_OK);
    assert_true(near(plan->samples_per_s, pace));
    assert_int_equal(warnings.count, 1);
    assert_non_null(strstr(warnings.texts[0].text, "read_iops: blocks read from SSD: "));
    free_case(&c);
}

static void test_writes_to_ssd_set_the_pace(void **state)
{
    _cleanup_(plan_freep) struct plan *plan = NULL;
    struct planner_warnings warnings;
    struct err_msg msg = { { 0 } };
    struct planner_case c;
    struct cost cost;
    double pace;

    (void)state;
    make_cached(&c);
    cost = free_cost(&c, &pace);
    c.machine.ssd.write_bandwidth_bytes_per_s = cost.written_bytes / cost.time_s / 4;
    assert_int_equal(make_plan(&c, &plan, &warnings, &msg), EMBTIER_OK);
    assert_true(near(plan->samples_per_s, pace / 4));
    c.rules.target_samples_per_s = pace / 2;
    expect_limit(&c, LIMIT_WRITE_BANDWIDTH, "write_bandwidth: bytes written to SSD: ");
    free_case(&c);
}

static void test_writes_of_a_day_are_limited(void **state)
{
    struct planner_case c;
    struct cost cost;
    double pace, day_bytes;

    (void)state;
    make_cached(&c);
    cost = free_cost(&c, &pace);
    c.machine.ssd.write_amplification = 3;
    day_bytes = cost.written_bytes * 3 / cost.time_s * 86400;
    c.machine.ssd.drive_writes_per_day = 0.99 * day_bytes / (double)c.machine.ssd.drive_bytes;
    expect_limit(&c, LIMIT_DRIVE_WRITES, "drive_writes: bytes written to SSD under its warranty");
    c.rules.warns[LIMIT_DRIVE_WRITES] = false;
    c.machine.ssd.drive_writes_per_day *= 1.02;
    free_cost(&c, &pace);
    free_case(&c);
}

static void test_a_target_that_no_plan_reaches_is_refused_by_the_bound(void **state)
{
    struct planner_case c;
    double pace;

    (void)state;
    make_cached(&c);
    free_cost(&c, &pace);
    c.rules.target_samples_per_s = 0.99 * pace;
    free_cost(&c, &pace);
    c.rules.target_samples_per_s = 100 * pace;
    expect_limit(&c, LIMIT_TARGET, "target: seconds that a batch may take at the target: ");
    free_case(&c);
}

/* With a drive that wears out quickly, a table that writes much has an array, although another one
 * would save more time. */
static bool obeys_writes(const struct planner_case *c, const uint32_t *homes, const uint32_t *gpus,
                         const struct cost *cost)
{
    (void)homes;
    (void)gpus;
    return cost->written_bytes / cost->time_s * 86400 <=
           c->machine.ssd.drive_writes_per_day * (double)c->machine.ssd.drive_bytes;
}

static void test_limits_change_the_homes(void **state)
{
    struct random random = { SEED + 4 };
    uint32_t bound = 0, possible = 0, missed = 0;

    (void)state;
    for (uint32_t i = 0; i < LIMITED; i++) {
        _cleanup_(plan_freep) struct plan *plan = NULL;
        struct planner_warnings warnings;
        struct err_msg msg = { { 0 } };
        struct planner_case c;
        struct brute_force all, within;
        struct cost cost;
        enum embtier_err err;
        double pace;

        draw_planner_case(&random, &c, 4, 0);
        cost = free_cost(&c, &pace);
        all = all_homes(&c, NULL);
        c.machine.ssd.drive_writes_per_day =
            0.9 * cost.written_bytes / cost.time_s * 86400 / (double)c.machine.ssd.drive_bytes;
        within = all_homes(&c, obeys_writes);
        err = make_plan(&c, &plan, &warnings, &msg);
        if (c.machine.ssd.drive_writes_per_day > 0) {
            bound++;
            assert_true(within.best_s > all.best_s);
            possible += within.count > 0;
            /* Brute force finds a plan: the search does, too. */
            assert_int_equal(err, within.count > 0 ? EMBTIER_OK : EMBTIER_INVALID);
        }
        missed += within.count > 0 && plan->time_s > within.best_s * (1 + GAP_EACH);
        if (within.count > 0 && plan->time_s > within.best_s * (1 + GAP_LIMITED))
            fail_msg("case %u: %g s, and %g are possible", i, plan->time_s, within.best_s);
        free_case(&c);
    }
    printf("%u of %u limits bind, %u leave a plan, %u are not near the best\n", bound, LIMITED,
           possible, missed);
    assert_true(bound > LIMITED / 3 && possible > LIMITED / 3 && missed <= LIMITED / 6);
}

/* ---- What to buy ---- */

static void test_the_cheapest_change_that_reaches_a_target(void **state)
{
    struct what_if all[WHAT_IF_CHANGES_MAX];
    struct planner_case c;
    struct planner_opts opts;
    double pace;

    (void)state;
    make_cached(&c);
    free_cost(&c, &pace);
    c.machine.tiers[0].price.cost_per_gb = 1e6; /* a MiB costs more than the drives */
    c.machine.ssd.price.cost_per_gb = 1;
    c.rules.target_samples_per_s = 1.1 * pace;
    opts = opts_of(&c);
    assert_int_equal(what_if_count(&c.machine), 3);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(what_if_plan(&opts, i, &all[i]), EMBTIER_OK);
    assert_true(all[0].has_plan && !all[0].reaches && near(all[0].samples_per_s, pace));
    assert_non_null(strstr(all[0].why.text, "target: "));
    assert_string_equal(all[1].change, "dram x2");
    assert_true(near(all[1].cost - all[0].cost, (double)c.machine.tiers[0].bytes / 1e3));
    assert_true(all[1].samples_per_s > pace);
    assert_string_equal(all[2].change, "ssd x2");
    assert_true(all[2].reaches && all[2].samples_per_s > 1.5 * pace);
    assert_int_equal(what_if_cheapest(all, 3), 2);
    all[2].cost = MACHINE_UNKNOWN;
    assert_int_equal(what_if_cheapest(all, 3), all[1].reaches ? 1 : 3);
    free_case(&c);
}

/* Its value is not the one that the plan was refused for. */
static void test_a_doubled_figure_names_no_key(void **state)
{
    struct machine_places *places;
    struct machine machine, changed;
    char change[TIER_NAME_MAX + 8];
    struct planner_case c;

    (void)state;
    make_cached(&c);
    machine = c.machine;
    places = &machine.places;
    snprintf(places->hbm_bytes.text, sizeof(places->hbm_bytes.text), "m.yaml:1: gpus.hbm_bytes");
    snprintf(places->tier_bytes[0].text, sizeof(places->tier_bytes[0].text), "m.yaml:2: tiers");
    places->ssd_bytes = places->read_iops = places->tier_bytes[0];
    places->write_bandwidth = places->drive_writes = places->tier_bytes[0];
    what_if_change(&machine, 0, &changed, change);
    assert_string_equal(changed.places.tier_bytes[0].text, "m.yaml:2: tiers");
    what_if_change(&machine, 1, &changed, change);
    assert_string_equal(changed.places.tier_bytes[0].text, "");
    assert_string_equal(changed.places.ssd_bytes.text, "m.yaml:2: tiers");
    what_if_change(&machine, 2, &changed, change);
    assert_string_equal(changed.places.hbm_bytes.text, "m.yaml:1: gpus.hbm_bytes");
    assert_string_equal(changed.places.tier_bytes[0].text, "m.yaml:2: tiers");
    assert_string_equal(changed.places.ssd_bytes.text, "");
    assert_string_equal(changed.places.read_iops.text, "");
    assert_string_equal(changed.places.write_bandwidth.text, "");
    assert_string_equal(changed.places.drive_writes.text, "");
    free_case(&c);
}

/* ---- Refusals ---- */

static void expect_refusal(const struct planner_case *c, const char *words)
{
    struct planner_warnings warnings;
    struct plan *plan = NULL;
    struct err_msg msg = { { 0 } };

    assert_int_equal(make_plan(c, &plan, &warnings, &msg), EMBTIER_INVALID);
    if (!strstr(msg.text, words))
        fail_msg("%s\nlacks %s", msg.text, words);
}

static void test_missing_bytes_are_named(void **state)
{
    struct planner_case c;
    struct model_rule *rule;
    double bytes = 0;
    char words[64];

    (void)state;
    make_roomy(&c);
    rule = add_rule(&c, MODEL_FORBID);
    rule->table = 1;
    rule->memory = machine_find_memory(&c.machine, "cache");
    c.machine.hbm_bytes = MIB;
    c.machine.tiers[0].bytes = 3 * MIB / 2;
    strcpy(c.machine.places.tier_bytes[0].text, "m.yaml:3: tiers[0].bytes");
    strcpy(c.machine.places.hbm_bytes.text, "m.yaml:2: gpus.hbm_bytes");
    strcpy(c.machine.places.ssd_bytes.text, "m.yaml:4: ssd.bytes");
    expect_refusal(&c, "m.yaml:3: tiers[0].bytes: table 't1': ");
    c.rules.rule_count = 0;
    for (uint32_t i = 0; i < 3; i++)
        bytes += (double)c.profile->tables[i].table.rows * case_row_bytes(&c, i);
    c.machine.ssd.bytes = (uint64_t)bytes - 17;
    expect_refusal(&c, ": 17B are missing");
    snprintf(words, sizeof(words), "m.yaml:4: ssd.bytes: the tables take %s of SSD",
             BYTES_TEXT((uint64_t)bytes));
    expect_refusal(&c, words);
    free_case(&c);
}

static void test_unbounded_and_unused_tables_are_cached(void **state)
{
    struct planner_case c;
    struct planner_opts opts;

    (void)state;
    make_roomy(&c);
    c.profile->tables[0].table.rows = EMBTIER_UNBOUNDED;
    c.profile->tables[1].summary = (struct table_summary){ .sampling_rate = 1 };
    c.profile->tables[1].bin_count = 0;
    memset(c.profile->tables[1].first, 0, sizeof(c.profile->tables[1].first));
    opts = opts_of(&c);
    {
        _cleanup_(plan_freep) struct plan *plan = plan_of(&opts);

        assert_int_equal(part_of(plan, 0)->home, PLAN_CACHE);
        assert_int_equal(part_of(plan, 1)->home, PLAN_CACHE);
        assert_true(part_of(plan, 1)->lookup_share == 0 && part_of(plan, 1)->time_s == 0);
        assert_true(part_of(plan, 0)->lookup_share == 1 && part_of(plan, 0)->time_s > 0);
        assert_true(part_of(plan, 2)->home == PLAN_HBM);
    }
    free_case(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plans_are_nearly_the_best_of_all_homes),
        cmocka_unit_test(test_equal_input_gives_an_equal_plan),
        cmocka_unit_test(test_a_pinned_table_is_where_it_was_pinned),
        cmocka_unit_test(test_a_forbidden_memory_is_not_used),
        cmocka_unit_test(test_tables_that_are_kept_together_share_a_place),
        cmocka_unit_test(test_reserved_bytes_stay_free),
        cmocka_unit_test(test_arrays_leave_the_cache_what_the_server_needs),
        cmocka_unit_test(test_no_more_bytes_move_than_allowed),
        cmocka_unit_test(test_small_gains_move_nothing),
        cmocka_unit_test(test_a_plan_of_another_machine_does_not_stay),
        cmocka_unit_test(test_reads_of_ssd_take_time),
        cmocka_unit_test(test_writes_to_ssd_set_the_pace),
        cmocka_unit_test(test_writes_of_a_day_are_limited),
        cmocka_unit_test(test_a_target_that_no_plan_reaches_is_refused_by_the_bound),
        cmocka_unit_test(test_limits_change_the_homes),
        cmocka_unit_test(test_the_cheapest_change_that_reaches_a_target),
        cmocka_unit_test(test_a_doubled_figure_names_no_key),
        cmocka_unit_test(test_missing_bytes_are_named),
        cmocka_unit_test(test_unbounded_and_unused_tables_are_cached),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
