/* SPDX-License-Identifier: Apache-2.0 */
/* row_fixture.h: small random profiles whose tables are worth cutting, and what cuts cost, computed
 * apart from the planner. */
#ifndef EMBTIER_TESTS_UNIT_PLACEMENT_ROW_FIXTURE_H
#define EMBTIER_TESTS_UNIT_PLACEMENT_ROW_FIXTURE_H

#include "tests/unit/placement/plans/planner_fixture.h"

#include "placement/profile/hot_reuse.h"

#define ROW_BATCHES 24
#define ROW_LOOKUPS 800 /* in a batch */
#define SLAB        (2.0 * MIB)
#define LEVELS      3 /* HBM, two tiers */

/* Tables of a few slabs, whose hottest rows take most lookups. The higher @skew_most, the hotter.
 */
static inline struct measured_profile *draw_row_profile(struct random *random, uint32_t count,
                                                        uint64_t rows_least, double skew_most)
{
    _cleanup_(profile_freep) struct profile *profile = NULL;
    struct trace_table tables[MANY_TABLES] = { 0 };
    double skews[MANY_TABLES];
    struct measured_profile *measured = NULL;
    struct err_msg msg;

    for (uint32_t i = 0; i < count; i++) {
        snprintf(tables[i].name, sizeof(tables[i].name), "t%u", i);
        tables[i].rows = rows_least + random_below(random, 20000);
        tables[i].dim = 32 << random_below(random, 3);
        tables[i].dtype = EMBTIER_DTYPE_F32;
        skews[i] = 1 + (skew_most - 1) * random_share(random);
    }
    assert_int_equal(profile_new(tables, count, PROFILE_MEMORY_BYTES_DEFAULT, &profile, &msg), 0);
    for (uint32_t batch = 0; batch < ROW_BATCHES; batch++)
        for (uint32_t i = 0; i < count; i++)
            for (uint32_t part = 0; part < ROW_LOOKUPS / (BAGS * POOLING); part++)
                add_batch(profile, random, batch, i, tables[i].rows, skews[i], true);
    assert_int_equal(measured_profile_make(profile, tables, &measured), EMBTIER_OK);
    return measured;
}

static inline void draw_row_case(struct random *random, struct planner_case *c, uint32_t tables,
                                 uint32_t gpus, uint64_t rows_least, double skew_most)
{
    memset(c, 0, sizeof(*c));
    c->profile = draw_row_profile(random, tables, rows_least, skew_most);
    draw_machine(random, &c->machine, gpus);
    c->machine.hbm_bytes = gpus > 0 ? random_below(random, 5) * 2 * MIB + 1 : 0;
    c->machine.tiers[0].bytes = (2 + random_below(random, 10)) * MIB;
    c->machine.tiers[1].bytes = random_below(random, 6) * MIB;
    if (c->machine.tiers[1].bytes == 0 || gpus > 0)
        c->machine.tier_count = 1;
    for (uint32_t i = 0; i < tables; i++)
        c->optimizers[i] = EMBTIER_OPTIMIZER_SGD;
    c->rules.rules = c->rule_list;
    c->rules.moved_bytes_max = UINT64_MAX;
}

/* ---- What cuts cost, from the definitions ---- */

/* The hottest rows of each table in each level. */
struct row_cut {
    uint32_t gpu;
    double rows[LEVELS];
};

static inline double all_rows(const struct planner_case *c, uint32_t table)
{
    return (double)c->profile->tables[table].table.rows;
}

static inline double rows_out(const struct row_cut *cut)
{
    return cut->rows[0] + cut->rows[1] + cut->rows[2];
}

/* Spots of 8 bytes and rows at multiples of 16 as in an array, then 16 bytes of remap. */
static inline double part_bytes(const struct planner_case *c, uint32_t i, double rows)
{
    if (rows == 0)
        return 0;
    if (rows == all_rows(c, i))
        return case_array_bytes(c, i);
    return ceil(
               (4096 + ceil(rows * 8 / 4096) * 4096 + rows * ceil(case_row_bytes(c, i) / 16) * 16) /
               SLAB) *
               SLAB +
           ceil(rows * 16 / SLAB) * SLAB;
}

