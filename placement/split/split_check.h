/* SPDX-License-Identifier: Apache-2.0 */
/* split_check.h: checks a finished row-wise placement, and computes what it takes and costs.
 *
 * The check starts from the model itself, in whole rows and bytes, and shares nothing with the
 * solver whose answers it judges. Thread: any. */
#ifndef EMBTIER_PLACEMENT_SPLIT_SPLIT_CHECK_H
#define EMBTIER_PLACEMENT_SPLIT_SPLIT_CHECK_H

#include "placement/split/split_model.h"

/* A table's share of one level, or of the rest. */
struct split_part {
    uint64_t rows;  /* of the rest of an unbounded table: 0 */
    uint64_t bytes; /* with remap; 0 in the rest */
    double share;   /* of the table's lookups */
    double time_s;  /* of a batch */
};

/* Rows in levels; UINT64_MAX: more than 64 bits hold. */
uint64_t split_array_rows(const struct split_model *model, const struct split_cut *cut);
/* True: all rows of a bounded table lie in one level, or all rows of a table lie in the rest. */
bool split_is_whole(const struct split_model *model, uint32_t table, const struct split_cut *cut);
/* Writes level_count + 1 parts, the rest last. The cut has no more rows than the table. */
void split_parts(const struct split_model *model, uint32_t table, const struct split_cut *cut,
                 struct split_part *ret_parts);

/* @cuts has table_count cuts. Returns in @ret_largest_s the lookup time of the slowest GPU. If
 * @ret_gpus_s is not NULL, it gets gpu_count lookup times.
 *
 * INVALID: a rule is broken, a level is too full, or a table has too few rows for its cut. @msg
 * names it, and by how many bytes or rows. */
MUST_CHECK enum embtier_err split_check(const struct split_model *model,
                                        const struct split_cut *cuts, double *ret_largest_s,
                                        double *ret_gpus_s, struct err_msg *msg);

#endif
