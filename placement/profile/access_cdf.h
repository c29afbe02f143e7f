/* SPDX-License-Identifier: Apache-2.0 */
/* access_cdf.h: the share of a table's lookups that its hottest rows take: SCRec, section III-B,
 * with at most 100 points. Linear between the points; (0, 0) is one too. The curve is concave, as
 * rows are sorted by hotness. Pure values.
 *
 * A curve of past lookups promises too much of coming ones. Rows that chance favoured are among the
 * hottest, and rows without a lookup are missing. Lookups at random correct this: Good, "The
 * Population Frequencies of Species and the Estimation of Population Parameters", Biometrika 40,
 * 1953. Rows that had k lookups or more will take the share that rows with k + 1 or more have had:
 * the sum of equation 8 over all counts from k on. */
#ifndef EMBTIER_PLACEMENT_PROFILE_ACCESS_CDF_H
#define EMBTIER_PLACEMENT_PROFILE_ACCESS_CDF_H

#include <stdint.h>

#define ACCESS_CDF_POINTS_MAX 100

struct access_cdf {
    uint32_t point_count;                 /* 0: no lookups */
    double rows[ACCESS_CDF_POINTS_MAX];   /* of hottest rows; rises; the last one: all seen, and
                                             of coming lookups also those that were not */
    double shares[ACCESS_CDF_POINTS_MAX]; /* of the lookups; never falls; the last is 1 */
};

/* Rows that were looked up equally often. */
struct access_group {
    double rows;
    double lookups; /* of each row */
};

/* Makes the curve of @count groups, and sorts them by lookups, the greatest first. */
void access_cdf_make(struct access_group *groups, uint32_t count, struct access_cdf *ret_cdf);
/* Returns the share of lookups that the @rows hottest rows take, 0 to 1. */
double access_cdf_share(const struct access_cdf *cdf, double rows);
/* The inverse: returns the least number of hottest rows that take this share, 0 to 1. */
double access_cdf_rows(const struct access_cdf *cdf, double share);
/* Makes the curve of coming lookups from that of @lookups past ones, in which rows are sorted by
 * past hotness. Rows without a past lookup come last. @rows: of the table; INFINITY: unbounded,
 * with as many unseen rows as Chao's bound says (Scandinavian J. of Statistics 11, 1984). There
 * are none if no row was seen once only. */
void access_cdf_make_coming(const struct access_cdf *past, double lookups, double rows,
                            struct access_cdf *ret_coming);

#endif
