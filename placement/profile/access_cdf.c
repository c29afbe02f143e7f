/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/profile/access_cdf.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/macros.h"

/* Points by share of lookups, for the steep part, and by rows on a logarithmic scale, for the
 * rest. Rows with few lookups are told apart: these are classes of rows with equally many. */
#define SHARE_STEPS 50
#define ROW_STEPS   40
#define CLASSES     8
#define LOOKUPS_MIN 0.5 /* of a row: a file may say that the coldest ones have none */
_Static_assert(SHARE_STEPS + ROW_STEPS + CLASSES + 2 <= ACCESS_CDF_POINTS_MAX, "all points fit");
/* Estimated lookups are so many times the true ones, at least and at most. */
#define SCALE_MIN 0.4
#define SCALE_MAX 2.5
/* Pieces of one class differ by less than this part in a file. */
#define CLASS_ROUNDING 0.01
#define UNSEEN_MAX     0x1p49 /* rows of an unbounded table */
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

/* Returns the number of lookups if it is that of a class, or 0. @unit: of the coldest rows, which
 * have the fewest lookups. Estimated lookups are a multiple of true ones. */
static double class_of(double lookups, double unit)
{
    const double of_class = round(lookups / unit);

    return of_class <= CLASSES ? of_class : 0;
}

/* Returns the lookups that count as one: the coldest rows have 1, 2, ... of these. The next ones
 * have one more, if they are of the next class. @next: 0 if there are none. */
static double unit_of(double coldest, double next)
{
    const double unit = next - coldest;

    if (unit > 0 && coldest / unit > 0.75 && unit >= SCALE_MIN && unit <= SCALE_MAX)
        return coldest / round(coldest / unit);
    return coldest / MAX(floor(coldest + 0.25), 1.0);
}

static bool ends_class(const struct access_group *group, double unit)
{
    const double of_class = class_of(group->lookups, unit);

    return of_class > 0 && class_of(group[1].lookups, unit) != of_class;
}

/* Returns the lookups of the coldest rows but those of the last group's number. */
static double next_lookups(const struct access_group *groups, uint32_t count)
{
    for (uint32_t i = count - 1; i-- > 0;)
        if (groups[i].lookups > groups[count - 1].lookups * (1 + RISE_MIN))
            return groups[i].lookups;
    return 0;
}

