/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/profile/reuse_times.h"

#include <math.h>

#include "base/macros.h"

#define BISECTIONS 100

void reuse_times_add(struct reuse_times *sum, const struct reuse_times *more, double row_bytes)
{
    time_histogram_add_all(&sum->reuse, &more->reuse, row_bytes);
    time_histogram_add_all(&sum->first, &more->first, row_bytes);
    time_histogram_add_all(&sum->last, &more->last, row_bytes);
    sum->rows += more->rows * row_bytes;
    sum->lookups += more->lookups;
    sum->end_time = more->end_time;
}

/* Counts, over all windows, the lookups that are their row's last one in the window. A lookup is
 * that in as many windows as it takes until the row's next lookup, but at most @age. Windows that
 * would begin before the trace do not exist. Exact; sampled rows make small errors, which only long
 * windows magnify. */
static double touched_by_short(const struct reuse_times *times, double age)
{
    const double before =
        age * time_histogram_total(&times->first) - time_histogram_sum(&times->first, age);

    return (time_histogram_sum(&times->reuse, age) + time_histogram_sum(&times->last, age) -
            before) /
           (times->end_time - age + 1);
}

/* Returns the sum of what all times are above @age. */
static double sum_above(const struct time_histogram *histogram, double age)
{
    return time_histogram_sum(histogram, INFINITY) - time_histogram_sum(histogram, age);
}

/* Counts the windows without a lookup of a row, as HOTL does: those before its first one, after its
 * last, and between two. Exact; only short windows magnify the errors of sampled rows. */
static double touched_by_long(const struct reuse_times *times, double age)
{
    return times->rows - (sum_above(&times->first, age) + sum_above(&times->last, age) +
                          sum_above(&times->reuse, age)) /
                             (times->end_time - age + 1);
}

double reuse_times_touched(const struct reuse_times *times, double age)
{
    if (age <= 0 || times->rows <= 0)
        return 0;
    if (age >= times->end_time)
        return times->rows;
    return MAX(0.0, MIN(times->rows, age * 2 <= times->end_time ? touched_by_short(times, age)
                                                                : touched_by_long(times, age)));
}

double reuse_times_age(const struct reuse_times *times, double rows)
{
    double low = 0, high = times->end_time;

    if (rows >= times->rows)
        return INFINITY;
    for (int i = 0; i < BISECTIONS && high - low > 1e-9 * high; i++) {
        const double middle = (low + high) / 2;

        if (reuse_times_touched(times, middle) <= rows)
            low = middle;
        else
            high = middle;
    }
    return low;
}

double reuse_times_hit_rate(const struct reuse_times *times, double age)
{
    if (times->lookups <= 0)
        return 0;
    return MIN(1.0, time_histogram_up_to(&times->reuse, age) / times->lookups);
}
