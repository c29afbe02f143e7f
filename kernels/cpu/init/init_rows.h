/* SPDX-License-Identifier: Apache-2.0 */
/* init_rows.h: initial values of rows, as a pure function of (table seed, row id, column).
 *
 * Deferred initialization (MTrainS, section 5: a row is created on its first touch instead of
 * before training) only works when a row's first value does not depend on who asks, when, or where.
 * Every value comes from the counter-based generator Philox4x32-10 (Salmon et al., "Parallel random
 * numbers: as easy as 1, 2, 3", SC 2011) with key = seed and counter = (row, column block,
 * version); no libm and no fused multiply-add, so that scalar, AVX2 and AVX-512 code give the same
 * bits. Thread: any. */
#ifndef EMBTIER_KERNELS_CPU_INIT_INIT_ROWS_H
#define EMBTIER_KERNELS_CPU_INIT_INIT_ROWS_H

#include <stdint.h>

#include "base/spec/table_spec.h"

/* Version written with new tables. A change of a single bit of any value is a new version; old ones
 * stay. */
#define INIT_ROWS_VERSION 1

/* Writes weights (dim numbers of the table's dtype), then zeroed optimizer state, of @count rows;
 * row i at @ret_rows[i], each with room for weight_bytes + state_bytes, aligned to 2 bytes or
 * better. @spec has passed table_spec_check and its init_version is 1 … INIT_ROWS_VERSION, or 0:
 * the newest.
 *
 * f16 and bf16 are rounded to nearest even from the f32 value. Every value is finite: parameters
 * and results beyond the dtype's range are cut at its largest number. A uniform value is below
 * `high` after rounding too, unless no number of the dtype lies in [low, high). */
void init_rows(const struct table_spec *spec, const uint64_t *row_ids, uint32_t count,
               void *const *ret_rows);

#endif
