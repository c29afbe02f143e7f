/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/profile/time_histogram.h"

#include <stdbool.h>

#include "base/macros.h"

#define STEP_BITS 4

_Static_assert(1 << STEP_BITS == TIME_HISTOGRAM_STEPS, "a bin's number is made of bits");

uint32_t time_histogram_bin(uint64_t time)
{
    uint32_t bin;

    if (time < TIME_HISTOGRAM_STEPS)
        return (uint32_t)time;
    bin = 63 - (uint32_t)__builtin_clzll(time) - STEP_BITS; /* the octave, from 0 on */
    bin = (bin + 1) * TIME_HISTOGRAM_STEPS + (uint32_t)(time >> bin & (TIME_HISTOGRAM_STEPS - 1));
    return MIN(bin, (uint32_t)TIME_HISTOGRAM_BINS - 1);
}

uint64_t time_histogram_begin(uint32_t bin)
{
    const uint32_t octave = bin / TIME_HISTOGRAM_STEPS;

    if (octave == 0)
        return bin;
    return (uint64_t)(TIME_HISTOGRAM_STEPS + bin % TIME_HISTOGRAM_STEPS) << (octave - 1);
}

void time_histogram_add(struct time_histogram *histogram, uint64_t time, double weight)
{
    histogram->weights[time_histogram_bin(time)] += weight;
}

void time_histogram_add_all(struct time_histogram *histogram, const struct time_histogram *more,
                            double factor)
{
    for (uint32_t bin = 0; bin < TIME_HISTOGRAM_BINS; bin++)
        histogram->weights[bin] += more->weights[bin] * factor;
}

double time_histogram_share(uint32_t bin, double time)
{
    const double begin = (double)time_histogram_begin(bin);
    const double end = (double)time_histogram_begin(bin + 1);

    return MAX(0.0, MIN(1.0, (time + 1 - begin) / (end - begin)));
}

double time_histogram_total(const struct time_histogram *histogram)
{
    double total = 0;

    for (uint32_t bin = 0; bin < TIME_HISTOGRAM_BINS; bin++)
        total += histogram->weights[bin];
    return total;
}

/* ---- Curves ---- */

/* Returns the mean time of a bin. */
static double bin_mean(uint32_t bin)
{
    return ((double)time_histogram_begin(bin) + (double)time_histogram_begin(bin + 1) - 1) / 2;
}

void time_curve_make(const struct time_histogram *histogram, struct time_curve *ret_curve)
{
    double weight = 0, sum = 0;

    for (uint32_t bin = 0; bin < TIME_HISTOGRAM_BINS; bin++) {
        ret_curve->weights[bin] = weight;
        ret_curve->sums[bin] = sum;
        weight += histogram->weights[bin];
        sum += histogram->weights[bin] * bin_mean(bin);
    }
    ret_curve->weights[TIME_HISTOGRAM_BINS] = weight;
    ret_curve->sums[TIME_HISTOGRAM_BINS] = sum;
}

void time_curve_add(struct time_curve *curve, const struct time_curve *more, double factor)
{
    for (uint32_t bin = 0; bin <= TIME_HISTOGRAM_BINS; bin++) {
        curve->weights[bin] += more->weights[bin] * factor;
        curve->sums[bin] += more->sums[bin] * factor;
    }
}

/* Finds the bin of which a part lies up to @time, and the part. False: all bins do. */
static bool cut_at(double time, uint32_t *ret_bin, double *ret_share)
{
    double begin, end;

    if (time + 1 >= (double)time_histogram_begin(TIME_HISTOGRAM_BINS))
        return false;
    *ret_bin = time_histogram_bin((uint64_t)MAX(0.0, time + 1));
    begin = (double)time_histogram_begin(*ret_bin);
    end = (double)time_histogram_begin(*ret_bin + 1);
    *ret_share = MAX(0.0, (time + 1 - begin) / (end - begin));
    return true;
}

double time_curve_up_to(const struct time_curve *curve, double time)
{
    uint32_t bin;
    double share;

    if (!cut_at(time, &bin, &share))
        return curve->weights[TIME_HISTOGRAM_BINS];
    return curve->weights[bin] + share * (curve->weights[bin + 1] - curve->weights[bin]);
}

double time_curve_sum(const struct time_curve *curve, double most)
{
    uint32_t bin;
    double share, weight, above;

    if (!cut_at(most, &bin, &share))
        return curve->sums[TIME_HISTOGRAM_BINS];
    weight = curve->weights[bin + 1] - curve->weights[bin];
    above = curve->weights[TIME_HISTOGRAM_BINS] - curve->weights[bin + 1];
    return curve->sums[bin] + (above + (1 - share) * weight) * most +
           share * weight * ((double)time_histogram_begin(bin) + most) / 2;
}
