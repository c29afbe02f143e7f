/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/planner/plan_fill.h"

#include <stdio.h>

#define DAY_S 86400.0

/* The plan that is filled. Its memories are those of the GPUs, then the tiers, then SSD. */
struct filling {
    const struct planning *p;
    const struct evaluation *evaluation;
    double bound_s;
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
    const struct evaluation *const e = f->evaluation;

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
    *ssd_memory(f) = (struct plan_memory){ .name = "ssd",
                                           .gpu = PLAN_NO_GPU,
                                           .capacity_bytes = machine->ssd.bytes,
                                           .bandwidth_bytes_per_s = planning_ssd_bandwidth(f->p) };
}

static void fill_memory_times(const struct filling *f)
{
    for (uint32_t i = 0; i < f->plan->memory_count; i++)
        f->plan->memories[i].time_s =
            f->plan->memories[i].read_bytes / f->plan->memories[i].bandwidth_bytes_per_s;
}

/* ---- Tables ---- */

static void fill_cached(const struct filling *f, uint32_t table, const struct cache_cost *cost,
                        double lookups, struct plan_part *part)
{
    const struct work_table *const work = &f->p->workload->tables[table];
    const double batches_per_s = f->plan->samples_per_s / f->plan->samples_per_batch;

    part->home = PLAN_CACHE;
    part->time_s = cost->time_s;
    part->reads_per_s = cost->read_blocks * batches_per_s;
    part->writes_bytes_per_day = cost->written_bytes * batches_per_s * DAY_S;
    for (uint32_t k = 0; k < f->plan->tier_count; k++) {
        part->hit_rates[k] = cost->prediction.hit_rates[k];
        part->cache_bytes[k] = MIN(cost->prediction.bytes[k], (double)f->plan->cache_bytes[k]);
        tier_memory(f, k)->read_bytes += lookups * part->hit_rates[k] * work->weight_bytes;
    }
    ssd_memory(f)->read_bytes += cost->read_blocks * f->p->machine->ssd.block_bytes;
}

/* The part has rows, bytes and lookup_share. */
static void fill_array(const struct filling *f, const struct plan_table *table, uint32_t memory,
                       struct plan_part *part)
{
    const uint32_t first = machine_first_tier(f->p->machine);
    const double read_bytes = table->read_bytes * part->lookup_share;
    struct plan_memory *at;

    part->time_s = read_bytes / model_gpu_bandwidth(&f->p->model, memory);
    if (memory < first) {
        part->home = PLAN_HBM;
        part->gpu = table->gpu;
        at = &f->plan->memories[part->gpu];
        at->array_bytes += part->bytes;
    } else {
        part->home = PLAN_ARRAY;
        at = tier_memory(f, memory - first);
        snprintf(part->tier, sizeof(part->tier), "%s", at->name);
    }
    at->read_bytes += read_bytes;
}

/* Fills in all but the parts. @gpu: of the model. */
static struct plan_table *begin_table(const struct filling *f, uint32_t i, uint32_t gpu)
{
    const struct work_table *const work = &f->p->workload->tables[i];
    struct plan_table *const table = &f->plan->tables[i];

    *table = (struct plan_table){ .rows = work->rows,
                                  .dim = work->dim,
                                  .dtype = work->dtype,
                                  .optimizer = work->optimizer,
                                  .gpu = f->p->machine->gpu_count > 0 ? gpu : PLAN_NO_GPU,
                                  .read_bytes = work->lookups * work->weight_bytes,
                                  .unsplit = f->p->rules->unsplit && f->p->rules->unsplit[i] };
    snprintf(table->name, sizeof(table->name), "%s", work->name);
    ssd_memory(f)->array_bytes += work->stored_bytes;
    return table;
}

static struct plan_part *add_part(struct plan_table *table, uint64_t rows, double share)
{
    struct plan_part *const part = &table->parts[table->part_count++];

