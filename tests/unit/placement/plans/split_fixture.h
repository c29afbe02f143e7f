/* SPDX-License-Identifier: Apache-2.0 */
/* split_fixture.h: random small row-wise models, and their best placement on a grid of cuts. */
#ifndef EMBTIER_TESTS_UNIT_PLACEMENT_SPLIT_FIXTURE_H
#define EMBTIER_TESTS_UNIT_PLACEMENT_SPLIT_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "placement/random.h"
#include "placement/split/split_check.h"

#define SPLIT_TABLES 3
#define SPLIT_GPUS   2
#define SPLIT_LEVELS 2
#define SPLIT_RULES  3
#define SPLIT_POINTS 5

struct split_case {
    struct split_model model;
    struct split_table tables[SPLIT_TABLES];
    struct access_cdf cdfs[SPLIT_TABLES];
    double rests_s[SPLIT_TABLES][SPLIT_POINTS + 1];
    struct model_memory levels[SPLIT_LEVELS];
    struct model_rule rules[SPLIT_RULES];
};

/* Pieces of random length; each row is read less than those of the piece before. */
static inline void draw_cdf(struct random *random, double rows, struct access_cdf *cdf)
{
    double density = 1, sum = 0;

    *cdf = (struct access_cdf){ .point_count = SPLIT_POINTS };
    for (uint32_t i = 0; i < SPLIT_POINTS; i++) {
        const double last = i > 0 ? cdf->rows[i - 1] : 0;
        const double length = floor((rows - last) * (0.05 + 0.4 * random_unit(random)));

        cdf->rows[i] = i + 1 < SPLIT_POINTS ? last + length : rows;
        sum += density * (cdf->rows[i] - last);
        cdf->shares[i] = sum;
        density *= random_unit(random);
    }
    for (uint32_t i = 0; i < SPLIT_POINTS; i++)
        cdf->shares[i] /= sum;
}

static inline void draw_split_table(struct random *random, struct split_case *c, uint32_t i)
{
    struct split_table *const t = &c->tables[i];
    const double rows = 20000 + floor(80000 * random_unit(random));
    const double rest_s = 0.2 + random_unit(random);

    draw_cdf(random, rows, &c->cdfs[i]);
    for (uint32_t k = 0; k <= SPLIT_POINTS; k++)
        c->rests_s[i][k] = rest_s;
    *t = (struct split_table){ .name = "t", .rows = (uint64_t)rows, .lookup_bytes = 4 };
    t->row_bytes = 8 + random_below(random, 60);
    t->remap_bytes = random_below(random, 17);
    t->bags_per_batch = random_below(random, 100);
    t->pooling_factor = 10 * random_share(random);
    if (random_below(random, 4) == 0)
        t->rows = EMBTIER_UNBOUNDED;
    t->unsplit = random_below(random, 6) == 0;
    t->cdf = &c->cdfs[i];
    t->rest_lookup_s = c->rests_s[i];
}

/* One number is drawn in each statement, as their order within one is not defined. */
static inline struct model_rule draw_split_rule(struct random *random, uint32_t tables,
                                                uint32_t gpus)
{
    struct model_rule rule;

    rule.kind = random_below(random, MODEL_RESERVE + 1);
    rule.table = random_below(random, tables);
    rule.other = random_below(random, tables);
    rule.memory = random_below(random, SPLIT_LEVELS + (rule.kind != MODEL_RESERVE));
    rule.gpu = random_below(random, gpus);
    rule.bytes = random_below(random, 100000);
    if (random_below(random, 2))
        rule.gpu = MODEL_ANY;
    else if (rule.kind != MODEL_RESERVE && random_below(random, 3) == 0)
        rule.memory = MODEL_ANY;
    return rule;
}

static inline void draw_split_case(struct random *random, struct split_case *c)
{
    const uint32_t tables = 1 + random_below(random, SPLIT_TABLES);
    const uint32_t gpus = 1 + random_below(random, SPLIT_GPUS);
    const uint32_t rules = random_below(random, 2) ? random_below(random, SPLIT_RULES + 1) : 0;

    for (uint32_t i = 0; i < tables; i++)
        draw_split_table(random, c, i);
    for (uint32_t i = 0; i < rules; i++)
        c->rules[i] = draw_split_rule(random, tables, gpus);
    c->levels[0] = (struct model_memory){ .name = "HBM", .bandwidth_bytes_per_s = 1600 };
    c->levels[1] = (struct model_memory){ .name = "DRAM", .shared = true };
    c->levels[0].capacity_bytes = 300000 + random_below(random, 3000000);
    c->levels[1].capacity_bytes = 300000 + random_below(random, 5000000);
    c->levels[1].bandwidth_bytes_per_s = 100 + random_below(random, 100);
    c->model =
        (struct split_model){ c->tables, c->levels, c->rules, tables, SPLIT_LEVELS, gpus, rules };
}

/* ---- all cuts of a grid ---- */

#define GRID_MOST 250

struct grid_option {
    struct split_cut cut;
    uint64_t bytes[SPLIT_LEVELS];
    double time_s;
};

