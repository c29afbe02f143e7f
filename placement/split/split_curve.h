/* SPDX-License-Identifier: Apache-2.0 */
/* split_curve.h: one table as a row of pieces, sorted by hotness, and its cheapest cut at given
 * prices.
 *
 * A piece is the rows between two points of the access CDF. Each of its rows costs the same in a
 * level, and the same in the rest. The lookups follow the least concave curve above the CDF. Their
 * time in arrays and rest together follows the greatest convex curve below the true one. So a later
 * piece never belongs into a faster level than an earlier one, and each piece chooses its level by
 * itself. If a table's curves differ from these hulls, its cost here is too low: right for a bound.
 * Thread: any. */
#ifndef EMBTIER_PLACEMENT_SPLIT_SPLIT_CURVE_H
#define EMBTIER_PLACEMENT_SPLIT_SPLIT_CURVE_H

#include "placement/split/split_model.h"

/* The points of the CDF, the rows behind them, and (0, 0). */
#define SPLIT_POINTS_MAX (ACCESS_CDF_POINTS_MAX + 2)

/* All but the slopes are sums from the hottest row on. Slopes are those of the piece that ends
 * here. */
struct split_point {
    double rows;
    double read_bytes;             /* of a batch */
    double rest_s;                 /* of a batch, if these rows are in the rest */
    double read_slope, rest_slope; /* for each row */
};

struct split_curve {
    uint32_t point_count; /* at least 1: the point (0, 0) */
    struct split_point *points;
    double read_bytes; /* of all rows */
    double rest_s;     /* if all rows are in the rest */
    double whole_bytes;
    double row_bytes; /* of a row in an array, with remap */
    bool is_hull;     /* its true curve differs */
};

/* The costs of a byte, and of a read byte, in each level; and of a second in the rest. */
struct split_prices {
    uint32_t level_count;
    uint32_t allowed; /* bit m: level m, bit level_count: the rest */
    double byte[SPLIT_LEVELS_MAX];
    double read[SPLIT_LEVELS_MAX];
    double second;
};

/* Writes at most SPLIT_POINTS_MAX points to @points, which the curve borrows. */
void split_curve_make(const struct split_table *table, double last_bandwidth,
                      struct split_point *points, struct split_curve *ret_curve);
/* Returns in @ret_ends the points where the table's rows in each level end. */
void split_curve_cut(const struct split_curve *curve, const struct split_prices *prices,
                     uint32_t *ret_ends);
/* The same cost from a look at all pieces, which relies on no order. */
double split_curve_least(const struct split_curve *curve, const struct split_prices *prices);
/* Returns the point at @rows, between two of the curve's points. */
struct split_point split_curve_at(const struct split_curve *curve, double rows);

#endif
