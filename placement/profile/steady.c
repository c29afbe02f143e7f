/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/profile/steady.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"

/* Times longer than the trace get so many values. */
#define QUANTILES 16
#define TIME_MAX  0x1p47 /* the last bin begins here or later */

struct steady {
    uint32_t segment_count;
    double segment_length, end_time;
    double lookups[REUSE_SEGMENTS_MAX][TIME_HISTOGRAM_BINS];
    double firsts[REUSE_SEGMENTS_MAX];
    double longer[TIME_HISTOGRAM_BINS + 1]; /* share of reuse times from this bin on */
};

static void take_table(const struct measured_table *table, struct steady *s)
{
    memset(s->lookups, 0, sizeof(s->lookups));
    for (uint32_t i = 0; i < table->bin_count; i++)
        s->lookups[table->bins[i].segment][table->bins[i].bin] = table->bins[i].lookups;
    memcpy(s->firsts, table->first, sizeof(s->firsts));
}

/* Returns the first segment at whose beginning the trace is as old as the longest time of the bin.
 * All its lookups, and those of later segments, either have such a time or are known not to. */
static uint32_t segment_that_knows(const struct steady *s, uint32_t bin)
{
    const double longest = (double)(time_histogram_begin(bin + 1) - 1);

    return (uint32_t)MIN(ceil(longest / s->segment_length), (double)s->segment_count);
}

/* Estimates the share of reuse times that are no shorter than each bin. A bin's lookups are
 * compared with all that are known not to be shorter. */
static void fill_longer(struct steady *s)
{
    double at_least[REUSE_SEGMENTS_MAX]; /* each segment's lookups that are not in shorter bins */

    for (uint32_t i = 0; i < s->segment_count; i++) {
        at_least[i] = s->firsts[i];
        for (uint32_t bin = 0; bin < TIME_HISTOGRAM_BINS; bin++)
            at_least[i] += s->lookups[i][bin];
    }
    s->longer[0] = 1;
    for (uint32_t bin = 0; bin < TIME_HISTOGRAM_BINS; bin++) {
        double here = 0, all = 0;

        for (uint32_t i = segment_that_knows(s, bin); i < s->segment_count; i++) {
            here += s->lookups[i][bin];
            all += at_least[i];
        }
        s->longer[bin + 1] = s->longer[bin] * (all > 0 ? MAX(1 - here / all, 0.0) : 1);
        for (uint32_t i = 0; i < s->segment_count; i++)
            at_least[i] = MAX(at_least[i] - s->lookups[i][bin], 0.0);
    }
}

/* The first bin whose times are all as long as the trace is old in the middle of a segment. */
static uint32_t bin_of_age(const struct steady *s, uint32_t segment)
{
    const double begin = MIN(segment * s->segment_length, s->end_time);
    const double end = MIN(begin + s->segment_length, s->end_time);
    const uint32_t bin = time_histogram_bin((uint64_t)((begin + end) / 2));

    return MIN(bin + 1, (uint32_t)TIME_HISTOGRAM_BINS);
}

/* Gives first lookups of a segment the times that are longer than the trace is old in its middle.
 */
static void spread_longer(struct steady *s, uint32_t segment)
{
    const uint32_t from = bin_of_age(s, segment);
    const double count = s->firsts[segment];

    if (s->longer[from] <= 0)
        return;
    for (uint32_t bin = from; bin < TIME_HISTOGRAM_BINS; bin++)
        s->lookups[segment][bin] += count * (s->longer[bin] - s->longer[bin + 1]) / s->longer[from];
    s->firsts[segment] = count * s->longer[TIME_HISTOGRAM_BINS] / s->longer[from];
}

/* Returns how many lookups the first segment lacks of what it would have with the times of the
 * trace. */
static double lacks(const struct steady *s, uint32_t bin, double lookups)
{
    return MAX(lookups * (s->longer[bin] - s->longer[bin + 1]) - s->lookups[0][bin], 0.0);
}

/* Most rows have their first lookup in the first segment, and most of those early in it. So these
 * get the times that the segment lacks, also short ones. */
static void spread_missing(struct steady *s)
{
    const double count = s->firsts[0];
    double lookups = count, lacking, all;

    for (uint32_t bin = 0; bin < TIME_HISTOGRAM_BINS; bin++)
        lookups += s->lookups[0][bin];
    lacking = all = lookups * s->longer[TIME_HISTOGRAM_BINS];
    for (uint32_t bin = 0; bin < TIME_HISTOGRAM_BINS; bin++)
        all += lacks(s, bin, lookups);
    if (all <= 0)
        return;
    for (uint32_t bin = 0; bin < TIME_HISTOGRAM_BINS; bin++)
        s->lookups[0][bin] += count * lacks(s, bin, lookups) / all;
    s->firsts[0] = count * lacking / all;
}