struct grid {
    const struct split_model *model;
    struct grid_option *options[SPLIT_TABLES];
    uint32_t counts[SPLIT_TABLES];
    struct split_cut cuts[SPLIT_TABLES], best_cuts[SPLIT_TABLES];
    uint64_t hbm_bytes[SPLIT_GPUS], dram_bytes;
    double gpus_s[SPLIT_GPUS];
    double best_s; /* INFINITY: no placement on the grid fits */
};

/* True: the table's own rules and size allow the cut, if rooms do. */
static inline bool grid_allows(const struct split_model *model, uint32_t table,
                               const struct split_cut *cut)
{
    struct model_memory levels[SPLIT_LEVELS];
    struct model_rule rules[SPLIT_RULES];
    struct split_model one = { &model->tables[table], levels,           rules, 1,
                               SPLIT_LEVELS,          model->gpu_count, 0 };
    double largest_s;

    for (uint32_t m = 0; m < SPLIT_LEVELS; m++) {
        levels[m] = model->levels[m];
        levels[m].capacity_bytes = MODEL_BYTES_MAX;
    }
    for (uint32_t i = 0; i < model->rule_count; i++)
        if (model->rules[i].kind <= MODEL_FORBID && model->rules[i].table == table) {
            rules[one.rule_count] = model->rules[i];
            rules[one.rule_count++].table = 0;
        }
    return split_check(&one, cut, &largest_s, NULL, NULL) == EMBTIER_OK;
}

static inline void grid_add(struct grid *grid, uint32_t table, const struct split_cut *cut)
{
    struct grid_option *const option = &grid->options[table][grid->counts[table]];
    struct split_part parts[SPLIT_LEVELS + 1];

    if (!grid_allows(grid->model, table, cut))
        return;
    split_parts(grid->model, table, cut, parts);
    *option = (struct grid_option){ .cut = *cut };
    for (uint32_t m = 0; m <= SPLIT_LEVELS; m++)
        option->time_s += parts[m].time_s;
    for (uint32_t m = 0; m < SPLIT_LEVELS; m++)
        option->bytes[m] = parts[m].bytes;
    grid->counts[table]++;
}

static inline void grid_fill(struct grid *grid, uint32_t table, uint32_t steps)
{
    const struct access_cdf *const cdf = grid->model->tables[table].cdf;
    const uint64_t rows = (uint64_t)cdf->rows[cdf->point_count - 1];

    grid->options[table] =
        calloc((uint64_t)(steps + 1) * (steps + 1) * SPLIT_GPUS, sizeof(struct grid_option));
    assert_non_null(grid->options[table]);
    for (uint32_t g = 0; g < grid->model->gpu_count; g++)
        for (uint32_t a = 0; a <= steps; a++)
            for (uint32_t b = a; b <= steps; b++) {
                const uint64_t hot = rows * a / steps;

                grid_add(grid, table, &(struct split_cut){ g, { hot, rows * b / steps - hot } });
            }
}

static inline void grid_try(struct grid *grid)
{
    double largest_s;

    if (fmax(grid->gpus_s[0], grid->gpus_s[1]) >= grid->best_s ||
        split_check(grid->model, grid->cuts, &largest_s, NULL, NULL) != EMBTIER_OK)
        return;
    grid->best_s = largest_s;
    memcpy(grid->best_cuts, grid->cuts, sizeof(grid->cuts));
}

static inline void grid_place(struct grid *grid, uint32_t table)
{
    if (table >= MIN(grid->model->table_count, (uint32_t)ARRAY_LEN(grid->counts))) {
        grid_try(grid);
        return;
    }
    for (uint32_t i = 0; i < grid->counts[table]; i++) {
        const struct grid_option *const o = &grid->options[table][i];
        const uint32_t g = o->cut.gpu;

        grid->hbm_bytes[g] += o->bytes[0];
        grid->dram_bytes += o->bytes[1];
        grid->gpus_s[g] += o->time_s;
        grid->cuts[table] = o->cut;
        if (grid->hbm_bytes[g] <= grid->model->levels[0].capacity_bytes &&
            grid->dram_bytes <= grid->model->levels[1].capacity_bytes &&
            grid->gpus_s[g] < grid->best_s)
            grid_place(grid, table + 1);
        grid->hbm_bytes[g] -= o->bytes[0];
        grid->dram_bytes -= o->bytes[1];
        grid->gpus_s[g] -= o->time_s;
    }
}

/* The best placement whose cuts all lie on a grid, which is the finer the fewer tables there are.
 */
static inline double grid_best(const struct split_model *model, struct split_cut *ret_cuts)
{
    static const uint32_t steps[SPLIT_TABLES] = { GRID_MOST, 24, 8 };
    struct grid grid = { .model = model, .best_s = INFINITY };

    for (uint32_t i = 0; i < model->table_count; i++)
        grid_fill(&grid, i, steps[model->table_count - 1]);
    grid_place(&grid, 0);
    for (uint32_t i = 0; i < model->table_count; i++)
        free(grid.options[i]);
    memcpy(ret_cuts, grid.best_cuts, sizeof(grid.best_cuts));
    return grid.best_s;
}

#endif
