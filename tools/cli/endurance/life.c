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

/* Bytes that the drive still takes if the true percentage is @more above what it says. Below 1 %
 * nothing can be said. */
static double left_by_drive(const struct life_inputs *inputs, double more)
{
    const double used = inputs->used_percent + more;

    if (!(inputs->used_percent >= 1))
        return (double)NAN;
    return inputs->written_bytes * fmax(100 - used, 0) / used;
}

/* The widest of all that may be left; the first is the best guess. */
static double left_bytes(const struct life_inputs *inputs, const struct life *life,
                         struct range *ret_range)
{
    const double rated = fmax(inputs->rated_bytes - life->written_bytes, 0);
    const double by_rating = isnan(inputs->rated_bytes) ? (double)NAN : rated;
    const double by_drive = left_by_drive(inputs, 0);

    *ret_range = (struct range){ (double)NAN, (double)NAN };
    widen(ret_range, by_rating);
    widen(ret_range, left_by_drive(inputs, 0.5));
    widen(ret_range, left_by_drive(inputs, -0.5));
    return isnan(by_rating) ? by_drive : by_rating;
}

void life_compute(const struct life_inputs *inputs, struct life *ret_life)
{
    struct range rates = { (double)NAN, (double)NAN }, left;
    double longest = (double)NAN;

    *ret_life = (struct life){ .written_bytes = inputs->written_bytes };
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

/* ---- Several drives ---- */

double life_share(double rated_bytes, const double *capacities, size_t count, size_t index)
{
    double all = 0;

    for (size_t i = 0; i < count; i++)
        all += capacities[i];
    return all > 0 ? rated_bytes * capacities[index] / all : rated_bytes / (double)count;
}

size_t life_first(const struct life *lives, size_t count)
{
    size_t first = 0;

    for (size_t i = 1; i < count; i++)
        if (lives[i].years < lives[first].years ||
            (isnan(lives[first].years) && !isnan(lives[i].years)))
            first = i;
    return first;
}
