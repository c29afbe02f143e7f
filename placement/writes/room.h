/* SPDX-License-Identifier: Apache-2.0 */
/* room.h: bytes of rows that the tiers of a server's cache hold (docs/internals/cache.md).
 *
 * Each lane has an equal part of each tier, in whole slabs. The index of all its rows lies in its
 * part of the first tier, in whole slabs, as maps do. Pure values. Thread: any. */
#ifndef EMBTIER_PLACEMENT_WRITES_ROOM_H
#define EMBTIER_PLACEMENT_WRITES_ROOM_H

#include <stdint.h>

struct cache_shape {
    double lanes;
    double row_bytes; /* mean of the cached rows; above 0 */
    double map_bytes; /* of the first tier, all lanes together */
    uint32_t tier_count;
    const double *tier_bytes; /* for the cache, the first tier first */
};

/* Returns the bytes of rows, of all lanes and tiers; 0: the tiers are too small. */
double cache_room_bytes(const struct cache_shape *shape);

#endif
