/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/split/split_curve.h"

#include <math.h>

#define CLIFF                                                                                      \
    1e-6 /* of the whole: a smaller difference between a curve and its hull is rounding            \
          */

/* ---- hulls ---- */

/* The least concave curve above the points; with @sign -1 the greatest convex one below them. */
static void make_hull(const double *xs, double *ys, uint32_t count, double sign)
{
    uint32_t kept[SPLIT_POINTS_MAX], kept_count = 0;

    for (uint32_t i = 0; i < count; i++) {
        while (kept_count > 1) {
            const uint32_t a = kept[kept_count - 2], b = kept[kept_count - 1];

            if (sign * (ys[b] - ys[a]) * (xs[i] - xs[a]) > sign * (ys[i] - ys[a]) * (xs[b] - xs[a]))
                break;
            kept_count--;
        }
        kept[kept_count++] = i;
    }
    for (uint32_t k = 1; k < kept_count; k++) {
        const uint32_t a = kept[k - 1], b = kept[k];

        for (uint32_t i = a + 1; i < b; i++)
            ys[i] = ys[a] + (ys[b] - ys[a]) * ((xs[i] - xs[a]) / (xs[b] - xs[a]));
    }
}

/* Hulls the values, and returns the largest difference that this makes. */
static double hull_change(const double *xs, double *ys, uint32_t count, double sign)
{
    double before[SPLIT_POINTS_MAX], change = 0;

    for (uint32_t i = 0; i < count; i++)
        before[i] = ys[i];
    make_hull(xs, ys, count, sign);
    for (uint32_t i = 0; i < count; i++)
        change = fmax(change, fabs(ys[i] - before[i]));
    return change;
}

static void fill_slopes(struct split_point *points, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        struct split_point *const p = &points[i];
        const double rows = p->rows - p[-1].rows;

        p->read_slope = fmax(p->read_bytes - p[-1].read_bytes, 0) / rows;
        p->rest_slope = (p->rest_s - p[-1].rest_s) / rows;
    }
}

static bool is_known(const struct split_table *table, double rows)
{
    return table->rows != EMBTIER_UNBOUNDED || table->known_rows == 0 || rows <= table->known_rows;
}

/* Returns the number of points: (0, 0), those of the CDF that are known, and the last row. */
static uint32_t find_rows(const struct split_table *table, double *ret_rows)
{
    const struct access_cdf *const cdf = table->cdf;
    uint32_t count = 0;

    ret_rows[count++] = 0;
    for (uint32_t i = 0; i < cdf->point_count && is_known(table, cdf->rows[i]); i++)
        ret_rows[count++] = cdf->rows[i];
    if (table->rows != EMBTIER_UNBOUNDED && (double)table->rows > ret_rows[count - 1])
        ret_rows[count++] = (double)table->rows;
    return count;
}

void split_curve_make(const struct split_table *table, double last_bandwidth,
                      struct split_point *points, struct split_curve *ret_curve)
{
    double rows[SPLIT_POINTS_MAX] = { 0 }, reads[SPLIT_POINTS_MAX] = { 0 },
           sums_s[SPLIT_POINTS_MAX] = { 0 };
    const double read_bytes = split_lookups(table) * table->lookup_bytes;
    const uint32_t count = find_rows(table, rows);
    double read_change, time_change;

    for (uint32_t i = 0; i < count; i++) {
        reads[i] = read_bytes * access_cdf_share(table->cdf, rows[i]);
        sums_s[i] = reads[i] / last_bandwidth + split_rest_s(table, rows[i]);
    }
    *ret_curve = (struct split_curve){
        .point_count = count,
        .points = points,
        .read_bytes = read_bytes,
        .rest_s = sums_s[0],
        .whole_bytes = (double)table->rows * table->row_bytes,
        .row_bytes = (double)table->row_bytes + table->remap_bytes,
    };
    read_change = hull_change(rows, reads, count, 1);
    time_change = hull_change(rows, sums_s, count, -1);
    ret_curve->is_hull = read_change > CLIFF * read_bytes ||
                         time_change > CLIFF * fmax(sums_s[0], sums_s[count - 1]);
    for (uint32_t i = 0; i < count; i++)
        points[i] =
            (struct split_point){ .rows = rows[i],
                                  .read_bytes = reads[i],
                                  .rest_s = reads[i] / last_bandwidth - sums_s[i] + sums_s[0] };
    fill_slopes(points, count);
}

/* ---- cuts ---- */

/* Returns the cheapest level for the piece that ends at the point; the first one of equals. */
static uint32_t best_level(const struct split_curve *c, const struct split_prices *p,
                           uint32_t point)
{
    const struct split_point *const end = &c->points[point];
    double best = INFINITY;
    uint32_t level = p->level_count;

    for (uint32_t m = 0; m < p->level_count; m++) {
        const double cost = end->read_slope * p->read[m] + c->row_bytes * p->byte[m];

        if ((p->allowed >> m & 1) && cost < best) {
            best = cost;
            level = m;
        }
    }
    return (p->allowed >> p->level_count & 1) && end->rest_slope * p->second < best ? p->level_count
                                                                                    : level;
}

void split_curve_cut(const struct split_curve *curve, const struct split_prices *prices,
                     uint32_t *ret_ends)
{
    uint32_t end = 0;

    for (uint32_t m = 0; m < prices->level_count; m++) {
        uint32_t high = curve->point_count - 1;

        while ((prices->allowed >> m & 1) && end < high) {
            const uint32_t middle = end + (high - end) / 2;

            if (best_level(curve, prices, middle + 1) > m)
                high = middle;
            else
                end = middle + 1;
        }
        ret_ends[m] = end;
    }
}

double split_curve_least(const struct split_curve *curve, const struct split_prices *prices)
{
    const struct split_curve *const c = curve;
    const struct split_point *const last = &c->points[c->point_count - 1];
    double sum = (c->rest_s - last->rest_s) * prices->second;

    for (uint32_t i = 1; i < c->point_count; i++) {
        const double rows = c->points[i].rows - c->points[i - 1].rows;
        const double reads = c->points[i].read_bytes - c->points[i - 1].read_bytes;
        double best = INFINITY;

        if (prices->allowed >> prices->level_count & 1)
            best = (c->points[i].rest_s - c->points[i - 1].rest_s) * prices->second;
        for (uint32_t m = 0; m < prices->level_count; m++)
            if (prices->allowed >> m & 1)
                best = fmin(best, reads * prices->read[m] + rows * c->row_bytes * prices->byte[m]);
        sum += best;
    }
    return sum;
}

struct split_point split_curve_at(const struct split_curve *curve, double rows)
{
    uint32_t low = 0, high = curve->point_count - 1;
    struct split_point at;
    double into;

    while (low < high) { /* the first point that is not before @rows */
        const uint32_t middle = low + (high - low) / 2;

        if (curve->points[middle].rows < rows)
            low = middle + 1;
        else
            high = middle;
    }
    at = curve->points[low];
    if (low == 0)
        return at;
    into = fmin(rows, at.rows) - curve->points[low - 1].rows;
    at.rest_s = curve->points[low - 1].rest_s + at.rest_slope * into;
    at.read_bytes = curve->points[low - 1].read_bytes + at.read_slope * into;
    at.rows = fmin(rows, at.rows);
    return at;
}