/* The lookups that are left for the cache. */
struct case_rest {
    const struct planner_case *c;
    struct reuse_left left[MANY_TABLES];
};

static inline void get_case_rest(const void *context, uint32_t table, struct reuse_times *ret_times)
{
    const struct case_rest *const rest = context;

    measured_profile_reuse_left(rest->c->profile, table, &rest->left[table], ret_times);
}

static inline double level_bandwidth(const struct planner_case *c, uint32_t level)
{
    const double sharers = c->machine.gpu_count > 0 ? c->machine.gpu_count : 1;

    return level == 0 ? c->machine.hbm_bandwidth_bytes_per_s
                      : c->machine.tiers[level - 1].bandwidth_bytes_per_s / sharers;
}

/* The time of a table's lookups in the cache, and what they read and write. */
static inline double rest_s(const struct planner_case *c, uint32_t i, const struct reuse_left *left,
                            const struct table_prediction *hits, struct cost *cost)
{
    const struct machine *const m = &c->machine;
    const struct table_summary *const seen = &c->profile->tables[i].summary;
    const double sharers = m->gpu_count > 0 ? m->gpu_count : 1;
    const double lookups = (double)seen->lookups / (double)c->profile->batches * left->lookups;
    const double blocks = ceil(case_row_bytes(c, i) / m->ssd.block_bytes);
    const double updated = seen->updated_batch_rows * (double)seen->batches /
                           (double)c->profile->batches * left->batch_rows;
    double missed = 1, time_s = 0;

    for (uint32_t k = 0; k < m->tier_count; k++) {
        missed -= hits->hit_rates[k];
        time_s += lookups * hits->hit_rates[k] * c->profile->tables[i].table.dim * 4 /
                  m->tiers[k].bandwidth_bytes_per_s;
    }
    missed = fmax(missed, 0);
    cost->reads += lookups * missed * blocks;
    cost->written_bytes +=
        fmin(lookups * missed, updated) * case_row_bytes(c, i) * m->ssd.write_amplification;
    return (time_s + lookups * missed * blocks * case_block_s(c)) * sharers;
}

static inline struct cost cut_cost(const struct planner_case *c, struct hot_reuse *const *hots,
                                   const struct row_cut *cuts)
{
    const uint32_t count = c->profile->table_count;
    struct case_rest rest = { .c = c };
    const struct reuse_source source = { count, get_case_rest, &rest };
    struct cache_tiers tiers = { .count = c->machine.tier_count };
    struct table_prediction hits[MANY_TABLES];
    double hbm[MACHINE_GPUS_MAX] = { 0 }, times_s[MACHINE_GPUS_MAX] = { 0 };
    double row_bytes[MANY_TABLES] = { 0 };
    struct cost cost = { .fits = true };

    for (uint32_t k = 0; k < tiers.count; k++)
        tiers.bytes[k] = (double)c->machine.tiers[k].bytes;
    for (uint32_t i = 0; i < count; i++) {
        hbm[cuts[i].gpu] += part_bytes(c, i, cuts[i].rows[0]);
        for (uint32_t k = 0; k < tiers.count; k++)
            tiers.bytes[k] -= part_bytes(c, i, cuts[i].rows[k + 1]);
        cost.fits = cost.fits && rows_out(&cuts[i]) <= all_rows(c, i) &&
                    hbm[cuts[i].gpu] <= (double)c->machine.hbm_bytes;
    }
    for (uint32_t k = 0; k < tiers.count; k++)
        cost.fits = cost.fits && tiers.bytes[k] >= 0;
    if (!cost.fits)
        return cost;
    for (uint32_t i = 0; i < count; i++) {
        hot_reuse_left(hots[i], rows_out(&cuts[i]), &rest.left[i]);
        row_bytes[i] = case_row_bytes(c, i) *
                       (rows_out(&cuts[i]) < all_rows(c, i) && rest.left[i].lookups > 0);
    }
    assert_int_equal(predict_shared_cache(&source, row_bytes, &tiers, hits, NULL), EMBTIER_OK);
    for (uint32_t i = 0; i < count; i++) {
        const double bytes = (double)c->profile->tables[i].summary.lookups /
                             (double)c->profile->batches * c->profile->tables[i].table.dim * 4;
        double out = 0;

        for (uint32_t m = 0; m < LEVELS; m++) {
            const double share = access_cdf_share(&hots[i]->cdf, out + cuts[i].rows[m]) -
                                 access_cdf_share(&hots[i]->cdf, out);

            if (cuts[i].rows[m] > 0)
                times_s[cuts[i].gpu] += bytes * share / level_bandwidth(c, m);
            out += cuts[i].rows[m];
        }
        if (row_bytes[i] > 0)
            times_s[cuts[i].gpu] += rest_s(c, i, &rest.left[i], &hits[i], &cost);
    }
    for (uint32_t g = 0; g < MACHINE_GPUS_MAX; g++)
        cost.time_s = fmax(cost.time_s, times_s[g]);
    return cost;
}