static double bin_mean(uint32_t bin)
{
    return ((double)time_histogram_begin(bin) + (double)time_histogram_begin(bin + 1) - 1) / 2;
}

/* Returns the mean by which times that are longer than the trace exceed it, if all times of a table
 * of @rows add up to the rows times the trace. Rows that are never looked up make it longer. */
static double mean_beyond(const struct steady *s, double rows, double unknown)
{
    double known = 0;

    for (uint32_t i = 0; i < s->segment_count; i++)
        for (uint32_t bin = 0; bin < TIME_HISTOGRAM_BINS; bin++)
            known += s->lookups[i][bin] * bin_mean(bin);
    return MAX((rows * s->end_time - known) / unknown - s->end_time, 0.0);
}

/* Gives the lookups whose times are longer than the trace times beyond it, spread exponentially. */
static void spread_unknown(struct steady *s, double rows)
{
    const uint32_t first =
        MIN(time_histogram_bin((uint64_t)s->end_time) + 1, (uint32_t)TIME_HISTOGRAM_BINS - 1);
    double unknown = 0, mean;

    for (uint32_t i = 0; i < s->segment_count; i++)
        unknown += s->firsts[i];
    if (unknown <= 0)
        return;
    mean = mean_beyond(s, rows, unknown);
    for (uint32_t k = 0; k < QUANTILES; k++) {
        const double beyond = -log1p(-(k + 0.5) / QUANTILES) * mean;
        const uint32_t bin = time_histogram_bin((uint64_t)MIN(s->end_time + beyond, TIME_MAX));

        for (uint32_t i = 0; i < s->segment_count; i++)
            s->lookups[i][MAX(bin, first)] += s->firsts[i] / QUANTILES;
    }
    memset(s->firsts, 0, sizeof(s->firsts));
}

static enum embtier_err give_table(const struct steady *s, struct measured_table *table)
{
    uint32_t count = 0;
    struct measured_bin *bins;

    for (uint32_t i = 0; i < s->segment_count; i++)
        for (uint32_t bin = 0; bin < TIME_HISTOGRAM_BINS; bin++)
            count += (float)s->lookups[i][bin] > 0;
    bins = calloc(count + 1, sizeof(*bins));
    if (!bins)
        return EMBTIER_NO_MEMORY;
    free(table->bins);
    table->bins = bins;
    table->bin_count = 0;
    for (uint32_t i = 0; i < s->segment_count; i++)
        for (uint32_t bin = 0; bin < TIME_HISTOGRAM_BINS; bin++)
            if ((float)s->lookups[i][bin] > 0)
                bins[table->bin_count++] =
                    (struct measured_bin){ (uint16_t)i, (uint16_t)bin, (float)s->lookups[i][bin] };
    memcpy(table->first, s->firsts, sizeof(table->first));
    return EMBTIER_OK;
}

static double first_lookups(const struct measured_table *table)
{
    double sum = 0;

    for (uint32_t i = 0; i < REUSE_SEGMENTS_MAX; i++)
        sum += table->first[i];
    return sum;
}

static void make_coming(struct measured_table *table)
{
    const struct access_cdf past = table->cdf;
    const double rows = table->table.rows > 0 ? (double)table->table.rows : INFINITY;

    if (first_lookups(table) > 0) /* else it is a model of endless lookups, with their true CDF */
        access_cdf_make_coming(&past, (double)table->summary.lookups, rows, &table->cdf);
}

enum embtier_err measured_profile_make_steady(struct measured_profile *measured,
                                              struct err_msg *msg)
{
    _cleanup_(freep) struct steady *s = calloc(1, sizeof(*s));

    if (!s)
        return err_set(msg, EMBTIER_NO_MEMORY, "out of memory for a profile");
    s->segment_count = measured->segment_count;
    s->segment_length = (double)measured->segment_length;
    s->end_time = (double)measured->lookups;
    for (uint32_t i = 0; i < measured->table_count && !measured->is_steady; i++) {
        make_coming(&measured->tables[i]);
        take_table(&measured->tables[i], s);
        fill_longer(s);
        spread_missing(s);
        for (uint32_t k = 1; k < s->segment_count; k++)
            spread_longer(s, k);
        if (measured->tables[i].table.rows != EMBTIER_UNBOUNDED)
            spread_unknown(s, (double)measured->tables[i].table.rows);
        if (give_table(s, &measured->tables[i]) != EMBTIER_OK)
            return err_set(msg, EMBTIER_NO_MEMORY, "out of memory for a profile");
    }
    measured->is_steady = true;
    return EMBTIER_OK;
}
