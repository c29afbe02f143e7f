/* SPDX-License-Identifier: Apache-2.0 */
/* row_spot.h: the place in memory of each row of a small table, by id. The row cache
 * (tiers/cache/row_map.h) and arrays (tiers/array/row_arrays.h) keep it; the pooling loops
 * (spot_pool.h) read it. */
#ifndef EMBTIER_TIERS_SPOTS_ROW_SPOT_H
#define EMBTIER_TIERS_SPOTS_ROW_SPOT_H

#include <stdint.h>

struct row_spot {
    uint32_t slot_and_1; /* 0: not cached */
    uint16_t stamp;      /* the cache's clock at the row's last use */
    uint16_t dirty; /* 0: clean; else the epoch in which the row became dirty, as in the index */
};

/* The spots of one table, and the memory that they point into. */
struct row_spots {
    struct row_spot *spots; /* by id */
    uint8_t *base;          /* of slot 0 */
    uint32_t slot_end;      /* slots from here on lie elsewhere */
    uint8_t slot_shift;     /* log2 of the bytes that one slot number stands for */
    uint16_t now;           /* the cache's clock */
    /* Not 0: all rows are there, row n at base + n * row_stride, and the spots are not read. */
    uint64_t row_stride;
};

#endif
