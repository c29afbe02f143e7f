/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/profile/hot_reuse.h"

#include <math.h>
#include <stdlib.h>

#define ROUNDS 60   /* of fitting */
#define CLOSE  1e-4 /* sums of pieces that differ by less are fitted */
#define TINY   1e-30

void hot_reuse_free(struct hot_reuse *hot)
{
    if (!hot)
        return;
    free(hot->bins);
    free(hot->left);
    free(hot);
}

/* ---- Fitting ---- */

/* Rows of the matrix are bins or segments, columns are pieces. */
struct fit {
    uint32_t row_count, column_count;
    float *cells; /* likelihoods; in the end shares of the row */
    double row_sums[TIME_HISTOGRAM_BINS], column_sums[ACCESS_CDF_POINTS_MAX];
    double scales[ACCESS_CDF_POINTS_MAX]; /* of the columns */
};

static float *row_of(const struct fit *fit, uint32_t row)
{
    return fit->cells + (size_t)row * fit->column_count;
}

/* Both sums have the same total, whatever sampling has made of them. */
static void balance(struct fit *fit)
{
    double rows = 0, columns = 0;

    for (uint32_t i = 0; i < fit->row_count; i++)
        rows += fit->row_sums[i];
    for (uint32_t k = 0; k < fit->column_count; k++)
        columns += fit->column_sums[k];
    for (uint32_t k = 0; k < fit->column_count; k++)
        fit->column_sums[k] =
            columns > 0 ? fit->column_sums[k] * (rows / columns) : rows / fit->column_count;
}

/* Returns the sum of a row with scaled columns. */
static double scaled_sum(const struct fit *fit, uint32_t row)
{
    double sum = 0;

    for (uint32_t k = 0; k < fit->column_count; k++)
        sum += (double)row_of(fit, row)[k] * fit->scales[k];
    return sum;
}

/* Scales the columns once. Returns how far they were off, as a share of all. */
static double fit_once(struct fit *fit)
{
    double sums[ACCESS_CDF_POINTS_MAX] = { 0 }, off = 0, all = 0;

    for (uint32_t i = 0; i < fit->row_count; i++) {
        const double scale = fit->row_sums[i] / MAX(scaled_sum(fit, i), TINY);

        for (uint32_t k = 0; k < fit->column_count; k++)
            sums[k] += (double)row_of(fit, i)[k] * fit->scales[k] * scale;
    }
    for (uint32_t k = 0; k < fit->column_count; k++) {
        off += fabs(sums[k] - fit->column_sums[k]);
        all += fit->column_sums[k];
        if (sums[k] > 0)
            fit->scales[k] = MIN(fit->scales[k] * (fit->column_sums[k] / sums[k]), 1 / TINY);
    }
    return off / MAX(all, TINY);
}

/* Makes the cells shares of their rows, whose sums over pieces are those of the columns. */
static void fit_cells(struct fit *fit)
{
    balance(fit);
    for (uint32_t k = 0; k < fit->column_count; k++)
        fit->scales[k] = 1;
    for (uint32_t i = 0; i < ROUNDS && fit_once(fit) > CLOSE; i++)
        continue;
    for (uint32_t i = 0; i < fit->row_count; i++) {
        const double sum = MAX(scaled_sum(fit, i), TINY);

        for (uint32_t k = 0; k < fit->column_count; k++)
            row_of(fit, i)[k] = (float)((double)row_of(fit, i)[k] * fit->scales[k] / sum);
    }
}

/* ---- Pieces of the CDF ---- */

struct pieces {
    double rows[ACCESS_CDF_POINTS_MAX];
    double lookups[ACCESS_CDF_POINTS_MAX]; /* of each row */
    double rates[ACCESS_CDF_POINTS_MAX];   /* the same, of all lookups of all tables */
    double firsts[ACCESS_CDF_POINTS_MAX];  /* first lookups of all rows */
};

/* Returns the other lookups of a piece. */
static double reuses(const struct pieces *pieces, uint32_t piece)
{
    return MAX(pieces->rows[piece] * pieces->lookups[piece] - pieces->firsts[piece], 0.0);
}

/* Keeps every so many-th point, and the last two: of coming lookups these are all rows that were
 * seen, and all rows. */
static void thin(const struct access_cdf *from, uint32_t points, struct access_cdf *ret_cdf)
{
    const uint32_t count = MIN(from->point_count, points);

    ret_cdf->point_count = count;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t at =
            i + 1 < count
                ? (uint32_t)((uint64_t)(i + 1) * (from->point_count - 1) / (count - 1)) - 1
                : from->point_count - 1;

        ret_cdf->rows[i] = from->rows[at];
        ret_cdf->shares[i] = from->shares[at];
    }
}

/* A row has one first lookup in a trace. In a steady profile these are the lookups after a time
 * longer than the trace, which come at random as all others do. */
static void fill_firsts(const struct measured_profile *measured, uint32_t table, uint32_t count,
                        struct pieces *pieces)
{
    double measured_sum = 0, sum = 0;

