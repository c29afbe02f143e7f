/* SPDX-License-Identifier: Apache-2.0 */
/* table_profile.h: measures the lookups of one table in bounded memory.
 *
 * Rows are sampled by their hash: Waldspurger et al., "Efficient MRC Construction with SHARDS",
 * USENIX FAST 2015, section 4, with a fixed number of rows. All rows are sampled until that is used
 * up, so a small table is measured exactly. Then the rate falls, and a sampled lookup counts for as
 * many as the rate says.
 *
 * A few rows with many lookups would then be counted many times or not at all. So from there on
 * rows that a random lookup picks are held, and their lookups are counted exactly, as long as they
 * are among the hottest: Gibbons and Matias, "New Sampling-Based Summary Statistics for Improving
 * Approximate Query Answers", SIGMOD 1998, section 3 (counting samples). A lookup belongs either to
 * the held rows or to the sampled ones. As no hash decides which rows are held, neither part is
 * biased.
 *
 * A table is measured in one of two ways. table_profile_add() sees all lookups, of a trace. Or a
 * server's lanes sample, and rows are known by their hashes: table_profile_add_sample() then gets
 * the lookups of sampled rows, table_profile_add_pick() random ones. A held row is counted by these
 * alone, each of which stands for many. If its lookups come at random, the times between random
 * ones of them are spread as those between all, only longer (thinning of a Poisson process).
 *
 * Same lookups, same result. Thread: one. */
#ifndef EMBTIER_PLACEMENT_PROFILE_TABLE_PROFILE_H
#define EMBTIER_PLACEMENT_PROFILE_TABLE_PROFILE_H

#include "placement/profile/access_cdf.h"
#include "placement/profile/reuse_times.h"
#include "placement/profile/tracked_rows.h"

/* A table's slots, at most: with them its memory is below 1 MiB. */
#define TABLE_PROFILE_SLOTS_MAX 32768
#define TABLE_PROFILE_SLOTS_MIN 1024

/* Lookups within one part of the trace. */
struct profile_segment {
    double first; /* sampled, each with its weight */
    struct time_histogram sampled_reuse;
    struct time_histogram held_reuse;
};

struct table_profile {
    struct tracked_rows sampled;
    struct tracked_rows held;
    uint64_t rows_max;  /* of the table; UINT64_MAX: unbounded */
    uint64_t threshold; /* a row whose hash is at most this is sampled */
    uint64_t random;
    uint64_t hold_interval;           /* lookups per row that is picked to be held */
    uint64_t hold_in;                 /* lookups */
    struct profile_segment *segments; /* made with the first lookup */
    uint32_t segment_count;           /* a power of two */
    uint64_t segment_length;          /* in time; doubles when the segments do not suffice */
    double batch_rows;
    double updated_batch_rows;
    uint64_t lookups;
    uint64_t held_lookups;
    uint64_t batches; /* that looked up this table */
    uint64_t last_batch;
    uint32_t batch;        /* the current one, as a row keeps it */
    bool has_hashes;       /* rows are known by their hashes */
    uint32_t pick_lookups; /* that a random lookup stood for, at most */
};

/* The figures that are not curves. */
struct table_summary {
    uint64_t lookups;
    uint64_t batches;
    double rows;               /* different ones looked up */
    double batch_rows;         /* different ones in a batch, mean over @batches */
    double updated_batch_rows; /* those of them that the batch updates, mean */
    double sampling_rate;      /* of rows, 0 to 1 */
};

/* When lookups happen. */
struct table_moment {
    uint64_t time;  /* of the first one; 1 for the first of all tables */
    uint64_t batch; /* a number that rises from batch to batch */
    bool is_update;
};

/* Returns how many segments a table has with this many slots. */
uint32_t table_profile_segments(uint32_t slots);
/* Returns the most bytes that a table takes with this many slots; while it drops rows, it takes as
 * much again for a moment. */
uint64_t table_profile_bytes(uint32_t slots);
/* @slots: a power of two, within the limits above. @rows: of the table; 0: unbounded. */
void table_profile_init(struct table_profile *profile, uint32_t slots, uint64_t rows,
                        uint64_t seed);
void table_profile_clear(struct table_profile *profile);
/* Counts lookups, one after the other. NO_MEMORY: the profile is of no use any more. */
MUST_CHECK enum embtier_err table_profile_add(struct table_profile *profile, const uint64_t *ids,
                                              uint32_t count, const struct table_moment *moment);

/* ---- For a server, in the place of table_profile_add() ---- */

/* Lookups of a sampled row, close together, within one batch. */
struct table_sample {
    uint64_t hash;
    uint64_t first_time;
    uint64_t last_time;
    uint32_t lookups; /* 1 or more; those between first and last come evenly spread */
    uint32_t batch;
};
/* To be called first. From then on a row is sampled if its hash is at most the threshold. @rows: of
 * the table; 0: unbounded. */
void table_profile_use_hashes(struct table_profile *profile, uint64_t rows);
/* Counts them, unless the row is not sampled any more. NO_MEMORY: the profile is of no use. */
MUST_CHECK enum embtier_err table_profile_add_sample(struct table_profile *profile,
                                                     const struct table_sample *sample);
/* Counts a random lookup that stands for @lookups. To be left out while all rows are sampled. */
MUST_CHECK enum embtier_err table_profile_add_pick(struct table_profile *profile, uint64_t hash,
                                                   uint64_t time, uint32_t lookups);
/* Lowers the threshold, and drops the rows above. */
MUST_CHECK enum embtier_err table_profile_thin(struct table_profile *profile, uint64_t threshold);
/* Sets what lanes count exactly. @updated_rows: by all batches, each counted with its batch. */
void table_profile_set_counts(struct table_profile *profile, uint64_t lookups, uint64_t batches,
                              uint64_t updated_rows);

/* ---- Results ---- */

struct table_summary table_profile_summary(const struct table_profile *profile);
/* @end_time: the number of lookups of all tables. Tables of the same number of slots get the same
 * segments. */
void table_profile_reuse(const struct table_profile *profile, uint64_t end_time,
                         struct reuse_times *ret_times);
MUST_CHECK enum embtier_err table_profile_cdf(const struct table_profile *profile,
                                              struct access_cdf *ret_cdf);

#endif
