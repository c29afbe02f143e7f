/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/lib/plans/simulated_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "placement/synthetic/synthetic_trace.h"
#include "tests/bench/lib/bench.h"

#define GB         1e9
#define GPUS       8
#define HBM_BYTES  (40 * GB)  /* of each GPU */
#define DRAM_BYTES (192 * GB) /* for arrays and the cache */
#define SSD_BYTES  (7680 * GB)
#define BLOCK      4096
/* Random reads: NVIDIA's A100 of 40 GB; eight channels of DDR4-3200; Samsung's PM9A3, whose 900,000
 * reads a second of 4 KiB are fewer bytes than it reads in sequence. */
#define HBM_BANDWIDTH  (1555 * GB)
#define DRAM_BANDWIDTH (204.8 * GB)
#define SSD_BANDWIDTH  (900000.0 * BLOCK)

#define DIM_UNIT  64
#define DIM_UNITS 4
/* Batches in the profile: enough for each row to come up, and for all times to have a bin. */
#define BATCHES 65536
/* Rows below this rate, in uses by a published batch, are cold. */
#define COLD_RATE 1.0

/* Rows of one rate. */
struct rate_class {
    double rows;
    double lookups; /* of all of its rows, in a batch */
};

void simulated_model_free(struct simulated_model *model)
{
    if (!model)
        return;
    measured_profile_free(model->profile);
    free(model->optimizers);
    free(model);
}

static struct machine make_machine(double share)
{
    return (struct machine){
        .gpu_count = GPUS,
        .hbm_bytes = (uint64_t)(HBM_BYTES * share),
        .hbm_bandwidth_bytes_per_s = HBM_BANDWIDTH,
        .tier_count = 1,
        .tiers = { { .name = "dram",
                     .bytes = (uint64_t)(DRAM_BYTES * share),
                     .bandwidth_bytes_per_s = DRAM_BANDWIDTH } },
        .ssd = { .bytes = (uint64_t)(SSD_BYTES * share),
                 .drive_bytes = (uint64_t)(SSD_BYTES * share),
                 .read_bandwidth_bytes_per_s = SSD_BANDWIDTH,
                 .block_bytes = BLOCK },
    };
}

/* Fills the classes of a table's rows, the cold one last, and returns their number. */
static uint32_t fill_classes(const struct locality *locality, uint64_t rows, double pooling_factor,
                             struct random *random, struct rate_class *ret_classes)
{
    const struct locality_table table = locality_table_make(locality, rows, pooling_factor, random);
    double hot_rows = 0, cold_lookups = 0;
    uint32_t count = 0;

    for (uint32_t i = 0; i < LOCALITY_CLASSES; i++) {
        const double class_rows = (double)(table.ends[i] - (i > 0 ? table.ends[i - 1] : 0));
        const double share = table.shares[i] - (i > 0 ? table.shares[i - 1] : 0);
        const double lookups = share * pooling_factor * locality->batch_bags;

        if (lookups < class_rows * COLD_RATE) {
            cold_lookups += lookups;
        } else if (class_rows > 0) {
            hot_rows += class_rows;
            ret_classes[count++] = (struct rate_class){ class_rows, lookups };
        }
    }
    if (cold_lookups > 0)
        ret_classes[count++] = (struct rate_class){ (double)rows - hot_rows, cold_lookups };
    return count;
}

/* The times between lookups of a row are exponential. @all_lookups: of all tables in a batch. */
static void fill_reuse(const struct rate_class *classes, uint32_t count, double all_lookups,
                       struct measured_table *table)
{
    table->bins = bench_alloc(TIME_HISTOGRAM_BINS, sizeof(*table->bins));
    for (uint32_t bin = 0; bin < TIME_HISTOGRAM_BINS; bin++) {
        const double begin = (double)time_histogram_begin(bin);
        const double width = bin + 1 < TIME_HISTOGRAM_BINS
                                 ? (double)time_histogram_begin(bin + 1) - begin
                                 : INFINITY;
        double lookups = 0;

        for (uint32_t i = 0; i < count; i++) {
            const double rate = classes[i].lookups / classes[i].rows / all_lookups;

            lookups += classes[i].lookups * exp(-rate * begin) * -expm1(-rate * width);
        }
        if ((float)(lookups * BATCHES) > 0)
            table->bins[table->bin_count++] =
                (struct measured_bin){ .bin = (uint16_t)bin,
                                       .lookups = (float)(lookups * BATCHES) };
    }
}