    *part = (struct plan_part){ .gpu = PLAN_NO_GPU, .rows = rows, .lookup_share = share };
    return part;
}

static void fill_whole(const struct filling *f, uint32_t i, uint32_t place)
{
    const struct work_table *const work = &f->p->workload->tables[i];
    struct plan_table *const table = begin_table(f, i, place % f->p->model.gpu_count);
    struct plan_part *const part = add_part(table, work->rows, work->lookups > 0 ? 1 : 0);

    if (planning_is_cached(f->p, place)) {
        fill_cached(f, i, &f->p->costs[i], work->lookups, part);
        return;
    }
    part->bytes = work->array_bytes;
    fill_array(f, table, place / f->p->model.gpu_count, part);
}

static void fill_parts(const struct filling *f, const struct row_planning *rows, uint32_t i,
                       const struct split_cut *cut)
{
    const struct work_table *const work = &f->p->workload->tables[i];
    struct plan_table *const table = begin_table(f, i, cut->gpu);
    struct split_part parts[SPLIT_LEVELS_MAX + 1];
    uint64_t left = work->rows;
    double share = work->lookups > 0 ? 1 : 0;

    split_parts(&rows->model, i, cut, parts);
    for (uint32_t m = 0; m < rows->model.level_count; m++) {
        struct plan_part *part;

        if (cut->rows[m] == 0)
            continue;
        part = add_part(table, cut->rows[m], MIN(parts[m].share, share));
        part->bytes = row_part_bytes(rows, i, cut, m);
        fill_array(f, table, m, part);
        left -= work->rows != EMBTIER_UNBOUNDED ? part->rows : 0;
        share -= part->lookup_share;
    }
    if (row_has_rest(rows, i, cut))
        fill_cached(f, i, &rows->rests[i].cost, rows->rests[i].cached.lookups,
                    add_part(table, left, share));
    else
        table->parts[table->part_count - 1].lookup_share += share; /* rounding */
}

static void fill_figures(const struct filling *f)
{
    const struct evaluation *const e = f->evaluation;
    struct plan *const plan = f->plan;

    plan->generation = f->p->previous_plan ? f->p->previous_plan->generation + 1 : 1;
    plan->gpu_count = f->p->machine->gpu_count;
    plan->samples_per_batch = f->p->workload->samples_per_batch;
    plan->samples_per_s = e->samples_per_s;
    plan->time_s = e->time_s;
    plan->bound_s = MIN(f->bound_s, e->time_s);
    plan->tier_count = f->p->machine->tier_count;
    for (uint32_t k = 0; k < plan->tier_count; k++)
        plan->cache_bytes[k] = e->cache_bytes[k];
}

static enum embtier_err begin_plan(struct filling *f)
{
    const struct machine *const machine = f->p->machine;

    TRY(plan_new(f->p->workload->table_count, machine->gpu_count + machine->tier_count + 1,
                 &f->plan));
    fill_figures(f);
    fill_memories(f);
    return EMBTIER_OK;
}

enum embtier_err plan_fill(const struct planning *planning, const struct homes *homes,
                           struct plan **ret_plan)
{
    struct filling f = { planning, &homes->evaluation, homes->bound_s, NULL };

    TRY(begin_plan(&f));
    for (uint32_t i = 0; i < f.plan->table_count; i++)
        fill_whole(&f, i, homes->places[i]);
    fill_memory_times(&f);
    *ret_plan = f.plan;
    return EMBTIER_OK;
}

enum embtier_err plan_fill_rows(const struct row_planning *rows, const struct row_homes *homes,
                                struct plan **ret_plan)
{
    struct filling f = { rows->p, &homes->evaluation, homes->bound_s, NULL };

    TRY(begin_plan(&f));
    for (uint32_t i = 0; i < f.plan->table_count; i++)
        fill_parts(&f, rows, i, &homes->cuts[i]);
    fill_memory_times(&f);
    *ret_plan = f.plan;
    return EMBTIER_OK;
}