void access_cdf_make(struct access_group *groups, uint32_t count, struct access_cdf *ret_cdf)
{
    double rows = 0, lookups = 0, all_rows = 0, all_lookups = 0;
    double next_share = 0, next_rows = 0, last_rows = 0, step, unit;

    qsort(groups, count, sizeof(*groups), compare);
    for (uint32_t i = 0; i < count; i++) {
        all_rows += groups[i].rows;
        all_lookups += groups[i].rows * groups[i].lookups;
    }
    *ret_cdf = (struct access_cdf){ 0 };
    if (all_rows <= 0 || all_lookups <= 0)
        return;
    step = pow(MAX(all_rows, 1.0), 1.0 / ROW_STEPS);
    unit = unit_of(groups[count - 1].lookups, next_lookups(groups, count));
    for (uint32_t i = 0; i + 1 < count; i++) {
        rows += groups[i].rows;
        lookups += groups[i].rows * groups[i].lookups;
        if (lookups < next_share * all_lookups && rows < next_rows && !ends_class(&groups[i], unit))
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

/* ---- Coming lookups ---- */

/* Corners of a curve of coming lookups, from (0, 0) on. */
struct corners {
    uint32_t count;
    double rows[ACCESS_CDF_POINTS_MAX + 2];
    double shares[ACCESS_CDF_POINTS_MAX + 2];
};

/* Past lookups of each row, piece by piece. */
struct past {
    const struct access_cdf *cdf;
    double unit;
    double lookups[ACCESS_CDF_POINTS_MAX];
};

static double rows_before(const struct access_cdf *cdf, uint32_t piece)
{
    return piece > 0 ? cdf->rows[piece - 1] : 0;
}

static double share_before(const struct access_cdf *cdf, uint32_t piece)
{
    return piece > 0 ? cdf->shares[piece - 1] : 0;
}

static double past_unit(const struct past *past)
{
    const double coldest = past->lookups[past->cdf->point_count - 1];

    for (uint32_t i = past->cdf->point_count - 1; i-- > 0;)
        if (past->lookups[i] > coldest * (1 + CLASS_ROUNDING))
            return unit_of(coldest, past->lookups[i]);
    return unit_of(coldest, 0);
}

static struct past past_of(const struct access_cdf *cdf, double lookups)
{
    struct past past = { .cdf = cdf };

    for (uint32_t i = 0; i < cdf->point_count; i++)
        past.lookups[i] = MAX((cdf->shares[i] - share_before(cdf, i)) * lookups /
                                  (cdf->rows[i] - rows_before(cdf, i)),
                              LOOKUPS_MIN);
    past.unit = past_unit(&past);
    return past;
}

static double piece_class(const struct past *past, uint32_t piece)
{
    return class_of(past->lookups[piece], past->unit);
}

/* Returns the first piece of the same class. */
static uint32_t class_begin(const struct past *past, uint32_t piece)
{
    while (piece > 0 && piece_class(past, piece - 1) == piece_class(past, piece))
        piece--;
    return piece;
}

/* The rows of a class, 0 if there are none. */
static double class_rows(const struct past *past, double of_class)
{
    double rows = 0;

    for (uint32_t i = 0; i < past->cdf->point_count; i++)
        if (piece_class(past, i) == of_class)
            rows += past->cdf->rows[i] - rows_before(past->cdf, i);
    return rows;
}

/* The lookups of a row at the end of a piece. */
static double lookups_at(const struct past *past, uint32_t piece)
{
    return sqrt(past->lookups[piece] * past->lookups[piece + 1]);
}

/* Returns how many rows had one lookup more than the row at the end of a piece, or still more. The
 * numbers are taken to follow power laws between the pieces' ends. */
static double rows_above(const struct past *past, uint32_t piece)
{
    const double lookups = lookups_at(past, piece) + past->unit;
    double rows = past->cdf->rows[piece], at = lookups_at(past, piece);

    while (piece-- > 0) {
        const double next = lookups_at(past, piece), next_rows = past->cdf->rows[piece];

        if (next >= lookups && next > at)
            return rows * pow(next_rows / rows, log(lookups / at) / log(next / at));
        rows = next_rows;
        at = next;
    }
    return rows;
}

static double coming_share(const struct past *past, uint32_t piece)
{
    if (piece_class(past, piece) > 0)
        return share_before(past->cdf, class_begin(past, piece));
    return access_cdf_share(past->cdf, rows_above(past, piece));
}

static void add_corner(struct corners *corners, double rows, double share)
{
    corners->rows[corners->count] = rows;
    corners->shares[corners->count++] = share;
}

static double unseen_rows(const struct past *past, double rows)
{
    const double once = class_rows(past, 1), twice = class_rows(past, 2);
    const double seen = past->cdf->rows[past->cdf->point_count - 1];

    if (isfinite(rows))
        return MAX(rows - seen, 0.0);
    return MIN(MAX(twice > 0 ? once * once / (2 * twice) : once, 1.0), UNSEEN_MAX);
}

static struct corners corners_of(const struct past *past, double rows)
{
    const uint32_t last = past->cdf->point_count - 1;
    const double seen = past->cdf->rows[last], unseen = unseen_rows(past, rows);
    const bool has_unseen = rises(seen, seen + unseen) && piece_class(past, last) == 1;
    struct corners corners = { .count = 1 };

    for (uint32_t i = 0; i < last; i++)
        if (piece_class(past, i) == 0 || piece_class(past, i) != piece_class(past, i + 1))
            add_corner(&corners, past->cdf->rows[i], coming_share(past, i));
    add_corner(&corners, seen, has_unseen ? coming_share(past, last) : 1);
    if (has_unseen)
        add_corner(&corners, seen + unseen, 1);
    return corners;
}

/* Leaves out the corners below the least concave curve above them. Rows of a sample come in the
 * wrong order by chance. The mean of neighbours is then the best guess (isotonic regression). */
static void make_concave(struct corners *corners)
{
    double *const xs = corners->rows, *const ys = corners->shares;
    uint32_t kept = 0;

    for (uint32_t i = 0; i < corners->count; i++) {
        while (kept > 1 && (ys[kept - 1] - ys[kept - 2]) * (xs[i] - xs[kept - 2]) <=
                               (ys[i] - ys[kept - 2]) * (xs[kept - 1] - xs[kept - 2]))
            kept--;
        xs[kept] = xs[i];
        ys[kept++] = ys[i];
    }
    corners->count = kept;
}

void access_cdf_make_coming(const struct access_cdf *past_cdf, double lookups, double rows,
                            struct access_cdf *ret_coming)
{
    const uint32_t count = past_cdf->point_count;
    struct corners corners;
    struct past past;
    double last_rows;

    *ret_coming = *past_cdf;
    if (count == 0 || lookups <= 0)
        return;
    past = past_of(past_cdf, lookups);
    corners = corners_of(&past, rows);
    make_concave(&corners);
    last_rows = corners.rows[corners.count - 1];
    ret_coming->point_count = 0;
    for (uint32_t i = 0; i < count; i++)
        if (count < ACCESS_CDF_POINTS_MAX || i != count / 2)
            add_point(ret_coming, past_cdf->rows[i],
                      interpolate(corners.rows, corners.shares, corners.count, past_cdf->rows[i]));
    if (rises(past_cdf->rows[count - 1], last_rows))
        add_point(ret_coming, last_rows, 1);
    else
        ret_coming->shares[ret_coming->point_count - 1] = 1;
}
