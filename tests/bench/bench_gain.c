/* SPDX-License-Identifier: Apache-2.0 */
/* bench_gain.c: samples a second of simulated models, as placed by embtier and in simpler ways.
 *
 * The models and their machine are those of lib/plans/simulated_model.h, one for each set of
 * statistics that Meta published. Nothing is measured: a rate is the samples of a batch divided by
 * the lookup time of the slowest GPU. So a figure is the same on each machine. --turns sets the
 * number of seeds (3); rates are medians, and those of each seed go to standard error.
 *
 * placement-gain: the planner's homes of whole tables, and those of lib/plans/reference_plans.h.
 * All are judged by planning_evaluate(). The ratio is that to all tables behind the cache; the
 * ratios to the others are in the figure too.
 *
 * row-wise-gain: tables cut by hotness over HBM, DRAM and SSD, compared with DRAM and SSD; the
 * figure also has SSD alone, and HBM with SSD. There is no cache: what lies in no array is read
 * from SSD. All are judged by split_check().
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "placement/planner/homes_search.h"
#include "placement/split/split_check.h"
#include "placement/split/split_solve.h"
#include "tests/bench/lib/bench.h"
#include "tests/bench/lib/plans/reference_plans.h"
#include "tests/bench/lib/plans/simulated_model.h"

#define SEEDS       3
#define SEEDS_MAX   20
#define TABLES_MIN  24
#define REMAP_BYTES 16
#define ROW_GAP     0.003
#define NAME_BYTES  64

static struct simulated_model *draw_model(const struct locality_published *published, uint32_t seed)
{
    return simulated_model_new(published, seed,
                               (uint32_t)bench_scaled(published->table_count, TABLES_MIN));
}

static struct workload *make_workload(const struct simulated_model *model)
{
    struct workload *workload = NULL;
    struct err_msg msg = { { 0 } };

    if (workload_new(model->profile, model->optimizers, model->samples_per_batch, &workload,
                     &msg) != EMBTIER_OK)
        bench_die("%s", msg.text);
    return workload;
}

/* "placement-gain", "meta-2021" become "placement-gain-2021". */
static void name_figure(const char *figure, const struct locality_published *published,
                        char ret_name[NAME_BYTES])
{
    snprintf(ret_name, NAME_BYTES, "%s-%s", figure, strrchr(published->name, '-') + 1);
}

/* Sums up the bytes of all rows. */
static double model_bytes(const struct workload *workload)
{
    double bytes = 0;

    for (uint32_t i = 0; i < workload->table_count; i++)
        bytes += (double)workload->tables[i].stored_bytes;
    return bytes;
}

/* Adds the median of all seeds. @stride: numbers from one seed's to the next. */
static void add_median(json_t *object, const char *key, const double *values, uint32_t stride,
                       uint32_t count)
{
    double seeds[SEEDS_MAX];

    for (uint32_t i = 0; i < count; i++)
        seeds[i] = values[(uint64_t)i * stride];
    json_object_set_new(object, key, json_real(bench_median(seeds, count)));
}

/* ---- Whole tables ---- */

/* Samples a second, for each seed. */
struct gains {
    uint32_t count;
    double bytes[SEEDS_MAX]; /* of the model */
    double ours[SEEDS_MAX];
    double most[SEEDS_MAX]; /* no placement of whole tables has more */
    double theirs[SEEDS_MAX][REFERENCE_PLANS];
    double ratios[SEEDS_MAX][REFERENCE_PLANS];
};

static double make_reference(struct planning *planning, enum reference_plan plan)
{
    uint32_t *const places = bench_alloc(planning->workload->table_count, sizeof(*places));
    struct evaluation evaluation;
    struct err_msg msg = { { 0 } };

    if (reference_plan_make(planning, plan, places, &evaluation, &msg) != EMBTIER_OK)
        bench_die("%s", msg.text);
    bench_say("  %s: %.4g samples/s", reference_plan_text(plan), evaluation.samples_per_s);
    free(places);
    return evaluation.samples_per_s;
}

/* Evaluates the planner's homes once more, as those of the references are. */
static void make_ours(struct planning *planning, uint32_t seed, struct gains *gains)
{
    const struct homes_search_opts opts = { .seed = seed };
    struct evaluation evaluation;
    struct homes *homes = NULL;
    struct err_msg msg = { { 0 } };

    if (homes_search(planning, &opts, &homes, &msg) != EMBTIER_OK ||
        planning_evaluate(planning, homes->places, &evaluation, &msg) != EMBTIER_OK)
        bench_die("%s", msg.text);
    gains->ours[seed] = evaluation.samples_per_s;
    gains->most[seed] = planning->workload->samples_per_batch / homes->bound_s;
    bench_say("  embtier: %.4g samples/s; no placement has more than %.4g", gains->ours[seed],
              gains->most[seed]);
    homes_free(homes);
}

