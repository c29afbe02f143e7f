/* SPDX-License-Identifier: Apache-2.0 */
/* predict.h: the hit rates of an LRU cache that tables share. Pure values. */
#ifndef EMBTIER_PLACEMENT_PROFILE_PREDICT_H
#define EMBTIER_PLACEMENT_PROFILE_PREDICT_H

#include "base/err.h"
#include "placement/profile/reuse_times.h"

/* Tiers of a cache, the fastest first. A row is in one of them only, comes into the first one when
 * it is looked up, and moves down by age. */
#define CACHE_TIERS_MAX 4

struct cache_tiers {
    uint32_t count;
    double bytes[CACHE_TIERS_MAX];
};

/* A table's part in a shared cache. */
struct table_prediction {
    double hit_rates[CACHE_TIERS_MAX]; /* share of the table's lookups that each tier serves */
    double bytes[CACHE_TIERS_MAX];     /* what the table has of each tier, mean over the trace */
};

/* Tables whose reuse times are made when they are asked for, since they are large. All have the
 * same segments. */
struct reuse_source {
    uint32_t table_count;
    void (*get)(const void *context, uint32_t table, struct reuse_times *ret_times);
    const void *context;
};

/* Predicts a cache that some of the tables share, as it starts empty and sees this trace. Rows of
 * table i take @row_bytes[i] in it; 0: the table is not in the cache. @ret_tables has one element
 * per table. INVALID: a number is negative or not finite, or there are no or too many tiers. */
MUST_CHECK enum embtier_err predict_shared_cache(const struct reuse_source *source,
                                                 const double *row_bytes,
                                                 const struct cache_tiers *tiers,
                                                 struct table_prediction *ret_tables,
                                                 struct err_msg *msg);

/* The two halves of that, for a caller that asks for some tables only. Returns the ages at which
 * rows leave each tier. @scratch: two elements. */
MUST_CHECK enum embtier_err predict_cache_ages(const struct reuse_source *source,
                                               const double *row_bytes,
                                               const struct cache_tiers *tiers,
                                               struct reuse_times *scratch,
                                               struct reuse_ages *ret_ages, struct err_msg *msg);
/* Returns the part of a table with these reuse times in a cache with @ages, which has @tier_count
 * elements. */
void predict_cached_table(const struct reuse_times *times, double row_bytes,
                          const struct reuse_ages *ages, uint32_t tier_count,
                          struct table_prediction *ret_table);

#endif
