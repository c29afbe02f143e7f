/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/lib/plans/plan_model.h"

#include <math.h>
#include <stdlib.h>

#include "placement/random.h"
#include "tests/bench/lib/bench.h"

#define BATCH        1024
#define MEAN_POOLING 8.34
#define ROWS_MU      11.5
#define ROWS_SIGMA   2.5
#define PI           3.14159265358979323846

static const struct model_memory memories[] = {
    { "HBM", false, UINT64_C(40) * 1000 * 1000 * 1000, 1600e9, NULL },
    { "DRAM", true, UINT64_C(192) * 1000 * 1000 * 1000, 200e9, NULL },
    { "SSD", true, UINT64_C(8000) * 1000 * 1000 * 1000, 6e9, NULL },
};

static double draw_normal(struct random *random)
{
    const double radius = sqrt(-2 * log(random_share(random)));

    return radius * cos(2 * PI * random_share(random));
}

static void draw_table(struct random *random, struct model_table *table)
{
    const double rows = floor(exp(ROWS_MU + ROWS_SIGMA * draw_normal(random))) + 1;
    const uint32_t dim = 64 * (1 + (uint32_t)random_below(random, 4));

    *table = (struct model_table){
        .name = "table",
        .weight_bytes = (uint64_t)rows * dim * sizeof(float),
        .bags_per_batch = BATCH,
        .pooling_factor = -MEAN_POOLING * log(random_share(random)),
        .lookup_bytes = dim * (uint32_t)sizeof(float),
    };
}

struct model plan_model_draw(uint32_t seed, uint32_t tables, uint32_t gpus)
{
    struct random random = { UINT64_C(0x9e3779b97f4a7c15) * (seed + 1) };
    struct model_table *const drawn = bench_alloc(tables, sizeof(*drawn));

    for (uint32_t i = 0; i < tables; i++)
        draw_table(&random, &drawn[i]);
    return (struct model){ drawn, memories, NULL, tables, ARRAY_LEN(memories), gpus, 0, NULL };
}

void plan_model_clear(struct model *model)
{
    free((void *)model->tables);
    model->tables = NULL;
}
