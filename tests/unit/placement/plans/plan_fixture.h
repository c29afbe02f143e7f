/* SPDX-License-Identifier: Apache-2.0 */
/* plan_fixture.h: random plans that pass plan_check(). */
#ifndef EMBTIER_TESTS_UNIT_PLACEMENT_PLAN_FIXTURE_H
#define EMBTIER_TESTS_UNIT_PLACEMENT_PLAN_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "placement/plan/plan.h"
#include "placement/random.h"

/* Numbers of all sizes, whole and not, and 0. */
static inline double draw_real(struct random *random)
{
    const uint64_t kind = random_below(random, 4);
    const double number = random_share(random);

    if (kind == 0)
        return 0;
    return kind == 1 ? floor(number * 1e6)
                     : number * pow(10, (double)(random_u64(random) % 30) - 15);
}

static inline void draw_memories(struct random *random, uint32_t tiers, struct plan *plan)
{
    for (uint32_t i = 0; i < plan->memory_count; i++) {
        struct plan_memory *const memory = &plan->memories[i];
        const uint32_t tier = i - plan->gpu_count;

        memory->gpu = i < plan->gpu_count ? i : PLAN_NO_GPU;
        memory->bandwidth_bytes_per_s = 1e9 * random_share(random);
        memory->read_bytes = draw_real(random);
        memory->time_s = draw_real(random);
        if (i < plan->gpu_count)
            snprintf(memory->name, sizeof(memory->name), "hbm");
        else if (tier == tiers)
            snprintf(memory->name, sizeof(memory->name), PLAN_SSD);
        else
            snprintf(memory->name, sizeof(memory->name), "tier-%" PRIu32, tier);
        if (i < plan->gpu_count || tier == tiers)
            continue;
        memory->cache_bytes = random_below(random, UINT64_C(1) << 40);
        plan->cache_bytes[plan->tier_count++] = memory->cache_bytes;
    }
}

static inline void draw_description(struct random *random, const struct plan *plan, uint32_t number,
                                    struct plan_table *table)
{
    static const enum embtier_dtype dtypes[] = { EMBTIER_DTYPE_F32, EMBTIER_DTYPE_F16,
                                                 EMBTIER_DTYPE_BF16 };

    snprintf(table->name, sizeof(table->name), random_below(random, 2) ? "t%" PRIu32 : "%" PRIu32,
             number);
    table->dim = (uint32_t)(1 + random_below(random, 256));
    table->dtype = dtypes[random_below(random, 3)];
    table->optimizer = (enum embtier_optimizer)random_below(random, 9);
    table->gpu =
        plan->gpu_count > 0 ? (uint32_t)random_below(random, plan->gpu_count) : PLAN_NO_GPU;
    table->read_bytes = draw_real(random);
    if (random_below(random, 2))
        snprintf(table->reason, sizeof(table->reason), "\"hot\" \\ warm, %s: # {[é", table->name);
}

/* Adds a part in the memory @memory of the plan. */
static inline void draw_part(struct random *random, struct plan *plan, uint32_t number,
                             struct plan_table *table)
{
    struct plan_part *const part = &table->parts[table->part_count++];
    struct plan_memory *const memory = &plan->memories[number];

    part->gpu = PLAN_NO_GPU;
    part->rows = 1 + random_below(random, UINT64_C(1) << random_below(random, 30));
    part->time_s = draw_real(random);
    part->reads_per_s = draw_real(random);
    part->writes_bytes_per_day = draw_real(random);
    part->bytes = part->rows * (plan_row_bytes(table) + random_below(random, 3));
    if (memory->gpu != PLAN_NO_GPU) {
        part->home = PLAN_HBM;
        part->gpu = memory->gpu;
    } else if (strcmp(memory->name, PLAN_SSD) != 0) {
        part->home = PLAN_ARRAY;
        snprintf(part->tier, sizeof(part->tier), "%s", memory->name);
    } else {
        part->home = PLAN_CACHE;
        part->bytes = 0;
        for (uint32_t i = 0; i < plan->tier_count; i++) {
            part->hit_rates[i] = random_unit(random) / plan->tier_count;
            part->cache_bytes[i] = random_unit(random) * (double)plan->cache_bytes[i];
        }
    }
    memory->array_bytes += part->bytes;
}

static inline void draw_parts(struct random *random, struct plan *plan, struct plan_table *table)
{
    const uint32_t last = plan->memory_count - 1;
    const bool is_idle = random_below(random, 8) == 0;
    double left = 1;

    for (uint32_t i = 0; i < plan->memory_count; i++) {
        const bool may = i >= plan->gpu_count || i == table->gpu;

        if (may && (random_below(random, 3) == 0 || (i == last && table->part_count == 0)))
            draw_part(random, plan, i, table);
    }
    for (uint32_t i = 0; i < table->part_count; i++) {
        const bool is_last = i + 1 == table->part_count;

        table->rows += table->parts[i].rows;
        table->parts[i].lookup_share = is_idle ? 0 : is_last ? left : left * random_unit(random);
        left -= table->parts[i].lookup_share;
    }
    if (table->parts[table->part_count - 1].home == PLAN_CACHE && random_below(random, 4) == 0) {
        table->parts[table->part_count - 1].rows = 0;
        table->rows = EMBTIER_UNBOUNDED;
    }
    table->unsplit = table->part_count == 1 && random_below(random, 2);
}

static inline struct plan *draw_plan(struct random *random, uint32_t tables, uint32_t gpus,
                                     uint32_t tiers)
{
    struct plan *plan = NULL;
    struct err_msg msg;

    assert_int_equal(plan_new(tables, gpus + tiers + 1, &plan), EMBTIER_OK);
    plan->generation = 1 + random_below(random, 100);
    plan->gpu_count = gpus;
    plan->input_count = (uint32_t)random_below(random, 4);
    for (uint32_t i = 0; i < plan->input_count; i++) {
        snprintf(plan->inputs[i].name, sizeof(plan->inputs[i].name), "input \"%" PRIu32 "\"", i);
        plan->inputs[i].hash = random_u64(random);
    }
    plan->samples_per_batch = 1 + floor(random_unit(random) * 1e6);
    plan->samples_per_s = draw_real(random);
    plan->time_s = draw_real(random);
    plan->bound_s = plan->time_s * random_unit(random);
    draw_memories(random, tiers, plan);
    for (uint32_t i = 0; i < tables; i++) {
        draw_description(random, plan, i, &plan->tables[i]);
        draw_parts(random, plan, &plan->tables[i]);
        plan->memories[plan->memory_count - 1].array_bytes +=
            plan->tables[i].rows * plan_row_bytes(&plan->tables[i]); /* unbounded: 0 */
    }
    for (uint32_t i = 0; i < plan->memory_count; i++)
        plan->memories[i].capacity_bytes = plan->memories[i].array_bytes +
                                           plan->memories[i].cache_bytes +
                                           random_below(random, UINT64_C(1) << (i % 2 * 30 + 10));
    if (plan_check(plan, &msg) != EMBTIER_OK)
        fail_msg("%s", msg.text);
    return plan;
}

#endif
