/* SPDX-License-Identifier: Apache-2.0 */
/* profile.h: measures the lookups of all tables of a run in bounded memory, and predicts what a
 * cache that they share would hit. Thread: one. */
#ifndef EMBTIER_PLACEMENT_PROFILE_PROFILE_H
#define EMBTIER_PLACEMENT_PROFILE_PROFILE_H

#include "placement/profile/predict.h"
#include "placement/profile/table_profile.h"
#include "placement/trace/trace_format.h"

#define PROFILE_TABLES_MAX TRACE_TABLES_MAX
/* Enough for 1 MiB for each of 1,000 tables, and for the least for as many as are allowed. */
#define PROFILE_MEMORY_BYTES_DEFAULT GIB
/* The hash that samples the rows of table i has this seed times i + 1. */
#define PROFILE_SEED UINT64_C(0x9e3779b97f4a7c15)

struct profile;

/* The tables get equal parts of @memory_bytes, 1 MiB at most. Memory is taken as rows come. No
 * estimate is above a table's rows; @tables is used for that, and not kept. INVALID: the number of
 * tables is not 1 to PROFILE_TABLES_MAX. TOO_LARGE: the parts would be too small. */
MUST_CHECK enum embtier_err profile_new(const struct trace_table *tables, uint32_t table_count,
                                        uint64_t memory_bytes, struct profile **ret_profile,
                                        struct err_msg *msg);
void profile_free(struct profile *profile);
DEFINE_CLEANUP(struct profile, profile_free)

/* Counts lookups, in the order of their time. NO_MEMORY: the profile is of no use any more. */
MUST_CHECK enum embtier_err profile_add(struct profile *profile,
                                        const struct trace_lookups *lookups);

/* ---- For a server, in the place of profile_add() ---- */

/* Returns a table's profile, to which the caller adds what was sampled. */
struct table_profile *profile_table(struct profile *profile, uint32_t table);
/* Counts that are exact, from the beginning on. */
struct profile_counts {
    uint64_t lookups;
    uint64_t bags;
    uint64_t batches;
    uint64_t updated_rows; /* different ones of each batch, all batches together */
};
void profile_set_counts(struct profile *profile, uint32_t table,
                        const struct profile_counts *counts);
/* @time: of the last lookup of all tables; at least that of every lookup that was added. */
void profile_set_end(struct profile *profile, uint64_t time, uint64_t batches);

/* ---- Results ---- */

uint32_t profile_table_count(const struct profile *profile);
uint64_t profile_lookups(const struct profile *profile); /* of all tables */
uint64_t profile_batches(const struct profile *profile);
/* Return figures of one table, below profile_table_count(). */
struct table_summary profile_summary(const struct profile *profile, uint32_t table);
double profile_pooling_factor(const struct profile *profile, uint32_t table); /* 0: no bags */
void profile_reuse(const struct profile *profile, uint32_t table, struct reuse_times *ret_times);
MUST_CHECK enum embtier_err profile_cdf(const struct profile *profile, uint32_t table,
                                        struct access_cdf *ret_cdf);

/* As predict_shared_cache(). */
MUST_CHECK enum embtier_err profile_predict(const struct profile *profile, const double *row_bytes,
                                            const struct cache_tiers *tiers,
                                            struct table_prediction *ret_tables,
                                            struct err_msg *msg);

#endif
