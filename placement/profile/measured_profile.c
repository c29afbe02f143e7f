/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/profile/measured_profile.h"

#include <stdlib.h>

#include "base/macros.h"

/* Returns what one bin of a segment holds. */
static double bin_lookups(const struct reuse_segment *segment, uint32_t bin)
{
    return segment->reuse.weights[bin + 1] - segment->reuse.weights[bin];
}

static uint32_t count_bins(const struct reuse_times *times)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < times->segment_count; i++)
        for (uint32_t bin = 0; bin < TIME_HISTOGRAM_BINS; bin++)
            count += bin_lookups(&times->segments[i], bin) > 0;
    return count;
}

static enum embtier_err fill_reuse(const struct reuse_times *times, struct measured_table *table)
{
    table->bins = calloc(count_bins(times) + 1, sizeof(*table->bins));
    if (!table->bins)
        return EMBTIER_NO_MEMORY;
    for (uint32_t i = 0; i < times->segment_count; i++) {
        table->first[i] = times->segments[i].first;
        for (uint32_t bin = 0; bin < TIME_HISTOGRAM_BINS; bin++)
            if (bin_lookups(&times->segments[i], bin) > 0)
                table->bins[table->bin_count++] =
                    (struct measured_bin){ (uint16_t)i, (uint16_t)bin,
                                           (float)bin_lookups(&times->segments[i], bin) };
    }
    return EMBTIER_OK;
}

static enum embtier_err fill_table(const struct profile *profile, uint32_t at,
                                   struct reuse_times *times, struct measured_table *table)
{
    table->summary = profile_summary(profile, at);
    table->pooling_factor = profile_pooling_factor(profile, at);
    TRY(profile_cdf(profile, at, &table->cdf));
    profile_reuse(profile, at, times);
    return fill_reuse(times, table);
}

enum embtier_err measured_profile_make_some(const struct profile *profile,
                                            const struct trace_table *tables, const uint32_t *which,
                                            uint32_t count, struct measured_profile **ret_measured)
{
    _cleanup_(measured_profile_freep) struct measured_profile *measured =
        calloc(1, sizeof(*measured));
    _cleanup_(freep) struct reuse_times *times = calloc(1, sizeof(*times));

    if (measured)
        measured->tables = calloc(MAX(count, 1u), sizeof(*measured->tables));
    if (!measured || !measured->tables || !times)
        return EMBTIER_NO_MEMORY;
    measured->table_count = count;
    measured->batches = profile_batches(profile);
    for (uint32_t i = 0; i < count; i++) {
        measured->tables[i].table = tables[i];
        TRY(fill_table(profile, which ? which[i] : i, times, &measured->tables[i]));
        measured->lookups += measured->tables[i].summary.lookups;
    }
    measured->segment_count = times->segment_count;
    measured->segment_length = (uint64_t)times->segment_length;
    *ret_measured = TAKE(measured);
    return EMBTIER_OK;
}

enum embtier_err measured_profile_make(const struct profile *profile,
                                       const struct trace_table *tables,
                                       struct measured_profile **ret_measured)
{
    return measured_profile_make_some(profile, tables, NULL, profile_table_count(profile),
                                      ret_measured);
}

void measured_profile_free(struct measured_profile *measured)
{
    if (!measured)
        return;
    for (uint32_t i = 0; measured->tables && i < measured->table_count; i++)
        free(measured->tables[i].bins);
    free(measured->tables);
    free(measured);
}

/* @left: NULL: all. */
static void fill_times(const struct measured_profile *measured, uint32_t table,
                       const struct reuse_left *left, struct reuse_times *ret_times)
{
    const struct measured_table *const at = &measured->tables[table];
    uint32_t next = 0;

    *ret_times =
        (struct reuse_times){ .is_steady = measured->is_steady,
                              .lookups = (double)at->summary.lookups * (left ? left->lookups : 1),
                              .end_time = (double)measured->lookups,
                              .segment_length = (double)measured->segment_length,
                              .segment_count = measured->segment_count };
    for (uint32_t i = 0; i < measured->segment_count; i++) {
        struct time_histogram histogram = { { 0 } };

        for (; next < at->bin_count && at->bins[next].segment == i; next++)
            histogram.weights[at->bins[next].bin] =
                at->bins[next].lookups * (left ? left->bins[at->bins[next].bin] : 1);
        time_curve_make(&histogram, &ret_times->segments[i].reuse);
        ret_times->segments[i].first = at->first[i] * (left ? left->firsts[i] : 1);
    }
}

void measured_profile_reuse(const struct measured_profile *measured, uint32_t table,
                            struct reuse_times *ret_times)
{
    fill_times(measured, table, NULL, ret_times);
}

void measured_profile_reuse_left(const struct measured_profile *measured, uint32_t table,
                                 const struct reuse_left *left, struct reuse_times *ret_times)
{
    fill_times(measured, table, left, ret_times);
}

static void get_reuse(const void *measured, uint32_t table, struct reuse_times *ret_times)
{
    measured_profile_reuse(measured, table, ret_times);
}

enum embtier_err measured_profile_predict(const struct measured_profile *measured,
                                          const double *row_bytes, const struct cache_tiers *tiers,
                                          struct table_prediction *ret_tables, struct err_msg *msg)
{
    const struct reuse_source source = { measured->table_count, get_reuse, measured };

    return predict_shared_cache(&source, row_bytes, tiers, ret_tables, msg);
}
