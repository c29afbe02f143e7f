/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/profile/reuse_times.h"

#include <math.h>

#include "base/macros.h"

#define BISECTIONS 60

void reuse_times_add(struct reuse_times *sum, const struct reuse_times *more, double row_bytes)
{
    sum->is_steady = more->is_steady;
    sum->lookups += more->lookups;
    sum->end_time = more->end_time;
    sum->segment_length = more->segment_length;
    sum->segment_count = more->segment_count;
    for (uint32_t i = 0; i < more->segment_count; i++) {
        sum->segments[i].first += more->segments[i].first * row_bytes;
        time_curve_add(&sum->segments[i].reuse, &more->segments[i].reuse, row_bytes);
    }
}

static double segment_begin(const struct reuse_times *times, uint32_t segment)
{
    return MIN(times->end_time, segment * times->segment_length);
}

/* Counts the lookups of one segment that are the first of their row in the window. A lookup is that
 * if the row's last one came before the window. The segment's lookups are spread evenly over it. */
static double touched_in(const struct reuse_times *times, uint32_t segment, double begin,
                         double end)
{
    const struct reuse_segment *const at = &times->segments[segment];
    const double from = segment_begin(times, segment), to = segment_begin(times, segment + 1);
    const double first = MAX(from, begin), last = MIN(to, end);

    if (first >= last)
        return 0;
    return (at->first * (last - first) + time_curve_sum(&at->reuse, last - begin) -
            time_curve_sum(&at->reuse, first - begin)) /
           (to - from);
}

/* Counts the same in a time before the trace, with which the window begins. Lookups were then like
 * those of the whole trace. */
static double touched_before(const struct reuse_times *times, double length)
{
    double touched = 0;

    for (uint32_t i = 0; i < times->segment_count; i++)
        touched +=
            times->segments[i].first * length + time_curve_sum(&times->segments[i].reuse, length);
    return touched / times->end_time;
}

double reuse_times_touched(const struct reuse_times *times, double end, double age)
{
    const double begin = times->is_steady ? end - age : MAX(0.0, end - age);
    double touched = begin < 0 ? touched_before(times, -begin) : 0;

    for (uint32_t i = 0; i < times->segment_count; i++)
        touched += touched_in(times, i, begin, end);
    return touched;
}

/* Returns a moment's time. */
static double moment_of(const struct reuse_times *times, uint32_t moment)
{
    const double from = segment_begin(times, moment / REUSE_MOMENTS);
    const double to = segment_begin(times, moment / REUSE_MOMENTS + 1);

    return from + (to - from) * (moment % REUSE_MOMENTS + 0.5) / REUSE_MOMENTS;
}

/* Returns the time at which a cache that is not full at @low is so; INFINITY: after @high. */
static double full_time(const struct reuse_times *times, double low, double high, double rows)
{
    if (reuse_times_touched(times, high, high) <= rows)
        return INFINITY;
    for (int i = 0; i < BISECTIONS && high - low > 1e-9 * high; i++) {
        const double middle = (low + high) / 2;

        if (reuse_times_touched(times, middle, middle) <= rows)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* A cache that becomes full in this segment has dropped nothing yet, and no row is older than the
 * trace then. The segment's reuse times are those of its end too, so the age is that at which the
 * cache becomes full. */
static double age_at(const struct reuse_times *times, uint32_t moment, double rows)
{
    const double end = moment_of(times, moment);
    double low = 0, high = times->is_steady ? REUSE_STEADY_AGE * times->end_time : end;

    if (reuse_times_touched(times, end, high) <= rows)
        return times->is_steady
                   ? high
                   : full_time(times, end, segment_begin(times, moment / REUSE_MOMENTS + 1), rows);
    for (int i = 0; i < BISECTIONS && high - low > 1e-9 * high; i++) {
        const double middle = (low + high) / 2;

        if (reuse_times_touched(times, end, middle) <= rows)
            low = middle;
        else
            high = middle;
    }
    return low;
}

void reuse_times_ages(const struct reuse_times *times, double rows, struct reuse_ages *ret_ages)
{
    for (uint32_t i = 0; i < times->segment_count * REUSE_MOMENTS; i++)
        ret_ages->ages[i] = age_at(times, i, rows);
}

double reuse_times_hit_rate(const struct reuse_times *times, const struct reuse_ages *ages)
{
    double hits = 0;

    if (times->lookups <= 0)
        return 0;
    for (uint32_t i = 0; i < times->segment_count * REUSE_MOMENTS; i++)
        hits += time_curve_up_to(&times->segments[i / REUSE_MOMENTS].reuse, ages->ages[i]) /
                REUSE_MOMENTS;
    return MIN(1.0, hits / times->lookups);
}

double reuse_times_cached(const struct reuse_times *times, const struct reuse_ages *ages)
{
    double cached = 0;

    if (times->end_time <= 0)
        return 0;
    for (uint32_t i = 0; i < times->segment_count * REUSE_MOMENTS; i++) {
        const uint32_t segment = i / REUSE_MOMENTS;
        const double length = segment_begin(times, segment + 1) - segment_begin(times, segment);

        cached += reuse_times_touched(times, moment_of(times, i), ages->ages[i]) * length;
    }
    return cached / REUSE_MOMENTS / times->end_time;
}