static inline struct row_cut cut_of(const struct plan *plan, uint32_t table)
{
    struct row_cut cut = { .gpu = plan->gpu_count > 0 ? plan->tables[table].gpu : 0 };

    for (uint32_t i = 0; i < plan->tables[table].part_count; i++) {
        const struct plan_part *const part = &plan->tables[table].parts[i];

        if (part->home == PLAN_HBM)
            cut.rows[0] = (double)part->rows;
        else if (part->home == PLAN_ARRAY)
            cut.rows[strcmp(part->tier, "dram") == 0 ? 1 : 2] = (double)part->rows;
    }
    return cut;
}

/* The cost of a plan, from the rows that it says. */
static inline struct cost plan_cut_cost(const struct planner_case *c, struct hot_reuse *const *hots,
                                        const struct plan *plan)
{
    struct row_cut cuts[MANY_TABLES] = { 0 };

    for (uint32_t i = 0; i < plan->table_count; i++)
        cuts[i] = cut_of(plan, i);
    return cut_cost(c, hots, cuts);
}

/* ---- All cuts of a grid ---- */

/* The most rows of a cut table that take so many slabs, and all rows if there is room. */
static inline double rows_of_slabs(const struct planner_case *c, uint32_t i, uint32_t slabs)
{
    double low = 0, high = all_rows(c, i);

    if (slabs * SLAB >= case_array_bytes(c, i))
        return high;
    for (high--; low < high;) {
        const double middle = floor((low + high + 1) / 2);

        if (part_bytes(c, i, middle) <= slabs * SLAB)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

struct row_grid {
    const struct planner_case *c;
    struct hot_reuse **hots;
    struct row_cut cuts[MANY_TABLES], best[MANY_TABLES];
    double best_s;
    uint32_t tried;
};

static inline void grid_slabs(struct row_grid *grid, uint32_t table, uint32_t level);

static inline void grid_table(struct row_grid *grid, uint32_t table)
{
    const uint32_t gpus = grid->c->machine.gpu_count > 0 ? grid->c->machine.gpu_count : 1;

    if (table == grid->c->profile->table_count) {
        const struct cost cost = cut_cost(grid->c, grid->hots, grid->cuts);

        grid->tried += cost.fits;
        if (cost.fits && cost.time_s < grid->best_s) {
            grid->best_s = cost.time_s;
            memcpy(grid->best, grid->cuts, sizeof(grid->best));
        }
        return;
    }
    for (uint32_t g = 0; g < gpus; g++) {
        grid->cuts[table] = (struct row_cut){ .gpu = g };
        grid_slabs(grid, table, 0);
    }
}

/* Gives the table's part in a level each number of slabs that it may have. */
static inline void grid_slabs(struct row_grid *grid, uint32_t table, uint32_t level)
{
    const struct machine *const m = &grid->c->machine;
    double *const rows = &grid->cuts[table].rows[level];
    double bytes, before = -1;

    if (level == LEVELS) {
        if (rows_out(&grid->cuts[table]) <= all_rows(grid->c, table))
            grid_table(grid, table + 1);
        return;
    }
    bytes = level == 0               ? (double)m->hbm_bytes
            : level <= m->tier_count ? (double)m->tiers[level - 1].bytes
                                     : 0;
    for (uint32_t slabs = 0; slabs * SLAB <= bytes; slabs++) {
        *rows = rows_of_slabs(grid->c, table, slabs);
        if (*rows > before)
            grid_slabs(grid, table, level + 1);
        before = *rows;
    }
    *rows = 0;
}

#endif