static void run_places(const struct locality_published *published, uint32_t seed,
                       struct gains *gains)
{
    _cleanup_(simulated_model_freep) struct simulated_model *model = draw_model(published, seed);
    _cleanup_(workload_freep) struct workload *workload = make_workload(model);
    _cleanup_(planning_freep) struct planning *planning = NULL;
    const struct rules rules = { .moved_bytes_max = UINT64_MAX };
    struct err_msg msg = { { 0 } };

    if (planning_new(workload, &model->machine, &rules, NULL, &planning, &msg) != EMBTIER_OK)
        bench_die("%s", msg.text);
    gains->bytes[seed] = model_bytes(workload);
    bench_say("%s, seed %u: %u tables, %.4g bytes", published->name, seed, workload->table_count,
              gains->bytes[seed]);
    for (uint32_t i = 0; i < REFERENCE_PLANS; i++)
        gains->theirs[seed][i] = make_reference(planning, i);
    make_ours(planning, seed, gains);
    for (uint32_t i = 0; i < REFERENCE_PLANS; i++)
        gains->ratios[seed][i] = gains->ours[seed] / gains->theirs[seed][i];
}

static void add_gains(void *context, json_t *figure)
{
    const struct gains *const gains = context;
    json_t *const rates = json_object(), *const ratios = json_object();

    for (uint32_t i = 0; i < REFERENCE_PLANS; i++) {
        const char *const key = reference_plan_key(i);

        add_median(rates, key, &gains->theirs[0][i], REFERENCE_PLANS, gains->count);
        add_median(ratios, key, &gains->ratios[0][i], REFERENCE_PLANS, gains->count);
    }
    add_median(figure, "model_bytes", gains->bytes, 1, gains->count);
    add_median(figure, "most_possible", gains->most, 1, gains->count);
    json_object_set_new(figure, "reference_rates", rates);
    json_object_set_new(figure, "reference_ratios", ratios);
}

static void gain_of_places(const struct locality_published *published)
{
    struct gains gains = { .count = bench_seeds(SEEDS, SEEDS_MAX) };
    double cached[SEEDS_MAX];
    char name[NAME_BYTES];

    for (uint32_t seed = 0; seed < gains.count; seed++) {
        run_places(published, seed, &gains);
        cached[seed] = gains.theirs[seed][REFERENCE_CACHED];
    }
    name_figure("placement-gain", published, name);
    bench_report(&(struct bench_figure){ .name = name,
                                         .unit = "samples/s",
                                         .bar = 4.2,
                                         .limit = "lookups of the tables that fit in no array",
                                         .reference_name = reference_plan_text(REFERENCE_CACHED),
                                         .reference_options = "simulated; DRAM is all cache" },
                 gains.ours, cached, gains.count, add_gains, &gains);
}

static void placement_gain(void)
{
    for (uint32_t i = 0; i < LOCALITY_PUBLISHED_COUNT; i++)
        gain_of_places(&locality_published[i]);
}

/* ---- Tables cut by hotness ---- */

/* X(name, key in a figure, the first level, number of levels) over SSD */
#define LEVELS_TABLE(X)                                                                            \
    X(SSD, "ssd", 0, 0)                                                                            \
    X(HBM_SSD, "hbm_ssd", 0, 1)                                                                    \
    X(DRAM_SSD, "dram_ssd", 1, 1)                                                                  \
    X(ALL, "hbm_dram_ssd", 0, 2)

enum levels {
#define X(name, key, first, count) LEVELS_##name,
    LEVELS_TABLE(X)
#undef X
        LEVELS_COUNT
};

static const struct {
    const char *key;
    uint32_t first, count;
} level_sets[] = {
#define X(name, key, first, count) { key, first, count },
    LEVELS_TABLE(X)
#undef X
};

/* Samples a second, for each seed. */
struct level_gains {
    uint32_t count;
    double rates[SEEDS_MAX][LEVELS_COUNT];
    double most[SEEDS_MAX][LEVELS_COUNT]; /* no cuts have more */
    double over_hbm_ssd[SEEDS_MAX];       /* ratio of all levels to HBM and SSD */
};

/* A table, and the time of a lookup in SSD at each point of its curve. */
struct split_input {
    struct split_table *tables;
    double (*ssd_s)[ACCESS_CDF_POINTS_MAX + 1];
};

static double ssd_lookup_s(const struct machine *machine, uint32_t row_bytes)
{
    const uint32_t block = machine->ssd.block_bytes;
    const uint32_t bytes = (row_bytes + block - 1) / block * block;

    return bytes / (machine->ssd.read_bandwidth_bytes_per_s / machine->gpu_count);
}

