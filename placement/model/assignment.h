/* SPDX-License-Identifier: Apache-2.0 */
/* assignment.h: checks a finished assignment of tables to places, and computes what it costs.
 *
 * The check starts from the model itself, in whole bytes, and shares nothing with the solvers whose
 * answers it judges. Thread: any. */
#ifndef EMBTIER_PLACEMENT_MODEL_ASSIGNMENT_H
#define EMBTIER_PLACEMENT_MODEL_ASSIGNMENT_H

#include "placement/model/model.h"

/* @places has table_count places. Returns in @ret_largest_s the lookup time of the slowest GPU. If
 * @ret_gpus_s is not NULL, it gets gpu_count lookup times.
 *
 * INVALID: a rule is broken or a memory is too full. @msg names it, and by how many bytes. */
MUST_CHECK enum embtier_err assignment_check(const struct model *model, const uint32_t *places,
                                             double *ret_largest_s, double *ret_gpus_s,
                                             struct err_msg *msg);

#endif
