/* SPDX-License-Identifier: Apache-2.0 */
#include "tiers/array/row_remap.h"

#include <assert.h>
#include <string.h>

#include "base/macros.h"
#include "base/spec/array_shape.h"

/* Refs whose lines are prefetched together. */
#define FIND_AHEAD 32

/* Lies at the beginning of its memory. */
struct row_remap {
    uint32_t *starts; /* by bucket: the first slot; one more for the end */
    uint64_t *ids;    /* by slot */
    uint64_t rows;    /* as many buckets */
    /* Rows passed to row_remap_count(), to row_remap_place(), and the sums of their hashes. */
    uint64_t counted, placed;
    uint64_t counted_sum, placed_sum;
};

_Static_assert(sizeof(struct row_remap) <= REMAP_HEAD_BYTES && REMAP_HEAD_BYTES % CACHE_LINE == 0,
               "the shape counts the head");

/* ---- Making it ---- */

struct row_remap *row_remap_begin(void *memory, uint64_t rows)
{
    uint8_t *const bytes = memory;
    struct row_remap *const remap = memory;

    assert(remap_bytes_of(rows) > 0 && (uintptr_t)memory % CACHE_LINE == 0);
    *remap = (struct row_remap){
        .starts = (uint32_t *)(bytes + REMAP_HEAD_BYTES),
        .ids = (uint64_t *)(bytes + remap_ids_at(rows)),
        .rows = rows,
    };
    memset(remap->starts, 0, remap_ids_at(rows) - REMAP_HEAD_BYTES);
    return remap;
}

static uint64_t bucket_of(const struct row_remap *remap, uint64_t hash)
{
    return (uint64_t)((unsigned __int128)hash * remap->rows >> 64);
}

void row_remap_count(struct row_remap *remap, const struct row_ref *refs, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        remap->starts[bucket_of(remap, refs[i].hash) + 1]++;
        remap->counted_sum += refs[i].hash;
    }
    remap->counted += count;
}

/* Turns the count of each bucket into its first slot. */
static void add_up(struct row_remap *remap)
{
    for (uint64_t b = 0; b < remap->rows; b++)
        remap->starts[b + 1] += remap->starts[b];
}

/* Each bucket's start counts up to its end, which is the start of the next one. */
void row_remap_place(struct row_remap *remap, const struct row_ref *refs, uint32_t count)
{
    if (remap->placed == 0)
        add_up(remap);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t *const start = &remap->starts[bucket_of(remap, refs[i].hash)];

        if (*start < remap->rows) /* else the rows are not those that were counted */
            remap->ids[(*start)++] = refs[i].id;
        remap->placed_sum += refs[i].hash;
    }
    remap->placed += count;
}

/* True if an id is twice among the slots of a bucket. */
static bool is_twice(const struct row_remap *remap, uint64_t bucket, uint64_t *ret_id)
{
    for (uint32_t i = remap->starts[bucket]; i < remap->starts[bucket + 1]; i++)
        for (uint32_t j = remap->starts[bucket]; j < i; j++) {
            if (remap->ids[i] != remap->ids[j])
                continue;
            *ret_id = remap->ids[i];
            return true;
        }
    return false;
}

enum embtier_err row_remap_end(struct row_remap *remap, uint64_t *ret_id)
{
    if (remap->counted != remap->rows || remap->placed != remap->rows ||
        remap->counted_sum != remap->placed_sum)
        return EMBTIER_CORRUPT;
    memmove(remap->starts + 1, remap->starts, remap->rows * sizeof(*remap->starts));
    remap->starts[0] = 0;
    for (uint64_t b = 0; b < remap->rows; b++)
        if (is_twice(remap, b, ret_id))
            return EMBTIER_EXISTS;
    return EMBTIER_OK;
}

/* ---- Looking up ---- */

static uint32_t slot_of(const struct row_remap *remap, const struct row_ref *ref)
{
    const uint64_t bucket = bucket_of(remap, ref->hash);

    for (uint32_t slot = remap->starts[bucket]; slot < remap->starts[bucket + 1]; slot++)
        if (remap->ids[slot] == ref->id)
            return slot;
    return ROW_REMAP_NO_SLOT;
}

static uint32_t find_some(const struct row_remap *remap, const struct row_ref *refs, uint32_t count,
                          uint32_t *ret_slots)
{
    uint32_t found = 0;

    for (uint32_t i = 0; i < count; i++)
        __builtin_prefetch(&remap->starts[bucket_of(remap, refs[i].hash)]);
    for (uint32_t i = 0; i < count; i++)
        __builtin_prefetch(&remap->ids[remap->starts[bucket_of(remap, refs[i].hash)]]);
    for (uint32_t i = 0; i < count; i++) {
        ret_slots[i] = slot_of(remap, &refs[i]);
        found += ret_slots[i] != ROW_REMAP_NO_SLOT;
    }
    return found;
}

uint32_t row_remap_find(const struct row_remap *remap, const struct row_ref *refs, uint32_t count,
                        uint32_t *ret_slots)
{
    uint32_t found = 0;

    for (uint32_t at = 0; at < count; at += FIND_AHEAD)
        found += find_some(remap, refs + at, MIN(count - at, (uint32_t)FIND_AHEAD), ret_slots + at);
    return found;
}

uint64_t row_remap_id(const struct row_remap *remap, uint64_t slot)
{
    assert(slot < remap->rows);
    return remap->ids[slot];
}

uint64_t row_remap_rows(const struct row_remap *remap)
{
    return remap->rows;
}
