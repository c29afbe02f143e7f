/* SPDX-License-Identifier: Apache-2.0 */
/* row_index.h: the place of each cached row of a lane: an array of sets of 15 ways.
 *
 * A set is five cache lines. The first has everything that lookups and choices of a victim need:
 * tags, ages, and a bit per way for dirty and for pinned. The others have the entries. A row lives
 * in its first set or, if that was full when it came, in its second. Few rows live in their second
 * (one in twenty with 85 % of the ways in use). A bit of the first set tells if any does, so a
 * lookup seldom reads the second. The count behind that bit is exact until the index changes its
 * size. After that it may be too high, which costs a read, never a row.
 *
 * Sets are chosen by multiplication: set = hash * sets >> 32, so the set rises with the hash and
 * with the number of sets. This lets the index change its size in place, one set at a time
 * (row_growth.c). It grows from the top down and shrinks from the bottom up. Hashes from `boundary`
 * up use the larger number of sets, those below it the smaller one. The smaller number's sets below
 * the boundary and the larger number's sets above it do not overlap, except for the set that is
 * being emptied.
 *
 * Thread: the lane. The caller owns the memory. */
#ifndef EMBTIER_TIERS_CACHE_ROW_INDEX_H
#define EMBTIER_TIERS_CACHE_ROW_INDEX_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "base/macros.h"

#define ROW_SET_WAYS      15
#define ROW_SET_WAYS_MASK 0x7fffu
#define ROW_SET_AWAY      0x8000u /* in `pinned`: a row of this set lives in its second set */
#define ROW_WAY_NONE      255u

/* In row_entry.flags. */
#define ROW_ENTRY_SECOND 1 /* lives in its second set */
#define ROW_ENTRY_EPOCH  2 /* of a dirty row: the parity of the epoch in which it became dirty */

struct row_entry {
    uint64_t id;
    uint32_t slot;
    uint16_t table;
    uint8_t pins;
    uint8_t flags;
};

struct row_set {
    uint16_t tags[ROW_SET_WAYS]; /* 0: the way is free */
    uint16_t dirty;              /* bit per way */
    uint16_t stamps[ROW_SET_WAYS];
    uint16_t pinned; /* bit per way, and ROW_SET_AWAY */
    struct row_entry entries[ROW_SET_WAYS];
    uint16_t away; /* rows of this set that live in their second; sticks at UINT16_MAX */
    uint8_t spare[14];
} __attribute__((aligned(CACHE_LINE)));
_Static_assert(sizeof(struct row_entry) == 16, "four entries per cache line");
_Static_assert(sizeof(struct row_set) == 320, "five cache lines");

struct row_index {
    struct row_set *sets;
    uint32_t set_count;   /* maps hashes below the boundary */
    uint32_t large_count; /* maps the others; the same unless the size is changing */
    uint64_t boundary;    /* a hash; 2^32 unless the size is changing */
    uint32_t zeroed_from; /* when growing: sets from set_count up to here are not in use yet */
    bool is_shrinking;
    bool has_resized;   /* `away` may be too high */
    uint16_t inherited; /* how much of the emptied set's `away` has been added to its heirs */
};

/* An entry's number is set * 16 + way. */
static inline uint32_t row_index_number(const struct row_index *index, const struct row_set *set,
                                        uint32_t way)
{
    return (uint32_t)(set - index->sets) << 4 | way;
}

static inline struct row_set *row_index_set_of(const struct row_index *index, uint32_t number)
{
    return &index->sets[number >> 4];
}

static inline uint16_t row_index_tag(uint64_t hash)
{
    uint16_t tag = (uint16_t)(hash >> 32);

    return tag ? tag : 1;
}

static inline uint32_t row_index_first_hash(uint64_t hash)
{
    return (uint32_t)hash;
}

static inline uint32_t row_index_second_hash(uint64_t hash)
{
    return (uint32_t)((hash * UINT64_C(0x9e3779b97f4a7c15)) >> 32);
}