    for (uint32_t i = 0; i < measured->segment_count; i++)
        measured_sum += measured->tables[table].first[i];
    for (uint32_t k = 0; k < count; k++) {
        pieces->firsts[k] = pieces->rows[k] * pieces->lookups[k] *
                            exp(-pieces->rates[k] * (double)measured->lookups);
        sum += pieces->firsts[k];
    }
    for (uint32_t k = 0; k < count; k++)
        pieces->firsts[k] = !measured->is_steady
                                ? pieces->rows[k]
                                : MIN(pieces->firsts[k] * measured_sum / MAX(sum, TINY),
                                      pieces->rows[k] * pieces->lookups[k]);
}

static void cut(const struct measured_profile *measured, uint32_t table,
                const struct access_cdf *cdf, struct pieces *ret_pieces)
{
    const double lookups = (double)measured->tables[table].summary.lookups;

    for (uint32_t i = 0; i < cdf->point_count; i++) {
        const double rows = cdf->rows[i] - (i > 0 ? cdf->rows[i - 1] : 0);
        const double share = cdf->shares[i] - (i > 0 ? cdf->shares[i - 1] : 0);

        ret_pieces->rows[i] = rows;
        ret_pieces->lookups[i] = share * lookups / rows;
        ret_pieces->rates[i] =
            MIN(ret_pieces->lookups[i] / MAX((double)measured->lookups, 1.0), 1.0);
    }
    fill_firsts(measured, table, cdf->point_count, ret_pieces);
}

/* ---- Times ---- */

static double mean_time(uint32_t bin)
{
    return ((double)time_histogram_begin(bin) + (double)time_histogram_begin(bin + 1) - 1) / 2;
}

/* Fills in how likely each piece is to have a time. Only the likelihoods of one time are compared,
 * so that the greatest exponent is taken off. */
static void fill_time(const struct pieces *pieces, double time, uint32_t count, float *cells)
{
    double most = -INFINITY;

    for (uint32_t k = 0; k < count; k++)
        most = MAX(most, -pieces->rates[k] * time);
    for (uint32_t k = 0; k < count; k++)
        cells[k] = (float)MAX(
            exp(-pieces->rates[k] * time - most) * pieces->rates[k] * reuses(pieces, k), TINY);
}

/* Lists the bins that any segment has. */
static enum embtier_err list_bins(const struct measured_table *table, struct hot_reuse *hot,
                                  double *ret_sums)
{
    double sums[TIME_HISTOGRAM_BINS] = { 0 };

    for (uint32_t i = 0; i < table->bin_count; i++) {
        hot->bin_count += sums[table->bins[i].bin] == 0 && table->bins[i].lookups > 0;
        sums[table->bins[i].bin] += table->bins[i].lookups;
    }
    hot->bins = calloc(MAX(hot->bin_count, 1u), sizeof(*hot->bins));
    if (!hot->bins)
        return EMBTIER_NO_MEMORY;
    hot->bin_count = 0;
    for (uint32_t bin = 0; bin < TIME_HISTOGRAM_BINS; bin++)
        if (sums[bin] > 0) {
            ret_sums[hot->bin_count] = sums[bin];
            hot->bins[hot->bin_count++] = (uint16_t)bin;
        }
    return EMBTIER_OK;
}

/* Turns shares of pieces into what is left behind each point. */
static void add_up_times(const struct fit *fit, struct hot_reuse *hot)
{
    for (uint32_t i = 0; i < fit->row_count; i++) {
        double left = 1;

        hot->left[i] = 1;
        for (uint32_t k = 0; k < fit->column_count; k++) {
            left -= row_of(fit, i)[k];
            hot->left[(size_t)(k + 1) * fit->row_count + i] =
                k + 1 < fit->column_count ? (float)MAX(left, 0.0) : 0;
        }
    }
}

static enum embtier_err divide_times(const struct measured_table *table,
                                     const struct pieces *pieces, struct fit *fit,
                                     struct hot_reuse *hot)
{
    TRY(list_bins(table, hot, fit->row_sums));
    fit->row_count = hot->bin_count;
    fit->cells = calloc((size_t)MAX(fit->row_count, REUSE_SEGMENTS_MAX) * fit->column_count + 1,
                        sizeof(*fit->cells));
    hot->left = calloc((size_t)fit->row_count * (fit->column_count + 1) + 1, sizeof(*hot->left));
    if (!fit->cells || !hot->left)
        return EMBTIER_NO_MEMORY;
    for (uint32_t i = 0; i < fit->row_count; i++)
        fill_time(pieces, mean_time(hot->bins[i]), fit->column_count, row_of(fit, i));
    for (uint32_t k = 0; k < fit->column_count; k++)
        fit->column_sums[k] = reuses(pieces, k);
    fit_cells(fit);
    add_up_times(fit, hot);
    return EMBTIER_OK;
}

/* ---- First lookups, and rows of a batch ---- */

/* Returns how likely a piece is to have the first lookups of a segment. */
static double first_weight(const struct measured_profile *measured, const struct pieces *pieces,
                           uint32_t piece, uint32_t segment)
{
    const double time = pieces->rates[piece] * (double)measured->segment_length;

    return measured->is_steady
               ? pieces->firsts[piece]
               : pieces->rows[piece] * (exp(-time * segment) - exp(-time * (segment + 1.0)));
}

