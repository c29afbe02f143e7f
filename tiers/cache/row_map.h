/* SPDX-License-Identifier: Apache-2.0 */
/* row_map.h: where the rows of small tables lie, by their id: an array of 8 bytes per row.
 *
 * The index (row_index.h) finds rows of tables of any size by their hash, at the cost of a line of
 * tags and a line of entries, anywhere in memory, and of some 40 instructions. For a table whose
 * rows are few beside what the cache holds, an array of places is the better bargain: one line, of
 * which eight neighbours share each, and no hash. So such a table gets a map when it is made known,
 * as long as the memory set aside for maps lasts. Its rows are in the index all the same: the map
 * says in fewer steps what the index says, and is kept exact by whoever changes that.
 *
 * Two things the map knows better or as well: when the row was used last, since a hit through the
 * map leaves the index alone (row_cache_stamp() in row_cache_impl.h takes the newer of the two),
 * and that the row is dirty already.
 *
 * A word of zeros is a row that is not cached. A table that is gone has left its map so: only at
 * the start is anything cleared.
 *
 * Thread: the lane. Memory: the caller's. */
#ifndef EMBTIER_TIERS_CACHE_ROW_MAP_H
#define EMBTIER_TIERS_CACHE_ROW_MAP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/macros.h"
#include "base/row_spot.h"

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
    uint32_t used_pages; /* 0: there is no map */
    uint64_t swept_spot; /* of all pages */
};

/* @memory: @bytes, on a page's boundary; 0: there will be no maps. */
void row_maps_init(struct row_maps *maps, void *memory, uint64_t bytes);

/* A map of @rows rows, none of them cached; ROW_MAP_NONE if there is no room. */
MUST_CHECK uint16_t row_maps_add(struct row_maps *maps, uint64_t rows);
/* All its rows have left the cache. */
void row_maps_remove(struct row_maps *maps, uint16_t number);

/* A part of a sweep, @ticks of @round_ticks: makes stamps older than half of what 16 bits hold that
 * old. */
void row_maps_sweep(struct row_maps *maps, uint32_t ticks, uint32_t round_ticks, uint16_t now);
/* The bytes of all maps. */
static inline uint64_t row_maps_bytes(const struct row_maps *maps)
{
    return (uint64_t)maps->used_pages * ROW_MAP_PAGE_BYTES;
}
/* Rows of all maps that are cached, counted. */
uint64_t row_maps_count_rows(const struct row_maps *maps);

static inline struct row_spot *row_maps_spots(const struct row_maps *maps, uint16_t number)
{
    return (struct row_spot *)(maps->pages +
                               (uint64_t)maps->maps[number].first_page * ROW_MAP_PAGE_BYTES);
}

#endif
