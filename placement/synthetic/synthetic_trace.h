/* SPDX-License-Identifier: Apache-2.0 */
/* synthetic_trace.h: writes a trace of made-up lookups: Zipf, or with published reuse statistics
 * (locality.h). The same options give the same file. Memory: less than 2 MiB and 1 KiB per table.
 */
#ifndef EMBTIER_PLACEMENT_SYNTHETIC_SYNTHETIC_TRACE_H
#define EMBTIER_PLACEMENT_SYNTHETIC_SYNTHETIC_TRACE_H

#include "placement/synthetic/locality.h"
#include "placement/trace/trace_writer.h"

#define SYNTHETIC_POOLING_FACTOR_MAX 10000.0
#define SYNTHETIC_ZIPF_EXPONENT_MAX  10.0

struct synthetic_options {
    uint32_t table_count;
    const struct trace_table *tables; /* with 1 row or more */
    const double *pooling_factors;    /* of each table, 0 to SYNTHETIC_POOLING_FACTOR_MAX */
    uint64_t batches;
    uint32_t batch_bags; /* of each table */
    bool is_update;
    const struct locality *locality; /* NULL: Zipf */
    double zipf_exponent;            /* 0 to SYNTHETIC_ZIPF_EXPONENT_MAX */
    uint64_t seed;
};

/* Reports the bags written so far. */
typedef void (*synthetic_progress_fn)(void *context, uint64_t done, uint64_t total,
                                      const char *unit);

/* Draws rows and pooling factors as the papers describe a published set of tables: rows lognormal
 * with a sigma of 2.5, pooling factors exponential. */
void synthetic_shapes(const struct locality_published *published, uint64_t seed,
                      uint32_t table_count, uint64_t *ret_rows, double *ret_pooling_factors);

/* Writes a whole trace. @progress may be NULL. *@ret_lookups: number of ids. */
MUST_CHECK enum embtier_err synthetic_trace_write(const char *path,
                                                  const struct synthetic_options *options,
                                                  synthetic_progress_fn progress, void *context,
                                                  uint64_t *ret_lookups, struct err_msg *msg);

#endif
