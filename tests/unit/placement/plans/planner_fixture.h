/* SPDX-License-Identifier: Apache-2.0 */
/* planner_fixture.h: random small profiles, machines and rules for the planner, and what an
 * assignment costs, computed apart from it. */
#ifndef EMBTIER_TESTS_UNIT_PLACEMENT_PLANNER_FIXTURE_H
#define EMBTIER_TESTS_UNIT_PLACEMENT_PLANNER_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "placement/planner/planner.h"
#include "placement/random.h"

#define MANY_TABLES 6
#define BATCHES     24
#define BAGS        40
#define POOLING     5

struct planner_case {
    struct measured_profile *profile;
    enum embtier_optimizer optimizers[MANY_TABLES];
    struct machine machine;
    struct rules rules;
    struct model_rule rule_list[16];
};

/* One batch of a table: the hotter the higher @skew. */
static inline void add_batch(struct profile *profile, struct random *random, uint32_t batch,
                             uint32_t table, uint64_t rows, double skew, bool is_update)
{
    uint32_t ends[BAGS];
    uint64_t ids[BAGS * POOLING];
    const struct trace_lookups lookups = { .batch = batch,
                                           .table = table,
                                           .is_update = is_update,
                                           .bag_count = BAGS,
                                           .id_count = BAGS * POOLING,
                                           .bag_ends = ends,
                                           .ids = ids };

    for (uint32_t i = 0; i < BAGS; i++)
        ends[i] = (i + 1) * POOLING;
    for (uint32_t i = 0; i < BAGS * POOLING; i++)
        ids[i] = (uint64_t)((double)rows * pow(random_unit(random), skew));
    assert_int_equal(profile_add(profile, &lookups), EMBTIER_OK);
}

/* Tables of different sizes, heat and skew; each is looked up by some of the batches. */
static inline struct measured_profile *draw_profile(struct random *random, uint32_t count)
{
    _cleanup_(profile_freep) struct profile *profile = NULL;
    struct trace_table tables[MANY_TABLES] = { 0 };
    uint32_t every[MANY_TABLES];
    double skews[MANY_TABLES];
    struct measured_profile *measured = NULL;
    struct err_msg msg;

    for (uint32_t i = 0; i < count; i++) {
        snprintf(tables[i].name, sizeof(tables[i].name), "t%u", i);
        tables[i].rows = 1000 + random_below(random, 20000);
        tables[i].dim = 8 << random_below(random, 5);
        tables[i].dtype = EMBTIER_DTYPE_F32;
        every[i] = i == 0 ? 1 : 1 + random_below(random, 4);
        skews[i] = 1 + 5 * random_share(random);
    }
    assert_int_equal(profile_new(tables, count, PROFILE_MEMORY_BYTES_DEFAULT, &profile, &msg), 0);
    for (uint32_t batch = 0; batch < BATCHES; batch++)
        for (uint32_t i = 0; i < count; i++)
            if (batch % every[i] == 0)
                add_batch(profile, random, batch, i, tables[i].rows, skews[i], true);
    assert_int_equal(measured_profile_make(profile, tables, &measured), EMBTIER_OK);
    return measured;
}

static inline void draw_machine(struct random *random, struct machine *machine, uint32_t gpus)
{
    *machine = (struct machine){ .gpu_count = gpus, .tier_count = 1 };
    if (gpus > 0) {
        machine->hbm_bytes = (2 + random_below(random, 10)) * MIB;
        machine->hbm_bandwidth_bytes_per_s = 1.6e12;
    }
    machine->tiers[0] = (struct machine_tier){ .name = "dram", .bandwidth_bytes_per_s = 2e11 };
    machine->tiers[0].bytes = (1 + random_below(random, 24)) * MIB;
    if (random_below(random, 2)) {
        machine->tier_count = 2;
        machine->tiers[1] = (struct machine_tier){ .name = "pmem", .bandwidth_bytes_per_s = 3e10 };
        machine->tiers[1].bytes = (1 + random_below(random, 12)) * MIB;
    }
    machine->ssd = (struct machine_ssd){ .bytes = GIB,
                                         .drive_bytes = GIB,
                                         .read_bandwidth_bytes_per_s = 6e9,
                                         .block_bytes = 4096,
                                         .write_amplification = 1 };
}