static void divide_firsts(const struct measured_profile *measured, uint32_t table,
                          const struct pieces *pieces, struct fit *fit, struct hot_reuse *hot)
{
    fit->row_count = measured->segment_count;
    for (uint32_t i = 0; i < fit->row_count; i++) {
        fit->row_sums[i] = measured->tables[table].first[i];
        for (uint32_t k = 0; k < fit->column_count; k++)
            row_of(fit, i)[k] = (float)MAX(first_weight(measured, pieces, k, i), TINY);
    }
    for (uint32_t k = 0; k < fit->column_count; k++)
        fit->column_sums[k] = pieces->firsts[k];
    fit_cells(fit);
    for (uint32_t i = 0; i < fit->row_count; i++) {
        double left = 1;

        hot->left_firsts[0][i] = 1;
        for (uint32_t k = 0; k < fit->column_count; k++) {
            left -= row_of(fit, i)[k];
            hot->left_firsts[k + 1][i] = k + 1 < fit->column_count ? MAX(left, 0.0) : 0;
        }
    }
}

/* A row with d lookups in n batches is in one of them with a chance of 1 - e^(-d/n). */
static void divide_batch_rows(const struct measured_profile *measured, const struct pieces *pieces,
                              struct hot_reuse *hot)
{
    const double batches = (double)MAX(measured->batches, UINT64_C(1));
    const uint32_t count = hot->cdf.point_count;
    double sum = 0;

    hot->left_batch_rows[0] = 0;
    for (uint32_t k = 0; k < count; k++) {
        sum += pieces->rows[k] * -expm1(-pieces->lookups[k] / batches);
        hot->left_batch_rows[k + 1] = sum;
    }
    for (uint32_t k = 0; k <= count; k++)
        hot->left_batch_rows[k] = sum > 0 ? 1 - hot->left_batch_rows[k] / sum : 0;
}

/* ---- All ---- */

static void free_fit(struct fit **fit)
{
    if (*fit)
        free((*fit)->cells);
    free(*fit);
}

enum embtier_err hot_reuse_new(const struct measured_profile *measured, uint32_t table,
                               uint32_t points, struct hot_reuse **ret_hot)
{
    _cleanup_(hot_reuse_freep) struct hot_reuse *hot = calloc(1, sizeof(*hot));
    _cleanup_(free_fit) struct fit *fit = calloc(1, sizeof(*fit));
    struct pieces pieces = { 0 };

    if (!hot || !fit)
        return EMBTIER_NO_MEMORY;
    thin(&measured->tables[table].cdf, points, &hot->cdf);
    cut(measured, table, &hot->cdf, &pieces);
    fit->column_count = hot->cdf.point_count;
    if (fit->column_count > 0) {
        TRY(divide_times(&measured->tables[table], &pieces, fit, hot));
        divide_firsts(measured, table, &pieces, fit, hot);
        divide_batch_rows(measured, &pieces, hot);
    }
    *ret_hot = TAKE(hot);
    return EMBTIER_OK;
}

/* Finds the piece that ends the @rows hottest rows, and the share of it that is among them. */
static uint32_t find_piece(const struct access_cdf *cdf, double rows, double *ret_share)
{
    uint32_t piece = 0;
    double first;

    while (piece + 1 < cdf->point_count && rows > cdf->rows[piece])
        piece++;
    first = piece > 0 ? cdf->rows[piece - 1] : 0;
    *ret_share = MAX(0.0, MIN(1.0, (rows - first) / (cdf->rows[piece] - first)));
    return piece;
}

static double between(double before, double after, double share)
{
    return before + (after - before) * share;
}

void hot_reuse_left(const struct hot_reuse *hot, double rows, struct reuse_left *ret_left)
{
    double share;
    uint32_t piece;

    for (uint32_t i = 0; i < TIME_HISTOGRAM_BINS; i++)
        ret_left->bins[i] = 1;
    for (uint32_t i = 0; i < REUSE_SEGMENTS_MAX; i++)
        ret_left->firsts[i] = 1;
    ret_left->lookups = ret_left->batch_rows = 1;
    if (hot->cdf.point_count == 0 || rows <= 0)
        return;
    piece = find_piece(&hot->cdf, rows, &share);
    ret_left->lookups = MAX(1 - access_cdf_share(&hot->cdf, rows), 0.0);
    ret_left->batch_rows =
        between(hot->left_batch_rows[piece], hot->left_batch_rows[piece + 1], share);
    for (uint32_t i = 0; i < hot->bin_count; i++)
        ret_left->bins[hot->bins[i]] =
            between(hot->left[(size_t)piece * hot->bin_count + i],
                    hot->left[(size_t)(piece + 1) * hot->bin_count + i], share);
    for (uint32_t i = 0; i < REUSE_SEGMENTS_MAX; i++)
        ret_left->firsts[i] =
            between(hot->left_firsts[piece][i], hot->left_firsts[piece + 1][i], share);
}
