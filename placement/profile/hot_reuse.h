/* SPDX-License-Identifier: Apache-2.0 */
/* hot_reuse.h: the lookups of a table that are left for a cache when its hottest rows lie
 * elsewhere.
 *
 * A profile knows how hot a table's rows are (access_cdf.h), and after which times lookups come
 * back (reuse_times.h), but not which row a time belongs to. Rows that are looked up at random
 * come back after times that are spread exponentially: hot rows after short times, cold rows after
 * long ones. That says how likely a lookup of a given time is to be one of a piece of the CDF. The
 * likelihoods are then scaled until each time has the lookups that were measured, and each piece
 * those of the CDF (iterative proportional fitting). First lookups are divided alike, by segment.
 *
 * So what is left of a time is never negative, and never grows when more rows are taken out. Rows
 * within a piece are alike: between two points of the CDF all figures are linear. Thread: any. */
#ifndef EMBTIER_PLACEMENT_PROFILE_HOT_REUSE_H
#define EMBTIER_PLACEMENT_PROFILE_HOT_REUSE_H

#include "placement/profile/measured_profile.h"

/* A value at each point of the CDF, and before them one for no rows at all. */
#define HOT_REUSE_VALUES_MAX (ACCESS_CDF_POINTS_MAX + 1)

struct hot_reuse {
    struct access_cdf cdf; /* of the table, with fewer points */
    uint32_t bin_count;
    uint16_t *bins; /* of times that lookups have */
    /* By point, 0 for no rows taken out: the share that is left of each bin, of each segment's
     * first lookups, and of the rows that a batch looks up. */
    float *left; /* (cdf.point_count + 1) * bin_count */
    double left_firsts[HOT_REUSE_VALUES_MAX][REUSE_SEGMENTS_MAX];
    double left_batch_rows[HOT_REUSE_VALUES_MAX];
};

/* @points: of the CDF, at most; at least 1. NO_MEMORY. */
MUST_CHECK enum embtier_err hot_reuse_new(const struct measured_profile *measured, uint32_t table,
                                          uint32_t points, struct hot_reuse **ret_hot);
void hot_reuse_free(struct hot_reuse *hot);
DEFINE_CLEANUP(struct hot_reuse, hot_reuse_free)

/* Returns what is left without the @rows hottest rows. */
void hot_reuse_left(const struct hot_reuse *hot, double rows, struct reuse_left *ret_left);

#endif