static struct split_input make_split_input(const struct simulated_model *model,
                                           const struct workload *workload)
{
    const uint32_t count = workload->table_count;
    struct split_input input = { bench_alloc(count, sizeof(*input.tables)),
                                 bench_alloc(count, sizeof(*input.ssd_s)) };

    for (uint32_t i = 0; i < count; i++) {
        const struct work_table *const table = &workload->tables[i];

        for (uint32_t k = 0; k <= ACCESS_CDF_POINTS_MAX; k++)
            input.ssd_s[i][k] = ssd_lookup_s(&model->machine, table->row_bytes);
        input.tables[i] = (struct split_table){
            .name = table->name,
            .rows = table->rows,
            .row_bytes = table->row_bytes,
            .remap_bytes = REMAP_BYTES,
            .lookup_bytes = table->weight_bytes,
            .bags_per_batch = table->lookups,
            .pooling_factor = 1,
            .cdf = &model->profile->tables[i].cdf,
            .rest_lookup_s = input.ssd_s[i],
        };
    }
    return input;
}

/* Cuts the tables over some levels. */
static void run_levels(const struct simulated_model *model, const struct split_table *tables,
                       enum levels levels, uint32_t seed, struct level_gains *gains)
{
    const struct machine *const machine = &model->machine;
    const struct model_memory memories[] = {
        { "hbm", false, machine->hbm_bytes, machine->hbm_bandwidth_bytes_per_s, NULL },
        { "dram", true, machine->tiers[0].bytes, machine->tiers[0].bandwidth_bytes_per_s, NULL },
    };
    const struct split_model split = { .tables = tables,
                                       .levels = &memories[level_sets[levels].first],
                                       .table_count = model->profile->table_count,
                                       .level_count = level_sets[levels].count,
                                       .gpu_count = machine->gpu_count };
    const struct split_opts opts = { .seed = seed, .gap = ROW_GAP };
    struct split_answer *answer = NULL;
    struct err_msg msg = { { 0 } };
    double largest_s;

    if (split_solve(&split, &opts, &answer, &msg) != EMBTIER_OK ||
        split_check(&split, answer->cuts, &largest_s, NULL, &msg) != EMBTIER_OK)
        bench_die("%s", msg.text);
    gains->rates[seed][levels] = model->samples_per_batch / largest_s;
    gains->most[seed][levels] = model->samples_per_batch / answer->bound_s;
    bench_say("  %s: %.4g samples/s; no cuts have more than %.4g", level_sets[levels].key,
              gains->rates[seed][levels], gains->most[seed][levels]);
    split_answer_free(answer);
}

static void run_all_levels(const struct locality_published *published, uint32_t seed,
                           struct level_gains *gains)
{
    _cleanup_(simulated_model_freep) struct simulated_model *model = draw_model(published, seed);
    _cleanup_(workload_freep) struct workload *workload = make_workload(model);
    const struct split_input input = make_split_input(model, workload);

    bench_say("%s, seed %u: %u tables, %.4g bytes", published->name, seed, workload->table_count,
              model_bytes(workload));
    for (uint32_t i = 0; i < LEVELS_COUNT; i++)
        run_levels(model, input.tables, i, seed, gains);
    gains->over_hbm_ssd[seed] = gains->rates[seed][LEVELS_ALL] / gains->rates[seed][LEVELS_HBM_SSD];
    free(input.tables);
    free(input.ssd_s);
}

static void add_levels(void *context, json_t *figure)
{
    const struct level_gains *const gains = context;
    json_t *const rates = json_object(), *const most = json_object();

    for (uint32_t i = 0; i < LEVELS_COUNT; i++) {
        add_median(rates, level_sets[i].key, &gains->rates[0][i], LEVELS_COUNT, gains->count);
        add_median(most, level_sets[i].key, &gains->most[0][i], LEVELS_COUNT, gains->count);
    }
    json_object_set_new(figure, "rates", rates);
    json_object_set_new(figure, "most_possible", most);
    add_median(figure, "ratio_over_hbm_ssd", gains->over_hbm_ssd, 1, gains->count);
}

static void gain_of_levels(const struct locality_published *published)
{
    struct level_gains gains = { .count = bench_seeds(SEEDS, SEEDS_MAX) };
    double three[SEEDS_MAX], two[SEEDS_MAX];
    char name[NAME_BYTES];

    for (uint32_t seed = 0; seed < gains.count; seed++) {
        run_all_levels(published, seed, &gains);
        three[seed] = gains.rates[seed][LEVELS_ALL];
        two[seed] = gains.rates[seed][LEVELS_DRAM_SSD];
    }
    name_figure("row-wise-gain", published, name);
    bench_report(&(struct bench_figure){ .name = name,
                                         .unit = "samples/s",
                                         .bar = 3.1,
                                         .limit = "lookups of rows that fit in no array",
                                         .reference_name = "two levels: DRAM and SSD",
                                         .reference_options = "simulated; cut by hotness too" },
                 three, two, gains.count, add_levels, &gains);
}

static void row_wise_gain(void)
{
    for (uint32_t i = 0; i < LOCALITY_PUBLISHED_COUNT; i++)
        gain_of_levels(&locality_published[i]);
}

int main(int argc, char **argv)
{
    const struct bench_entry entries[] = {
        { "placement-gain", placement_gain },
        { "row-wise-gain", row_wise_gain },
    };

    return bench_main(argc, argv, entries, ARRAY_LEN(entries));
}
