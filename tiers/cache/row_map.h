/* SPDX-License-Identifier: Apache-2.0 */
/* row_map.h: the places of the rows of small tables, by id: an array of 8 bytes per row.
 *
 * The index (row_index.h) finds rows of tables of any size by hash. That costs a line of tags and a
 * line of entries, anywhere in memory, and some 40 instructions. For a table with few rows compared
 * to the cache, an array of places is cheaper: one line, shared by eight neighbours, and no hash.
 * So such a table gets a map when it is registered, as long as memory set aside for maps is left.
 * Its rows are also in the index. The map tells the same as the index in fewer steps, and all code
 * that changes the index keeps it exact.
 *
 * The map also keeps two facts itself. It has the row's last use, because a hit through
 * the map leaves the index alone; row_cache_stamp() in row_cache_impl.h takes the newer of the two.
 * And it tells that the row is dirty already.
 *
 * A word of zeros is a row that is not cached. A removed table leaves its map in this state, so
 * maps are cleared only at the start.
 *
 * Thread: the lane. The caller owns the memory. */
#ifndef EMBTIER_TIERS_CACHE_ROW_MAP_H
#define EMBTIER_TIERS_CACHE_ROW_MAP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/macros.h"
#include "tiers/spots/row_spot.h"

#define ROW_MAP_PAGE_BYTES 4096
#define ROW_MAP_NONE       0

_Static_assert(sizeof(struct row_spot) == 8, "eight rows per cache line");

struct row_map {
    uint32_t first_page;
    uint32_t page_count; /* 0: this number is free */
};

struct row_maps {
    struct row_map *maps; /* by number; 0 is none */
    uint8_t *page_used;
    uint8_t *pages;
    uint32_t page_count;
    uint32_t used_pages; /* 0: there are no maps */
    uint64_t swept_spot; /* the sweep's position, over all pages */
};

/* @memory has @bytes bytes on a page boundary; 0: there will be no maps. */
void row_maps_init(struct row_maps *maps, void *memory, uint64_t bytes);

/* Adds a map of @rows rows, none of them cached; ROW_MAP_NONE if there is no room. */
MUST_CHECK uint16_t row_maps_add(struct row_maps *maps, uint64_t rows);
/* Removes a map whose rows have all left the cache. */
void row_maps_remove(struct row_maps *maps, uint16_t number);

/* Does a part of a sweep, @ticks of @round_ticks: sets stamps older than half of the 16-bit range
 * to exactly that age. */
void row_maps_sweep(struct row_maps *maps, uint32_t ticks, uint32_t round_ticks, uint16_t now);
/* The bytes of all maps. */
static inline uint64_t row_maps_bytes(const struct row_maps *maps)
{
    return (uint64_t)maps->used_pages * ROW_MAP_PAGE_BYTES;
}
/* Counts the cached rows of all maps. */
uint64_t row_maps_count_rows(const struct row_maps *maps);

static inline struct row_spot *row_maps_spots(const struct row_maps *maps, uint16_t number)
{
    return (struct row_spot *)(maps->pages +
                               (uint64_t)maps->maps[number].first_page * ROW_MAP_PAGE_BYTES);
}

#endif
