/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/profile/time_histogram.h"

#include "base/macros.h"

#define STEP_BITS 4

_Static_assert(1 << STEP_BITS == TIME_HISTOGRAM_STEPS, "a bin's number is made of bits");

static uint32_t bin_of(uint64_t time)
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
    histogram->weights[bin_of(time)] += weight;
}

void time_histogram_add_all(struct time_histogram *histogram, const struct time_histogram *more,
                            double factor)
{
    for (uint32_t bin = 0; bin < TIME_HISTOGRAM_BINS; bin++)
        histogram->weights[bin] += more->weights[bin] * factor;
}

double time_histogram_total(const struct time_histogram *histogram)
{
    double total = 0;

    for (uint32_t bin = 0; bin < TIME_HISTOGRAM_BINS; bin++)
        total += histogram->weights[bin];
    return total;
}

/* Returns the share of a bin's times that are at most @time. */
static double share_up_to(double begin, double end, double time)
{
    return MAX(0.0, MIN(1.0, (time - begin + 1) / (end - begin)));
}

double time_histogram_up_to(const struct time_histogram *histogram, double time)
{
    double sum = 0;

    for (uint32_t bin = 0; bin < TIME_HISTOGRAM_BINS; bin++) {
        const double begin = (double)time_histogram_begin(bin);

        if (begin > time + 1)
            break;
        sum += histogram->weights[bin] *
               share_up_to(begin, (double)time_histogram_begin(bin + 1), time);
    }
    return sum;
}

double time_histogram_sum(const struct time_histogram *histogram, double most)
{
    double sum = 0;

    for (uint32_t bin = 0; bin < TIME_HISTOGRAM_BINS; bin++) {
        const double begin = (double)time_histogram_begin(bin);
        const double end = (double)time_histogram_begin(bin + 1);
        const double share = share_up_to(begin, end, most);

        sum += histogram->weights[bin] * share * (begin + MIN(most, end - 1)) / 2;
        if (share < 1)
            sum += histogram->weights[bin] * (1 - share) * most;
    }
    return sum;
}