static void fill_summary(const struct rate_class *classes, uint32_t count,
                         struct measured_table *table)
{
    struct access_group groups[LOCALITY_CLASSES];
    double lookups = 0;

    table->summary = (struct table_summary){ .batches = BATCHES, .sampling_rate = 1 };
    for (uint32_t i = 0; i < count; i++) {
        const double rate = classes[i].lookups / classes[i].rows;

        groups[i] = (struct access_group){ classes[i].rows, rate };
        lookups += classes[i].lookups;
        table->summary.rows += classes[i].rows;
        table->summary.batch_rows += classes[i].rows * -expm1(-rate);
    }
    table->summary.lookups = (uint64_t)(lookups * BATCHES);
    access_cdf_make(groups, count, &table->cdf);
}

/* The table's rows and pooling factor are there already. */
static void fill_table(const struct locality *locality, struct random *random, uint32_t number,
                       double all_lookups, struct measured_table *table)
{
    struct rate_class classes[LOCALITY_CLASSES];
    const uint32_t count =
        fill_classes(locality, table->table.rows, table->pooling_factor, random, classes);

    snprintf(table->table.name, sizeof(table->table.name), "t%u", number);
    table->table.dim = DIM_UNIT * (1 + (uint32_t)random_below(random, DIM_UNITS));
    table->table.dtype = EMBTIER_DTYPE_F32;
    fill_summary(classes, count, table);
    fill_reuse(classes, count, all_lookups, table);
}

/* Returns the lookups of a batch. */
static double fill_shapes(const struct locality_published *published, uint64_t seed,
                          struct measured_profile *profile)
{
    uint64_t *const rows = bench_alloc(profile->table_count, sizeof(*rows));
    double *const pooling_factors = bench_alloc(profile->table_count, sizeof(*pooling_factors));
    double lookups = 0;

    synthetic_shapes(published, seed, profile->table_count, rows, pooling_factors);
    for (uint32_t i = 0; i < profile->table_count; i++) {
        profile->tables[i].table.rows = rows[i];
        profile->tables[i].pooling_factor = pooling_factors[i];
        lookups += pooling_factors[i] * published->batch_bags;
    }
    free(rows);
    free(pooling_factors);
    return lookups;
}

struct simulated_model *simulated_model_new(const struct locality_published *published,
                                            uint64_t seed, uint32_t table_count)
{
    const struct locality locality = locality_fit(published);
    struct simulated_model *const model = bench_alloc(1, sizeof(*model));
    struct measured_profile *const profile = bench_alloc(1, sizeof(*profile));
    struct random random = { ~seed };
    double lookups;

    model->profile = profile;
    model->optimizers = bench_alloc(table_count, sizeof(*model->optimizers));
    model->samples_per_batch = published->batch_bags;
    model->machine = make_machine((double)table_count / published->table_count);
    profile->tables = bench_alloc(table_count, sizeof(*profile->tables));
    profile->table_count = table_count;
    profile->batches = BATCHES;
    profile->segment_count = 1;
    lookups = fill_shapes(published, seed, profile);
    for (uint32_t i = 0; i < table_count; i++) {
        model->optimizers[i] = EMBTIER_OPTIMIZER_ROWWISE_ADAGRAD;
        fill_table(&locality, &random, i, lookups, &profile->tables[i]);
        profile->lookups += profile->tables[i].summary.lookups;
    }
    profile->segment_length = profile->lookups;
    return model;
}
