/* SPDX-License-Identifier: Apache-2.0 */
/* workload.h: the tables of a profile with the figures that a plan needs, for a batch of the
 * profile. Thread: any; it never changes. */
#ifndef EMBTIER_PLACEMENT_PLANNER_WORKLOAD_H
#define EMBTIER_PLACEMENT_PLANNER_WORKLOAD_H

#include "placement/profile/measured_profile.h"

struct work_table {
    const char *name; /* the profile's */
    uint64_t rows;    /* EMBTIER_UNBOUNDED: every 64-bit id is a row */
    uint32_t dim;
    enum embtier_dtype dtype;
    enum embtier_optimizer optimizer;
    uint32_t weight_bytes; /* of a row */
    uint32_t row_bytes;    /* weights and the optimizer's state */
    uint64_t array_bytes;  /* that an array of it takes; 0: it cannot be one */
    uint64_t stored_bytes; /* of all rows on SSD; if unbounded, of those that were looked up */
    double lookups;        /* in a batch, mean over all batches */
    double updated_rows;   /* different rows that a batch updates, the same mean */
};

struct workload {
    const struct measured_profile *profile; /* borrowed */
    struct work_table *tables;
    uint32_t table_count;
    double samples_per_batch;
};

/* @optimizers: one for each table. @samples_per_batch: 0 takes the most bags that a table has in a
 * batch on average, or lookups if no table has bags. INVALID: a table's sizes are beyond all
 * limits. */
MUST_CHECK enum embtier_err workload_new(const struct measured_profile *profile,
                                         const enum embtier_optimizer *optimizers,
                                         double samples_per_batch, struct workload **ret_workload,
                                         struct err_msg *msg);
void workload_free(struct workload *workload);
DEFINE_CLEANUP(struct workload, workload_free)

#endif
