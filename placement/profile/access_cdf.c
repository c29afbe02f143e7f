/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/profile/access_cdf.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/macros.h"

/* Points by share of lookups, for the steep part, and by rows on a logarithmic scale, for the
 * rest. */
#define SHARE_STEPS 50
#define ROW_STEPS   48
/* From one point to the next, the rows rise by more than this part of them. */
#define RISE_MIN 1e-6

/* Ties are sorted too, so that the order of the groups does not matter. */
static int compare(const void *a, const void *b)
{
    const struct access_group *const left = a, *const right = b;

    if (left->lookups != right->lookups)
        return left->lookups < right->lookups ? 1 : -1;
    return (left->rows < right->rows) - (left->rows > right->rows);
}

static void add_point(struct access_cdf *cdf, double rows, double share)
{
    cdf->rows[cdf->point_count] = rows;
    cdf->shares[cdf->point_count++] = share;
}

static bool rises(double rows, double next_rows)
{
    return next_rows > rows * (1 + RISE_MIN);
}

void access_cdf_make(struct access_group *groups, uint32_t count, struct access_cdf *ret_cdf)
{
    double rows = 0, lookups = 0, all_rows = 0, all_lookups = 0;
    double next_share = 0, next_rows = 0, last_rows = 0, step;

    qsort(groups, count, sizeof(*groups), compare);
    for (uint32_t i = 0; i < count; i++) {
        all_rows += groups[i].rows;
        all_lookups += groups[i].rows * groups[i].lookups;
    }
    *ret_cdf = (struct access_cdf){ 0 };
    if (all_rows <= 0 || all_lookups <= 0)
        return;
    step = pow(MAX(all_rows, 1.0), 1.0 / ROW_STEPS);
    for (uint32_t i = 0; i + 1 < count; i++) {
        rows += groups[i].rows;
        lookups += groups[i].rows * groups[i].lookups;
        if (lookups < next_share * all_lookups && rows < next_rows)
            continue;
        if (!rises(last_rows, rows))
            continue;
        if (!rises(rows, all_rows) || ret_cdf->point_count + 1 == ACCESS_CDF_POINTS_MAX)
            break;
        add_point(ret_cdf, rows, MIN(1.0, lookups / all_lookups));
        last_rows = rows;
        if (rows >= next_rows)
            next_rows = MAX(rows * step, rows + 1);
        next_share = floor(lookups / all_lookups * SHARE_STEPS + 1) / SHARE_STEPS;
    }
    add_point(ret_cdf, all_rows, 1);
}

/* Returns y at @x on the curve through (0, 0) and the points, and the last point's y behind it. */
static double interpolate(const double *xs, const double *ys, uint32_t count, double x)
{
    double last_x = 0, last_y = 0;

    for (uint32_t i = 0; i < count; i++) {
        if (x <= xs[i])
            return xs[i] > last_x
                       ? last_y + (ys[i] - last_y) * MAX(0.0, x - last_x) / (xs[i] - last_x)
                       : last_y;
        last_x = xs[i];
        last_y = ys[i];
    }
    return last_y;
}

double access_cdf_share(const struct access_cdf *cdf, double rows)
{
    return interpolate(cdf->rows, cdf->shares, cdf->point_count, rows);
}

double access_cdf_rows(const struct access_cdf *cdf, double share)
{
    return interpolate(cdf->shares, cdf->rows, cdf->point_count, share);
}
