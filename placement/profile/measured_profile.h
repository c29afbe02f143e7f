/* SPDX-License-Identifier: Apache-2.0 */
/* measured_profile.h: the results of a profile: what a plan needs, and a file keeps
 * (profile_file.h). A table takes some tens of KiB, 94 at most. Thread: one. */
#ifndef EMBTIER_PLACEMENT_PROFILE_MEASURED_PROFILE_H
#define EMBTIER_PLACEMENT_PROFILE_MEASURED_PROFILE_H

#include <stdbool.h>

#include "placement/profile/profile.h"

/* Lookups of one segment whose reuse times lie in one bin of a time_histogram. */
struct measured_bin {
    uint16_t segment;
    uint16_t bin;
    float lookups;
};

struct measured_table {
    struct trace_table table;
    bool has_optimizer;               /* a trace does not say which */
    enum embtier_optimizer optimizer; /* without, it is none */
    struct table_summary summary;
    double pooling_factor; /* 0: no bags */
    struct access_cdf cdf;
    double first[REUSE_SEGMENTS_MAX]; /* first lookups of rows, by segment */
    uint32_t bin_count;
    struct measured_bin *bins; /* by segment, then bin */
};

struct measured_profile {
    bool is_steady; /* of lookups that go on and on (steady.h), not of a trace from its beginning */
    uint64_t lookups; /* of all tables */
    uint64_t batches;
    uint64_t segment_length;
    uint32_t segment_count;
    uint32_t table_count;
    struct measured_table *tables;
};

/* @tables: of the trace, as many as the profile has; copied. */
MUST_CHECK enum embtier_err measured_profile_make(const struct profile *profile,
                                                  const struct trace_table *tables,
                                                  struct measured_profile **ret_measured);
/* The same of @count tables, which are numbers @which of @profile. @tables[i] describes which[i].
 */
MUST_CHECK enum embtier_err measured_profile_make_some(const struct profile *profile,
                                                       const struct trace_table *tables,
                                                       const uint32_t *which, uint32_t count,
                                                       struct measured_profile **ret_measured);
void measured_profile_free(struct measured_profile *measured);
DEFINE_CLEANUP(struct measured_profile, measured_profile_free)

void measured_profile_reuse(const struct measured_profile *measured, uint32_t table,
                            struct reuse_times *ret_times);

/* The lookups of a table that are left without its hottest rows (hot_reuse.h), as shares. */
struct reuse_left {
    double lookups;                    /* of all */
    double batch_rows;                 /* of the rows that a batch looks up */
    double bins[TIME_HISTOGRAM_BINS];  /* of each bin */
    double firsts[REUSE_SEGMENTS_MAX]; /* of each segment's first lookups */
};

/* The same for the lookups that are left. */
void measured_profile_reuse_left(const struct measured_profile *measured, uint32_t table,
                                 const struct reuse_left *left, struct reuse_times *ret_times);
/* As predict_shared_cache(). */
MUST_CHECK enum embtier_err measured_profile_predict(const struct measured_profile *measured,
                                                     const double *row_bytes,
                                                     const struct cache_tiers *tiers,
                                                     struct table_prediction *ret_tables,
                                                     struct err_msg *msg);

#endif
