/* SPDX-License-Identifier: Apache-2.0 */
/* array_shape.h: the memory that an array of a table's rows takes, and where its parts lie
 * (tiers/array/row_arrays.h); the same for the hot rows of a split table and their remap
 * (tiers/array/row_remap.h). Placement plans count the same bytes. Pure values. */
#ifndef EMBTIER_BASE_SPEC_ARRAY_SHAPE_H
#define EMBTIER_BASE_SPEC_ARRAY_SHAPE_H

#include <stdint.h>

/* Memory is taken in whole slabs. */
#define ARRAY_SLAB_BYTES (UINT64_C(2) << 20)
/* The array's own numbers, before the spots. */
#define ARRAY_HEAD_BYTES 4096
/* One row's place (tiers/spots/row_spot.h). */
#define ARRAY_SPOT_BYTES UINT64_C(8)
/* The remap's own numbers, before its index. */
#define REMAP_HEAD_BYTES 64
#define REMAP_ROWS_MAX   (UINT32_MAX - 1)

struct array_shape {
    uint8_t shift;    /* log2 of a granule: each row begins on one */
    uint64_t stride;  /* from a row to the next */
    uint64_t rows_at; /* offset of row 0 */
    uint64_t bytes;   /* of all; 0: more than a spot can address */
};

/* @row_bytes: at least 1. */
struct array_shape array_shape_of(uint64_t rows, uint32_t row_bytes);

/* Where the index of a remap ends and the ids begin, and the bytes of it all; 0: too many rows, or
 * none. */
uint64_t remap_ids_at(uint64_t rows);
uint64_t remap_bytes_of(uint64_t rows);

/* An array of the hot rows, and behind them their remap. */
struct split_shape {
    uint64_t remap_at;
    uint64_t bytes; /* of all; 0: too many rows, or none */
};

struct split_shape split_shape_of(uint64_t hot_rows, uint32_t row_bytes);

#endif
