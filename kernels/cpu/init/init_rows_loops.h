/* SPDX-License-Identifier: Apache-2.0 */
/* init_rows_loops.h: the inner loops of init_rows, one set per instruction set, all compiled from
 * init_rows_loops.c. Only for use inside kernels/ and its tests. Thread: any. */
#ifndef EMBTIER_KERNELS_CPU_INIT_INIT_ROWS_LOOPS_H
#define EMBTIER_KERNELS_CPU_INIT_INIT_ROWS_LOOPS_H

#include <stdint.h>

#include "base/macros.h"
#include "base/spec/table_spec.h"
#include "kernels/cpu/init/init_params.h"
#include "kernels/cpu/isa.h"

/* Counters are processed in groups of this size, so that loops have no remainder. It is a multiple
 * of the vector length of every processor. */
#define INIT_GROUP    16
#define INIT_COUNTERS 256 /* per call; their values (4 KiB) stay in the first-level cache */

/* Counters as the vector units want them: separate arrays of rows and column blocks. They belong to
 * several short rows, or to a part of a long one. */
struct init_counters {
    uint32_t row_low[INIT_COUNTERS];
    uint32_t row_high[INIT_COUNTERS];
    uint32_t block[INIT_COUNTERS];
};

struct init_rows_loops {
    /* Take @group_count groups of counters, and write INIT_BLOCK_DIMS values for each counter, in
     * order. */
    void (*uniform)(const struct init_counters *counters, uint32_t group_count,
                    const struct init_params *params, float *ret_values);
    void (*normal)(const struct init_counters *counters, uint32_t group_count,
                   const struct init_params *params, float *ret_values);
    /* @count is any number; the arrays do not overlap. */
    void (*to_f16)(const float *values, uint32_t count, uint16_t *ret_halves);
    void (*to_bf16)(const float *values, uint32_t count, uint16_t *ret_halves);
};

#define X(isa) extern const struct init_rows_loops init_rows_loops_##isa;
KERNELS_ISA_TABLE(X)
#undef X

/* init_rows() with a given instruction set. */
void init_rows_with(enum kernels_isa isa, const struct table_spec *spec, const uint64_t *row_ids,
                    uint32_t count, void *const *ret_rows);

#endif
