/* SPDX-License-Identifier: Apache-2.0 */
/* locality.h: traces in which rows are used as often within a batch as in those that Meta
 * described.
 *
 * Meta published embedding-lookup traces with histograms of how often a row is used within one
 * batch (github.com/facebookresearch/dlrm_datasets). The traces are large, so only the histograms
 * are here, and a model is fitted to them: a row has a fixed rate, its mean number of uses in a
 * batch of the published size, and its uses are Poisson. The rates are a mixture of classes a
 * factor of 1.41 apart, fitted by expectation maximisation (Dempster, Laird and Rubin, 1977).
 * Smaller batches have fewer uses of a row in proportion, and hot rows stay hot from batch to
 * batch.
 *
 * The histograms say nothing of rows that a batch does not use, so rows beyond the model's are
 * never looked up. Thread: any. */
#ifndef EMBTIER_PLACEMENT_SYNTHETIC_LOCALITY_H
#define EMBTIER_PLACEMENT_SYNTHETIC_LOCALITY_H

#include "placement/random.h"

/* Bin 0 is one use, bin i is 2^(i - 1) + 1 to 2^i uses, and the last one all above 32768. */
#define LOCALITY_BINS    17
#define LOCALITY_CLASSES 36

/* A published histogram, and what the papers say of its tables. */
struct locality_published {
    const char *name;
    const char *file;  /* as published, in tests/data */
    const char *block; /* of the file */
    uint32_t table_count;
    uint32_t batch_bags;
    double lookups; /* of all tables in one batch */
    double rows;    /* different ones */
    double row_shares[LOCALITY_BINS];
    double lookup_shares[LOCALITY_BINS];
    double mean_table_rows;
    double mean_pooling_factor;
    double pooling_factor_max;
};

#define LOCALITY_PUBLISHED_COUNT 2
extern const struct locality_published locality_published[LOCALITY_PUBLISHED_COUNT];

struct locality {
    uint32_t batch_bags;
    double rates[LOCALITY_CLASSES]; /* mean uses of a row in a batch of @batch_bags bags */
    double rows[LOCALITY_CLASSES];  /* rows for each lookup of such a batch */
};

/* Rows of one table. */
struct locality_table {
    uint64_t ends[LOCALITY_CLASSES]; /* number of rows up to the end of a class */
    double shares[LOCALITY_CLASSES]; /* of the lookups, up to the end of a class */
};

uint32_t locality_bin(uint64_t uses); /* @uses: 1 or more */
struct locality locality_fit(const struct locality_published *published);
/* Makes a table of at most @rows rows. @random rounds the number of rows of a class. */
struct locality_table locality_table_make(const struct locality *locality, uint64_t rows,
                                          double pooling_factor, struct random *random);
/* Returns a row, from 0 on; those of a class lie side by side. */
uint64_t locality_draw(const struct locality_table *table, struct random *random);

#endif