/* The time that SSD takes for a block. */
static inline double case_block_s(const struct planner_case *c)
{
    const struct machine_ssd *const ssd = &c->machine.ssd;
    const double least_s =
        ssd->read_iops > 0 && !c->rules.warns[LIMIT_READ_IOPS] ? 1 / ssd->read_iops : 0;

    return fmax(ssd->block_bytes / ssd->read_bandwidth_bytes_per_s, least_s);
}

static inline void draw_planner_case(struct random *random, struct planner_case *c, uint32_t tables,
                                     uint32_t gpus)
{
    memset(c, 0, sizeof(*c));
    c->profile = draw_profile(random, tables);
    for (uint32_t i = 0; i < tables; i++)
        c->optimizers[i] = random_below(random, 2) ? EMBTIER_OPTIMIZER_ADAM : EMBTIER_OPTIMIZER_SGD;
    draw_machine(random, &c->machine, gpus);
    c->rules.rules = c->rule_list;
    c->rules.moved_bytes_max = UINT64_MAX;
}

static inline struct model_rule *add_rule(struct planner_case *c, enum model_rule_kind kind)
{
    struct model_rule *const rule = &c->rule_list[c->rules.rule_count++];

    *rule = (struct model_rule){ .kind = kind, .memory = MODEL_ANY, .gpu = MODEL_ANY };
    return rule;
}

static inline struct planner_opts opts_of(const struct planner_case *c)
{
    return (struct planner_opts){ .profile = c->profile,
                                  .optimizers = c->optimizers,
                                  .machine = &c->machine,
                                  .rules = &c->rules };
}

static inline struct plan *plan_of(const struct planner_opts *opts)
{
    struct planner_warnings warnings;
    struct plan *plan = NULL;
    struct err_msg msg = { { 0 } };

    if (planner_make(opts, &plan, &warnings, &msg) != EMBTIER_OK)
        fail_msg("%s", msg.text);
    return plan;
}

/* ---- What an assignment costs, from the definitions alone ---- */

struct cost {
    bool fits;
    double time_s;
    double reads, written_bytes; /* in a batch */
};

static inline double state_numbers(enum embtier_optimizer optimizer)
{
    return optimizer == EMBTIER_OPTIMIZER_ADAM ? 2 : 0;
}

static inline double case_row_bytes(const struct planner_case *c, uint32_t i)
{
    return c->profile->tables[i].table.dim * 4.0 * (1 + state_numbers(c->optimizers[i]));
}

/* Spots of 8 bytes, rows at multiples of 16, slabs of 2 MiB. */
static inline double case_array_bytes(const struct planner_case *c, uint32_t i)
{
    const double rows = (double)c->profile->tables[i].table.rows;

    return ceil(
               (4096 + ceil(rows * 8 / 4096) * 4096 + rows * ceil(case_row_bytes(c, i) / 16) * 16) /
               (2 << 20)) *
           (2 << 20);
}

