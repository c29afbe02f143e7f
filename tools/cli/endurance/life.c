/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli/endurance/life.h"

#include <math.h>

#define YEAR_DAYS 365.0

struct range {
    double least, most;
};

static void widen(struct range *range, double value)
{
    range->least = fmin(range->least, value); /* NAN is no number to these */
    range->most = fmax(range->most, value);
}

static double all_written(const struct life_inputs *inputs)
{
    double bytes = inputs->drive_count > 0 ? 0 : (double)NAN;

    for (size_t i = 0; i < inputs->drive_count; i++)
        bytes += inputs->drives[i].written_bytes;
    return bytes;
}

/* Bytes that the drives still take if the true percentage is @more above what they say. Below 1 %
 * nothing can be said. */
static double left_by_drives(const struct life_inputs *inputs, double more)
{
    double bytes = inputs->drive_count > 0 ? 0 : (double)NAN;

    for (size_t i = 0; i < inputs->drive_count; i++) {
        const struct wear *const drive = &inputs->drives[i];
        const double used = drive->used_percent + more;

        if (!(drive->used_percent >= 1))
            return (double)NAN;
        bytes += drive->written_bytes * fmax(100 - used, 0) / used;
    }
    return bytes;
}

/* The widest of all that may be left; the first is the best guess. */
static double left_bytes(const struct life_inputs *inputs, const struct life *life,
                         struct range *ret_range)
{
    const double rated = fmax(inputs->rated_bytes - life->written_bytes, 0);
    const double by_rating = isnan(inputs->rated_bytes) ? (double)NAN : rated;
    const double by_drives = left_by_drives(inputs, 0);

    *ret_range = (struct range){ (double)NAN, (double)NAN };
    widen(ret_range, by_rating);
    widen(ret_range, left_by_drives(inputs, 0.5));
    widen(ret_range, left_by_drives(inputs, -0.5));
    return isnan(by_rating) ? by_drives : by_rating;
}

void life_compute(const struct life_inputs *inputs, struct life *ret_life)
{
    struct range rates = { (double)NAN, (double)NAN }, left;
    double longest = (double)NAN;

    *ret_life = (struct life){ .written_bytes = all_written(inputs) };
    ret_life->is_counted = !isnan(ret_life->written_bytes);
    if (!ret_life->is_counted)
        ret_life->written_bytes = inputs->history_bytes;
    for (size_t i = 0; i < LIFE_WINDOWS; i++) {
        if (!(inputs->daily_bytes[i] > 0))
            continue;
        widen(&rates, inputs->daily_bytes[i]);
        longest = inputs->daily_bytes[i];
    }
    ret_life->left_bytes = left_bytes(inputs, ret_life, &left);
    ret_life->years = ret_life->left_bytes / longest / YEAR_DAYS;
    ret_life->least_years = left.least / rates.most / YEAR_DAYS;
    ret_life->most_years = left.most / rates.least / YEAR_DAYS;
}
