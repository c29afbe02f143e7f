/* SPDX-License-Identifier: Apache-2.0 */
#include "tiers/cache/row_map.h"

#include <assert.h>
#include <string.h>

#define PAGE_SPOTS (ROW_MAP_PAGE_BYTES / sizeof(struct row_spot))
/* The cost of a page including its bookkeeping, if every map had one page. */
#define PAGE_COST (ROW_MAP_PAGE_BYTES + sizeof(struct row_map) + 1)

void row_maps_init(struct row_maps *maps, void *memory, uint64_t bytes)
{
    uint64_t pages = MIN(bytes / PAGE_COST, (uint64_t)UINT32_MAX);

    /* Numbers of maps start at 1; the flags of used pages lie after all maps. */
    while (pages > 0 && align_up((pages + 1) * sizeof(struct row_map) + pages, ROW_MAP_PAGE_BYTES) +
                                pages * ROW_MAP_PAGE_BYTES >
                            bytes)
        pages--;
    if (bytes > 0)
        memset(memory, 0, bytes);
    *maps = (struct row_maps){ .maps = memory, .page_count = (uint32_t)pages };
    maps->page_used = (uint8_t *)(maps->maps + pages + 1);
    maps->pages = (uint8_t *)memory +
                  align_up((pages + 1) * sizeof(struct row_map) + pages, ROW_MAP_PAGE_BYTES);
}

/* Returns the first of @count consecutive free pages; page_count if there are none. */
static uint32_t find_pages(const struct row_maps *maps, uint64_t count)
{
    uint64_t found = 0;

    for (uint32_t page = 0; page < maps->page_count; page++) {
        found = maps->page_used[page] ? 0 : found + 1;
        if (found == count)
            return page + 1 - (uint32_t)count;
    }
    return maps->page_count;
}

static void mark_pages(struct row_maps *maps, const struct row_map *map, uint8_t used)
{
    for (uint32_t i = 0; i < map->page_count; i++)
        maps->page_used[map->first_page + i] = used;
}

uint16_t row_maps_add(struct row_maps *maps, uint64_t rows)
{
    const uint64_t pages = div_round_up(rows, PAGE_SPOTS);
    uint32_t first, number = 1;

    if (rows == 0 || rows > maps->page_count * PAGE_SPOTS)
        return ROW_MAP_NONE;
    first = find_pages(maps, pages);
    if (first == maps->page_count)
        return ROW_MAP_NONE;
    while (number <= maps->page_count && maps->maps[number].page_count > 0)
        number++;
    if (number > MIN(maps->page_count, (uint32_t)UINT16_MAX))
        return ROW_MAP_NONE;
    maps->maps[number] = (struct row_map){ .first_page = first, .page_count = (uint32_t)pages };
    mark_pages(maps, &maps->maps[number], 1);
    maps->used_pages += (uint32_t)pages;
    return (uint16_t)number;
}

void row_maps_remove(struct row_maps *maps, uint16_t number)
{
    assert(maps->maps[number].page_count > 0);
    mark_pages(maps, &maps->maps[number], 0);
    assert(maps->used_pages >= maps->maps[number].page_count);
    maps->used_pages -= maps->maps[number].page_count;
    maps->maps[number] = (struct row_map){ 0 };
}

void row_maps_sweep(struct row_maps *maps, uint32_t ticks, uint32_t round_ticks, uint16_t now)
{
    struct row_spot *const spots = (struct row_spot *)maps->pages;
    const uint64_t count = maps->page_count * PAGE_SPOTS;
    const uint64_t end = MIN(maps->swept_spot + count * ticks / round_ticks + 1, count);

    if (maps->used_pages == 0)
        return;
    for (uint64_t i = maps->swept_spot; i < end; i++)
        if (maps->page_used[i / PAGE_SPOTS] && spots[i].slot_and_1 != 0 &&
            (uint16_t)(now - spots[i].stamp) > 0x8000)
            spots[i].stamp = (uint16_t)(now - 0x8000);
    maps->swept_spot = end == count ? 0 : end;
}

uint64_t row_maps_count_rows(const struct row_maps *maps)
{
    const struct row_spot *const spots = (const struct row_spot *)maps->pages;
    uint64_t rows = 0;

    for (uint64_t i = 0; i < maps->page_count * PAGE_SPOTS; i++)
        rows += spots[i].slot_and_1 != 0;
    return rows;
}
