/* SPDX-License-Identifier: Apache-2.0 */
#include "placement/writes/room.h"

#include <math.h>

#include "base/spec/array_shape.h"

#define SLAB_BYTES    ((double)ARRAY_SLAB_BYTES)
#define GRANULE_BYTES 16.0 /* of slots; longer ones are rounded to more */
#define SLOT_BYTES    4.0  /* of a slot besides its row */
/* A set of the index, and the rows that it has in a full cache. */
#define SET_BYTES    320.0
#define ROWS_PER_SET 12.75

static double lane_slabs(const struct cache_shape *shape, uint32_t tier)
{
    return floor(shape->tier_bytes[tier] / shape->lanes / SLAB_BYTES);
}

double cache_room_bytes(const struct cache_shape *shape)
{
    const double slot_bytes = ceil(shape->row_bytes / GRANULE_BYTES) * GRANULE_BYTES + SLOT_BYTES;
    const double slab_rows = floor(SLAB_BYTES / slot_bytes);
    double slabs = 0, maps, index, first;

    if (shape->tier_count == 0)
        return 0;
    for (uint32_t i = 0; i < shape->tier_count; i++)
        slabs += lane_slabs(shape, i);
    first = lane_slabs(shape, 0);
    maps = ceil(shape->map_bytes / shape->lanes / SLAB_BYTES);
    index = (slabs - maps) * SLAB_BYTES / (slot_bytes * ROWS_PER_SET + SET_BYTES) * SET_BYTES;
    index = fmin(fmax(ceil(index / SLAB_BYTES), 1), fmax(floor(first / 2), 1));
    return fmax(slabs - maps - index, 0) * slab_rows * shape->row_bytes * shape->lanes;
}
