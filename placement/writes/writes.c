/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/writes/writes.h"

#include <math.h>
#include <stdlib.h>

static void get_reuse(const void *context, uint32_t table, struct reuse_times *ret_times)
{
    measured_profile_reuse(context, table, ret_times);
}

/* A row that is older than the time between two checkpoints is clean: nothing depends on when it
 * leaves. Returns the mean of what is left. */
static double cut_ages(uint32_t count, double most, struct reuse_ages *ages)
{
    double sum = 0;

    for (uint32_t i = 0; i < count; i++) {
        ages->ages[i] = fmin(ages->ages[i], most);
        sum += ages->ages[i];
    }
    return count > 0 ? sum / count : 0;
}

/* ---- Lookups of which some update ---- */

/* Rows written for each lookup of a row that is looked up at random, @rate times in a unit of time,
 * if each lookup updates it. */
static double written_at(double rate, double age, double between)
{
    const double older = exp(-rate * age);

    return older * fmax(1 - age / between, 0) + (1 - older) / (rate * between);
}

/* The chance that a row is written after a lookup, if each lookup updates it: @share; and if the
 * part @updated does. Stays of n lookups between two writes have a geometric length. */
static double thinned(double share, double updated)
{
    return share > 0 ? share * updated / (share + updated - share * updated) : 0;
}

/* Returns the rows written, of those that would be if every lookup updated its row. Hot rows have
 * long stays, in which an update is likely, so each piece of the CDF counts for itself. */
static double updated_factor(const struct measured_profile *profile, uint32_t i, double updated,
                             double age, double between)
{
    const struct measured_table *const table = &profile->tables[i];
    const struct access_cdf *const cdf = &table->cdf;
    double all = 0, some = 0, rows = 0, share = 0;

    if (updated >= 1)
        return 1;
    for (uint32_t k = 0; k < cdf->point_count; k++) {
        const double more = cdf->shares[k] - share;
        const double rate = more * (double)table->summary.lookups / (cdf->rows[k] - rows) /
                            (double)profile->lookups;

        rows = cdf->rows[k];
        share = cdf->shares[k];
        if (!(more > 0))
            continue;
        all += more * written_at(rate, age, between);
        some += more * thinned(fmin(written_at(rate, age, between), 1), updated);
    }
    return all > 0 ? some / all : updated;
}

/* ---- Tables ---- */

/* @young: rows that are younger than @age. */
static void fill_table(const struct writes_opts *opts, uint32_t i,
                       const struct table_prediction *young, double age,
                       struct table_writes *ret_writes)
{
    const struct measured_table *const table = &opts->profile->tables[i];
    const double lookups = (double)table->summary.lookups;
    /* Lookups of a row within a batch are one, and a row is written once for it. */
    const double most = fmin(table->summary.batch_rows * (double)table->summary.batches, lookups);
    const double between = opts->checkpoint_lookups;
    double updated, factor, sum;

    if (!(most > 0))
        return;
    updated = table->summary.updated_batch_rows / table->summary.batch_rows;
    ret_writes->evicted = (1 - young->hit_rates[0]) * fmax(1 - age / between, 0);
    ret_writes->saved =
        young->bytes[0] / opts->row_bytes[i] / between * (double)opts->profile->lookups / lookups;
    sum = ret_writes->evicted + ret_writes->saved;
    factor =
        fmin(most / lookups / sum, 1) * updated_factor(opts->profile, i, updated, age, between);
    if (!(sum > 0))
        return;
    ret_writes->evicted *= factor;
    ret_writes->saved *= factor;
}

enum embtier_err writes_predict(const struct writes_opts *opts, struct table_writes *ret_tables,
                                struct err_msg *msg)
{
    const struct measured_profile *const profile = opts->profile;
    const struct reuse_source source = { .table_count = profile->table_count,
                                         .get = get_reuse,
                                         .context = profile };
    const struct cache_tiers tiers = { .count = 1, .bytes = { opts->cache_bytes } };
    _cleanup_(freep) struct reuse_times *times = calloc(2, sizeof(*times));
    struct reuse_ages ages, cut;
    double age;

    if (!times)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory");
    if (!(opts->checkpoint_lookups > 0))
        return err_set(msg, EMBTIER_INVALID,
                       "checkpoints come after %g lookups; allowed: a number above 0",
                       opts->checkpoint_lookups);
    TRY(predict_cache_ages(&source, opts->row_bytes, &tiers, times, &ages, msg));
    cut = ages;
    age = cut_ages(profile->segment_count * REUSE_MOMENTS, opts->checkpoint_lookups, &cut);
    for (uint32_t i = 0; i < profile->table_count; i++) {
        struct table_prediction prediction;

        ret_tables[i] = (struct table_writes){ 0 };
        if (!(opts->row_bytes[i] > 0))
            continue;
        measured_profile_reuse(profile, i, &times[0]);
        predict_cached_table(&times[0], opts->row_bytes[i], &ages, 1, &prediction);
        ret_tables[i].missed = 1 - prediction.hit_rates[0];
        predict_cached_table(&times[0], opts->row_bytes[i], &cut, 1, &prediction);
        fill_table(opts, i, &prediction, age, &ret_tables[i]);
    }
    return EMBTIER_OK;
}
