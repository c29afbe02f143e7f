/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/synthetic/locality.h"

#include <math.h>

#include "base/macros.h"

#define RATE_LOWEST 0.25
#define EM_STEPS    2000
/* Shares are published with three digits. Below this one, the share of the lookups tells more. */
#define ROW_SHARE_TRUSTED 0.02

/* The numbers of one block of each published file. Copyright Facebook, Inc. and its affiliates, MIT
 * licence; see NOTICE. */
const struct locality_published locality_published[LOCALITY_PUBLISHED_COUNT] = {
    { .name = "meta-2021",
      .file = "meta-embedding-locality-2021.txt",
      .block = "fbgemm_t856_bs65536_0.pt",
      .table_count = 856,
      .batch_bags = 65536,
      .lookups = 468084223,
      .rows = 61644628,
      .row_shares = { 0.423, 0.165, 0.167, 0.121, 0.073, 0.031, 0.011, 0.004, 0.002, 0.001, 0.001,
                      0.000, 0.000, 0.000, 0.000, 0.000, 0.000 },
      .lookup_shares = { 0.056, 0.043, 0.075, 0.099, 0.112, 0.091, 0.064, 0.052, 0.049, 0.050,
                         0.054, 0.058, 0.061, 0.052, 0.038, 0.026, 0.020 },
      .mean_table_rows = 2720716,
      .mean_pooling_factor = 8.34,
      .pooling_factor_max = 118 },
    { .name = "meta-2022",
      .file = "meta-embedding-locality-2022.txt",
      .block = "fbgemm_t788_bs131072_0.pt",
      .table_count = 788,
      .batch_bags = 131072,
      .lookups = 1405163864,
      .rows = 110259238,
      .row_shares = { 0.342, 0.144, 0.149, 0.138, 0.112, 0.068, 0.029, 0.010, 0.004, 0.002, 0.001,
                      0.001, 0.000, 0.000, 0.000, 0.000, 0.000 },
      .lookup_shares = { 0.027, 0.023, 0.040, 0.068, 0.105, 0.120, 0.099, 0.070, 0.059, 0.054,
                         0.040, 0.072, 0.064, 0.047, 0.021, 0.017, 0.076 },
      .mean_table_rows = 4841017,
      .mean_pooling_factor = 13.6,
      .pooling_factor_max = 175 },
};

uint32_t locality_bin(uint64_t uses)
{
    uint32_t bin = 0;

    while (bin + 1 < LOCALITY_BINS && uses > UINT64_C(1) << bin)
        bin++;
    return bin;
}

/* ---- The fit ---- */

static double class_rate(uint32_t group)
{
    return RATE_LOWEST * pow(2, group / 2.0);
}

/* Returns the probability that a Poisson variable is at most @uses; a normal one far out. */
static double poisson_up_to(double rate, double uses)
{
    double term = exp(-rate), sum = term;

    if (rate > 200)
        return 0.5 * erfc((rate - uses - 0.5) / sqrt(2 * rate));
    for (double k = 1; k <= uses && k <= rate + 20 * sqrt(rate) + 50; k++) {
        term *= rate / k;
        sum += term;
    }
    return MIN(1.0, sum);
}

/* Fills the distribution over the bins of rows of one rate that are used at all. */
static void bins_of_rate(double rate, double ret_shares[LOCALITY_BINS])
{
    const double unused = exp(-rate);
    double before = unused;

    for (uint32_t bin = 0; bin < LOCALITY_BINS; bin++) {
        const double up_to =
            bin + 1 < LOCALITY_BINS ? poisson_up_to(rate, (double)(UINT64_C(1) << bin)) : 1.0;

        ret_shares[bin] = MAX(0.0, up_to - before) / (1 - unused);
        before = MAX(before, up_to);
    }
}

/* Returns the mean number of uses in a bin, if shares fall as the square of the uses. */
static double bin_mean(uint32_t bin)
{
    return bin == 0 ? 1 : (double)(UINT64_C(1) << (bin - 1)) * 2 * M_LN2;
}

