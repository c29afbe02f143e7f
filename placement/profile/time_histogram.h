/* SPDX-License-Identifier: Apache-2.0 */
/* time_histogram.h: weights of times, in bins that are at most a sixteenth of their time wide.
 *
 * A time is a number of lookups, 0 or more; those from 2^48 on share the last bin. The weight of a
 * bin is taken as spread evenly over its times. Pure values. */
#ifndef EMBTIER_PLACEMENT_PROFILE_TIME_HISTOGRAM_H
#define EMBTIER_PLACEMENT_PROFILE_TIME_HISTOGRAM_H

#include <stdint.h>

#define TIME_HISTOGRAM_STEPS   16 /* bins for each doubling */
#define TIME_HISTOGRAM_OCTAVES 44 /* doublings from 16 on */
#define TIME_HISTOGRAM_BINS    (TIME_HISTOGRAM_STEPS * (1 + TIME_HISTOGRAM_OCTAVES))

struct time_histogram {
    double weights[TIME_HISTOGRAM_BINS];
};

/* Returns the bin of a time. */
uint32_t time_histogram_bin(uint64_t time);
/* Returns the first time of a bin, 0 <= @bin <= TIME_HISTOGRAM_BINS. */
uint64_t time_histogram_begin(uint32_t bin);
void time_histogram_add(struct time_histogram *histogram, uint64_t time, double weight);
/* Adds @more, each weight times @factor. */
void time_histogram_add_all(struct time_histogram *histogram, const struct time_histogram *more,
                            double factor);
/* Returns the share of a bin's times that are up to @time, 0 to 1. INFINITY: all. */
double time_histogram_share(uint32_t bin, double time);
double time_histogram_total(const struct time_histogram *histogram);

/* The same weights added up, so that a sum over times takes the same few steps for any time. Curves
 * of two histograms add up to that of both together. */
struct time_curve {
    double weights[TIME_HISTOGRAM_BINS + 1]; /* of all bins before this one */
    double sums[TIME_HISTOGRAM_BINS + 1];    /* of their times, each by its weight */
};

void time_curve_make(const struct time_histogram *histogram, struct time_curve *ret_curve);
/* Adds @more, times @factor. */
void time_curve_add(struct time_curve *curve, const struct time_curve *more, double factor);
/* Returns the weight of the times up to @time, with that one. INFINITY: all. */
double time_curve_up_to(const struct time_curve *curve, double time);
/* Returns the sum of MIN(time, @most) over all weights; @most is finite. */
double time_curve_sum(const struct time_curve *curve, double most);

#endif
