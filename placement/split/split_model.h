/* SPDX-License-Identifier: Apache-2.0 */
/* split_model.h: the input of a row-wise placement: tables cut by hotness over levels of memory
 * (SCRec, section III-C, with HBM in the place of BRAM).
 *
 * A table belongs to one GPU. Its rows, sorted by hotness, are cut: the hottest ones lie in the
 * first level, the next ones in the second, and so on. The levels are arrays, the fastest first. At
 * most one level is private (HBM): it has its capacity and bandwidth once for each GPU. A shared
 * one (DRAM, PMEM) has one capacity for all GPUs, and each GPU gets an equal share of its
 * bandwidth. The rows that are left are the rest: the cache over SSD. It has no capacity here, as
 * SSD holds a copy of each row of each level. Without GPUs there is one, the processor, and no
 * private level.
 *
 * A lookup in a level takes lookup_bytes divided by the bandwidth that one GPU gets of it. A lookup
 * in the rest takes as long as the caller says. The lookup time of a GPU is the sum over all
 * lookups of its tables in a batch. The best placement has the least lookup time of the slowest
 * GPU.
 *
 * Numbers come from files, so split_model_check() comes first. All other functions of this folder
 * rely on it. Thread: any. */
#ifndef EMBTIER_PLACEMENT_SPLIT_SPLIT_MODEL_H
#define EMBTIER_PLACEMENT_SPLIT_SPLIT_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/embtier_types.h"
#include "base/err.h"
#include "placement/model/model.h"
#include "placement/profile/access_cdf.h"

#define SPLIT_TABLES_MAX    8192
#define SPLIT_LEVELS_MAX    5
#define SPLIT_ROW_BYTES_MAX (UINT32_C(1) << 20)
/* With remap. 64 bits hold the sum over all tables. */
#define SPLIT_TABLE_BYTES_MAX (UINT64_C(1) << 50)
#define SPLIT_TIME_MAX_S      1e6 /* of all lookups of a table in a batch */

struct split_table {
    const char *name;
    uint64_t rows;         /* EMBTIER_UNBOUNDED: some are always left for the rest */
    double known_rows;     /* of an unbounded one: that may lie in levels; 0: all of the CDF */
    uint32_t row_bytes;    /* weights and optimizer state of a row, in an array */
    uint32_t remap_bytes;  /* for each row in an array, unless the table lies whole in it */
    uint32_t lookup_bytes; /* read for one lookup */
    double bags_per_batch;
    double pooling_factor; /* lookups in a bag, on average */
    bool unsplit;          /* all rows lie in one level, or in the rest */
    /* Hottest rows and their share of the lookups; at most as many as the table has. Without
     * points, there are no lookups. */
    const struct access_cdf *cdf;
    /* Seconds for a lookup in the rest. [0]: all rows are there. [i + 1]: the hottest cdf->rows[i]
     * are not. Between those, the time of all of its lookups is linear in the rows. Has point_count
     * + 1 numbers. */
    const double *rest_lookup_s;
};

/* Rules are those of model.h. A memory is the number of a level; level_count stands for the rest.
 *
 * MODEL_PIN: all rows of @table lie there, on that GPU; MODEL_ANY leaves levels or GPUs open.
 * MODEL_FORBID: on that GPU no row lies there; MODEL_ANY stands for all.
 * MODEL_TOGETHER: the tables belong to the same GPU.
 * MODEL_RESERVE: of a level only.
 *
 * All is borrowed. */
struct split_model {
    const struct split_table *tables;
    const struct model_memory *levels; /* bandwidth for a GPU does not rise from one to the next */
    const struct model_rule *rules;
    uint32_t table_count, level_count, gpu_count, rule_count;
};

/* Where the rows of one table lie: the hottest rows[0] in level 0, the next rows[1] in level 1, and
 * so on; all others in the rest. */
struct split_cut {
    uint32_t gpu;
    uint64_t rows[SPLIT_LEVELS_MAX];
};

/* INVALID: @msg names the table, level or rule, the key, its value, and what is allowed. */
MUST_CHECK enum embtier_err split_model_check(const struct split_model *model, struct err_msg *msg);

/* The bandwidth that one GPU gets of a level. */
double split_bandwidth(const struct split_model *model, uint32_t level);
/* Lookups in a batch. */
double split_lookups(const struct split_table *table);
/* Seconds of all lookups in a batch in the rest, if the @rows hottest rows are in arrays. */
double split_rest_s(const struct split_table *table, double rows);

#endif
