/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/planner/plan_fill.h"

#include <stdio.h>

#define DAY_S 86400.0

/* The plan that is filled. Its memories are those of the GPUs, then the tiers, then SSD. */
struct filling {
    const struct planning *p;
    const struct homes *homes;
    struct plan *plan;
};

static struct plan_memory *tier_memory(const struct filling *f, uint32_t tier)
{
    return &f->plan->memories[f->plan->gpu_count + tier];
}

static struct plan_memory *ssd_memory(const struct filling *f)
{
    return tier_memory(f, f->p->machine->tier_count);
}

/* ---- Memories ---- */

static void fill_memories(const struct filling *f)
{
    const struct machine *const machine = f->p->machine;
    const struct evaluation *const e = &f->homes->evaluation;

    for (uint32_t g = 0; g < machine->gpu_count; g++)
        f->plan->memories[g] =
            (struct plan_memory){ .name = "hbm",
                                  .gpu = g,
                                  .capacity_bytes = machine->hbm_bytes,
                                  .bandwidth_bytes_per_s = machine->hbm_bandwidth_bytes_per_s };
    for (uint32_t k = 0; k < machine->tier_count; k++) {
        struct plan_memory *const memory = tier_memory(f, k);

        *memory = (struct plan_memory){ .gpu = PLAN_NO_GPU,
                                        .capacity_bytes = machine->tiers[k].bytes,
                                        .array_bytes = e->array_bytes[k],
                                        .cache_bytes = e->cache_bytes[k],
                                        .bandwidth_bytes_per_s =
                                            machine->tiers[k].bandwidth_bytes_per_s };
        snprintf(memory->name, sizeof(memory->name), "%s", machine->tiers[k].name);
    }
    *ssd_memory(f) =
        (struct plan_memory){ .name = "ssd",
                              .gpu = PLAN_NO_GPU,
                              .capacity_bytes = machine->ssd.bytes,
                              .bandwidth_bytes_per_s = machine->ssd.read_bandwidth_bytes_per_s };
}

static void fill_memory_times(const struct filling *f)
{
    for (uint32_t i = 0; i < f->plan->memory_count; i++)
        f->plan->memories[i].time_s =
            f->plan->memories[i].read_bytes / f->plan->memories[i].bandwidth_bytes_per_s;
}

/* ---- Tables ---- */

static void fill_cached(const struct filling *f, uint32_t table, struct plan_part *part)
{
    const struct cache_cost *const cost = &f->p->costs[table];
    const struct work_table *const work = &f->p->workload->tables[table];
    const double batches_per_s = f->plan->samples_per_s / f->plan->samples_per_batch;

    part->home = PLAN_CACHE;
    part->time_s = cost->time_s;
    part->reads_per_s = cost->read_blocks * batches_per_s;
    part->writes_bytes_per_day = cost->written_bytes * batches_per_s * DAY_S;
    for (uint32_t k = 0; k < f->plan->tier_count; k++) {
        part->hit_rates[k] = cost->prediction.hit_rates[k];
        part->cache_bytes[k] = MIN(cost->prediction.bytes[k], (double)f->plan->cache_bytes[k]);
        tier_memory(f, k)->read_bytes += work->lookups * part->hit_rates[k] * work->weight_bytes;
    }
    ssd_memory(f)->read_bytes += cost->read_blocks * f->p->machine->ssd.block_bytes;
}

static void fill_array(const struct filling *f, uint32_t table, uint32_t place,
                       struct plan_part *part)
{
    const struct work_table *const work = &f->p->workload->tables[table];
    const uint32_t memory = place / f->p->model.gpu_count;
    const uint32_t first = machine_first_tier(f->p->machine);
    struct plan_memory *at;

    part->bytes = work->array_bytes;
    part->time_s = f->p->times_s[(uint64_t)table * f->p->model.memory_count + memory];
    if (memory < first) {
        part->home = PLAN_HBM;
        part->gpu = planning_gpu(f->p, place);
        at = &f->plan->memories[part->gpu];
        at->array_bytes += part->bytes;
    } else {
        part->home = PLAN_ARRAY;
        at = tier_memory(f, memory - first);
        snprintf(part->tier, sizeof(part->tier), "%s", at->name);
    }
    at->read_bytes += work->lookups * work->weight_bytes;
}

static void fill_table(const struct filling *f, uint32_t i)
{
    const struct work_table *const work = &f->p->workload->tables[i];
    const uint32_t place = f->homes->places[i];
    struct plan_table *const table = &f->plan->tables[i];
    struct plan_part *const part = &table->parts[0];

    *table = (struct plan_table){ .rows = work->rows,
                                  .dim = work->dim,
                                  .dtype = work->dtype,
                                  .optimizer = work->optimizer,
                                  .gpu = planning_gpu(f->p, place),
                                  .part_count = 1 };
    snprintf(table->name, sizeof(table->name), "%s", work->name);
    *part = (struct plan_part){ .gpu = PLAN_NO_GPU,
                                .rows = work->rows,
                                .lookup_share = work->lookups > 0 ? 1 : 0 };
    table->read_bytes = work->lookups * work->weight_bytes;
    if (planning_is_cached(f->p, place))
        fill_cached(f, i, part);
    else
        fill_array(f, i, place, part);
    ssd_memory(f)->array_bytes += work->stored_bytes;
}

static void fill_figures(const struct filling *f)
{
    const struct evaluation *const e = &f->homes->evaluation;
    struct plan *const plan = f->plan;

    plan->generation = f->p->previous ? f->p->previous->generation + 1 : 1;
    plan->gpu_count = f->p->machine->gpu_count;
    plan->samples_per_batch = f->p->workload->samples_per_batch;
    plan->samples_per_s = e->samples_per_s;
    plan->time_s = e->time_s;
    plan->bound_s = MIN(f->homes->bound_s, e->time_s);
    plan->tier_count = f->p->machine->tier_count;
    for (uint32_t k = 0; k < plan->tier_count; k++)
        plan->cache_bytes[k] = e->cache_bytes[k];
}

enum embtier_err plan_fill(const struct planning *planning, const struct homes *homes,
                           struct plan **ret_plan)
{
    const uint32_t memories = planning->machine->gpu_count + planning->machine->tier_count + 1;
    _cleanup_(plan_freep) struct plan *plan = NULL;
    struct filling filling = { .p = planning, .homes = homes };

    TRY(plan_new(planning->workload->table_count, memories, &plan));
    filling.plan = plan;
    fill_figures(&filling);
    fill_memories(&filling);
    for (uint32_t i = 0; i < plan->table_count; i++)
        fill_table(&filling, i);
    fill_memory_times(&filling);
    *ret_plan = TAKE(plan);
    return EMBTIER_OK;
}
