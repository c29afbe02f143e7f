/* SPDX-License-Identifier: Apache-2.0 */
/* init_rows.h: initial values of rows, as a pure function of (table seed, row id, column).
 *
 * Deferred initialization (MTrainS, section 5) creates a row on its first touch instead of before
 * training. It only works when a row's first value does not depend on the caller, the time or the
 * place. Every value comes from the counter-based generator Philox4x32-10 (Salmon et al., "Parallel
 * random numbers: as easy as 1, 2, 3", SC 2011). Its key is the seed, its counter (row, column
 * block, version). There is no libm and no fused multiply-add, so scalar, AVX2 and AVX-512 code
 * give the same bits. Thread: any. */
#ifndef EMBTIER_KERNELS_CPU_INIT_INIT_ROWS_H
#define EMBTIER_KERNELS_CPU_INIT_INIT_ROWS_H

#include <stdint.h>

#include "base/err.h"
#include "base/spec/table_spec.h"

/* The version that new tables get. A change of a single bit of any value needs a new version; old
 * versions stay. */
#define INIT_ROWS_VERSION 1

/* VERSION: the table's initial values have a version that this program does not know. */
MUST_CHECK enum embtier_err init_rows_check_version(const struct table_spec *spec,
                                                    struct err_msg *msg);

/* Writes the weights (dim numbers of the table's dtype) and then zeroed optimizer state of @count
 * rows. Row i goes to @ret_rows[i], which has room for weight_bytes + state_bytes and is aligned to
 * 2 bytes or better. @spec has passed table_spec_check(); its init_version is 1 to
 * INIT_ROWS_VERSION, or 0: the newest.
 *
 * f16 and bf16 are rounded to nearest even from the f32 value. Every value is finite: parameters
 * and results beyond the dtype's range are clamped to its largest number. A uniform value is below
 * `high` even after rounding, unless no number of the dtype lies in [low, high). */
void init_rows(const struct table_spec *spec, const uint64_t *row_ids, uint32_t count,
               void *const *ret_rows);

#endif