static inline uint32_t row_index_map(const struct row_index *index, uint32_t hash)
{
    uint32_t count = hash >= index->boundary ? index->large_count : index->set_count;

    return (uint32_t)(((uint64_t)hash * count) >> 32);
}

static inline struct row_set *row_index_first_set(const struct row_index *index, uint64_t hash)
{
    return &index->sets[row_index_map(index, row_index_first_hash(hash))];
}

static inline struct row_set *row_index_second_set(const struct row_index *index, uint64_t hash)
{
    return &index->sets[row_index_map(index, row_index_second_hash(hash))];
}

/* Returns a bit mask of the ways that have @tag. */
static inline uint32_t row_set_match(const struct row_set *set, uint16_t tag)
{
#ifdef __SSE2__
    __m128i wanted = _mm_set1_epi16((short)tag);
    __m128i low = _mm_cmpeq_epi16(_mm_load_si128((const __m128i *)&set->tags[0]), wanted);
    __m128i high = _mm_cmpeq_epi16(_mm_load_si128((const __m128i *)&set->tags[8]), wanted);

    return (uint32_t)_mm_movemask_epi8(_mm_packs_epi16(low, high)) & ROW_SET_WAYS_MASK;
#else
    uint32_t mask = 0;

    for (uint32_t way = 0; way < ROW_SET_WAYS; way++)
        mask |= (uint32_t)(set->tags[way] == tag) << way;
    return mask;
#endif
}

static inline uint32_t row_set_free_ways(const struct row_set *set)
{
    return row_set_match(set, 0);
}

static inline bool row_entry_is(const struct row_entry *entry, uint16_t table, uint64_t id)
{
    return entry->id == id && entry->table == table;
}

/* Iterates over the sets in use, in order; start with 0. False: no more. Skips those not yet grown
 * into. */
static inline bool row_index_next_set(const struct row_index *index, uint32_t *set)
{
    if (*set >= index->set_count && *set < index->zeroed_from)
        *set = index->zeroed_from;
    return *set < index->large_count;
}

void row_index_init(struct row_index *index, void *memory, uint32_t set_count);

/* Returns the row's way in *@ret_set, or ROW_WAY_NONE. */
uint32_t row_index_find(const struct row_index *index, uint16_t table, uint64_t hash, uint64_t id,
                        struct row_set **ret_set);

/* Fills free way @way; the row is clean and unpinned. @second: @set is the row's second set. */
void row_index_fill(struct row_index *index, struct row_set *set, uint32_t way, uint16_t table,
                    uint64_t hash, uint64_t id, uint32_t slot, uint16_t stamp, bool second);
/* Frees @way. @hash is used only if the row lives in its second set. */
void row_index_clear(struct row_index *index, struct row_set *set, uint32_t way, uint64_t hash);

/* Starts a change to @set_count sets; see the head of this file. New sets lie after the old ones in
 * memory. */
void row_index_start_resize(struct row_index *index, uint32_t set_count);
static inline bool row_index_is_resizing(const struct row_index *index)
{
    return index->set_count != index->large_count;
}
/* True if a row of that hash is still at the place given by the old number of sets. */
static inline bool row_index_is_old(const struct row_index *index, uint32_t hash)
{
    return (hash >= index->boundary) == index->is_shrinking;
}
/* Returns the set of that hash by the new number of sets. */
static inline uint32_t row_index_new_set(const struct row_index *index, uint64_t hash)
{
    return (uint32_t)((hash * (index->is_shrinking ? index->set_count : index->large_count)) >> 32);
}
/* Returns the set to empty next, and prepares the sets that its rows go to. It zeroes them, and
 * adds to them its count of rows that live elsewhere. */
uint32_t row_index_prepare_set(struct row_index *index);
/* Called when all old rows of that hash have moved; they were next in the order of the resize. */
void row_index_pass_hash(struct row_index *index, uint32_t hash);
/* Called when @set has no old row left. */
void row_index_finish_set(struct row_index *index, uint32_t set);

/* Sets stamps older than half of the 16-bit range to exactly that age. */
void row_index_clamp_stamps(struct row_index *index, uint32_t first_set, uint32_t end_set,
                            uint16_t now);

#endif
