/* SPDX-License-Identifier: Apache-2.0 */
/* row_spot.h: where the rows of a small table lie in memory, by their id. The row cache keeps it
 * (tiers/cache/row_map.h), and so do arrays (tiers/array/row_arrays.h). The pooling loops follow it
 * (kernels/cpu/pool/pool.h). */
#ifndef EMBTIER_BASE_ROW_SPOT_H
#define EMBTIER_BASE_ROW_SPOT_H

#include <stdint.h>

struct row_spot {
    uint32_t slot_and_1; /* 0: not cached */
    uint16_t stamp;      /* of the cache's clock, when the row was used last */
    uint16_t dirty;      /* 0: clean; else the epoch in which it became dirty, as in the index */
};

/* The spots of one table, and the memory that they lead into. */
struct row_spots {
    struct row_spot *spots; /* by id */
    uint8_t *base;          /* of slot 0 */
    uint32_t slot_end;      /* slots from here on are elsewhere */
    uint8_t slot_shift;     /* bytes of a slot's number, as a power of two */
    uint16_t now;           /* the cache's clock */
    /* Not 0: all rows are there, row n at base + n * row_stride. Then nobody looks at spots. */
    uint64_t row_stride;
};

#endif