/* Fills the shares of rows that the fit aims at. */
static void aim_of(const struct locality_published *published, double ret_aim[LOCALITY_BINS])
{
    double sum = 0;

    for (uint32_t bin = 0; bin < LOCALITY_BINS; bin++) {
        ret_aim[bin] = published->row_shares[bin];
        if (ret_aim[bin] < ROW_SHARE_TRUSTED)
            ret_aim[bin] = published->lookup_shares[bin] * published->lookups / published->rows /
                           bin_mean(bin);
        sum += ret_aim[bin];
    }
    for (uint32_t bin = 0; bin < LOCALITY_BINS; bin++)
        ret_aim[bin] /= sum;
}

/* Makes the mixture one step more likely. */
static void em_step(const double aim[LOCALITY_BINS], double shares[LOCALITY_CLASSES][LOCALITY_BINS],
                    double mix[LOCALITY_CLASSES])
{
    double next[LOCALITY_CLASSES] = { 0 };

    for (uint32_t bin = 0; bin < LOCALITY_BINS; bin++) {
        double sum = 0;

        for (uint32_t group = 0; group < LOCALITY_CLASSES; group++)
            sum += mix[group] * shares[group][bin];
        for (uint32_t group = 0; group < LOCALITY_CLASSES && sum > 0; group++)
            next[group] += aim[bin] * mix[group] * shares[group][bin] / sum;
    }
    for (uint32_t group = 0; group < LOCALITY_CLASSES; group++)
        mix[group] = next[group];
}

struct locality locality_fit(const struct locality_published *published)
{
    struct locality locality = { .batch_bags = published->batch_bags };
    double shares[LOCALITY_CLASSES][LOCALITY_BINS], mix[LOCALITY_CLASSES], aim[LOCALITY_BINS];
    double uses = 0;

    aim_of(published, aim);
    for (uint32_t group = 0; group < LOCALITY_CLASSES; group++) {
        locality.rates[group] = class_rate(group);
        bins_of_rate(locality.rates[group], shares[group]);
        mix[group] = 1.0 / LOCALITY_CLASSES;
    }
    for (uint32_t step = 0; step < EM_STEPS; step++)
        em_step(aim, shares, mix);
    for (uint32_t group = 0; group < LOCALITY_CLASSES; group++) {
        locality.rows[group] = mix[group] / -expm1(-locality.rates[group]);
        uses += locality.rows[group] * locality.rates[group];
    }
    for (uint32_t group = 0; group < LOCALITY_CLASSES; group++)
        locality.rows[group] /= uses;
    return locality;
}

/* ---- Tables ---- */

struct locality_table locality_table_make(const struct locality *locality, uint64_t rows,
                                          double pooling_factor, struct random *random)
{
    const double lookups = pooling_factor * locality->batch_bags;
    struct locality_table table = { { 0 }, { 0 } };
    double wanted = 0, share = 0;
    uint64_t end = 0;

    for (uint32_t group = 0; group < LOCALITY_CLASSES; group++)
        wanted += locality->rows[group] * lookups;
    for (uint32_t group = 0; group < LOCALITY_CLASSES; group++) {
        const double count = locality->rows[group] * lookups * MIN(1.0, (double)rows / wanted);

        end = MIN(rows, end + (uint64_t)(count + random_unit(random)));
        table.ends[group] = end;
        share += (double)(end - (group > 0 ? table.ends[group - 1] : 0)) * locality->rates[group];
        table.shares[group] = share;
    }
    if (end == 0) { /* a table of so few lookups that all go to one row */
        table.ends[LOCALITY_CLASSES - 1] = 1;
        table.shares[LOCALITY_CLASSES - 1] = share = 1;
    }
    for (uint32_t group = 0; group < LOCALITY_CLASSES; group++)
        table.shares[group] /= share;
    return table;
}

uint64_t locality_draw(const struct locality_table *table, struct random *random)
{
    const double at = random_unit(random);
    uint32_t group = 0;
    uint64_t begin;

    while (group + 1 < LOCALITY_CLASSES && at >= table->shares[group])
        group++;
    begin = group > 0 ? table->ends[group - 1] : 0;
    return begin + random_below(random, table->ends[group] - begin);
}