/* @homes: for each table 0 for HBM, 1 and 2 for tiers, 3 for the cache; and its GPU. */
static inline struct cost case_cost(const struct planner_case *c, const uint32_t *homes,
                                    const uint32_t *gpus)
{
    const uint32_t count = c->profile->table_count;
    const struct machine *const m = &c->machine;
    const double sharers = m->gpu_count > 0 ? m->gpu_count : 1;
    struct cache_tiers tiers = { .count = m->tier_count };
    struct table_prediction predictions[MANY_TABLES];
    double row_bytes[MANY_TABLES] = { 0 }, hbm[MACHINE_GPUS_MAX] = { 0 };
    double times_s[MACHINE_GPUS_MAX] = { 0 };
    struct cost cost = { .fits = true };
    bool any = false;

    for (uint32_t k = 0; k < m->tier_count; k++)
        tiers.bytes[k] = (double)m->tiers[k].bytes;
    for (uint32_t i = 0; i < count; i++) {
        if (homes[i] == 0)
            hbm[gpus[i]] += case_array_bytes(c, i);
        else if (homes[i] == 3)
            row_bytes[i] = case_row_bytes(c, i);
        else
            tiers.bytes[homes[i] - 1] -= case_array_bytes(c, i);
        any = any || homes[i] == 3;
        cost.fits = cost.fits && hbm[gpus[i]] <= (double)m->hbm_bytes;
    }
    for (uint32_t k = 0; k < m->tier_count; k++)
        cost.fits = cost.fits && tiers.bytes[k] >= 0;
    if (!cost.fits)
        return cost;
    if (any)
        assert_int_equal(measured_profile_predict(c->profile, row_bytes, &tiers, predictions, NULL),
                         0);
    for (uint32_t i = 0; i < count; i++) {
        const struct table_summary *const seen = &c->profile->tables[i].summary;
        const double lookups = (double)seen->lookups / (double)c->profile->batches;
        const double bytes = lookups * c->profile->tables[i].table.dim * 4;
        const double blocks = ceil(case_row_bytes(c, i) / m->ssd.block_bytes);
        double missed = 1, time_s = 0;

        if (homes[i] == 0)
            time_s = bytes / m->hbm_bandwidth_bytes_per_s;
        else if (homes[i] < 3)
            time_s = bytes / m->tiers[homes[i] - 1].bandwidth_bytes_per_s * sharers;
        for (uint32_t k = 0; homes[i] == 3 && k < m->tier_count; k++) {
            missed -= predictions[i].hit_rates[k];
            time_s +=
                bytes * predictions[i].hit_rates[k] / m->tiers[k].bandwidth_bytes_per_s * sharers;
        }
        if (homes[i] == 3) {
            const double updated =
                seen->updated_batch_rows * (double)seen->batches / (double)c->profile->batches;

            time_s += lookups * missed * blocks * case_block_s(c) * sharers;
            cost.reads += lookups * missed * blocks;
            cost.written_bytes +=
                fmin(lookups * missed, updated) * case_row_bytes(c, i) * m->ssd.write_amplification;
        }
        times_s[gpus[i]] += time_s;
    }
    for (uint32_t g = 0; g < MACHINE_GPUS_MAX; g++)
        cost.time_s = fmax(cost.time_s, times_s[g]);
    return cost;
}

/* The cost of a plan, from the homes that it says. */
static inline struct cost plan_cost(const struct planner_case *c, const struct plan *plan)
{
    uint32_t homes[MANY_TABLES] = { 0 }, gpus[MANY_TABLES] = { 0 };

    for (uint32_t i = 0; i < plan->table_count; i++) {
        const struct plan_part *const part = &plan->tables[i].parts[0];

        assert_int_equal(plan->tables[i].part_count, 1);
        gpus[i] = plan->gpu_count > 0 ? plan->tables[i].gpu : 0;
        homes[i] = part->home == PLAN_HBM            ? 0
                   : part->home == PLAN_CACHE        ? 3
                   : strcmp(part->tier, "dram") == 0 ? 1
                                                     : 2;
    }
    return case_cost(c, homes, gpus);
}

struct brute_force {
    double best_s, worst_s; /* of those that fit */
    uint32_t count;
};

/* @accept: NULL, or whether an assignment obeys the rules. */
static inline struct brute_force
all_homes(const struct planner_case *c,
          bool (*accept)(const struct planner_case *c, const uint32_t *homes, const uint32_t *gpus,
                         const struct cost *cost))
{
    const uint32_t count = c->profile->table_count;
    const uint32_t gpu_count = c->machine.gpu_count > 0 ? c->machine.gpu_count : 1;
    struct brute_force all = { INFINITY, 0, 0 };
    uint32_t homes[MANY_TABLES] = { 0 }, gpus[MANY_TABLES] = { 0 };
    uint64_t total = 1;

    for (uint32_t i = 0; i < count; i++)
        total *= 4 * gpu_count;
    for (uint64_t number = 0; number < total; number++) {
        uint64_t rest = number;
        bool exists = true;
        struct cost cost;

        for (uint32_t i = 0; i < count; i++, rest /= 4 * gpu_count) {
            homes[i] = rest % 4;
            gpus[i] = rest / 4 % gpu_count;
            exists = exists && (homes[i] != 0 || c->machine.gpu_count > 0) &&
                     (homes[i] != 2 || c->machine.tier_count == 2);
        }
        if (!exists)
            continue;
        cost = case_cost(c, homes, gpus);
        if (!cost.fits || (accept && !accept(c, homes, gpus, &cost)))
            continue;
        all.count++;
        all.best_s = fmin(all.best_s, cost.time_s);
        all.worst_s = fmax(all.worst_s, cost.time_s);
    }
    return all;
}

#endif
